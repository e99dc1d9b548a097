"""A model learns your own action from a few labelled videos, or says that it could not.

Videos are encoded once. Leave-one-out says how well a video is counted that was not learnt from, for every checkpoint
of the training; only if that is better than before is a model kept.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from escounts.counter import Counter, EncodedVideo
from escounts.counting.multi_rate import MultiRateModel
from escounts.errors import DataError, ModelError
from escounts.models import catalogue
from escounts.models.catalogue import TAUGHT
from escounts.models.checkpoint import save_network
from escounts.nn.heads import RateHead
from escounts.research.datasets.annotation_formats import LabelledFile, label_file_format, read_labels
from escounts.research.datasets.annotation_formats.labels import label_problem
from escounts.research.datasets.annotations import Problem, Span
from escounts.research.datasets.folder import load_folder
from escounts.teach import FEWEST, Score, Stage
from escounts.teach.head_tuning import (
    FeatureEncoding,
    HeadRows,
    in_other_unit,
    tuned_heads,
    with_head,
    without_video_outputs,
)
from escounts.video.files import Video

GAIN = 2 / 3
"""What may remain of the error on videos left out: the least of many recipes' is taken, so a small gain is chance."""
STEPS = 40
EVERY = 4
"""Steps between checkpoints."""
UNITS = (2.0, 0.5)
"""Labels may count sides where the model counts cycles, or cycles where it counts sides."""

Progress = Callable[[Stage, float], None]
"""Called with what is being done and how much of the whole is, 0..1."""
ENCODING_SHARE, CHECKING_SHARE = 0.7, 0.25


@dataclass(frozen=True)
class LabelledVideo:
    """A video with its true repetitions. count: how many; spans: start and end of each in seconds."""

    name: str
    path: Path
    count: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class VideoOutcome:
    """Counts of one labelled video: before; after learning from the other videos only; by the finished model."""

    name: str
    labelled: int
    before: int
    after: int
    fitted: int


@dataclass(frozen=True)
class ActionReport:
    """What learning did. after: leave-one-out, so it holds for videos that were not labelled, too.

    helped: a model was kept, at `path`. message: one sentence for a person.
    """

    helped: bool
    message: str
    before: Score
    after: Score
    videos: tuple[VideoOutcome, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {**asdict(self), "path": None if self.path is None else str(self.path)}


_Recipe = tuple[float, int]
"""Which head training starts from (the factor of its unit against the model's), and after how many steps it stops."""


def learn_action(
    videos: Sequence[LabelledVideo],
    out: Path,
    *,
    initial: str = "default",
    device: str = "auto",
    open_video: Callable[[Path], Video] = Video,
    progress: Progress | None = None,
) -> ActionReport:
    """Learn the action of labelled videos, starting from the model `initial`; write the new model to `out` if it
    counts videos it did not learn from better than before. open_video: for whoever has limits to keep.

    >>> report = learn_action(videos, Path("my-squats.safetensors"))
    >>> print(report.message)
    """
    if len(videos) < FEWEST:
        raise DataError(f"{len(videos)} labelled videos; label at least {FEWEST} of one action, ten are better")
    say = progress or (lambda stage, share: None)
    model, head = _rate_model(initial, device)
    encoded = _EncodedLabels(model, videos, open_video, say)
    counts = [video.count for video in videos]
    before = [encoded.count(index, model) for index in range(len(videos))]
    if before == counts:
        return _report(videos, before, before, before)
    left_out = _leave_one_out(encoded, head, say)
    say("training", ENCODING_SHARE + CHECKING_SHARE)
    learnt = {recipe: _counts(encoded, tuned) for recipe, tuned in encoded.trained(head, left_out)}
    recipe = _best(left_out, learnt, before, counts)
    tuned = with_head(model, next(h for r, h in encoded.trained(head, [recipe]) if r == recipe), name=out.stem)
    report = _report(videos, before, left_out[recipe], learnt[recipe])
    if report.helped:
        about = {"source": f"{initial}, taught {len(videos)} labelled videos", "licence": "your own"}
        about |= {"calibration": tuned.calibration.to_json(), TAUGHT: json.dumps(report.to_dict())}
        out.parent.mkdir(parents=True, exist_ok=True)
        save_network(out, tuned.network, metadata=about, dtype=torch.float16)
        report = replace(report, path=out)
    say("training", 1.0)
    return report


def learn_folder(
    root: Path,
    out: Path,
    *,
    labels: Path | None = None,
    only: str | None = None,
    initial: str = "default",
    device: str = "auto",
    progress: Progress | None = None,
) -> tuple[ActionReport, list[Problem]]:
    """Learn the action of your own videos under `root`, as `learn_action` does; the report, and what was odd or left
    out. A split called test is left alone.

    labels: a file of an annotation tool, or a table of labels.csv's form, instead of the labels.csv of the root.
    only: the behaviour, tier, label or class of it that is meant; videos of another class are left alone.

    >>> report, problems = learn_folder(Path("mine"), own_model_path("my-squats"))
    """
    videos, problems = _labelled_videos(root, labels, only)
    unusable = [str(problem) for problem in problems if problem.unusable]
    if len(videos) < FEWEST and unusable:
        raise DataError(
            f"{len(videos)} usable videos, and at least {FEWEST} are needed; left out: {'; '.join(unusable)}"
        )
    return learn_action(videos, out, initial=initial, device=device, progress=progress), problems


def _labelled_videos(root: Path, labels: Path | None, only: str | None) -> tuple[list[LabelledVideo], list[Problem]]:
    """The videos to learn from with their labels, and what is odd or missing."""
    if labels is not None and label_file_format(labels) != "csv":
        return _of_annotation_tool(root, read_labels(labels, only=only))
    dataset = load_folder(labels or root, only=only)
    videos, problems = [], list(dataset.problems)
    for video in dataset.videos:
        path = dataset.locate(root, video)
        if path is None:
            problems.append(Problem(video.split, video.name, "no such video", unusable=True))
        elif video.split != "test":
            videos.append(LabelledVideo(video.name, path, video.count, video.spans))
    return videos, problems


def _of_annotation_tool(root: Path, files: Iterable[LabelledFile]) -> tuple[list[LabelledVideo], list[Problem]]:
    videos, problems = [], []
    for file in files:
        path = root / file.file
        if not path.is_file():
            problems.append(Problem("train", file.file, f"no such video in {root}", unusable=True))
        elif (problem := label_problem(file)) is not None:
            problems.append(Problem("train", file.file, problem, unusable=True))
        else:
            videos.append(LabelledVideo(file.file, path, len(file.spans), file.spans))
    return videos, problems


class _EncodedLabels:
    """The labelled videos, encoded, and what a head learns from them."""

    def __init__(
        self,
        model: MultiRateModel,
        videos: Sequence[LabelledVideo],
        open_video: Callable[[Path], Video],
        say: Progress,
    ) -> None:
        self.videos, self.model = videos, model
        self.opened, self.encodings = [], []
        for index, video in enumerate(videos):
            say("encoding", ENCODING_SHARE * index / len(videos))
            self.opened.append(open_video(video.path))
            encoding = model.encode(self.opened[-1])
            encoding.encode(encoding.fast_views)  # a head that changes may ask for them where the old one does not
            self.encodings.append(FeatureEncoding.of(encoding))

    def count(self, index: int, model: MultiRateModel) -> int:
        """A video's count by a model that differs in its head, as `Counter.count` makes it."""
        encoding = self.encodings[index].read_by(model)
        return EncodedVideo(Counter(model), self.opened[index], encoding, seconds=0.0).count().count

    def rows(self, head: RateHead, without: int | None = None) -> HeadRows:
        """What there is to learn, from all videos or all but one."""
        chosen = [
            (e, v.spans) for i, (e, v) in enumerate(zip(self.encodings, self.videos, strict=True)) if i != without
        ]
        return HeadRows.of(chosen, head.config)

    def starts(self, head: RateHead, rows: HeadRows) -> dict[float, RateHead]:
        """Heads to start from, by the factor of their unit: the model's own, and another that fits better at once."""
        with torch.no_grad():
            plain = float(rows.loss(head, self.model.calibration))
            others = {factor: in_other_unit(head, factor) for factor in UNITS}
            losses = {factor: float(rows.loss(other, self.model.calibration)) for factor, other in others.items()}
        best = min(losses, key=losses.__getitem__)
        return {1.0: head} | ({best: others[best]} if losses[best] < plain else {})

    def trained(
        self, head: RateHead, recipes: Iterable[_Recipe], without: int | None = None
    ) -> Iterator[tuple[_Recipe, RateHead]]:
        """Every checkpoint on the way to the recipes, in half precision as a file holds it; from all videos or all
        but one."""
        rows = self.rows(head, without)
        last: dict[float, int] = {}
        for factor, step in recipes:
            last[factor] = max(step, last.get(factor, 0))
        for factor, steps in last.items():
            start = head if factor == 1.0 else in_other_unit(head, factor)
            for step, tuned in tuned_heads(start, rows, self.model.calibration, steps=steps, every=EVERY):
                yield (factor, step), copy.deepcopy(tuned).half().float()


def _leave_one_out(encoded: _EncodedLabels, head: RateHead, say: Progress) -> dict[_Recipe, list[int]]:
    """Counts of the videos, each by a model that learnt from the others, for every recipe."""
    starts = [(factor, STEPS) for factor in encoded.starts(head, encoded.rows(head))]
    counts: dict[_Recipe, list[int]] = {}
    for index in range(len(encoded.videos)):
        say("checking", ENCODING_SHARE + CHECKING_SHARE * index / len(encoded.videos))
        for recipe, tuned in encoded.trained(head, starts, without=index):
            counted = encoded.count(index, with_head(encoded.model, tuned, name=encoded.model.name))
            counts.setdefault(recipe, []).append(counted)
    return counts


def _counts(encoded: _EncodedLabels, head: RateHead) -> list[int]:
    """Counts of all videos by one head."""
    model = with_head(encoded.model, head, name=encoded.model.name)
    return [encoded.count(index, model) for index in range(len(encoded.videos))]


def _best(
    left_out: Mapping[_Recipe, list[int]],
    learnt: Mapping[_Recipe, list[int]],
    before: Sequence[int],
    labelled: Sequence[int],
) -> _Recipe:
    """Of the recipes that count videos left out better than before, those that count the videos they learnt from
    right, else nearly right, else all; of them the one with the least error on videos left out. Ties go to the later
    checkpoint."""
    error = {recipe: Score.of(counts, labelled).error for recipe, counts in left_out.items()}
    old = Score.of(before, labelled).error
    better = [recipe for recipe in left_out if error[recipe] < old] or list(left_out)
    right = [recipe for recipe in better if learnt[recipe] == labelled]
    nearly = [recipe for recipe in better if _nearly(learnt[recipe], labelled)]
    return min(right or nearly or better, key=lambda recipe: (round(error[recipe], 6), -recipe[1]))


def _nearly(counted: Sequence[int], labelled: Sequence[int]) -> bool:
    """Whether every count is within one, or a twentieth, of its label."""
    return all(abs(count - label) <= max(1, label / 20) for count, label in zip(counted, labelled, strict=True))


def _report(
    videos: Sequence[LabelledVideo], before: Sequence[int], after: Sequence[int], fitted: Sequence[int]
) -> ActionReport:
    labelled, number = [video.count for video in videos], len(videos)
    score_before, score_after = Score.of(before, labelled), Score.of(after, labelled)
    fits = _nearly(fitted, labelled)
    helped = fits and score_after.error <= GAIN * score_before.error and score_before.error > 0
    if helped:
        message = (
            f"it helped: with each of the {number} videos left out in turn, {score_after.right} of {number} "
            f"{'is' if score_after.right == 1 else 'are'} counted right (before: {score_before.right}), and the mean "
            f"error goes from {score_before.error:.0%} to {score_after.error:.0%}"
        )
    elif score_before.right == number:
        message = f"the model counts all {number} videos right already: there is nothing to learn"
    else:
        why = (
            f"videos left out in turn are counted with a mean error of {score_after.error:.0%} "
            f"(before: {score_before.error:.0%})"
            if fits or score_after.error > GAIN * score_before.error
            else "it still counts the videos it learnt from wrong"
        )
        little = " beyond chance" if fits and score_after.error < score_before.error else ""
        message = (
            f"it did not help{little}: {why}, so the old model is kept. Check labels, or label more of this action"
        )
    rows = zip(videos, before, after, fitted, strict=True)
    outcomes = tuple(VideoOutcome(v.name, v.count, int(b), int(a), int(f)) for v, b, a, f in rows)
    return ActionReport(helped, message, score_before, score_after, outcomes)


def _rate_model(initial: str, device: str) -> tuple[MultiRateModel, RateHead]:
    """The model to start from, and its head, which must be one that says a rate, to be tuned."""
    model = catalogue.build(initial, device)
    if not isinstance(model, MultiRateModel) or not isinstance(model.network.decoder.head, RateHead):
        raise ModelError(f"model {initial!r} cannot be taught an action; start from lite, or from one that was")
    return model, without_video_outputs(model.network.decoder.head)
