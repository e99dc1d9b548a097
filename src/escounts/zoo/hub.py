"""Fetch a model folder from the Hugging Face hub: progress bar, resumed downloads, checked hashes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from escounts.errors import ModelError
from escounts.extras import install_command

WANTED = ("config.json", "model.safetensors", "pytorch_model.bin")


def fetch(hub_id: str) -> Path:
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
        folder = Path(huggingface_hub.snapshot_download(hub_id, revision=info.sha, allow_patterns=wanted))
    except Exception as error:  # the hub library raises its own, requests' and the system's errors
        raise ModelError(
            f"cannot fetch {hub_id} ({type(error).__name__}: {_first_line(error)}); without a network, "
            f"download {WANTED[0]} and {WANTED[1]} of {hub_id} into one folder on another machine and run "
            "`escounts weights add FOLDER`"
        ) from error
    for name in wanted:
        _check_hash(folder / name, files[name])
    return folder


def _check_hash(path: Path, listed: Any) -> None:
    expected = getattr(getattr(listed, "lfs", None), "sha256", None)
    if expected is None:
        return  # small files live in git itself, which the hub library checks
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise ModelError(f"{path} is not what the hub lists (sha256 differs); delete it and add it again")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else "no details"
