"""Small files that last for hours, from end to end: what they cost is bounded by the pictures that are in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import finish, spawn
from movies import bouncing, endless_gif, levels, says_two_seconds, with_stated_duration, write_movie
from release_figures import Tally, share_of
from serving import Client, service_running

import escounts
from escounts.counting import spectral
from escounts.video.files import Video

HOURS = 36_000.0


def ten_hours(path: Path) -> Path:
    """Three pictures, the last of them after ten hours: some kilobytes of mkv."""
    return write_movie(path, levels(3, size=(64, 64)), times=[0.0, 0.04, HOURS])


def says_ten_hours(path: Path) -> Path:
    """Two seconds of a bouncing block, and a header that says ten hours."""
    return with_stated_duration(write_movie(path, bouncing(4, 2.0, size=(64, 64))), HOURS)


@pytest.mark.parametrize("model", ["spectral", "lite"])
def test_ten_hours_in_three_pictures(model: str, tmp_path: Path) -> None:
    path = ten_hours(tmp_path / "hours.mkv")
    assert path.stat().st_size < 3000 and Video(path).info.duration >= HOURS
    limit = "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"  # most of it is importing torch
    done = finish(spawn("count", path, "--model", model, "-q", before=limit), timeout=600)
    assert done.code == 0 and "no repetitions" in done.out, done.err


def test_a_result_lasts_as_long_as_there_are_frames(tmp_path: Path) -> None:
    """A header of ten hours before two seconds; a part that was asked for says nothing of the whole."""
    path, counter = says_ten_hours(tmp_path / "says.mkv"), escounts.load("spectral")
    assert counter.count(path).duration == pytest.approx(2.0, abs=0.1)
    assert counter.count(path, end=1.0).duration == HOURS


def test_an_hour_of_slides_costs_the_classical_model_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand thumbnails of one picture: none of the 720 windows is looked at."""
    path = write_movie(tmp_path / "slides.mkv", levels(61, step=0), times=[59.0 * n for n in range(61)], codec="ffv1")
    looked_at: list[int] = []
    features = spectral._features
    monkeypatch.setattr(spectral, "_features", lambda grey, rate: looked_at.append(len(grey)) or features(grey, rate))  # type: ignore[func-returns-value]
    assert escounts.load("spectral").count(path).count == 0
    assert looked_at == []


def test_count_and_preview_stop_where_the_frames_pass_the_limit(tmp_path: Path) -> None:
    """Headers that say too much are refused at once, headers that say too little when the frames tell."""
    files = [ten_hours(tmp_path / "hours.mkv"), says_two_seconds(tmp_path / "unsaid.mkv")]
    gif = endless_gif(tmp_path / "many.gif", 200_000, delay=2)
    with service_running(tmp_path / "data", max_duration=60.0) as (address, _), Client(address) as client:
        for path in [*files, gif]:
            video = client.send_video(path)["id"]
            job = client.ended(client.start_count(video)["id"], 300)
            assert (job["state"], "up to 60 s" in job["error"]) == ("failed", True), job["error"]
            refused = client.get(f"/api/videos/{video}/preview", timeout=300)
            assert (refused.status_code, "up to 60 s" in refused.text) == (503, True), refused.text


@pytest.mark.release
@pytest.mark.parametrize("model", ["spectral", "lite"])
def test_a_million_frames(model: str, tmp_path: Path) -> None:
    """Ten hours in 602 slides or in three pictures, two seconds that say they are ten hours, and a GIF of a million
    frames: bounded processor time, no limit asked for."""
    number = share_of(602)
    slides = write_movie(
        tmp_path / "slides.mkv", levels(number, step=40), times=[59.9 * n for n in range(number)], codec="ffv1"
    )
    tally = Tally()
    gif = endless_gif(tmp_path / "million.gif", share_of(1_000_000), delay=2)
    for path in (slides, ten_hours(tmp_path / "three.mkv"), says_ten_hours(tmp_path / "says.mkv"), gif):
        seconds = 600
        limit = f"resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))\n"
        said = "import atexit, time; atexit.register(lambda: print('CPU', time.process_time(), file=sys.stderr))\n"
        done = finish(spawn("count", path, "--model", model, "-q", before=limit + said), timeout=3600)
        tally.cases += 1
        if found := re.search(r"CPU ([\d.]+)", done.err):
            tally.note(f"processor seconds of {path.name}", round(float(found[1])))
        if done.code != 0:
            fault = "traceback" if "Traceback" in done.err else "hang" if done.code < 0 else "lost"
            tally.failures.append((fault, f"{path.name}: exit code {done.code} {done.err[-500:]}"))
    tally.publish(f"files of hours in few bytes, {model}")
    assert tally.failures == []
