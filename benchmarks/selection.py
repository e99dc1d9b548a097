"""Does an exemplar say what to count? Videos with several motions, of which one is marked; with 95 % intervals.

    python benchmarks/selection.py [--clips DIR] [--model lite] [--groups workouts pairs spot ...] [--dev] [--write]

workouts: the questions of DIR/sets.csv whose videos hold several sets. sets: the same videos without an exemplar.
pairs: two clips one after the other, A B, B A and A B A, one marked; `dissolve`: the one passes into the other. spot:
pairs of different motions of one source. drawn: a drawn figure does two things, before a camera that stands or moves.
elsewhere: a clip and its own copy, shifted and magnified. ordinary: clips of one motion, which must lose nothing;
`filmed in one` has no cut. unrelated, sibling: exemplars from other videos. Clips are the validation clips of
DIR/pool_labels.csv; --dev takes those of DIR/dev.csv for pairs and ordinary, which nothing was chosen by. `spectral`
does not choose by look, and is never sure.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from labelled import Span
from report import arguments, markdown, mean_text, replace_section
from selection_clips import (
    MOVING_CAMERA,
    STILL,
    Clip,
    dissolved,
    drawn,
    read_clips,
    shifted,
)

import escounts
from escounts.counter import Counter, EncodedVideo
from escounts.counting.changes import by_scenes
from escounts.counting.views import BASE_RATE
from escounts.results import CountResult
from escounts.synthetic import MotionBank
from escounts.system.arrays import Image
from escounts.video.files import Video
from escounts.video.in_memory import VideoInMemory

PAIRS, OF_A_SOURCE, OTHERS, DRAWN = 60, 4, 60, 12
SIDE = 128
DISSOLVE = round(BASE_RATE / 2)
ABOUT = (
    "95 % intervals. Own kept: density where the marked motion is, per repetition there; others counted: the same "
    "for the others; left out: share of all repetitions."
)
NEAR = 2.0
"""Seconds within which a set's border is found."""


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

    def __init__(self, counter: Counter, clips: Path, *, dev: bool) -> None:
        self.counter, self.clips, self.dev = counter, clips, dev
        self._images: dict[Path, list[Image]] = {}

    def images(self, clip: Clip) -> list[Image]:
        """All base frames of a clip; of the last few clips they are remembered."""
        if clip.path not in self._images:
            while len(self._images) > 40:
                del self._images[next(iter(self._images))]
            frames = Video(clip.path).frames(size=(SIDE, SIDE), rate=BASE_RATE)
            self._images[clip.path] = [frame.image for frame in frames]
        return self._images[clip.path]

    def encode(self, images: Sequence[Image]) -> EncodedVideo:
        return self.counter.encode(VideoInMemory(images, fps=BASE_RATE))

    def joined(
        self, group: str, parts: Sequence[Clip], own: set[int], *, copy: Sequence[Image] = (), dissolve: int = 0
    ) -> Answer:
        """Clips one after the other; the first of `own` is marked. copy: pictures instead of the last clip's own."""
        pictures = [self.images(clip) for clip in parts]
        if copy:
            pictures[-1] = list(copy)
        images, starts = pictures[0], [0.0]
        for some in pictures[1:]:
            before = len(images)
            images = dissolved(images, some, dissolve) if dissolve else [*images, *some]
            starts.append((len(images) - len(some) + (before + len(some) - len(images)) / 2) / BASE_RATE)
        first = min(own)
        begin = starts[first] if not dissolve or not first else starts[first] - dissolve / 2 / BASE_RATE
        mark = (parts[first].mark[0] + begin, parts[first].mark[1] + begin)
        spans = list(zip(starts, [*starts[1:], len(images) / BASE_RATE], strict=True))
        mine = [spans[i] for i in own]
        others = [spans[i] for i in range(len(parts)) if i not in own]
        truth = sum(parts[i].count for i in own)
        other_count = sum(parts[i].count for i in range(len(parts)) if i not in own)
        return ask(group, self.encode(images), mark, truth, mine, others, other_count)


def ask(
    group: str,
    encoded: EncodedVideo,
    mark: Span,
    truth: int,
    mine: Sequence[Span],
    others: Sequence[Span] = (),
    other_count: int = 0,
) -> Answer:
    """Count like one repetition of the same video."""
    result = encoded.count([(mark[0], min(mark[1], encoded.encoding.end))])
    return answer(group, result, truth, mine, others, other_count)


def answer(
    group: str,
    result: CountResult,
    truth: int,
    mine: Sequence[Span],
    others: Sequence[Span] = (),
    other_count: int = 0,
) -> Answer:
    """How a result compares with what is true."""
    times = result.density.times

    def within(spans: Sequence[Span]) -> float:
        inside = np.any([(times >= a) & (times <= b) for a, b in spans], 0) if spans else np.zeros(len(times))
        return float((result.density.values * inside).sum())

    left = len(result.left_out)
    return Answer(
        group=group,
        right=abs(result.count - truth) <= 1,
        zero=result.count == 0,
        sure=not result.unsure,
        kept=min(1.0, within(mine) / truth) if truth else 1.0,
        other=within(others) / other_count if other_count else None,
        lost=left / max(1, left + result.count),
    )


def workouts(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The questions of videos with several sets."""
    for sets in _several(clips):
        encoded = asker.encode(asker.images(sets[0]))
        for one in sets:
            others = [other for other in sets if other is not one]
            count = sum(other.count for other in others)
            spans = [other.within for other in others]
            yield ask("workouts", encoded, one.mark, one.count, [one.within], spans, count)


def _several(clips: Sequence[Clip]) -> list[list[Clip]]:
    """The sets of each video that has several."""
    by_path = defaultdict(list)
    for clip in clips:
        by_path[clip.path].append(clip)
    return [sets for sets in by_path.values() if len(sets) > 1]


def timelines(asker: Asker, clips: Sequence[Clip]) -> str:
    """Workouts without an exemplar: are the motions told apart, are the sets' borders found?"""
    right, near, borders = 0, 0, 0
    for sets in _several(clips):
        found = asker.encode(asker.images(sets[0])).count().sets
        letters = set()
        for labelled in sets:
            start, end = labelled.within
            inside = [one for one in found if min(end, one.end) - max(start, one.start) > 0]
            shares: dict[str, float] = defaultdict(float)
            for one in inside:
                shares[one.motion] += min(end, one.end) - max(start, one.start)
            letters |= {letter for letter, share in shares.items() if share > NEAR}
            for border, known in ((start, [one.start for one in found]), (end, [one.end for one in found])):
                near += min((abs(border - time) for time in known), default=np.inf) <= NEAR
                borders += 1
        right += len(letters) == len(sets)
    videos = len(_several(clips))
    return (
        f"Sets without an exemplar: the number of motions is right in {right} of {videos} workouts; {near} of "
        f"{borders} borders of labelled sets are found within {NEAR:g} s."
    )


def pairs(asker: Asker, clips: Sequence[Clip], *, group: str = "pairs", dissolve: int = 0) -> Iterator[Answer]:
    """Clips of different sources; the first is marked."""
    dice = random.Random(0)
    usable = [clip for clip in clips if clip.alone and clip.count >= 3]
    for _ in range(PAIRS // 3):
        one, other = dice.sample(usable, 2)
        while one.source == other.source and not asker.dev:
            one, other = dice.sample(usable, 2)
        yield asker.joined(group, [one, other], {0}, dissolve=dissolve)
        yield asker.joined(group, [other, one], {1}, dissolve=dissolve)
        yield asker.joined(group, [one, other, one], {0, 2}, dissolve=dissolve)


def dissolve(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The same, without a cut."""
    yield from pairs(asker, clips, group="dissolve", dissolve=DISSOLVE)


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


def drawn_figures(asker: Asker, _: Sequence[Clip]) -> Iterator[Answer]:
    """One figure on one spot does two things, before a camera that stands and one that moves; no cut."""
    mocap = asker.clips.parent / "mocap"
    motion = MotionBank.from_npz(mocap / "motions.npz", mocap / "motions.csv", workers=2)
    for camera, config in (("stands", STILL), ("moves", MOVING_CAMERA)):
        for one in drawn(DRAWN, config, motion):
            mark = one.marked[len(one.marked) // 2]
            mine, others = ((spans[0][0], spans[-1][1]) for spans in (one.marked, one.others))
            encoded = asker.encode(one.images)
            yield ask(f"drawn, camera {camera}", encoded, mark, len(one.marked), [mine], [others], len(one.others))


def elsewhere(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """A clip, then a part of its picture made as large as the whole."""
    dice = random.Random(2)
    for clip in dice.sample([clip for clip in clips if clip.alone and clip.count >= 3], PAIRS):
        yield asker.joined("elsewhere", [clip, clip], {0, 1}, copy=shifted(asker.images(clip), dice))


def ordinary(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """Clips of one motion."""
    for clip in clips:
        if clip.alone and clip.count >= 2:
            images = asker.images(clip)
            scenes = sum(begins for _, begins in by_scenes(images))
            group = "ordinary, with cuts" if scenes > 1 else "ordinary, filmed in one"
            yield ask(group, asker.encode(images), clip.mark, clip.count, [clip.within])


def unrelated(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The exemplar is another video's, of another action."""
    yield from _foreign(asker, clips, "unrelated", lambda one, other: one.action != other.action)


def sibling(asker: Asker, clips: Sequence[Clip]) -> Iterator[Answer]:
    """The exemplar is another video's, of the same action and another source."""
    yield from _foreign(asker, clips, "sibling", lambda one, other: one.action == other.action)


def _foreign(asker: Asker, clips: Sequence[Clip], group: str, fits: Callable[[Clip, Clip], bool]) -> Iterator[Answer]:
    dice = random.Random(3)
    usable = [clip for clip in clips if clip.alone and clip.count >= 2]
    possible = [(a, b) for a in usable for b in usable if a.source != b.source and fits(a, b)]
    for one, other in dice.sample(possible, min(OTHERS, len(possible))):
        result = asker.encode(asker.images(one)).count([(asker.encode(asker.images(other)), *other.mark)])
        yield answer(group, result, one.count if group == "sibling" else 0, [one.within])


def table(answers: Sequence[Answer]) -> str:
    """One row per group."""
    rows = []
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
        rows.append([group, len(some), *map(mean_text, columns)])
    names = ("within one", "own kept", "others counted", "left out", "answered 0", "sure and wrong")
    return markdown(("group", "questions", *names), rows)


def main() -> None:
    parser = arguments(__doc__, clips=True, model="lite")
    parser.add_argument("--groups", nargs="+", choices=[*QUESTIONS, "sets"], default=[*QUESTIONS, "sets"])
    parser.add_argument("--dev", action="store_true", help="pairs and ordinary clips of dev.csv")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results/")
    options = parser.parse_args()
    asker = Asker(escounts.load(options.model, device="cpu"), options.clips, dev=options.dev)
    sets = read_clips(options.clips / "sets.csv", options.clips)
    table_name, split = ("dev.csv", None) if options.dev else ("pool_labels.csv", "val")
    pool = read_clips(options.clips / table_name, options.clips, split=split)
    answers: list[Answer] = []
    said = ""
    for name in options.groups:
        if name == "sets":
            said = timelines(asker, sets)
            print(said, flush=True)
            continue
        answers += QUESTIONS[name](asker, sets if name == "workouts" else pool)
        print(table([answer for answer in answers if answer.group.startswith(name)]), flush=True)
    if options.write:
        what = f"selection {options.model}{' dev' if options.dev else ''}"
        command = " ".join(["python benchmarks/selection.py", *sys.argv[1:]]).removesuffix(" --write")
        replace_section(what, f"## {what.capitalize()}\n\n`{command}`; {ABOUT}\n\n{table(answers)}\n\n{said}")


QUESTIONS: dict[str, Callable[[Asker, Sequence[Clip]], Iterator[Answer]]] = {
    "workouts": workouts,
    "pairs": pairs,
    "dissolve": dissolve,
    "spot": spot,
    "drawn": drawn_figures,
    "elsewhere": elsewhere,
    "ordinary": ordinary,
    "unrelated": unrelated,
    "sibling": sibling,
}


if __name__ == "__main__":
    main()
