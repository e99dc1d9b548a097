"""The recipe for your own videos: few of them, so start from the default model and train gently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from escounts.datasets.tokens import TokenLayout
from escounts.nn.heads import RateHeadConfig
from escounts.nn.lite import NARROW_DECODER
from escounts.nn.network import NetworkConfig
from escounts.training.config import TrainConfig
from escounts.training.objective import RateObjectiveConfig
from escounts.training.stored_tokens import StoredTokensConfig
from escounts.training.token_run import TokenRun
from escounts.zoo.checkpoint import read_checkpoint

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
