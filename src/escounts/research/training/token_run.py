"""A whole training run on stored tokens: from a recipe to a run folder that can be evaluated.

The run folder records what was trained on, video by video, so that an evaluation can refuse to use it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from escounts.decision.rules import Calibration
from escounts.errors import DataError, ModelError
from escounts.models.checkpoint import (
    check_config,
    load_network,
    read_checkpoint,
    save_decoder,
    save_network,
    strict_load,
    write_checkpoint,
)
from escounts.models.store import kind_of
from escounts.nn.decoder import PAPER, Decoder, DecoderConfig
from escounts.nn.network import Network
from escounts.research.datasets.annotations import Dataset, VideoAnnotation
from escounts.research.datasets.stores import encoder_identity
from escounts.research.datasets.tokens import TokenLayout, TokenStore
from escounts.research.training.batches import TokenCache
from escounts.research.training.objective import (
    DensityObjectiveConfig,
    ObjectiveConfig,
    RateObjectiveConfig,
)
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.run_folder import ABOUT, reserve_run_folder
from escounts.research.training.stored_tokens import StoredTokensConfig, StoredTokensTask
from escounts.research.training.trainer import Report, Trainer, device_of_process, start_distributed
from escounts.system.config_codec import from_plain, to_plain, with_settings


class HeadConfig(Protocol):
    """A head on tokens that is not the paper's decoder; a frozen dataclass of plain values with a `kind`.

    The head that it builds is called as the decoder is and says with `map_kind` what its map holds.
    """

    @property
    def kind(self) -> str:
        """Its name in files."""
        ...

    @property
    def in_channels(self) -> int:
        """Channels of the tokens that it takes."""
        ...

    def build(self) -> nn.Module:
        """The head with fresh weights."""
        ...


OTHER_HEADS: dict[str, type[Any]] = {}
"""Heads beside the paper's decoder, kind → config: who brings some puts them here, and runs of them can be read."""
OBJECTIVES: dict[str, type[Any]] = {"density": DensityObjectiveConfig, "rate": RateObjectiveConfig}
"""Kind → config; as above."""
OTHER = "rival"
"""Where a checkpoint keeps another head's config; `decoder` is the place of the one decoder that counts videos."""


@dataclass(frozen=True)
class TokenRun:
    """Everything that decides what a run learns; the defaults are the paper's recipe."""

    decoder: DecoderConfig | HeadConfig = PAPER
    train: TrainConfig = field(default_factory=TrainConfig)
    tokens: StoredTokensConfig = field(default_factory=StoredTokensConfig)
    objective: ObjectiveConfig = field(default_factory=DensityObjectiveConfig)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> TokenRun:
        """The inverse of to_plain; raises DataError for a head that nobody brought."""
        parts: dict[str, Any] = {}
        if "decoder" in values:
            parts["decoder"] = head_config(values["decoder"])
        if "objective" in values:
            kind = values["objective"].get("kind", "density")
            parts["objective"] = from_plain(_known(OBJECTIVES, kind), values["objective"])
        plain = {name: value for name, value in values.items() if name not in parts}
        return replace(from_plain(cls, plain, ignore_unknown=True), **parts)


def head_config(values: Mapping[str, Any]) -> DecoderConfig | HeadConfig:
    """The config of a head as a file has it."""
    check_config(dict(values), "decoder")
    kind = values.get("kind")
    config: DecoderConfig | HeadConfig = from_plain(_known(OTHER_HEADS, kind) if kind else DecoderConfig, values)
    return config


def _known(kinds: Mapping[str, type[Any]], kind: str) -> type[Any]:
    if kind not in kinds:
        raise DataError(f"a run of {kind!r} is read in a checkout of the project: python -m paper evaluate RUN")
    return kinds[kind]


@dataclass(frozen=True)
class RunMetadata:
    """What a run folder says of itself. trained: keys (see leakage_key) of the videos it learnt from."""

    dataset: str
    run: TokenRun
    layout: TokenLayout
    trained: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> RunMetadata:
        """From a run folder."""
        try:
            values = json.loads((folder / ABOUT).read_text())
            return cls(
                dataset=values["dataset"],
                run=TokenRun.from_plain(values["run"]),
                layout=TokenLayout.from_plain(values["layout"]),
                trained=frozenset(values["trained"]),
            )
        except FileNotFoundError:
            raise DataError(f"{folder} is not a run on stored tokens: it has no {ABOUT}") from None
        except KeyError as error:
            raise DataError(f"{folder} is not a run on stored tokens: its {ABOUT} has no {error}") from None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{folder / ABOUT} cannot be read: {error}") from error


def train_on_tokens(
    run: TokenRun,
    dataset: Dataset,
    store: TokenStore,
    out: Path,
    *,
    device: str = "cpu",
    initial: Path | None = None,
    report: Report | None = None,
    cache: TokenCache | None = None,
) -> dict[str, float]:
    """Train and leave last and best checkpoints, log and run.json in `out`; the last validation's figures.

    initial: a network's checkpoint to start from (its encoder must have made the tokens); the encoder stays
    frozen and is saved with the decoder, so that the result counts videos on its own. cache: the store's tokens
    near the device, where several runs share them.
    """
    where = device_of_process(device)
    start_distributed(where)
    train, valid = dataset.split("train"), dataset.split("valid") if "valid" in dataset.splits else ()
    torch.manual_seed(run.train.seed)
    network = build(run.decoder, store.layout, initial)
    task = StoredTokensTask(store, train, valid, run.tokens, device=where, cache=cache)
    about = {
        "dataset": dataset.name,
        "run": to_plain(run),
        "layout": to_plain(store.layout),
        "trained": sorted(leakage_key(dataset.name, video) for video in task.train),
    }
    trainer = Trainer(
        run.train,
        network,
        task,
        run.objective,
        out,
        save=_saver(run, dataset.name, store.layout.encoder, initial),
        device=where,
        report=report,
    )
    if trainer.rank == 0:
        reserve_run_folder(out, about)
    return trainer.fit()


def changed(run: TokenRun, changes: Mapping[str, Any]) -> TokenRun:
    """The run with other fields of its TrainConfig; epochs stand in the place of its steps. `settings`: fields of any
    part of the run, see with_settings."""
    changes = dict(changes)
    settings = changes.pop("settings", {})
    train = replace(run.train, **({"steps": None} if "epochs" in changes else {}) | changes)
    run = with_settings(replace(run, train=train), settings, TokenRun.from_plain)
    return replace(run, tokens=replace(run.tokens, batch_size=run.train.batch_size))


def steps_of(run: TokenRun, dataset: Dataset, store: TokenStore) -> int:
    """Optimiser steps of a run on the videos that the store holds."""
    videos = sum(video.name in store and store.entries[video.name].cells > 0 for video in dataset.split("train"))
    return run.train.total_steps(-(-videos // min(run.tokens.batch_size, max(videos, 1))))


def build(config: DecoderConfig | HeadConfig, layout: TokenLayout, initial: Path | None) -> nn.Module:
    """A fresh head for a store's tokens, or the network to start from with its encoder frozen."""
    if initial is None:
        if config.in_channels != layout.channels:
            raise ModelError(f"the decoder takes {config.in_channels} channels, the tokens have {layout.channels}")
        return build_head(config)
    network, _ = load_network(initial)
    if encoder_identity(network.encoder) != layout.identity:
        spec = network.encoder.spec
        raise ModelError(
            f"{initial} has an encoder {spec.name!r} of other weights than the {layout.encoder!r} that made the "
            "tokens; encode with the checkpoint that training starts from"
        )
    network.encoder.requires_grad_(False)
    return network


def load_trained(folder: Path, *, which: str = "best", device: torch.device | str = "cpu") -> nn.Module:
    """The decoder (or network) a run left, in evaluation mode; `last` where no validation chose a best."""
    path = folder / f"{which}.safetensors"
    if not path.exists():
        path = folder / "last.safetensors"
    if not path.exists():
        raise DataError(f"{folder} has no checkpoint yet; train it first")
    tensors, config, _ = read_checkpoint(path)
    if OTHER not in config and kind_of(config) == "network":
        return load_network(path, device)[0]
    head = build_head(head_config(config.get(OTHER) or config["decoder"]))
    strict_load(head, tensors, source=f"the weights in {path}")
    return head.to(device).eval()


def build_head(config: DecoderConfig | HeadConfig) -> nn.Module:
    """The network a config describes, with fresh weights."""
    return Decoder(config) if isinstance(config, DecoderConfig) else config.build()


def leakage_key(dataset: str, video: VideoAnnotation) -> str:
    """One key for one piece of footage: the forms and splits of a dataset share their videos."""
    return f"{dataset.split('-')[0]}:{video.footage or video.file}"


def refuse_leakage(about: RunMetadata, dataset: str, videos: Iterable[VideoAnnotation]) -> None:
    """The guard: no video that the run trained on may be evaluated."""
    seen = [video.name for video in videos if leakage_key(dataset, video) in about.trained]
    if seen:
        some = ", ".join(seen[:3]) + (f" and {len(seen) - 3} more" if len(seen) > 3 else "")
        raise DataError(f"refused: the run trained on {len(seen)} of these videos ({some}); use a held-out split")


def _saver(run: TokenRun, dataset: str, encoder: str, initial: Path | None) -> Any:
    metadata = {"dataset": dataset, "run": json.dumps(to_plain(run))}
    if initial is not None and (calibration := read_checkpoint(initial)[2].get("calibration")):
        # The gate's bias and the floors go with the encoder and head that the run starts from; the confidence was
        # fitted before fine-tuning and is not a probability any more.
        metadata["calibration"] = replace(Calibration.from_json(calibration), calibrated=False).to_json()

    def save(path: Path, network: nn.Module, figures: dict[str, float]) -> None:
        about = metadata | {"validation": json.dumps(figures)}
        if isinstance(network, Network):
            save_network(path, network, metadata=about)
        elif isinstance(network, Decoder):
            # The encoder is named: several have tokens of one width, and counting needs the right one.
            save_decoder(path, network, encoder=encoder, metadata=about)
        else:
            config = {"encoder": encoder, OTHER: to_plain(run.decoder)}
            write_checkpoint(path, network.state_dict(), config=config, metadata=about)

    return save
