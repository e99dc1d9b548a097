"""A whole training run of the default model on generated repetitions, from banks of motion to a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from escounts.counting.multi_rate import MultiRateModel
from escounts.decision.rules import Calibration
from escounts.errors import DataError, ModelError
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
from escounts.research.training.calibration import Progress, Trial, calibrate, collect, collect_labelled
from escounts.research.training.objective import Objective, RateObjectiveConfig
from escounts.research.training.optimisation import TrainConfig, synthetic_recipe
from escounts.research.training.pixels import PixelConfig, PixelTask
from escounts.research.training.run_folder import reserve_run_folder
from escounts.research.training.trainer import Report, Trainer, start_distributed
from escounts.synthetic import ClipBank, Generator, GeneratorConfig, MotionBank
from escounts.synthetic.clips import permissive, pool_rows
from escounts.system.config_codec import to_plain

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
VALIDATION_SEED = 990_001
CALIBRATION_SEED = 990_002
CALIBRATION_LENGTHS = (180, 240, 300, 360, 480)
"""In frames at the base rate: 6 to 16 seconds."""
CALIBRATION_PERIOD = (5.0, 150.0)
"""In frames at the base rate, where training's are in frames at the rate of a view."""
UNCALIBRATED = Calibration(unsure_below=0.88, gate_bias=1.0, gate_sharpness=2.0, nothing_below=0.2)
"""What calibration starts from: it fits the choice of views, the floor and the confidence, and keeps the rest. The
gate was chosen on the labelled clips of `val` and single sets; its neighbours differ by less than chance. Of answers
above unsure_below 95 in 100 labelled clips are within one."""


@dataclass(frozen=True)
class SyntheticRun:
    """Everything that decides what a run learns; written into its checkpoint.

    calibration_videos: how many generated videos the last checkpoint's confidence is fitted on; 0 leaves it out.
    """

    network: NetworkConfig = LITE
    train: TrainConfig = field(default_factory=synthetic_recipe)
    generator: GeneratorConfig = RECIPE
    pixels: PixelConfig = field(default_factory=PixelConfig)
    calibration_videos: int = 0


LATER_PARTS = ("decoder.head.video.*", "encoder.amount")
"""Parameters that the first form of `lite` did not have: a run that starts from it learns them anew."""
LOOK = "encoder.look.weight"
"""Fitted on the finished encoder (benchmarks/look_head.py): no run starts from it, and a mean has none."""

LOOK = "encoder.look.weight"
"""What `benchmarks/look_head.py` adds to a trained checkpoint."""

NETWORKS = {"lite": LITE, "lite-tiny": LITE_TINY}

SMOKE = SyntheticRun(
    network=LITE_TINY,
    train=synthetic_recipe(steps=60, batch_size=4, warmup_steps=10, validate_every=30, ema=0.9),
    pixels=PixelConfig(lengths=(32,), validation_batches=2, validation_length=32),
    calibration_videos=0,
)
"""A minute on two CPU cores: shows that the chain runs and learns, nothing more."""


def train_synthetic(
    run: SyntheticRun,
    *,
    out: Path,
    clips: ClipBank | None = None,
    motion: MotionBank | None = None,
    device: str = "cpu",
    workers: int = 0,
    renderers: int = 0,
    initial: Path | None = None,
    provenance: dict[str, str] | None = None,
    report: Report | None = None,
) -> dict[str, float]:
    """Train and leave last.safetensors, best.safetensors and the log in `out`; the last validation's figures.

    The last checkpoint carries its calibration.
    workers: processes that draw plans. renderers: processes that draw whole batches instead. initial: a checkpoint
    whose weights the run starts from.
    provenance: what the footage was, written into the checkpoint's metadata.
    """
    where = start_distributed(device)
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
        workers=workers,
        renderers=renderers,
    )
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
    metadata = {
        "train": json.dumps(to_plain(run.train)),
        "generator": json.dumps(to_plain(run.generator)),
        "pixels": json.dumps(to_plain(run.pixels)),
        **(provenance or {}),
    }

    def save(path: Path, trained: nn.Module, figures: dict[str, float]) -> None:
        assert isinstance(trained, Network)
        save_network(path, trained, metadata=metadata | {"validation": json.dumps(figures)}, dtype=torch.float16)

    objective = Objective(RateObjectiveConfig())
    trainer = Trainer(run.train, network, task, objective, out, save=save, device=where, report=report)
    if trainer.rank == 0:
        recipe = {part: json.loads(metadata[part]) for part in ("train", "generator", "pixels")}
        reserve_run_folder(out, {"network": to_plain(run.network), **recipe})
    figures = trainer.fit()
    if trainer.rank == 0 and run.calibration_videos:
        videos = calibration_videos(run.generator, clips=clips, motion=motion)
        calibrate_checkpoint(out / "last.safetensors", videos, run.calibration_videos, device=where)
    return figures


def start_from(network: Network, initial: Path) -> None:
    """Take over a checkpoint's weights; what a checkpoint of an earlier form lacks keeps the values it has. A LOOK
    that the network has not stays behind: it is fitted to an encoder after training."""
    own = network.state_dict()
    given = {name: value for name, value in read_tensors(initial).items() if name in own or name != LOOK}
    later = [name for name in own if any(fnmatchcase(name, pattern) for pattern in LATER_PARTS)]
    strict_load(network, {**{name: own[name] for name in later}, **given}, known_unneeded=[LOOK], source=str(initial))


def calibration_videos(
    recipe: GeneratorConfig | None = None, *, clips: ClipBank | None = None, motion: MotionBank | None = None
) -> Generator:
    """Generated videos at the base rate that no run trains on."""
    unseen = replace(recipe or GeneratorConfig(), period=CALIBRATION_PERIOD, labelled=0.0)
    return Generator(unseen, clips=clips, motion=motion, seed=CALIBRATION_SEED)


def mean_of_runs(paths: Sequence[Path], out: Path, *, provenance: Mapping[str, str] | None = None) -> None:
    """Write the mean of several checkpoints' weights, of one network; a path that is named twice counts twice.

    A checkpoint of an earlier form lacks LATER_PARTS: its encoder knows no amount of motion, which is an amount of 0,
    and on what the head's later outputs should be it has no vote. Their metadata, licence of the footage included, is
    kept side by side; provenance (of this step) is put beside it under names that begin with mean_.
    """
    tensors, configs, about = zip(*(read_checkpoint(path) for path in paths), strict=True)
    for weights, config in zip(tensors, configs, strict=True):
        weights.pop(LOOK, None)
        config.get("encoder_options", {}).pop("look", None)
    latest = max(range(len(paths)), key=lambda index: len(tensors[index]))
    if any(_first_form(config) != _first_form(configs[0]) for config in configs):
        raise ModelError(f"{', '.join(map(str, paths))} are of different networks; their weights have no mean")
    mean = {}
    for name, value in tensors[latest].items():
        votes = [weights[name].float() for weights in tensors if name in weights]
        voters = len(votes) if name.startswith("decoder.head.video.") else len(paths)
        mean[name] = (torch.stack(votes).sum(0) / voters).to(value.dtype)
    kept = sorted({name for one in about for name in one if not name.startswith("calibrat")})
    metadata = {name: json.dumps([_parsed(one.get(name, "unknown")) for one in about]) for name in kept}
    metadata |= {f"mean_{name}": value for name, value in (provenance or {}).items()}
    write_checkpoint(out, mean, config=configs[latest], metadata=metadata)


def _first_form(config: Mapping[str, Any]) -> dict[str, Any]:
    """A network's configuration without what LATER_PARTS need."""
    plain: dict[str, Any] = json.loads(json.dumps(config))
    plain.get("encoder_options", {}).pop("amount", None)
    plain["decoder"]["head"].pop("video_width", None)
    return plain


def _parsed(text: str) -> Any:
    """A metadata value as what it stands for: most are JSON, some are plain words."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def calibrate_checkpoint(
    path: Path,
    generator: Generator,
    videos: int,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Fit the confidence of the network at path on generated videos and write it into the file's metadata.

    The network is the one in the file, with its stored precision: that is what will be counted with.
    """
    model = MultiRateModel(path.stem, load_network(path)[0], device=device, calibration=UNCALIBRATED)
    trials = collect(model, generator, videos, lengths=CALIBRATION_LENGTHS, progress=progress)
    return _write_calibration(path, trials, {"calibration_videos": str(videos)})


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
    return _write_calibration(path, trials, {"calibration_clips": f"{len(trials)} of {split}"})


def _write_calibration(path: Path, trials: Sequence[Trial], about: Mapping[str, str]) -> Calibration:
    fitted = calibrate(trials, UNCALIBRATED)
    tensors, config, metadata = read_checkpoint(path)
    kept = {name: value for name, value in metadata.items() if not name.startswith("calibrat")}
    write_checkpoint(path, tensors, config=config, metadata={**kept, "calibration": fitted.to_json(), **about})
    return fitted


MOTION_ONLY = "motion"
"""In the `use` column of a list of clips: cut motion from it, but do not take any of it for a stretch without
repetitions, because the clip repeats itself, or may."""


def may_repeat(exclude: Sequence[Path]) -> set[str]:
    """Names of the clips that are listed for MOTION_ONLY."""
    listed = [row for path in exclude for row in pool_rows(path, need=("file",))]
    return {Path(row["file"]).name for row in listed if row.get("use") == MOTION_ONLY}


def clip_files(
    folder: Path | None, tables: Sequence[Path] = (), *, every_licence: bool = False, exclude: Sequence[Path] = ()
) -> list[Path]:
    """The clips to cut motion from: all of a folder, or with tables (file, licence) their permissive rows only.

    exclude: CSVs whose `file` column names rows that are kept for testing, or are not footage. A row with `use` =
    "motion" stays, see `may_repeat`.
    """
    if not tables:
        if folder is None:
            raise DataError("no clips: give a folder of clips or a clip table")
        return sorted(path for path in folder.iterdir() if path.suffix == ".mp4")
    listed = [row for path in exclude for row in pool_rows(path, need=("file",))]
    left_out = {row["file"] for row in listed if row.get("use") != MOTION_ONLY}
    files = []
    for table in tables:
        rows: list[Mapping[str, str]] = list(pool_rows(table))
        chosen = rows if every_licence else permissive(rows)
        files += [table.parent / row["file"] for row in chosen if row["file"] not in left_out]
    return files
