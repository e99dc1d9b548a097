"""Train the whole decoder on your own folder of videos, hundreds of them: encoded once, then the paper's trainer.

For three to ten videos there is `escounts.teach`, which tunes the head alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from escounts.errors import DataError
from escounts.models.catalogue import LITE_WEIGHTS
from escounts.models.checkpoint import read_checkpoint
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import NARROW_DECODER, NetworkConfig
from escounts.research.datasets.annotations import Problem
from escounts.research.datasets.encoding import Progress, encode_dataset, layout_for
from escounts.research.datasets.registry import load_dataset
from escounts.research.datasets.stores import network_encoder, open_encoder, save_labels, store_path
from escounts.research.datasets.tokens import TokenLayout
from escounts.research.training.objective import RateObjectiveConfig
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun, changed, train_on_tokens
from escounts.research.training.trainer import Report

OWN_TRAIN = TrainConfig(
    steps=400,
    batch_size=8,
    lr=1e-4,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=20,
    ema=0.99,
    validate_every=50,
    checkpoint_every=50,
)
"""For your own videos: few of them, so that it starts from the default model and trains gently."""


def train_folder(
    root: Path,
    out: Path,
    *,
    tokens: Path | None = None,
    initial: str = "lite",
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    report: Report | None = None,
) -> tuple[dict[str, float], list[Problem]]:
    """Encode and train on your own videos; the last validation's figures, and every video that was left out.

    initial: `lite`, a checkpoint, or `none`. tokens: where they are kept (None: in the run's folder).
    changes: fields of OWN_TRAIN.
    """
    dataset = load_dataset("folder", root)
    start = {"lite": LITE_WEIGHTS, "none": None}.get(initial, Path(initial))
    if start is not None and not start.exists():
        raise DataError(f"no checkpoint {start} to start from; --init none trains from nothing")
    encoder, identity = (
        open_encoder("patches", device=device) if start is None else network_encoder(start, device=device)
    )
    layout = layout_for(encoder.spec, identity, shifts=2)
    path = store_path(tokens or out / "tokens", "folder", encoder.spec.name)
    store, problems = encode_dataset(dataset, root, path, encoder, layout, progress=progress)
    save_labels(path, dataset)
    run = changed(folder_run(layout, start, seed=seed), changes or {})
    figures = train_on_tokens(run, dataset, store, out, device=device, initial=start, report=report)
    return figures, [*dataset.problems, *problems]


def folder_run(layout: TokenLayout, initial: Path | None, *, seed: int = 0) -> TokenRun:
    """The run for a folder of own videos. initial: the network it starts from, None to start from nothing."""
    if initial is None:
        decoder = replace(NARROW_DECODER, in_channels=layout.channels)
    else:
        decoder = NetworkConfig.from_plain(read_checkpoint(initial)[1]).decoder
    assert isinstance(decoder.head, RateHeadConfig)
    train = replace(OWN_TRAIN, seed=seed, lr=2e-3 if initial is None else OWN_TRAIN.lr)
    tokens = StoredTokensConfig(
        seed=seed, batch_size=train.batch_size, target="rate", by_window=True, shifts=2, validation_shifts=2
    )
    return TokenRun(decoder, train, tokens, RateObjectiveConfig(head=decoder.head))
