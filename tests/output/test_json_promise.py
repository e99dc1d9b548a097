"""What docs/json-schema.md promises: a reader of version 1.0 finds every key of it, whatever model counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from movies import bouncing, write_movie

import escounts
from escounts.counter import Counter
from escounts.counting.paper_windows import PaperWindowModel
from escounts.nn.decoder import DecoderConfig
from escounts.nn.network import Network, NetworkConfig
from escounts.output.json import VERSION, from_dict, to_dict
from escounts.results import CountResult

NUMBER = (int, float)
OF_1_0: dict[str, Any] = {
    "schema": str,
    "version": str,
    "video": str,
    "model": str,
    "count": int,
    "raw_count": NUMBER,
    "confidence": NUMBER,
    "unsure": bool,
    "repetitions": [{"start": NUMBER, "end": NUMBER, "score": NUMBER}],
    "duration": NUMBER,
    "range": [NUMBER],
    "exemplars": [{"start": NUMBER, "end": NUMBER, "video": (str, type(None))}],
    "density": {"kind": str, "start": NUMBER, "step": NUMBER, "values": [NUMBER]},
    "timings": {"total": NUMBER},
    "details": {},
}
"""Every key of a document of 1.0 (its page of then: commit 7dcfe38), and the types of its values."""
NULL_SINCE_1_1 = {"confidence", "repetitions.score"}
"""Where the page says that 1.1 has null: nobody judged it."""


def paper_model() -> Counter:
    """The paper's way of counting, small and untrained; with this seed its map has a sum above 0."""
    torch.manual_seed(5)
    decoder = DecoderConfig(in_channels=32, channels=16, heads=2, latent_tokens=4, grid=(2, 2))
    config = NetworkConfig("mae-vit-b", {"width": 32, "depth": 1, "heads": 2, "size": 32}, decoder)
    return Counter(PaperWindowModel("paper", Network(config).eval()))


MODELS: dict[str, Callable[[], Counter]] = {
    "lite": lambda: escounts.load("lite", device="cpu"),
    "spectral": lambda: escounts.load("spectral"),
    "paper": paper_model,
}


@pytest.fixture(scope="module", params=MODELS)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[CountResult]:
    """A model's counts: without and with an exemplar, and as a person corrected one."""
    path = write_movie(tmp_path_factory.mktemp("promise") / "six.mp4", bouncing(6, 6.0))
    encoded = MODELS[request.param]().encode(path)
    free = encoded.count()
    return [free, encoded.count(exemplars=["1.0-2.0"]), free.corrected([(0.0, 1.0), (1.0, 2.5)])]


def test_a_reader_of_1_0_finds_every_key_and_type(results: list[CountResult]) -> None:
    assert all(result.repetitions for result in results)
    for result in results:
        document = json.loads(json.dumps(to_dict(result)))
        lacking = sorted(set(_lacking(document, OF_1_0)))
        assert not lacking, f"{result.model}: {lacking}"
        assert (document["confidence"] is None) == document["corrected"]
        assert from_dict(document).repetitions == tuple(
            escounts.Repetition(one["start"], one["end"], one["score"]) for one in document["repetitions"]
        )


def test_of_what_1_0_said_the_sum_and_the_number_of_repetitions_hold(results: list[CountResult]) -> None:
    for result in results:
        document = to_dict(result)
        assert len(document["repetitions"]) == document["count"]
        assert sum(document["density"]["values"]) == pytest.approx(document["raw_count"], abs=1e-3)


def test_the_page_names_the_version_and_what_a_reader_of_1_0_must_expect() -> None:
    documented = Path(__file__).parents[2] / "docs" / "json-schema.md"
    if not documented.parent.is_dir():
        pytest.skip("needs a checkout: a package has no docs")
    page = documented.read_text()
    assert f'`"{VERSION}"`' in page
    _, section = page.split("## For a reader of 1.0")
    named = set(re.findall(r"^\| `([a-z_.]+)` \|", section, flags=re.MULTILINE))
    assert {name.split(".")[0] for name in NULL_SINCE_1_1} <= {name.split(".")[0] for name in named}
    assert {"count", "raw_count", "unsure"} <= named


def _lacking(value: Any, expected: Any, name: str = "") -> list[str]:
    """Names of keys that are not there, or whose value is of another type."""
    if isinstance(expected, dict):
        absent = [f"{name}.{key}".strip(".") for key in expected if key not in value]
        within = [
            _lacking(value[key], kind, f"{name}.{key}".strip(".")) for key, kind in expected.items() if key in value
        ]
        return [*absent, *(each for found in within for each in found)]
    if isinstance(expected, list):
        return [each for one in value for each in _lacking(one, expected[0], name)]
    fits = isinstance(value, expected) or (value is None and name in NULL_SINCE_1_1)
    return [] if fits else [f"{name}: {value!r}"]
