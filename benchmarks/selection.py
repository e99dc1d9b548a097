"""Does an exemplar say what to count? Videos with several motions, of which one is marked; with 95 % intervals.

    python benchmarks/selection.py [--clips DIR] [--model lite] [--groups workouts pairs spot ...] [--dev] [--write]

workouts: the questions of DIR/sets.csv whose videos hold several sets. pairs: two clips one after the other, A B, B A
and A B A, one marked. spot: pairs of different motions of one source. elsewhere: a clip and its own copy, shifted and
magnified. ordinary: clips of one motion, which must lose nothing; `filmed in one` has no cut. unrelated, sibling:
exemplars from other videos. Clips are the validation clips of DIR/pool_labels.csv; --dev takes those of DIR/dev.csv
for pairs and ordinary, which nothing was chosen by.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from footage import replace_section

import escounts
from escounts.counting.multi_rate import MultiRateModel
from escounts.counting.multi_rate_encoding import MultiRateEncoding
from escounts.counting.views import BASE_RATE
from escounts.decision.decide import Decision
from escounts.system.arrays import Image
from escounts.video.files import Video

GROUPS = ("workouts", "pairs", "spot", "elsewhere", "ordinary", "unrelated", "sibling")
PAIRS, OF_A_SOURCE, OTHERS = 60, 4, 60
SHARE = (0.7, 0.9)
"""Of a picture's width, what a copy shows."""
Span = tuple[float, float]


@dataclass(frozen=True)
class Clip:
    """One labelled set: what is counted lies in `within`; mark: one repetition of it."""

    path: Path
    source: str
    action: str
    count: int
    within: Span
    mark: Span
    alone: bool


@dataclass(frozen=True)
class Answer:
    """One question's outcome. kept, other: density where the marked motion is, and where others are, per repetition
    there; None where there is no other. lost: left-out share of all repetitions."""

    group: str
    right: bool
    zero: bool
    sure: bool
    kept: float
    other: float | None
    lost: float


class Asker:
    """Encodes clips with one model, each once where it is asked alone."""

    def __init__(self, model: MultiRateModel, *, dev: bool) -> None:
        self.model, self.dev = model, dev
        self._images: dict[Path, list[Image]] = {}

    def images(self, clip: Clip) -> list[Image]:
        """All base frames of a clip; of the last few clips they are remembered."""
        if clip.path not in self._images:
            size = self.model.network.encoder.spec.size
            while len(self._images) > 40:
                del self._images[next(iter(self._images))]
            frames = Video(clip.path).frames(size=(size, size), rate=BASE_RATE)
            self._images[clip.path] = [frame.image for frame in frames]
        return self._images[clip.path]

    def encode(self, images: Sequence[Image]) -> MultiRateEncoding:
        return self.model.encode_images(images)

    def joined(self, group: str, parts: Sequence[Clip], own: set[int], copies: Sequence[Any] = ()) -> Answer:
        """Clips one after the other; the first of `own` is marked. copies: pictures instead of the clips' own."""
        pictures = [list(copy) if copy is not None else self.images(clip) for clip, copy in self._both(parts, copies)]
        starts = np.concatenate([[0], np.cumsum([len(some) for some in pictures])]) / BASE_RATE
        encoding = self.encode([image for some in pictures for image in some])
        first = min(own)
        mark = (parts[first].mark[0] + starts[first], parts[first].mark[1] + starts[first])
        spans = [(starts[i], starts[i + 1]) for i in range(len(parts))]
        mine = [spans[i] for i in own]
        others = [spans[i] for i in range(len(parts)) if i not in own]
        truth = sum(parts[i].count for i in own)
        other_count = sum(parts[i].count for i in range(len(parts)) if i not in own)
        return self.ask(group, encoding, mark, truth, mine, others, other_count)

    @staticmethod
    def _both(parts: Sequence[Clip], copies: Sequence[Any]) -> Iterator[tuple[Clip, Any]]:
        for place, clip in enumerate(parts):
            yield clip, copies[place] if copies else None

    def ask(
        self,
        group: str,
        encoding: MultiRateEncoding,
        mark: Span,
        truth: int,
        mine: Sequence[Span],
        others: Sequence[Span] = (),
        other_count: int = 0,
    ) -> Answer:
        exemplar = encoding.encode_exemplar(mark[0], min(mark[1], encoding.end))
        return self.answer(group, encoding.estimate([exemplar]), truth, mine, others, other_count)

    @staticmethod
    def answer(
        group: str, decision: Decision, truth: int, mine: Sequence[Span], others: Sequence[Span], other_count: int
    ) -> Answer:
        times = decision.density.times

        def within(spans: Sequence[Span]) -> float:
            inside = np.any([(times >= a) & (times <= b) for a, b in spans], 0) if spans else np.zeros(len(times))
            return float((decision.density.values * inside).sum())

        left = len(decision.left_out)
        return Answer(
            group=group,
            right=abs(decision.count - truth) <= 1,
            zero=decision.count == 0,
            sure=not decision.unsure,
            kept=min(1.0, within(mine) / truth) if truth else 1.0,
            other=within(others) / other_count if other_count else None,
            lost=left / max(1, left + decision.count),
        )


def workouts(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The questions of videos with several sets."""
    by_path = defaultdict(list)
    for clip in clips:
        by_path[clip.path].append(clip)
    for sets in by_path.values():
        if len(sets) == 1:
            continue
        encoding = asker.encode(asker.images(sets[0]))
        for one in sets:
            others = [other for other in sets if other is not one]
            count = sum(other.count for other in others)
            spans = [other.within for other in others]
            yield asker.ask("workouts", encoding, one.mark, one.count, [one.within], spans, count)


def pairs(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """Clips of different sources; the first is marked."""
    dice = random.Random(0)
    usable = [clip for clip in clips if clip.alone and clip.count >= 3]
    for _ in range(PAIRS // 3):
        one, other = dice.sample(usable, 2)
        while one.source == other.source and not asker.dev:
            one, other = dice.sample(usable, 2)
        yield asker.joined("pairs", [one, other], {0})
        yield asker.joined("pairs", [other, one], {1})
        yield asker.joined("pairs", [one, other, one], {0, 2})


def spot(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """Different motions of one source."""
    dice = random.Random(1)
    by_source = defaultdict(list)
    for clip in clips:
        if clip.alone and clip.count >= 2:
            by_source[clip.source].append(clip)
    for some in by_source.values():
        possible = [(a, b) for a in some for b in some if a.action != b.action]
        for one, other in dice.sample(possible, min(OF_A_SOURCE, len(possible))):
            yield asker.joined("spot", [one, other], {0})


def elsewhere(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """A clip, then a part of its picture made as large as the whole."""
    dice = random.Random(2)
    for clip in dice.sample([clip for clip in clips if clip.alone and clip.count >= 3], PAIRS):
        images = asker.images(clip)
        yield asker.joined("elsewhere", [clip, clip], {0, 1}, copies=[images, shifted(images, dice)])


def ordinary(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """Clips of one motion."""
    for clip in clips:
        if clip.alone and clip.count >= 2:
            encoding = asker.encode(asker.images(clip))
            cut = len(encoding._scenes) > 1
            group = "ordinary, with cuts" if cut else "ordinary, filmed in one"
            yield asker.ask(group, encoding, clip.mark, clip.count, [clip.within])


def unrelated(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The exemplar is another video's, of another action."""
    yield from _foreign(asker, clips, "unrelated", lambda one, other: one.action != other.action)


def sibling(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The exemplar is another video's, of the same action and another source."""
    yield from _foreign(asker, clips, "sibling", lambda one, other: one.action == other.action)


def _foreign(asker: Asker, clips: Sequence[Clip], group: str, fits: Any) -> Iterator[Answer]:
    dice = random.Random(3)
    usable = [clip for clip in clips if clip.alone and clip.count >= 2]
    possible = [(a, b) for a in usable for b in usable if a.source != b.source and fits(a, b)]
    for one, other in dice.sample(possible, min(OTHERS, len(possible))):
        exemplar = asker.encode(asker.images(other)).encode_exemplar(*other.mark)
        estimate = asker.encode(asker.images(one)).estimate([exemplar])
        yield asker.answer(group, estimate, one.count if group == "sibling" else 0, [one.within], [], 0)


def shifted(images: Sequence[Image], dice: random.Random) -> list[Image]:
    """The same part of every picture, as large as the whole."""
    size = images[0].shape[0]
    share = dice.uniform(*SHARE)
    left, top = (int(dice.uniform(0, 1 - share) * size) for _ in range(2))
    side = int(share * size)
    found: list[Image] = []
    for image in images:
        part = torch.from_numpy(image[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None].float()
        large = F.interpolate(part, (size, size), mode="bilinear").round().clamp(0, 255).byte()
        found.append(large[0].permute(1, 2, 0).contiguous().numpy())
    return found


def read_sets(folder: Path) -> list[Clip]:
    """The sets of sets.csv."""
    with open(folder / "sets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    files = [row["file"] for row in rows]
    return [
        Clip(
            folder / row["file"],
            row["file"],
            row["action"],
            int(row["count"]),
            (float(row["t_start"]), float(row["t_end"])),
            (float(row["exemplar_start_s"]), float(row["exemplar_end_s"])),
            files.count(row["file"]) == 1,
        )
        for row in rows
    ]


def read_pool(folder: Path) -> list[Clip]:
    """The labelled pool's validation clips that hold a repetition."""
    with open(folder / "pool.csv", newline="") as file:
        sources = {row["file"]: row["source"] for row in csv.DictReader(file)}
    with open(folder / "pool_labels.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "val" and row["rep_times"]]
    files = [row["file"] for row in rows]
    found = []
    for row in rows:
        spans = [tuple(float(time) for time in span.split("-")) for span in row["rep_times"].split()]
        mark = spans[len(spans) // 2]
        within = (float(row["t_start"]), float(row["t_end"]))
        alone = files.count(row["file"]) == 1
        source = sources[row["file"]]
        count = int(row["count"])
        path = folder / row["file"]
        found.append(Clip(path, source, row["motion"], count, within, (mark[0], mark[1]), alone))
    return found


def read_dev(folder: Path) -> list[Clip]:
    """The clips of dev.csv."""
    with open(folder / "dev.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Clip(
            folder / row["file"],
            row["source"],
            row["file"],
            int(row["count"]),
            (0.0, float(row["duration_s"])),
            (float(row["exemplar_start_s"]), float(row["exemplar_end_s"])),
            True,
        )
        for row in rows
    ]


def table(answers: Sequence[Answer]) -> str:
    """One row per group."""
    dice = np.random.default_rng(0)
    lines = [
        "| group | questions | within one | own kept | others counted | left out | answered 0 | sure and wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in dict.fromkeys(answer.group for answer in answers):
        some = [answer for answer in answers if answer.group == group]
        columns: list[list[float]] = [
            [answer.right for answer in some],
            [answer.kept for answer in some],
            [answer.other for answer in some if answer.other is not None],
            [answer.lost for answer in some],
            [answer.zero for answer in some],
            [answer.sure and not answer.right for answer in some],
        ]
        cells = []
        for values in columns:
            if not values:
                cells.append("–")
                continue
            means = np.array(values, dtype=float)[dice.integers(0, len(values), (2000, len(values)))].mean(1)
            low, high = np.quantile(means, [0.025, 0.975])
            cells.append(f"{np.mean(values):.3f} ({low:.2f}–{high:.2f})")
        lines.append(f"| {group} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "clips")
    parser.add_argument("--model", default="lite")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--dev", action="store_true", help="pairs and ordinary clips of dev.csv")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results/")
    options = parser.parse_args()
    model = escounts.load(options.model, device="cpu").model
    assert isinstance(model, MultiRateModel)
    asker = Asker(model, dev=options.dev)
    pool = read_dev(options.clips) if options.dev else read_pool(options.clips)
    answers: list[Answer] = []
    for name in options.groups:
        clips = read_sets(options.clips) if name == "workouts" else pool
        answers += list(globals()[name](asker, clips))
        print(table([answer for answer in answers if answer.group.startswith(name)]), flush=True)
    if options.write:
        what = "selection dev" if options.dev else "selection"
        command = f"python benchmarks/selection.py{' --dev' if options.dev else ''}"
        replace_section(what, f"## {what.capitalize()}\n\n`{command}`; 95 % intervals.\n\n{table(answers)}")


if __name__ == "__main__":
    main()
