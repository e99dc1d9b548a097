"""The parsers written here take anything: what is not theirs is one line, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz.mutations import MUTATIONS
from fuzz.parsers import PARSERS, fed
from stores import store, video

from escounts.nn.lite import LITE_TINY
from escounts.nn.network import Network
from escounts.zoo.checkpoint import save_network

CI_CASES, RELEASE_SECONDS = 150, 300
CORPUS = Path(__file__).parent / "corpus"
ODD = [b"", b"\0", b"[" * 20_000, b"{}", b"[]", b"null", b"7", b"\xff\xfe", b'{"a":', b"1-", b"nan-inf", b"a@b@1-2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good input for each parser."""
    place = tmp_path_factory.mktemp("whole")
    store(place, [video("a"), video("b")])
    save_network(place / "w.safetensors", Network(LITE_TINY))
    clips = [{"video_id": "a", "start": 0, "end": 5, "count": 3, "second": 1}]
    return {
        "exemplar": b"other.mp4@1.0-2.5",
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


@pytest.mark.release
@pytest.mark.parametrize("name", PARSERS)
def test_guided_by_coverage(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed: pip install atheris")
    (tmp_path / "good").write_bytes(whole[name])
    command = [sys.executable, str(Path(__file__).with_name("parsers.py")), name, str(tmp_path)]
    limits = [
        f"-max_total_time={RELEASE_SECONDS}",
        "-rss_limit_mb=4096",
        "-timeout=30",
        f"-artifact_prefix={tmp_path}/",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([*command, *limits], capture_output=True, text=True, env=env, errors="replace")
    good = int(ended.returncode == 0)
    figures = {"cases": 1, "survived": good, "hang": 0, "traceback": 1 - good}
    print(f"RELEASE-ROW {name} parser, {RELEASE_SECONDS} s guided by coverage {figures}")
    assert ended.returncode == 0, ended.stderr[-4000:]
