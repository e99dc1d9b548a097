"""Every number that an option takes: finite, within bounds, refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from command import run

from escounts.cli import app
from escounts.cli.options import Number, size, whole_numbers


def _options(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
    for parameter in command.params:
        yield f"{name} {parameter.name}", parameter
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found is not None
                yield from _options(found, f"{name} {child}".strip())


OPTIONS = dict(_options(app, ""))
FLOATS = [name for name, option in OPTIONS.items() if isinstance(option.type, (click.types.FloatParamType, Number))]
WHOLE = [name for name, option in OPTIONS.items() if isinstance(option.type, click.types.IntParamType)]


@pytest.mark.parametrize("name", FLOATS)
def test_no_option_takes_a_number_that_is_none(name: str) -> None:
    option = OPTIONS[name]
    unlimited = name == "watch speed"
    for text in ("nan", "-nan", "inf", "-inf", "1e999", "-1", ""):
        if unlimited and text in ("inf", "1e999"):
            continue
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)


@pytest.mark.parametrize("name", WHOLE)
def test_no_option_takes_a_whole_number_without_bounds(name: str) -> None:
    option = OPTIONS[name]
    with pytest.raises(click.BadParameter):
        option.type.convert("-1", option, None)


def test_the_walk_comes_to_every_command() -> None:
    assert len(FLOATS) >= 10 and len(WHOLE) >= 20
    assert {"watch speed", "batch limit", "serve keep_days", "train folder lr"} <= set(FLOATS)


@pytest.mark.parametrize(
    ("text", "value"), [("500M", 500 * 2**20), ("2G", 2**31), ("1.5k", 1536), ("77", 77), ("3 GiB", 3 * 2**30)]
)
def test_sizes(text: str, value: int) -> None:
    assert size()(text) == value


@pytest.mark.parametrize("text", ["", "much", "-1", "0", "1T", "nan", "9" * 400, "٣", "2e9"])
def test_wrong_sizes_are_wrong_use(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a size"):
        size()(text)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "0,-3", "nan", "1.5"])
def test_wrong_lists_of_numbers_are_wrong_use(text: str) -> None:
    with pytest.raises(click.BadParameter, match="whole numbers from 0"):
        whole_numbers(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("batch", "x.mp4", "--limit", "nan"), "not a finite number"),
        (("batch", "x.mp4", "--limit", "inf"), "--limit"),
        (("watch", "x.mp4", "--speed", "nan"), "not a finite number"),
        (("serve", "--keep-days", "nan"), "0<=x<=36500"),
        (("serve", "--job-seconds", "inf"), "--job-seconds"),
        (("serve", "--worker-memory", "1"), "at least 256M"),
        (("train", "repcount", "--out", "x", "--sigma", "nan"), "--sigma"),
        (("train", "repcount", "--out", "x", "--shots", "-1"), "--shots"),
    ],
)
def test_a_command_refuses_it_in_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(capsys, monkeypatch, *arguments)
    assert outcome.code == 2 and said in outcome.err and "Traceback" not in outcome.err
