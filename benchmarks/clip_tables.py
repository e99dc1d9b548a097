"""The tables of real_clips.py: what a model said of labelled clips, and how far that is from the truth."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from labelled import LabelledSet, read_table
from report import ROOT, markdown

import escounts
from escounts.decision.evidence import UNITS
from escounts.errors import EscountsError
from escounts.research.metrics import Score, auc, evaluate
from escounts.results import CountResult, Hypothesis

WAYS = ("zero-shot", "one exemplar")
METRICS = ("mae", "obo", "obz", "rmse")
ROPES = ("countix", "rope")
"""Groups of clips that are labelled by single sides."""
ALTERNATE = ("rope_china", "rope_jp", "rope_swe", "rope_alternative", "countix_AnEm66", "countix_DMc9Jkvwc_s_2",
             "countix_FGsnd", "countix_GgB8", "soccer_keepups", "hometrainer", "lunges")  # fmt: skip
"""Parts of the names of clips whose motion has two opposite sides, by eye …"""
MAY_ALTERNATE = ("countix_D5Ge", "countix_Buh", "core_strength")
"""… and of those of which the eye was not sure."""


@dataclass
class Answers:
    """What one model said of every clip, by way of asking and the clip's name; seconds: of the zero-shot counts."""

    results: dict[str, dict[str, CountResult]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, way: str, clip: LabelledSet, result: CountResult) -> None:
        self.results.setdefault(way, {})[clip.name] = result

    def of(self, way: str, clip: LabelledSet) -> CountResult:
        return self.results[way][clip.name]

    def asked(self, way: str, clips: Sequence[LabelledSet]) -> list[LabelledSet]:
        """The clips that were asked so."""
        return [clip for clip in clips if clip.name in self.results.get(way, {})]

    def scores(self, way: str, clips: Sequence[LabelledSet]) -> dict[str, str]:
        """Every metric with its interval."""
        found = evaluate([clip.count for clip in clips], [self.of(way, clip).raw_count for clip in clips])
        return {name: shown(score) for name, score in found.items()}

    @property
    def counts(self) -> dict[str, dict[str, float]]:
        """Raw counts, for the record."""
        return {way: {name: one.raw_count for name, one in found.items()} for way, found in self.results.items()}


def shown(score: Score) -> str:
    """Value and interval."""
    return f"{score.value:.3f} ({score.low:.2f}–{score.high:.2f})"


def groups(clips: Sequence[LabelledSet]) -> Iterator[tuple[str, list[LabelledSet]]]:
    """The clips by group, in the order of the list."""
    for group in dict.fromkeys(clip.group for clip in clips):
        yield group, [clip for clip in clips if clip.group == group]


def scores_table(name: str, clips: Sequence[LabelledSet], answers: Answers, *, of: str = "") -> str:
    """MAE, OBO, OBZ and RMSE by group and way of asking."""
    rows = []
    for group, members in groups(clips):
        for way in WAYS:
            scores = answers.scores(way, members)
            rows.append([f"{group} ({len(members)})", way, *(scores[metric] for metric in METRICS)])
    table = markdown(["set", "asked", *map(str.upper, METRICS)], rows)
    if of:
        return f"### `{name}`: counts, clips {of}\n\n{table}"
    cost = answers.seconds / sum(clip.duration for clip in clips)
    return f"### `{name}`: counts\n\nEncoding and counting took {cost:.3f} s a second of video.\n\n{table}"


def baseline_table(clips: Sequence[LabelledSet]) -> str:
    """The rule without a model: duration / length of the exemplar."""
    rows = []
    for group, members in groups(clips):
        marked = [(clip, clip.exemplar) for clip in members if clip.exemplar is not None]
        guess = [clip.duration / (end - start) for clip, (start, end) in marked]
        scores = evaluate([clip.count for clip, _ in marked], guess)
        rows.append([f"{group} ({len(members)})", *(shown(scores[metric]) for metric in METRICS[:3])])
    return f"### No model: duration / length of the exemplar\n\n{markdown(['set', 'MAE', 'OBO', 'OBZ'], rows)}"


def units_table(name: str, clips: Sequence[LabelledSet], answers: Answers) -> str:
    """Groups that label single sides: in which unit each clip was counted zero-shot, and the error in that unit."""
    about = (
        "Battle and speed ropes are labelled by sides, zero-shot counts are of full cycles: half the label is then\n"
        "the unit's choice. Each clip is put to the unit (half, once, twice the label) that it is nearest to."
    )
    rows = []
    for group, members in groups([clip for clip in clips if clip.group in ROPES]):
        counts = [answers.of("zero-shot", clip).raw_count for clip in members]
        errors = [{u: abs(n / u - c.count) / c.count for u in UNITS} for c, n in zip(members, counts, strict=True)]
        nearest = [min(error, key=error.__getitem__) for error in errors]
        wrong = np.mean([min(error.values()) for error in errors])
        rows.append([f"{group} ({len(members)})", *(nearest.count(unit) for unit in UNITS), f"{wrong:.3f}"])
    headers = ("set", "half the label", "the label", "twice the label", "MAE in the nearest unit")
    return f"### `{name}`: the unit, zero-shot\n\n{about}\n\n{markdown(headers, rows)}"


def confidence_table(name: str, clips: Sequence[LabelledSet], answers: Answers) -> str:
    """How many clips are called sure, and how many of these are within one; half the label is right of a rope."""
    rows = []
    for way in WAYS:
        sure = [clip for clip in clips if not answers.of(way, clip).unsure]
        right = [clip for clip in sure if abs(answers.of(way, clip).count - clip.count) <= 1]
        units = [clip for clip in sure if clip in right or (
            clip.group == "rope" and abs(2 * answers.of(way, clip).count - clip.count) <= 1)]  # fmt: skip
        shares = [f"{len(part)} ({len(part) / max(1, len(sure)):.0%})" for part in (right, units)]
        rows.append([way, f"{len(sure)} of {len(clips)}", *shares])
    headers = ("asked", "called sure", "of these within one", "or half the label on `rope`")
    return f"### `{name}`: confidence\n\n{markdown(headers, rows)}"


def hypotheses_text(name: str, clips: Sequence[LabelledSet], answers: Answers) -> str:
    """What the zero-shot answers hold possible: the label of ropes, nothing where there is something, sides."""
    of = answers.results["zero-shot"]
    ropes = [clip for clip in clips if clip.group in ROPES]
    named = [clip for clip in ropes if _named(clip, of[clip.name].hypotheses[:2])]
    many = [clip for clip in clips if clip.count >= 3]
    sure = [clip for clip in clips if not of[clip.name].unsure]
    live = [c for c in sure if _named(c, [h for h in of[c.name].hypotheses if h.live], share=0.0)]
    known = [clip for clip in clips if not any(part in clip.name for part in MAY_ALTERNATE)]
    sides = np.array([_side_share(of[clip.name]) for clip in known])
    truth = np.array([any(part in clip.name for part in ALTERNATE) for clip in known])
    nothing = sum(of[clip.name].count == 0 for clip in many)
    text = (
        f"The label is among the first two on {len(named)} of {len(ropes)} clips of countix and rope (within one, "
        f"or 3 %). Of {len(many)} clips with three or more repetitions {nothing} are answered 0. Of {len(sure)} "
        f"clips that are called sure {len(live)} ({len(live) / max(1, len(sure)):.0%}) are within one in a live "
        f"unit. Alternation is told with an area under the curve of {auc(sides, truth):.2f} on {len(known)} clips; "
        f"{truth.sum()} of them alternate by eye."
    )
    return f"### `{name}`: hypotheses, zero-shot\n\n" + "\n".join(textwrap.wrap(text, 118))


def _named(clip: LabelledSet, hypotheses: Iterable[Hypothesis], *, share: float = 0.03) -> bool:
    return any(abs(one.count - clip.count) <= max(1, share * clip.count) for one in hypotheses)


def _side_share(result: CountResult) -> float:
    """How probable sides are beside cycles."""
    p = {one.unit: one.p for one in result.hypotheses}
    return p.get("side", 0.0) / max(p.get("side", 0.0) + p.get("cycle", 0.0), 1e-9)


def times_table(name: str, clips: Sequence[LabelledSet], answers: Answers) -> str:
    """Distance of predicted from annotated repetition ends, in periods: as output, and given one border per clip."""
    about = (
        "Median distance of a predicted end from the nearest annotated end, in periods (by chance: 0.25). Where a\n"
        "repetition begins is arbitrary until one border is known: given is the annotated end in the middle of a\n"
        "clip (`result.aligned`), which is not measured itself."
    )
    rows = []
    for way in WAYS:
        output: list[float] = []
        aligned: list[float] = []
        for clip in clips:
            result = answers.of(way, clip)
            if clip.group == "quva52" and len(clip.ends) > 2 and result.repetitions:
                middle = clip.ends[len(clip.ends) // 2]
                output += _distances(result, clip.ends)
                aligned += _distances(result.aligned(at=middle), clip.ends, without=middle)
        rows.append([way, *(f"{np.median(found):.3f}" if found else "–" for found in (output, aligned))])
    headers = ("asked", "as output", "given one border")
    return f"### `{name}`: repetition times on quva52\n\n{about}\n\n{markdown(headers, rows)}"


def _distances(result: CountResult, ends: Sequence[float], *, without: float | None = None) -> list[float]:
    """Of every predicted end, to the nearest annotated one, in median periods. without: an end that was given."""
    period = float(np.median(np.diff(ends)))
    found = [one.end for one in result.repetitions if without is None or abs(one.end - without) > 1e-6]
    return [min(abs(time - end) for end in ends) / period for time in found]


def other_exemplars_text(name: str, clips: Sequence[LabelledSet], answers: Answers) -> str:
    """An exemplar of another video against zero-shot; another repetition against the marked one."""
    lines = [f"### `{name}`: other exemplars", ""]
    if other := answers.asked("other video", clips):
        foreign, none = (answers.scores(way, other) for way in ("other video", "zero-shot"))
        lines.append(
            f"- {len(other)} exercise clips with an exemplar of another video of the same action: MAE "
            f"{foreign['mae']}, OBO {foreign['obo']}; the same clips zero-shot: MAE {none['mae']}, OBO {none['obo']}."
        )
    if moved := answers.asked("moved exemplar", clips):
        counts = [[answers.of(way, c).count for way in ("one exemplar", "moved exemplar")] for c in moved]
        near = [abs(one - another) <= 1 for one, another in counts]
        lines.append(
            f"- Another repetition of the same clip as the exemplar changes the count by at most one on "
            f"{sum(near)} of {len(near)} clips ({np.mean(near):.0%})."
        )
    return "\n".join(lines)


def nothing_table(name: str, counter: escounts.Counter, folder: Path) -> str:
    """Real stretches with no repetitions, and of one single action."""
    kinds = {"nothing": "real, no repetitions", "single": "real, one single action"}
    counts: dict[str, list[int]] = {kind: [] for kind in kinds}
    minutes = 0.0
    for row in read_table(ROOT / "benchmarks" / "nothing_repeats.csv"):
        if row["kind"] not in counts:
            continue  # something does repeat there; the row keeps it out of training
        start, end = float(row["start_s"]), float(row["end_s"])
        try:
            counts[row["kind"]].append(counter.count(folder / row["file"], start=start, end=end).count)
        except EscountsError as error:
            print(f"left out: {error}")
            continue
        minutes += (end - start) / 60 if row["kind"] == "nothing" else 0
    rows = []
    for kind, values in counts.items():
        shares = (np.mean([value <= most for value in values]) for most in (0, 1))
        rows.append([f"{kinds[kind]} ({len(values)})", *(f"{share:.0%}" for share in shares)])
    table = markdown(["stretches", "answer 0", "answer at most 1"], rows)
    false = sum(counts["nothing"]) / minutes
    return f"### `{name}`: no repetitions\n\n{table}\n\nFalse counts a minute on the real stretches: {false:.2f}."
