"""A whole training run of the default model on generated repetitions, from banks of motion to a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from escounts.counting.multi_rate import MultiRateModel
from escounts.decision.rules import Calibration
from escounts.models.checkpoint import (
    load_network,
    read_checkpoint,
    read_tensors,
    save_network,
    strict_load,
    write_checkpoint,
)
from escounts.nn.encoders.lite import LiteEncoder
from escounts.nn.network import LITE, LITE_TINY, Network, NetworkConfig
from escounts.research.training.calibration import Progress, calibrate, collect_labelled
from escounts.research.training.objective import RateObjectiveConfig
from escounts.research.training.optimisation import TrainConfig
from escounts.research.training.pixels import PixelConfig, PixelTask
from escounts.research.training.run_folder import code_identity, reserve_run_folder
from escounts.research.training.trainer import Report, Trainer, device_of_process, start_distributed
from escounts.synthetic import ClipBank, Generator, GeneratorConfig, MotionBank
from escounts.synthetic.clips import permissive, pool_rows
from escounts.system.config_codec import to_plain, with_settings

RECIPE = GeneratorConfig(
    labelled=0.3,
    clips=0.55,
    motion=0.27,
    procedural=0.18,
    irregular=0.18,
    negative_light=3.0,
    negative_once=12.0,
    alternate_figures=0.45,
    alternate_footage=0.3,
    alternate_sprites=0.3,
    alternate_exercises=0.8,
    two_sided=0.5,
    hold=0.3,
    dark=0.25,
    flash=0.08,
    squeeze=0.2,
)
"""What the default model is trained on, where the banks are there."""
TRAIN = TrainConfig(
    steps=4000,
    batch_size=24,
    lr=6e-4,
    betas=(0.9, 0.98),
    schedule="cosine",
    warmup_steps=200,
    ema=0.998,
    validate_every=2000,
)
"""From pixels, everything trained, one cosine."""
VALIDATION_SEED = 990_001
UNCALIBRATED = Calibration(unsure_below=0.88, gate_bias=1.0, gate_sharpness=2.0, nothing_below=0.2)
"""What calibration starts from: it fits the choice of views, the floor and the confidence, and keeps the rest. The
gate was chosen on the labelled clips of `val` and single sets; its neighbours differ by less than chance. Of answers
above unsure_below 95 in 100 labelled clips are within one."""


@dataclass(frozen=True)
class SyntheticRun:
    """Everything that decides what a run learns; written into its checkpoint."""

    network: NetworkConfig = LITE
    train: TrainConfig = TRAIN
    generator: GeneratorConfig = RECIPE
    pixels: PixelConfig = field(default_factory=PixelConfig)


LATER_PARTS = ("decoder.head.video.*", "encoder.amount")
"""Parameters that the first form of `lite` did not have: a run that starts from it learns them anew."""
LOOK = "encoder.look.weight"
"""Fitted on the finished encoder (benchmarks/look_head.py): no run starts from it."""

NETWORKS = {"lite": LITE, "lite-tiny": LITE_TINY}

SMOKE = SyntheticRun(
    network=LITE_TINY,
    train=replace(TRAIN, steps=60, batch_size=4, warmup_steps=10, validate_every=30, ema=0.9),
    pixels=PixelConfig(lengths=(32,), validation_batches=2, validation_length=32),
)
"""A minute on two CPU cores: shows that the chain runs and learns, nothing more."""


def changed(run: SyntheticRun, *, model: str | None = None, **changes: Any) -> SyntheticRun:
    """The run with another network (of NETWORKS) and other fields of its TrainConfig. `settings`: fields of any part
    of the run, see `with_settings`."""
    settings = changes.pop("settings", {})
    network = NETWORKS[model] if model else run.network
    return with_settings(replace(run, network=network, train=replace(run.train, **changes)), settings)


def train_synthetic(
    run: SyntheticRun,
    *,
    out: Path,
    clips: ClipBank | None = None,
    motion: MotionBank | None = None,
    device: str = "cpu",
    renderers: int = 0,
    initial: Path | None = None,
    provenance: dict[str, str] | None = None,
    report: Report | None = None,
) -> dict[str, float]:
    """Train and leave last.safetensors, best.safetensors and the log in `out`; the last validation's figures.

    renderers: processes that draw batches ahead; 0 draws them between steps. initial: a checkpoint whose weights the
    run starts from. provenance: what the footage was, written into the checkpoint's metadata.
    """
    where = device_of_process(device)
    seed = run.train.seed
    generator = Generator(run.generator, clips=clips, motion=motion, seed=seed)
    held_out = Generator(replace(run.generator, labelled=0.0), clips=clips, motion=motion, seed=VALIDATION_SEED)
    task = PixelTask(
        generator,
        held_out,
        batch_size=run.train.batch_size,
        seed=seed,
        device=where,
        config=run.pixels,
        size=run.network.encoder_options.get("size", 128),
        renderers=renderers,
    )
    start_distributed(where)  # after the processes that draw are forked
    torch.manual_seed(seed)
    network = Network(run.network)
    if initial is not None:
        start_from(network, initial)
    if where.type == "cuda":
        network.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    if run.train.compile and isinstance(network.encoder, LiteEncoder):
        network.encoder.compile_frame_stage()
    recipe = to_plain(run)
    metadata = {part: json.dumps(recipe[part]) for part in ("train", "generator", "pixels")} | (provenance or {})

    def save(path: Path, trained: nn.Module, figures: dict[str, float]) -> None:
        assert isinstance(trained, Network)
        save_network(path, trained, metadata=metadata | {"validation": json.dumps(figures)}, dtype=torch.float16)

    objective = RateObjectiveConfig()
    trainer = Trainer(run.train, network, task, objective, out, save=save, device=where, report=report)
    if trainer.rank == 0:
        reserve_run_folder(out, recipe)
    return trainer.fit()


def start_from(network: Network, initial: Path) -> None:
    """Take over a checkpoint's weights; what a checkpoint of an earlier form lacks keeps the values it has. A LOOK
    that the network has not stays behind: it is fitted to an encoder after training."""
    own = network.state_dict()
    given = {name: value for name, value in read_tensors(initial).items() if name in own or name != LOOK}
    later = [name for name in own if any(fnmatchcase(name, pattern) for pattern in LATER_PARTS)]
    strict_load(network, {**{name: own[name] for name in later}, **given}, known_unneeded=[LOOK], source=str(initial))


def calibrate_on_labels(
    path: Path,
    table: Path,
    *,
    split: str,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Fit the calibration of the network at path on the clips of one split of a label table and write it into the
    file's metadata."""
    model = MultiRateModel(path.stem, load_network(path)[0], device=device, calibration=UNCALIBRATED)
    trials = collect_labelled(model, table, split=split, progress=progress)
    fitted = calibrate(trials, UNCALIBRATED)
    tensors, config, metadata = read_checkpoint(path)
    kept = {name: value for name, value in metadata.items() if not name.startswith("calibrat")}
    about = {"calibration": fitted.to_json(), "calibration_clips": f"{len(trials)} of {split}"}
    write_checkpoint(path, tensors, config=config, metadata={**kept, **about})
    return fitted


MOTION_ONLY = "motion"
"""In the `use` column of a list of clips: cut motion from it, but do not take any of it for a stretch without
repetitions, because the clip repeats itself, or may."""


def clip_files(folder: Path | None, tables: Sequence[Path] = (), exclude: Sequence[Path] = ()) -> list[Path]:
    """The clips to cut motion from: all of a folder, and the permissive rows of tables (file, licence).

    exclude: CSVs whose `file` column names rows that are kept for testing, or are not footage. A row with `use` =
    "motion" stays, see `may_repeat`.
    """
    left_out = {row["file"] for row in _listed(exclude) if row.get("use") != MOTION_ONLY}
    files = sorted(folder.glob("*.mp4")) if folder is not None else []
    for table in tables:
        files += [table.parent / row["file"] for row in permissive(pool_rows(table)) if row["file"] not in left_out]
    return files


def may_repeat(exclude: Sequence[Path]) -> set[str]:
    """Names of the clips that are listed for MOTION_ONLY."""
    return {Path(row["file"]).name for row in _listed(exclude) if row.get("use") == MOTION_ONLY}


def _listed(tables: Sequence[Path]) -> list[dict[str, str]]:
    return [row for path in tables for row in pool_rows(path, need=("file",))]


def clip_bank(
    files: Sequence[Path],
    *,
    exclude: Sequence[Path] = (),
    filmed: Path | None = None,
    coded_stills: int = 0,
    labels: Path | None = None,
    workers: int = 1,
) -> ClipBank:
    """The bank of these clips, with what was filmed, stills that went through codecs, and labelled clips."""
    bank = ClipBank.from_files(files, workers=workers).without_negatives_of(may_repeat(exclude))
    if filmed is not None:
        bank = bank.with_filmed_repetitions(filmed)
    if coded_stills:
        bank = bank.with_coded_stills(coded_stills, workers=workers)
    return bank if labels is None else bank.with_labelled(labels, workers=workers)


def provenance_of(bank: ClipBank | None, motion: MotionBank | None, *, permissive: bool) -> dict[str, str]:
    """What a checkpoint says of the footage that it was trained on."""
    labelled, coded, filmed = (
        (len(bank.labelled), len(bank.segments.coded), len(bank.segments.filmed)) if bank else (0, 0, 0)
    )
    return {
        "commit": code_identity(),
        "footage": "none" if bank is None else "permissive" if permissive else "a folder",
        "clips": str(len(bank.names) - coded - labelled if bank else 0),
        "labelled_clips": str(labelled),
        "coded_stills": str(coded),
        "filmed_repetitions": str(filmed),
        "mocap": "yes" if motion else "no",
    }
