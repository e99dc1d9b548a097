"""Where the default model fails on generated videos: a picture for its card.

    python benchmarks/failures.py [--videos 60] [--rows 6]

Draws videos by code alone (no footage, so that anybody can), counts them zero-shot, and shows those whose count is
furthest from the truth: frames in order of time, what happened, what was counted, how sure it was.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import escounts
from escounts.synthetic import Generator, GeneratorConfig

SECONDS, RATE, FRAMES_SHOWN = 8, 30, 12
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "lite-failures.png"


@dataclass(frozen=True)
class Failure:
    """A generated video that was counted wrongly. frames: (FRAMES_SHOWN, H, W, 3)."""

    frames: np.ndarray
    what: str
    truth: float
    counted: float
    confidence: float

    @property
    def error(self) -> float:
        """Relative, as MAE has it."""
        return abs(round(self.counted) - self.truth) / max(self.truth, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=60)
    parser.add_argument("--rows", type=int, default=6)
    options = parser.parse_args()
    model: Any = escounts.load("lite", device="cpu").model
    generator = Generator(GeneratorConfig(period=(8.0, 100.0), single=0.0, sibling=0.0), seed=2026)
    failures = []
    for index in range(options.videos):
        plan = generator.plan(index, SECONDS * RATE)
        images = generator.render([plan], device="cpu").frames_BTCHW[0].permute(0, 2, 3, 1).numpy()
        estimate = model.encode_images(images).estimate()
        last = float(SECONDS * RATE)
        truth = sum((min(end, last) - max(start, 0.0)) / (end - start) for start, end in plan.spans)
        shown = images[np.linspace(0, len(images) - 1, FRAMES_SHOWN).astype(int)]
        name = plan.action.split(":")[1] if ":" in plan.action else plan.action
        what = f"{plan.kind.split(':')[0]}, {name}" if plan.spans else f"{name}, {plan.kind}"
        failures.append(Failure(shown, what, round(truth, 1), estimate.density.count, estimate.decision.confidence))
    wrong = [f for f in failures if abs(round(f.counted) - f.truth) > 1]
    print(f"{len(wrong)} of {len(failures)} are off by more than one")
    draw(sorted(wrong, key=lambda f: -f.error)[: options.rows])


def draw(failures: list[Failure]) -> None:
    """One row a video."""
    figure, axes = plt.subplots(len(failures), 1, figsize=(12, 1.35 * len(failures)), squeeze=False)
    for axis, failure in zip(axes[:, 0], failures, strict=True):
        axis.imshow(np.concatenate(list(failure.frames), axis=1))
        axis.set_title(
            f"{failure.what}: {failure.truth:g} repetitions, counted {failure.counted:.1f}, "
            f"confidence {failure.confidence:.2f}",
            fontsize=9, loc="left", pad=3,
        )  # fmt: skip
        axis.axis("off")
    figure.tight_layout(pad=0.4)
    figure.savefig(PICTURE, dpi=80)
    print(f"wrote {PICTURE.relative_to(PICTURE.parents[2])}")


if __name__ == "__main__":
    main()
