"""Tables on real clips: whole sources on either side of a split, intervals over sources, the clips' own tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from escounts.research.datasets.registry import load_dataset
from paper import real, sweep_runs
from paper.rendering import interval

HEAD = "file,split,motion,count,t_start,t_end,rep_times\n"


def test_no_source_is_on_two_sides_of_a_split(tmp_path: Path) -> None:
    rows = [f"{k}.mp4,{'val' if k % 10 == 9 else 'train'},squat,1,0,1,0-1" for k in range(100)]
    (tmp_path / "clips_labels.csv").write_text(HEAD + "\n".join(rows) + "\n")
    listed = [f"{k}.mp4,source{k % 10 if k % 10 == 9 else k // 3}" for k in range(100)]
    (tmp_path / "clips.csv").write_text("file,source\n" + "\n".join(listed) + "\n")
    labels = load_dataset("folder", tmp_path / "clips_labels.csv")
    sources = real.sources_of(tmp_path / "clips_labels.csv", labels)
    split = real.split_by_source(labels, sources)
    sides = {part: {sources[video.name] for video in split.split(part)} for part in ("train", "valid", "test")}
    assert not sides["train"] & sides["valid"] and sides["test"] == {"source9"} and sides["valid"]
    assert len(split.videos) == 100


def test_videos_that_stray_together_widen_the_interval() -> None:
    errors_SV = np.array([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]] * 2)
    alone = interval(errors_SV)
    together = interval(errors_SV, None, ["a", "a", "a", "b", "b", "b"])
    apart = interval(errors_SV, None, list("abcdef"))
    assert together[0] == alone[0] == 0.5 and together[2] - together[1] > 1.5 * (alone[2] - alone[1])
    np.testing.assert_allclose(apart, alone)


def test_real_clips_have_tables_of_their_own_and_every_row_is_another_run() -> None:
    made = sweep_runs.tables(dict.fromkeys(sweep_runs.METHODS, 1e-3), sweep_runs.Which(head="rate", real=True))
    names = [table.name for table in made]
    assert names[:3] == ["rivals", "clips", "4"] and "sampling" not in names and "3e" not in names
    jobs = list(sweep_runs.jobs_of(made, 1))
    assert len({(job.recipe, job.seed) for job in jobs}) == len(jobs)
    assert {job.recipe.dataset for job in jobs} == {"repcount", real.MIXED, real.GENERATED}
    shots = next(table for table in made if table.name == "4")
    assert [row.cells[0].spec.given for row in shots.rows][:3] == ["0-none", "1-other", "1-same"]
