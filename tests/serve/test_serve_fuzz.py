"""The API fuzzed from its own description: no 500, no answer it does not state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from release_figures import SEED, Tally, share_of
from serving import GUARD, Client, service_running

schemathesis = pytest.importorskip("schemathesis", reason="needs escounts[test]")
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ENDLESS = "/api/events"
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
QUICK, THOROUGH = 6, 300


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, clips: dict[int, Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A service of its own, with one counted and labelled video."""
    with (
        service_running(tmp_path_factory.mktemp("fuzzed"), max_queue=10**6) as (address, _),
        Client(address) as client,
    ):
        video = client.send_video(clips[5])["id"]
        job = client.start_count(video, wait=30)["id"]
        client.put(f"/api/videos/{video}/labels", json={"spans": [{"start": 0.5, "end": 1.0}]})
        yield address, {"video_id": video, "job_id": job}


def send(case: Any, known: dict[str, Any]) -> None:
    """One generated request, with ids that exist in every other one, so that handlers are reached."""
    exists = sum(str(case.body).encode()) % 2 == 0 and case.method != "DELETE"
    if exists and case.path_parameters:
        case.path_parameters.update({k: v for k, v in known.items() if k in case.path_parameters})
    if case.path == "/api/jobs" and isinstance(case.body, dict):
        case.body["wait"] = 0
        if exists:
            case.body["video"] = known["video_id"]
    response = case.call(headers=GUARD, timeout=30)
    case.validate_response(response, checks=CHECKS)


def fuzz(address: str, known: dict[str, Any], examples: int, *, first: int | None = None) -> int:
    """Requests that fit the description and requests that break it, to every operation; returns how many.

    first: the seed they are drawn from; None draws the same ones every time.
    """
    schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json", headers=GUARD)
    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=first is None,
        suppress_health_check=list(HealthCheck),
    )
    drawn: Callable[[Any], Any] = seed(first) if first is not None else lambda test: test
    sent = 0
    for found in schema.exclude(path=ENDLESS).get_all_operations():
        operation = found.ok()
        for mode in MODES:

            def one(case: Any) -> None:
                nonlocal sent
                sent += 1
                send(case, known)

            try:
                drawn(quiet(given(case=operation.as_strategy(generation_mode=mode))(one)))()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, f"{operation.label} takes nothing"
    return sent


def test_nothing_generated_breaks_it(fuzzed: tuple[str, dict[str, Any]]) -> None:
    assert fuzz(*fuzzed, QUICK) > 100


@pytest.mark.release
def test_nothing_generated_breaks_it_at_length(fuzzed: tuple[str, dict[str, Any]]) -> None:
    examples = share_of(THOROUGH)
    tally = Tally(cases=fuzz(*fuzzed, examples, first=SEED))  # the first answer that is wrong ends it
    tally.publish("requests made from the service's own description")
    assert tally.cases > 10 * examples


RAW = [
    b'{"video": NaN}',
    b'{"video": "\\ud800"}',
    b'{"\\ud800": 1}',
    b'{"video": "00000000000000000000000000000000", "start": 1e999}',
    b'{"video": "00000000000000000000000000000000", "wait": -Infinity}',
    b"[" * 100_000,
    b"\xff\xfe",
    b"",
    b'{"video": ["00000000000000000000000000000000"]}',
]


@pytest.mark.parametrize("body", RAW, ids=range(len(RAW)))
@pytest.mark.parametrize("path", ["/api/jobs", "/api/media", "/api/session", "LABELS", "STUDIO"])
def test_bodies_that_are_hardly_json(fuzzed: tuple[str, dict[str, Any]], path: str, body: bytes) -> None:
    address, known = fuzzed
    places = {
        "LABELS": f"/api/videos/{known['video_id']}/labels",
        "STUDIO": f"/api/videos/{known['video_id']}/label-studio",
    }
    with Client(address) as client:
        method = "PUT" if path == "LABELS" else "POST"
        answer = client.request(
            method, places.get(path, path), content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code in (400, 404, 413, 422), answer.text
    assert answer.json()["detail"]
