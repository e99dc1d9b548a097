"""The parsers written here take anything: what is not theirs is one line, never a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz.mutations import MUTATIONS
from fuzz.parsers import PARSERS, fed
from release_figures import KEEP, Tally, share_of
from stores import store, video

from escounts.models.checkpoint import save_network
from escounts.nn.network import LITE_TINY, Network

CI_CASES, RELEASE_SECONDS = 150, 300
CORPUS = Path(__file__).parent / "corpus" / "parsers"
ODD = [b"", b"\0", b"[" * 20_000, b"{}", b"[]", b"null", b"7", b"\xff\xfe", b'{"a":', b"1-", b"nan-inf", b"a@b@1-2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good input for each parser."""
    place = tmp_path_factory.mktemp("whole")
    store(place, [video("a"), video("b")])
    save_network(place / "w.safetensors", Network(LITE_TINY))
    np.save(frames := io.BytesIO(), np.array([20, 41, 60]))
    clips = [{"video_id": "a", "start": 0, "end": 5, "count": 3, "second": 1}]
    return {
        "exemplar": b"other.mp4@1.0-2.5",
        "annotation_file": (
            b"Observation id,Media file,FPS,Subject,Behavior,Behavior type,Start (s),Stop (s)\n"
            b"a,a.mp4,25,,jump,STATE,0.5,1.5\n"
        ),
        "dataset_table": (
            b"type,name,count,fps,video_id,counts,num_frames,start_frame,class,L1,L2\njump,a.mp4,1,25,x,1,90,0,u,3,20\n"
        ),
        "frame_numbers": frames.getvalue(),
        "label_table": b"file,start_s,end_s,class,split\na.mp4,0,1,jump,train\nb.mp4,1,2,jump,valid\n",
        "label_record": next(place.glob("labels*.json")).read_bytes(),
        "clip_list": json.dumps(clips).encode(),
        "token_store": (place / "layout.json").read_bytes() + (place / "index.json").read_bytes(),
        "checkpoint": (place / "w.safetensors").read_bytes()[:6000],
    }


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_input_is_one_line(name: str, whole: dict[str, bytes]) -> None:
    for data in ODD:
        fed(name, data)
    for case in range(CI_CASES):
        rng = np.random.default_rng(case)
        change = MUTATIONS[rng.integers(len(MUTATIONS))]
        fed(name, bytes(change(bytearray(whole[name]), rng, whole)))


def test_everything_a_parser_ever_failed_on(whole: dict[str, bytes]) -> None:
    """corpus/parsers/NAME/: inputs that once raised something else than an EscountsError."""
    cases = [path for path in sorted(CORPUS.glob("*/*")) if path.is_file()]
    assert cases
    for path in cases:
        fed(path.parent.name, path.read_bytes())


def processor_seconds() -> float:
    """Of everything that was started here and is over."""
    used = os.times()
    return used.children_user + used.children_system


@pytest.mark.release
@pytest.mark.parametrize("name", PARSERS)
def test_guided_by_coverage(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed: pip install atheris")
    (tmp_path / "good").write_bytes(whole[name])
    for path in (CORPUS / name).glob("*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    seconds = share_of(RELEASE_SECONDS)
    command = [sys.executable, str(Path(__file__).with_name("guided.py")), name, str(tmp_path)]
    limits = [
        f"-max_total_time={seconds}",
        "-rss_limit_mb=4096",
        "-timeout=30",
        f"-artifact_prefix={KEEP or tmp_path}/{name}-",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = processor_seconds()
    ended = subprocess.run([*command, *limits], capture_output=True, text=True, env=env, errors="replace")
    runs = re.findall(r"^#(\d+)", ended.stderr, re.M)
    reached = re.findall(r"cov: (\d+)", ended.stderr)
    tally = Tally(cases=int(runs[-1]) if runs else 0)
    if ended.returncode != 0:
        hung = "libFuzzer: timeout" in ended.stderr
        tally.failures.append(("hang" if hung else "traceback", ended.stderr[-4000:]))
    tally.note("seconds", seconds)
    tally.note("of the processor", round(processor_seconds() - before))  # on a busy machine they are worth less
    tally.note("branches reached", int(reached[-1]) if reached else 0)
    tally.publish(f"{name} parser, guided by coverage")
    assert tally.failures == [] and tally.cases > 0, f"{ended.stderr[-4000:]}\nkept in {KEEP or tmp_path}"
