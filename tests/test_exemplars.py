"""Exemplars as people write them, and every way to write them wrong."""

from __future__ import annotations

import pytest

from escounts.errors import ExemplarError
from escounts.exemplars import check_exemplar, parse_exemplar
from escounts.results import ExemplarSpan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.2-4.8", ExemplarSpan(3.2, 4.8)),
        (" 3 - 4.5 ", ExemplarSpan(3.0, 4.5)),
        (".5-1", ExemplarSpan(0.5, 1.0)),
        ("1:03.5-1:05", ExemplarSpan(63.5, 65.0)),
        ("1:00:00-1:00:02", ExemplarSpan(3600.0, 3602.0)),
        ("other.mp4@1.0-2.5", ExemplarSpan(1.0, 2.5, "other.mp4")),
        ("a@b-2/take-3@x.mp4@1-2", ExemplarSpan(1.0, 2.0, "a@b-2/take-3@x.mp4")),
        ("7-8.mp4@1-2", ExemplarSpan(1.0, 2.0, "7-8.mp4")),
    ],
)
def test_parse(text: str, expected: ExemplarSpan) -> None:
    assert parse_exemplar(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not understood"),
        ("3.2", "not understood"),
        ("one-two", "not understood"),
        ("other.mp4", "not understood"),
        ("nan-2", "not understood"),
        ("@1-2", "names no video"),
        ("-1-2", "negative time"),
        ("4.8-3.2", "ends before it starts"),
        ("other.mp4@4-3", "of other.mp4 ends before it starts"),
        ("2-2", "is empty"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ExemplarError, match=message):
        parse_exemplar(text)


def test_outside_the_video() -> None:
    check_exemplar(ExemplarSpan(1.0, 10.02), duration=10.0, frame=0.04)
    with pytest.raises(ExemplarError, match=r"runs past the end of the video, which lasts 10\.00 s"):
        check_exemplar(ExemplarSpan(1.0, 10.5), duration=10.0, frame=0.04)


def test_the_error_of_an_endless_exemplar_is_short() -> None:
    """A video that is piped to `watch` came back as an error of thousands of characters."""
    with pytest.raises(ExemplarError) as refused:
        parse_exemplar("\udc97\x1b[2J" * 5000)
    assert len(str(refused.value)) < 700 and "\x1b" not in str(refused.value)
