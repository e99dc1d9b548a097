"""Fits the look head of a `lite` checkpoint: which directions of its frame features tell motions apart.

    python benchmarks/look_head.py src/escounts/weights/lite.safetensors --clips DIR [--out FILE]

Fisher's linear discriminant on the `train` clips of DIR/pool_labels.csv: within are the repetitions of one set, and
the same set shifted and magnified; between are the sets of one source, which often show one person on one spot.
Distances are then in units of the spread within. Run it again whenever the encoder's weights change.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from labelled import by_clip, read_sets
from report import arguments
from selection_clips import shifted

from escounts.models.checkpoint import load_network, read_checkpoint, write_checkpoint
from escounts.nn.encoders.lite import LiteEncoder, pooled
from escounts.system.arrays import Array, Image
from escounts.video.files import Video

RATE = 5.0
WIDTH = 32
SHIFTED_WEIGHT, RIDGE = 2.0, 0.1
"""What a shifted copy weighs beside a repetition of the same set, and how much of the spread's trace is added."""
SHORTEST = 1.0
"""Seconds that a look is the mean of, at least."""
MOST_OF_A_SOURCE = 5
"""Sets of one source that count for the spread between motions: some sources have fifty."""


def main() -> None:
    parser = arguments(__doc__, clips=True)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path, help="default: the checkpoint itself")
    options = parser.parse_args()
    tensors, config, metadata = read_checkpoint(options.checkpoint)
    network, _ = load_network(options.checkpoint)
    assert isinstance(network.encoder, LiteEncoder)
    sets = list(labelled_sets(network.encoder.eval(), options.clips))
    weight = discriminant(sets)
    config["encoder_options"]["look"] = WIDTH
    about = {**metadata, "look": f"{len(sets)} labelled sets of the pool's train clips"}
    dtype = tensors["encoder.reduce.weight"].dtype
    tensors["encoder.look.weight"] = torch.from_numpy(weight.astype(np.float32)).to(dtype)
    write_checkpoint(options.out or options.checkpoint, tensors, config=config, metadata=about)
    print(f"{options.out or options.checkpoint}: look of {WIDTH} numbers, fitted on {about['look']}")


class LookedSet:
    """One labelled set: its source, and looks of its repetitions, as filmed and in shifted copies, (N, 2 C) each."""

    def __init__(self, source: str, filmed: Array, shifted: Sequence[Array]) -> None:
        self.source, self.filmed, self.shifted = source, filmed, shifted


def labelled_sets(encoder: LiteEncoder, clips: Path) -> list[LookedSet]:
    """All sets of the pool's train clips that have a repetition."""
    labelled = [one for one in read_sets(clips / "pool_labels.csv", clips, split="train") if one.spans]
    found = []
    for file, sets in by_clip(labelled).items():
        size = encoder.spec.size
        images = [frame.image for frame in Video(clips / file).frames(size=(size, size), rate=RATE)]
        dice = random.Random(file)
        copies = [frame_looks(encoder, images), *(frame_looks(encoder, shifted(images, dice)) for _ in range(2))]
        for one in sets:
            filmed, *others = [repetition_looks(looks, one.spans) for looks in copies]
            if len(filmed):
                found.append(LookedSet(one.source, filmed, others))
    return found


@torch.inference_mode()
def frame_looks(encoder: LiteEncoder, images: Sequence[Image], batch: int = 64) -> Array:
    """(T, 2 C) of images at RATE."""
    parts = []
    for first in range(0, len(images), batch):
        some = torch.from_numpy(np.stack(images[first : first + batch + 1]))
        parts.append(pooled(encoder.image_features(some, min(batch, len(images) - first))))
    return torch.cat(parts).double().numpy()


def repetition_looks(looks: Array, spans: Sequence[tuple[float, ...]]) -> Array:
    """The mean look of each repetition and, where there are several, of as long a part that begins in its middle."""
    found = []
    for start, end in spans:
        length = max(end - start, SHORTEST)
        middles = [(start + end) / 2] if len(spans) == 1 else [(start + end) / 2, end]
        for middle in middles:
            low, high = round((middle - length / 2) * RATE), round((middle + length / 2) * RATE)
            part = looks[max(0, low) : min(len(looks), high)]
            if len(part) >= 3:
                found.append(part.mean(0))
    return np.array(found)


def discriminant(sets: Sequence[LookedSet]) -> Array:
    """(WIDTH, 2 C): the directions in which motions differ most, each in units of the spread within a set."""
    several = [one for one in sets if len(one.filmed) > 1]
    within: Array = np.mean([np.cov(one.filmed.T, bias=True) for one in several], 0)
    moved = [copy.mean(0) - one.filmed.mean(0) for one in sets for copy in one.shifted if len(copy)]
    within = within + SHIFTED_WEIGHT * np.mean([np.outer(one, one) for one in moved], 0) / 2
    within = within + RIDGE * np.trace(within) / len(within) * np.eye(len(within))
    by_source = defaultdict(list)
    for one in sets:
        by_source[one.source].append(one.filmed.mean(0))
    weights = {source: min(len(means), MOST_OF_A_SOURCE) for source, means in by_source.items() if len(means) > 1}
    spreads = [np.cov(np.array(by_source[source]).T, bias=True) for source in weights]
    between = np.average(spreads, 0, list(weights.values()))
    whitening = np.linalg.inv(np.linalg.cholesky(within))
    _, directions = np.linalg.eigh(whitening @ between @ whitening.T)
    found: Array = (whitening.T @ directions[:, ::-1][:, :WIDTH]).T
    return found


if __name__ == "__main__":
    main()
