"""The generator: an index becomes a plan, plans become videos with the true times of every repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from escounts.synthetic.action_sampling import draw_action
from escounts.synthetic.actions import Action
from escounts.synthetic.clips import ClipBank
from escounts.synthetic.composition import Composer, another_action
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.curves import chance, seeded
from escounts.synthetic.motion import MotionBank
from escounts.synthetic.plan import Plan
from escounts.synthetic.render import GeneratedBatch, render

ACTION, LOOK, PAIRS = 1, 2, 3
"""Independent streams of random numbers: what is done, how it is shown, who is whose sibling."""


class Generator:
    """Videos of repetitions, by index. The same seed, index and length give the same video."""

    def __init__(
        self,
        config: GeneratorConfig | None = None,
        *,
        clips: ClipBank | None = None,
        motion: MotionBank | None = None,
        seed: int = 0,
    ):
        self.config = config or GeneratorConfig()
        self.clips = clips
        self.motion = motion
        self.seed = seed
        self._composer = Composer(self.config, clips, motion)

    def plan(self, index: int, length: int) -> Plan:
        """The video `index` of `length` frames, decided but not drawn. numpy only, a few milliseconds."""
        return self._alone(index, length, 1.0)

    def plans(self, index: int, size: int, length: int) -> list[Plan]:
        """One batch: videos index · size and following; a share of them come as pairs of siblings.

        Siblings show one action with another camera, background, tempo and body. They always repeat, so the
        other videos take over their share of the negatives.
        """
        rng = seeded(self.seed, index, PAIRS)
        pairs = int(rng.binomial(size // 2, min(1.0, self.config.sibling)))
        alone = (size - 2 * pairs) / size
        first = index * size
        plans: list[Plan] = []
        for pair in range(pairs):
            one = 2 * pair
            action_rng = seeded(self.seed, first + one, ACTION, PAIRS)
            action = self._action(action_rng, length)
            backwards = chance(action_rng, self.config.reverse)
            for other in (one + 1, one):
                own = first + len(plans)
                plan = self._perform(action, own, length, backwards=backwards)
                plans.append(replace(plan, sibling=other))
        for own in range(first + len(plans), first + size):
            plans.append(self._alone(own, length, alone))
        return plans

    def render(
        self, plans: Sequence[Plan], *, device: torch.device | str, size: int | tuple[int, int] = 128
    ) -> GeneratedBatch:
        """Draw plans. size: pixels of the square, or (height, width)."""
        bank = self.clips.on(device) if self.clips is not None else None
        return render(plans, device=device, size=size, bank_NHWC=bank)

    def batch(
        self, index: int, size: int, length: int, *, device: torch.device | str, size_px: int = 128
    ) -> GeneratedBatch:
        """Plan and draw the batch `index` of `size` videos of `length` frames."""
        return self.render(self.plans(index, size, length), device=device, size=size_px)

    def _alone(self, index: int, length: int, alone: float) -> Plan:
        """A video without a sibling, where only `alone` of the batch can be negative or single."""
        rng = seeded(self.seed, index, ACTION)
        draw = rng.random() * max(alone, self.config.negative + self.config.single)
        action = self._action(rng, length)
        if draw < self.config.negative:
            return self._composer.negative(seeded(self.seed, index, LOOK), action, length)
        if draw < self.config.negative + self.config.single:
            return self._perform(action, index, length, single=True)
        return self._perform(action, index, length, second=another_action(rng, self._composer, action, length))

    def _action(self, rng: np.random.Generator, length: int) -> Action:
        return draw_action(rng, self.config, self.clips, self.motion, length)

    def _perform(
        self,
        action: Action,
        index: int,
        length: int,
        *,
        single: bool = False,
        second: Action | None = None,
        backwards: bool | None = None,
    ) -> Plan:
        rng = seeded(self.seed, index, LOOK)
        single = single and action.way != "loop"  # a loop played once does not come back
        plan = self._composer.perform(rng, action, length, single=single, second=second)
        if chance(rng, self.config.reverse) if backwards is None else backwards:
            plan = replace(plan.reversed(), action=action.reversed_name())
        return plan
