"""The tables of real_clips.py: clips, what a model said of them, and how far that is from the truth."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import escounts
from escounts.decision.evidence import UNITS
from escounts.errors import EscountsError
from escounts.research.metrics import Score, auc, evaluate
from escounts.results import CountResult, Hypothesis

HERE = Path(__file__).resolve().parent
PROOF_OF_CONCEPT = {("quva52", "zero-shot"): (0.140, 0.83), ("quva52", "one exemplar"): (0.057, 0.91)}
GENERATED_NEGATIVES = 60
ALTERNATE = (
    *(
        "rope_china",
        "rope_jp",
        "rope_swe",
        "rope_alternative",
        "countix_AnEm66",
        "countix_DMc9Jkvwc_s_2",
        "countix_FGsnd",
    ),
    *("countix_GgB8", "soccer_keepups", "hometrainer", "lunges"),
)
"""Parts of the names of clips whose motion has two opposite sides, by eye …"""
MAY_ALTERNATE = ("countix_D5Ge", "countix_Buh", "core_strength")
"""… and of those of which the eye was not sure."""


@dataclass(frozen=True)
class Clip:
    """One row of dev.csv or held_out.csv. moved: another repetition than the exemplar, None where none is
    marked. sure: the label is exact."""

    path: Path
    set: str
    count: int
    duration: float
    exemplar: tuple[float, float]
    ends: tuple[float, ...]
    moved: tuple[float, float] | None
    sure: bool

    @property
    def action(self) -> str:
        """The action an exercise clip shows, read off its name; "" when the name does not say."""
        name = self.path.stem.lower()
        known = ("pushup", "push-up", "squat", "shoulder", "curl", "crunch")
        return next((word.replace("-", "") for word in known if word in name), "")


@dataclass
class Answers:
    """What one model said of every clip, by way of asking."""

    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    results: dict[str, dict[str, CountResult]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, way: str, clip: Clip, result: CountResult) -> None:
        self.counts.setdefault(way, {})[clip.path.name] = result.raw_count
        self.results.setdefault(way, {})[clip.path.name] = result


def scores_table(name: str, clips: Sequence[Clip], answers: Answers, *, of: str = "") -> str:
    """MAE, OBO, OBZ and RMSE by set and way of asking."""
    video = sum(clip.duration for clip in clips)
    lines = [
        f"### `{name}`: counts" + (f", clips {of}" if of else ""),
        "",
        *([f"Encoding and counting took {answers.seconds / video:.3f} s a second of video.", ""] if not of else []),
        "| set | asked | MAE | OBO | OBZ | RMSE | proof of concept |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in _sets(clips):
        for way in ("zero-shot", "one exemplar"):
            chosen = [c for c in clips if c.set == kind and c.path.name in answers.counts[way]]
            if not chosen:
                continue
            scores = evaluate([c.count for c in chosen], [answers.counts[way][c.path.name] for c in chosen])
            poc = PROOF_OF_CONCEPT.get((kind, way))
            lines.append(
                f"| {kind} ({len(chosen)}) | {way} | "
                + " | ".join(shown(scores[m]) for m in ("mae", "obo", "obz", "rmse"))
                + f" | {f'{poc[0]:.3f} / {poc[1]:.2f}' if poc else '–'} |"
            )
    return "\n".join(lines)


def units_table(name: str, clips: Sequence[Clip], answers: Answers) -> str:
    """Sets that label single sides: in which unit each clip was counted zero-shot, and the error in that unit."""
    lines = [
        f"### `{name}`: the unit, zero-shot",
        "",
        "Battle and speed ropes are labelled by sides, zero-shot counts are of full cycles: half the label is then",
        "the unit's choice. Each clip is put to the unit (half, once, twice the label) that it is nearest to.",
        "",
        "| set | half the label | the label | twice the label | MAE in the nearest unit |",
        "|---|---|---|---|---|",
    ]
    for kind in ("countix", "rope"):
        chosen = [c for c in clips if c.set == kind]
        if not chosen:
            continue
        counts = [answers.counts["zero-shot"][c.path.name] for c in chosen]
        errors = [{u: abs(n / u - c.count) / c.count for u in UNITS} for c, n in zip(chosen, counts, strict=True)]
        units = [min(error, key=error.__getitem__) for error in errors]
        wrong = [min(error.values()) for error in errors]
        shares = " | ".join(str(units.count(unit)) for unit in UNITS)
        lines.append(f"| {kind} ({len(chosen)}) | {shares} | {np.mean(wrong):.3f} |")
    return "\n".join(lines)


def _sets(clips: Iterable[Clip]) -> list[str]:
    """The sets of these clips, in their order."""
    return list(dict.fromkeys(clip.set for clip in clips))


def shown(score: Score) -> str:
    """Value and interval."""
    return f"{score.value:.3f} ({score.low:.2f}–{score.high:.2f})"


def rules_table(clips: Sequence[Clip]) -> str:
    """The rule without a model: duration / length of the exemplar."""
    lines = ["### No model: duration / length of the exemplar", "", "| set | MAE | OBO | OBZ |", "|---|---|---|---|"]
    for kind in _sets(clips):
        chosen = [c for c in clips if c.set == kind]
        if chosen:
            guess = [c.duration / (c.exemplar[1] - c.exemplar[0]) for c in chosen]
            scores = evaluate([c.count for c in chosen], guess)
            row = " | ".join(shown(scores[m]) for m in ("mae", "obo", "obz"))
            lines.append(f"| {kind} ({len(chosen)}) | {row} |")
    return "\n".join(lines)


def confidence_table(name: str, clips: Sequence[Clip], answers: Answers) -> str:
    """How many clips are called sure, and how many of these are within one."""
    ropes = any(clip.set == "rope" for clip in clips)
    note = ["The last column takes half the label for right on `rope`, as the unit's choice.", ""]
    head = ["asked", "called sure", "of these within one", *(["or half the label on `rope`"] if ropes else [])]
    lines = [f"### `{name}`: confidence", "", *(note if ropes else []), _row(head), _row(["---"] * len(head))]
    for way in ("zero-shot", "one exemplar"):
        counted = {name: result.count for name, result in answers.results[way].items()}
        sure = [c for c in clips if not answers.results[way][c.path.name].unsure]
        right = {c for c in sure if abs(counted[c.path.name] - c.count) <= 1}
        halves = {c for c in sure if c.set == "rope" and abs(2 * counted[c.path.name] - c.count) <= 1}
        parts = [right, right | halves] if ropes else [right]
        shares = [f"{len(part)} ({len(part) / max(1, len(sure)):.0%})" for part in parts]
        lines.append(_row([way, f"{len(sure)} of {len(clips)}", *shares]))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def hypotheses_table(name: str, clips: Sequence[Clip], answers: Answers) -> str:
    """What the zero-shot answers hold possible: the label of ropes, nothing where there is something, sides."""
    results = answers.results["zero-shot"]
    ropes = [clip for clip in clips if clip.set in ("countix", "rope")]
    named = [clip for clip in ropes if _named(clip, results[clip.path.name].hypotheses[:2])]
    many = [clip for clip in clips if clip.count >= 3]
    sure = [clip for clip in clips if not results[clip.path.name].unsure]
    live = [c for c in sure if _named(c, [h for h in results[c.path.name].hypotheses if h.live], share=0.0)]
    known = [clip for clip in clips if not any(part in clip.path.name for part in MAY_ALTERNATE)]
    sides = np.array([_side_share(results[clip.path.name]) for clip in known])
    truth = np.array([any(part in clip.path.name for part in ALTERNATE) for clip in known])
    nothing = [clip for clip in many if results[clip.path.name].count == 0]
    text = (
        f"The label is among the first two on {len(named)} of {len(ropes)} clips of countix and rope (within one, "
        f"or 3 %). Of {len(many)} clips with three or more repetitions {len(nothing)} are answered 0. Of {len(sure)} "
        f"clips that are called sure {len(live)} ({len(live) / max(1, len(sure)):.0%}) are within one in a live "
        f"unit. Alternation is told with an area under the curve of {auc(sides, truth):.2f} on {len(known)} clips; "
        f"{truth.sum()} of them alternate by eye."
    )
    lines = [f"### `{name}`: hypotheses, zero-shot", "", *textwrap.wrap(text, 118)]
    return "\n".join(lines)


def _named(clip: Clip, hypotheses: Sequence[Hypothesis], *, share: float = 0.03) -> bool:
    return any(abs(one.count - clip.count) <= max(1, share * clip.count) for one in hypotheses)


def _side_share(result: CountResult) -> float:
    """How probable sides are beside cycles."""
    p = {one.unit: one.p for one in result.hypotheses}
    return p.get("side", 0.0) / max(p.get("side", 0.0) + p.get("cycle", 0.0), 1e-9)


def times_table(name: str, clips: Sequence[Clip], answers: Answers) -> str:
    """Distance of predicted from annotated repetition ends, in periods: as output, and given one border per clip."""
    lines = [
        f"### `{name}`: repetition times on quva52",
        "",
        "Median distance of a predicted end from the nearest annotated end, in periods (by chance: 0.25). Where a",
        "repetition begins is arbitrary until one border is known: given is the annotated end in the middle of a",
        "clip (`result.aligned`), which is not measured itself.",
        "",
        "| asked | as output | given one border |",
        "|---|---|---|",
    ]
    for way in ("zero-shot", "one exemplar"):
        output: list[float] = []
        aligned: list[float] = []
        for clip in clips:
            result = answers.results[way][clip.path.name]
            if clip.set == "quva52" and len(clip.ends) > 2 and result.repetitions:
                middle = clip.ends[len(clip.ends) // 2]
                output += _distances(result, clip.ends)
                aligned += _distances(result.aligned(at=middle), clip.ends, without=middle)
        lines.append(
            f"| {way} | {np.median(output):.3f} | {np.median(aligned):.3f} |" if output else f"| {way} | – | – |"
        )
    return "\n".join(lines)


def _distances(result: CountResult, ends: Sequence[float], *, without: float | None = None) -> list[float]:
    """Of every predicted end, to the nearest annotated one, in median periods. without: an end that was given."""
    period = float(np.median(np.diff(ends)))
    found = [one.end for one in result.repetitions if without is None or abs(one.end - without) > 1e-6]
    return [min(abs(time - end) for end in ends) / period for time in found]


def other_exemplars_table(name: str, clips: Sequence[Clip], answers: Answers) -> str:
    """An exemplar of another video against zero-shot; another repetition against the marked one."""
    lines = [f"### `{name}`: other exemplars", ""]
    other = [c for c in clips if c.path.name in answers.counts.get("other video", {})]
    if other:
        truth = [c.count for c in other]
        ways = [answers.counts[way] for way in ("zero-shot", "other video")]
        pair = [evaluate(truth, [counts[c.path.name] for c in other]) for counts in ways]
        lines.append(
            f"- {len(other)} exercise clips with an exemplar of another video of the same action: MAE "
            f"{shown(pair[1]['mae'])}, OBO {shown(pair[1]['obo'])}; the same clips zero-shot: MAE "
            f"{shown(pair[0]['mae'])}, OBO {shown(pair[0]['obo'])}."
        )
    moved = [c for c in clips if c.path.name in answers.counts.get("moved exemplar", {})]
    if moved:
        one, another = (answers.results[way] for way in ("one exemplar", "moved exemplar"))
        near = [abs(one[c.path.name].count - another[c.path.name].count) <= 1 for c in moved]
        lines.append(
            f"- Another repetition of the same clip as the exemplar changes the count by at most one on "
            f"{sum(near)} of {len(near)} clips ({np.mean(near):.0%})."
        )
    return "\n".join(lines)


def nothing_table(name: str, counter: escounts.Counter, folder: Path) -> str:
    """Stretches with no repetitions: real ones, single actions, generated ones."""
    from escounts.synthetic import Generator, GeneratorConfig

    counts: dict[str, list[int]] = {"nothing": [], "single": []}
    minutes = 0.0
    with open(HERE / "nothing_repeats.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["kind"] not in counts:
                continue  # something does repeat there; the row keeps it out of training
            start, end = float(row["start_s"]), float(row["end_s"])
            try:
                result = counter.count(folder / row["file"], start=start, end=end)
            except EscountsError as error:
                print(f"left out: {error}")
                continue
            counts[row["kind"]].append(result.count)
            minutes += (end - start) / 60 if row["kind"] == "nothing" else 0
    lines = [f"### `{name}`: no repetitions", "", "| stretches | answer 0 | answer at most 1 |", "|---|---|---|"]
    for kind, values in (("real, no repetitions", counts["nothing"]), ("real, one single action", counts["single"])):
        zero, one = np.mean([v == 0 for v in values]), np.mean([v <= 1 for v in values])
        lines.append(f"| {kind} ({len(values)}) | {zero:.0%} | {one:.0%} |")
    if hasattr(counter.model, "encode_images"):
        generator = Generator(GeneratorConfig(negative=1.0, single=0.0, sibling=0.0), seed=4242)
        made = []
        for index in range(GENERATED_NEGATIVES):
            frames = generator.render([generator.plan(index, 240)], device="cpu").frames_BTCHW[0]
            encoding = counter.model.encode_images(frames.permute(0, 2, 3, 1).numpy())
            made.append(round(encoding.estimate().density.count))
        zero, one = np.mean([v == 0 for v in made]), np.mean([v <= 1 for v in made])
        lines.append(f"| generated by code, 8 s each ({len(made)}) | {zero:.0%} | {one:.0%} |")
    lines += ["", f"False counts a minute on the real stretches: {sum(counts['nothing']) / minutes:.2f}."]
    return "\n".join(lines)
