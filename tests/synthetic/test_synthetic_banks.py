"""Banks of clips and of motion, and the stretches that are found in them."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
import pytest

from escounts.errors import DataError
from escounts.synthetic import ClipBank, MotionBank, permissive, pool_rows
from escounts.synthetic.actions import Mining, mine
from escounts.synthetic.clips import appearance


def path_features(angle: np.ndarray) -> np.ndarray:
    """(n, 8) features of a point on a circle, with a constant part."""
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.concatenate([circle, np.ones((len(angle), 6))], 1).astype(np.float32)


def test_cycles_have_the_length_of_the_period() -> None:
    found = mine(4, path_features(np.arange(90) / 18 * 2 * np.pi), Mining())
    assert len(found.cycle) > 20
    assert (np.abs(found.cycle[:, 2] - 18) <= 1).all()
    assert (found.cycle[:, 0] == 4).all()
    assert not len(found.once), "a circle comes back"


def test_a_single_pass_has_no_cycle() -> None:
    found = mine(0, path_features(np.linspace(0, np.pi, 80)), Mining())
    assert not len(found.cycle)
    assert len(found.back) and len(found.once)


def test_stillness_is_quiet_and_nothing_else() -> None:
    found = mine(0, path_features(np.zeros(60)), Mining())
    assert len(found.quiet) and not len(found.back) and not len(found.cycle) and not len(found.once)


def test_there_and_back_stretches_do_not_return() -> None:
    features = path_features(np.arange(90) / 18 * 2 * np.pi)
    found = mine(0, features, Mining())
    assert len(found.back)
    assert found.back[:, 2].max() < 18, "a stretch as long as the period comes back to its start"


def test_a_cut_is_not_a_motion() -> None:
    angle = np.where(np.arange(60) < 30, 0.0, 2.0)
    found = mine(0, path_features(angle), Mining())
    assert (found.back[:, 2] <= 5).all() and not len(found.cycle)


def test_clip_segments_are_of_the_clips_that_have_them(clips: ClipBank) -> None:
    assert set(clips.segments.cycle[:, 0]) == {1}
    assert np.median(clips.segments.cycle[:, 2]) == 24
    assert set(clips.segments.quiet[:, 0]) >= {2}
    assert 2 not in clips.segments.back[:, 0]


def test_brightness_alone_is_no_motion(clips: ClipBank) -> None:
    frames = clips.frames[144:146].copy()
    frames[1] = np.clip(frames[1] * 1.15, 0, 255)
    lit, moved = appearance(frames), appearance(clips.frames[[0, 36]])
    assert np.linalg.norm(lit[0] - lit[1]) < 0.5 * np.linalg.norm(moved[0] - moved[1])


def test_a_pickled_bank_leaves_its_frames_behind(clips: ClipBank) -> None:
    small = pickle.dumps(clips)
    assert len(small) < clips.frames.nbytes / 4
    assert pickle.loads(small).offsets[-1] == 216


def test_bank_refuses_offsets_that_do_not_fit() -> None:
    with pytest.raises(DataError, match="offsets"):
        ClipBank(np.zeros((5, 48, 48, 3), np.uint8), [0, 4], ["a"])


def write_clip(path: Path, frames: int, rate: int) -> None:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for i in range(frames):
            image = np.full((64, 96, 3), 20, np.uint8)
            image[20:40, i % 70 : i % 70 + 20] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def test_files_are_decoded_to_one_rate_and_bad_ones_left_out(tmp_path: Path) -> None:
    write_clip(tmp_path / "fast.mp4", 60, 30)
    write_clip(tmp_path / "slow.mp4", 30, 15)
    (tmp_path / "broken.mp4").write_bytes(b"not a video")
    bank = ClipBank.from_files(
        [tmp_path / name for name in ("fast.mp4", "broken.mp4", "slow.mp4")], size=48, workers=2
    )
    assert bank.names == [f"{tmp_path.name}/fast.mp4", f"{tmp_path.name}/slow.mp4"]
    assert bank.frames.shape[1:] == (48, 48, 3) and bank.frames.dtype == np.uint8
    assert np.abs(np.diff(bank.offsets) - 30).max() <= 1
    with pytest.raises(DataError, match="could be decoded"):
        ClipBank.from_files([tmp_path / "broken.mp4"])


def test_only_permissive_licences() -> None:
    names = ["MIT License", "none", "BSD 3-Clause License", "Attribution 4.0 International", "All rights reserved"]
    rows = [{"file": f"{i}.mp4", "licence": name} for i, name in enumerate(names)]
    assert [row["file"] for row in permissive(rows)] == ["0.mp4", "2.mp4", "3.mp4"]


def test_motion_segments_find_the_squats(motion: MotionBank) -> None:
    squats = motion.segments.cycle[motion.segments.cycle[:, 0] == 1]
    upright = squats[squats[:, 1] % 20 == 0]
    assert len(upright) and (upright[:, 2] == 20).all(), "from standing to standing"
    assert motion.walking == [0]
    assert 2 not in motion.segments.cycle[:, 0], "a single bow is no cycle"


def test_motion_file_is_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected motions"):
        MotionBank.from_npz(tmp_path / "motions.npz", tmp_path / "motions.csv")


def test_motion_positions_are_sums_of_steps(shared: Path, tmp_path: Path) -> None:
    folder = shared / "mocap"
    with np.load(folder / "motions.npz") as stored:
        delta, offsets, names = stored["delta"], stored["offsets"], stored["joints"]
    with open(folder / "motions.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:2]
    few = {"delta": delta[: offsets[2]], "offsets": offsets[:3], "joints": names}
    np.savez(tmp_path / "motions.npz", **few)
    with open(tmp_path / "motions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    bank = MotionBank.from_npz(tmp_path / "motions.npz", tmp_path / "motions.csv")
    first, last = offsets[1], offsets[2]
    expected = np.cumsum(delta[first:last].astype(np.int32), 0) / 1000
    np.testing.assert_allclose(bank.joints[first:last], expected, atol=1e-5)
    assert bank.names == [row["trial"] for row in rows]


def test_the_pool_decodes(shared: Path) -> None:
    rows = permissive(pool_rows(shared / "clips" / "pool.csv"))
    assert len(rows) > 100
    bank = ClipBank.from_files([shared / "clips" / row["file"] for row in rows[:3]])
    assert len(bank.names) == 3 and bank.frames.shape[1:] == (144, 144, 3)
    lasts = np.array([float(row["duration_s"]) for row in rows[:3]])
    assert np.abs(np.diff(bank.offsets) / 15 - lasts).max() < 0.2
    assert len(bank.segments.back)


def test_a_table_says_which_repetitions_were_filmed_and_which_clips_do_not_repeat(
    clips: ClipBank, tmp_path: Path
) -> None:
    table = tmp_path / "filmed.csv"
    table.write_text("file,borders_s\npool/circles,0.8 2.4 4.0 99\npool/passes,\npool/elsewhere,0 1\n")
    bank = clips.with_filmed_repetitions(table)
    assert bank.segments.filmed.tolist() == [[1, 12, 24], [1, 36, 24], [1, 60, 11]]
    assert [0, 0, 71] in bank.segments.once.tolist()
    assert set(bank.segments.once[:, 0]) == {0, *clips.segments.once[:, 0]}
    assert (np.diff(bank.segments.once[:, 0]) >= 0).all(), "clips are found by bisection"


def test_repetitions_are_those_of_the_clip_in_its_folder(tmp_path: Path) -> None:
    """Two tables of clips count their files from 0000.mp4 on: borders of one film were once laid over another."""
    for folder in ("pool", "footage"):
        (tmp_path / folder).mkdir()
        write_clip(tmp_path / folder / "0035.mp4", 45, 15)
    write_clip(tmp_path / "footage" / "0036.mp4", 45, 15)
    files = [tmp_path / name for name in ("pool/0035.mp4", "footage/0035.mp4", "footage/0036.mp4")]
    bank = ClipBank.from_files(files, size=48)
    table = tmp_path / "filmed.csv"
    table.write_text("file,borders_s\npool/0035.mp4,0 1 2\nfootage/0035.mp4,\npool/0036.mp4,0 1\n")
    told = bank.with_filmed_repetitions(table)
    assert told.segments.filmed.tolist() == [[0, 0, 15], [0, 15, 15]]
    assert [1, 0, 44] in told.segments.once.tolist()
    assert not np.isin(bank.without_negatives_of(["0035.mp4"]).segments.once[:, 0], [0, 1]).any()
    table.write_text("file,borders_s\nelsewhere/0035.mp4,0 1 2\n")
    with pytest.raises(DataError, match="names no clip of the 3 that there are"):
        bank.with_filmed_repetitions(table)
