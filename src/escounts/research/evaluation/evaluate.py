"""One evaluation for everything: an open model on a dataset, video by video, resumable, with its coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np

from escounts.errors import DataError, EscountsError
from escounts.research.datasets.annotations import ALL, Dataset, VideoAnnotation
from escounts.research.evaluation.models import EvalSpec, EvaluatedModel
from escounts.research.evaluation.prediction_files import Coverage, PredictionFile, digest_of
from escounts.research.training.batches import ExemplarChoice, ExemplarSampler, ExemplarSampling
from escounts.research.training.predictions import Prediction
from escounts.research.training.run_folder import PREDICTING, code_identity
from escounts.system.task_processes import TaskError, Worker, answers

WHOSE = {"same": "the same video", "other": "another video of its action"}

Progress = Callable[[int, int, str], None]
"""Called with (videos done, videos in all, name of the newest)."""

EvaluationTask = tuple[VideoAnnotation, Mapping[int, tuple[EvalSpec, Sequence[ExemplarChoice]]]]
"""A video, and the evaluations (by their place) that lack it, each with its exemplars."""
Counted = dict[int, Prediction | str]
"""The row of each evaluation, or why there is none."""
EvaluationProcess = Worker[EvaluationTask, Mapping[str, Any]]
"""Its answers are `Counted` in JSON values."""


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation found. path: its predictions on disk. model: everything that decides the model's counts."""

    spec: EvalSpec
    rows: tuple[Prediction, ...]
    coverage: Coverage
    path: Path
    model: Mapping[str, Any]


def evaluate_model(
    model: EvaluatedModel,
    dataset: Dataset,
    specs: Sequence[EvalSpec],
    out: Path,
    *,
    split: str,
    limit_videos: int | None = None,
    form: str = "csv",
    progress: Progress | None = None,
    processes: Sequence[EvaluationProcess] = (),
) -> list[Evaluation]:
    """Count the videos of a split as each evaluation says; predictions go to `out`, one file per evaluation.

    processes: that share the videos, each with the model (see evaluation_work); none: it is done here.

    A video is opened once for all evaluations. What was counted before and is not stale is not counted again; a video
    that is not there, cannot be read or has unusable labels is named in the coverage, and the rest go on. With
    exemplars of which no video has any, nothing is scored: the rows would be the zero-shot ones under another name.
    """
    whole = dataset.split(split)
    videos = whole[:limit_videos]
    if not videos:
        raise DataError(
            f"{dataset.name} has no usable video in split {split!r}; `escounts data check {dataset.name}` says why"
        )
    here = {video.name: model.fingerprint(video) for video in videos}
    some = f"-first{limit_videos}" if limit_videos else ""
    paths = [out / f"{dataset.name}-{split}-{spec.label}{some}.{form}" for spec in specs]
    files = [PredictionFile(path, _identity(model, dataset, spec, split))
             for path, spec in zip(paths, specs, strict=True)]  # fmt: skip
    for file in files:
        file.keep_others()
    train = dataset.split("train") if "train" in dataset.splits else ()
    parts = [_Part(spec, file, _choices(model, videos, train, spec), here)
             for spec, file in zip(specs, files, strict=True)]  # fmt: skip
    tasks: list[EvaluationTask] = []
    for video in videos:
        todo = {n: (part.spec, part.chosen[video.name]) for n, part in enumerate(parts) if part.lacks(video.name)}
        if todo:
            tasks.append((video, todo))
    done = len(videos) - len(tasks)
    for (video, _), counted in _counted(model, tasks, processes):
        done += 1
        if progress:
            progress(done, len(videos), video.name)
        for place, outcome in counted.items():
            parts[place].keep(video.name, outcome)
    unlabelled, left_out = unusable_rows(dataset, split)
    limited, every = len(videos) < len(whole), len(whole) + len(unlabelled)
    found = []
    for part in parts:
        rows = [part.rows[video.name] for video in videos if video.name in part.rows]
        coverage = Coverage(
            dataset.name,
            split,
            videos=len(videos) if limited else every,
            scored=len(rows),
            missing=part.missing if limited else {**unlabelled, **part.missing},
            whole=every if limited else None,
            left_out={**unlabelled, **left_out} if limited else left_out,
        )
        part.file.finish(rows, coverage)
        found.append(Evaluation(part.spec, tuple(row for _, row in rows), coverage, part.file.path, model.identity))
    return found


class _Part:
    """One of several evaluations while they run. here: video → what it is now, None where it is not here. rows:
    video → what it was when it was counted, and its row. missing: video → why it has none."""

    def __init__(
        self,
        spec: EvalSpec,
        file: PredictionFile,
        chosen: Mapping[str, Sequence[ExemplarChoice]],
        here: Mapping[str, str | None],
    ) -> None:
        self.spec, self.file, self.chosen, self.here = spec, file, chosen, here
        self.known = file.known()
        self.rows: dict[str, tuple[str, Prediction]] = {}
        self.missing: dict[str, str] = {}
        self.without = spec.shots > 0 and not any(chosen[name] for name, now in here.items() if now is not None)

    def lacks(self, video: str) -> bool:
        """Whether a video is to be counted. What is known of it is taken, and why it cannot be counted is noted."""
        fingerprint, row = self.known.get(video, ("", None))
        if self.here[video] is None:
            self.missing[video] = "not here"
        elif self.without:
            self.missing[video] = f"no exemplar of {WHOSE[self.spec.exemplars]} to take"
        elif row is not None and fingerprint == self.here[video]:
            self.rows[video] = fingerprint, row
        else:
            return True
        return False

    def keep(self, video: str, outcome: Prediction | str) -> None:
        """A row, on the disk at once; or why there is none."""
        if isinstance(outcome, str):
            self.missing[video] = outcome
            return
        now = self.here[video] or ""
        self.file.add(now, outcome)
        self.rows[video] = now, outcome


def unusable_rows(dataset: Dataset, split: str) -> tuple[dict[str, str], dict[str, str]]:
    """Rows of a split that cannot be used, name → why: of videos that have no other row, and of videos that are
    counted by their other rows."""
    usable = {video.name for video in dataset.split(split)}
    reasons: dict[str, list[str]] = {}
    for problem in dataset.problems:
        if problem.unusable and split in (ALL, problem.split):
            reasons.setdefault(problem.name, []).append(problem.what)
    told = {name: "; ".join(dict.fromkeys(what)) for name, what in reasons.items()}
    without = {name: what for name, what in told.items() if name not in usable}
    return without, {name: what for name, what in told.items() if name in usable}


def labels_digest(videos: Sequence[VideoAnnotation]) -> str:
    """A hash of what people say about some videos: other labels make other figures."""
    told = [(v.name, v.file, v.action, v.count, v.spans, v.marked, v.begin, v.duration, v.split) for v in videos]
    return digest_of({"videos": told})


def choose_exemplars(
    videos: Sequence[VideoAnnotation],
    train: Sequence[VideoAnnotation],
    offered: Mapping[str, int],
    *,
    shots: int,
    kind: Literal["same", "other"],
) -> dict[str, list[ExemplarChoice]]:
    """Exemplars for every video, always the same ones; fewer where fewer repetitions are offered.

    kind "same": repetitions of the video itself; "other": of training videos of its action, never of itself.
    offered: exemplars that each video can give. A video that has none is counted zero-shot.
    """
    pool = [*train, *videos] if kind == "same" else list(train)
    sampling = ExemplarSampling(other_video=float(kind == "other"))
    sampler = ExemplarSampler([video for video in pool if offered.get(video.name)], offered, sampling)
    chosen = {}
    for video in videos:
        rng = np.random.default_rng((0, crc32(video.name.encode())))
        wanted = min(shots, offered.get(video.name, 0)) if kind == "same" else shots
        choices = sampler.choose(video, wanted, rng)
        chosen[video.name] = [choice for choice in choices if (choice[0] != video.name) == (kind == "other")]
    return chosen


def _choices(
    model: EvaluatedModel, videos: Sequence[VideoAnnotation], train: Sequence[VideoAnnotation], spec: EvalSpec
) -> dict[str, list[ExemplarChoice]]:
    if not spec.shots:
        return {video.name: [] for video in videos}
    offered = {video.name: model.offered(video) for video in (*train, *videos)}
    return choose_exemplars(videos, train, offered, shots=spec.shots, kind=spec.exemplars)


def _identity(model: EvaluatedModel, dataset: Dataset, spec: EvalSpec, split: str) -> Mapping[str, Any]:
    """Everything that decides the rows of an evaluation: other rows are stale."""
    told = dataset.videos if spec.shots else dataset.split(split)
    return {
        "model": dict(model.identity),
        "labels": labels_digest(told),
        "spec": asdict(replace(spec, dataset=None)),  # the labels say which dataset it is
        "code": code_identity(PREDICTING),
    }


def _counted(
    model: EvaluatedModel, tasks: Sequence[EvaluationTask], processes: Sequence[EvaluationProcess]
) -> Iterator[tuple[EvaluationTask, Counted]]:
    """Every task with its outcomes, as they come."""
    if not processes:
        yield from ((task, count_video(model, *task)) for task in tasks)
        return
    for task, answer in answers(tasks, processes):
        if isinstance(answer, TaskError):
            yield task, dict.fromkeys(task[1], _one_line(answer))
        else:
            yield task, {int(at): row if isinstance(row, str) else _row(row) for at, row in answer.items()}


def _row(values: Mapping[str, Any]) -> Prediction:
    spans = tuple((start, end) for start, end in values["spans"])
    return Prediction(**{**values, "density": tuple(values["density"]), "spans": spans})


def count_video(
    model: EvaluatedModel, video: VideoAnnotation, todo: Mapping[int, tuple[EvalSpec, Sequence[ExemplarChoice]]]
) -> Counted:
    """The row of each evaluation, or why there is none."""
    try:
        count = model.open(video)
    except EscountsError as error:
        return dict.fromkeys(todo, _one_line(error))
    found: Counted = {}
    for place, (spec, chosen) in todo.items():
        try:
            found[place] = count(spec, chosen)
        except EscountsError as error:
            found[place] = _one_line(error)
    return found


def _one_line(error: EscountsError) -> str:
    return " ".join(str(error).split())
