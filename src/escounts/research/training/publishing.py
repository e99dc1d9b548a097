"""A trained run on the Hugging Face hub: its best weights, and a card with the run's own figures."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from escounts.errors import ModelError
from escounts.models.conversion import HUB_ID, RUN_WEIGHTS
from escounts.models.store import header_metadata
from escounts.research.training.run_folder import ABOUT
from escounts.system.extras import install_command

CARD = "README.md"


def open_hub(repository: str) -> Any:
    """The hub, as the user who is logged in there: asked before training, not after hours of it."""
    if not HUB_ID.fullmatch(repository):
        raise ModelError(f"{repository!r} is no repository of the hub; write ORG/NAME")
    try:
        import huggingface_hub  # noqa: PLC0415 - the extra [hub]
    except ImportError as error:
        raise ModelError(f"pushing to the hub needs `{install_command('hub')}`") from error
    api = huggingface_hub.HfApi()
    _asked(repository, api.whoami)
    return api


def push_run(api: Any, run: Path, repository: str) -> None:
    """Make the repository if it is not there (private), and put the run's best weights and its card into it."""
    with TemporaryDirectory() as passing:
        folder = Path(passing)
        (folder / CARD).write_text(card(run, repository), encoding="utf-8")
        (folder / RUN_WEIGHTS).write_bytes((run / RUN_WEIGHTS).read_bytes())
        _asked(repository, api.create_repo, repository, private=True, exist_ok=True)
        _asked(repository, api.upload_folder, repo_id=repository, folder_path=folder)


def card(run: Path, repository: str) -> str:
    """What the run's folder says of it: what it learnt from and how, and the figures of the weights it keeps."""
    if not (run / RUN_WEIGHTS).is_file():
        raise ModelError(f"{run} has no {RUN_WEIGHTS}: no validation chose weights to push")
    about = json.loads((run / ABOUT).read_text(encoding="utf-8"))
    figures = json.loads(header_metadata(run / RUN_WEIGHTS)["validation"])
    layout, train = about["layout"], about["run"]["train"]
    long = f"{train['epochs']} epochs" if train["steps"] is None else f"{train['steps']} steps"
    grid = "×".join(map(str, layout["grid"]))
    rows = "\n".join(f"| {name} | {value:.3f} |" for name, value in sorted(figures.items()))
    return f"""---
library_name: escounts
tags: [video, repetition-counting]
---

# {repository}

A repetition counter, trained with `escounts train`.

- **Learnt from** {len(about["trained"])} videos of `{about["dataset"]}`, as {grid} tokens a cell of the frozen
  encoder `{layout["encoder"]}`.
- **Training**: {long} of {train["batch_size"]} videos, learning rate {train["lr"]:g}, seed {train["seed"]}.

On the run's validation videos, by which these weights were chosen:

| figure | value |
|---|---|
{rows}

Nothing here was measured on other videos. Licence and rights in the videos: ask whoever trained it.

```
escounts weights add {repository} --as NAME
escounts count video.mp4 --model NAME
```
"""


def _asked(repository: str, question: Any, *arguments: Any, **options: Any) -> None:
    try:
        question(*arguments, **options)
    except Exception as error:  # the hub library raises its own, requests' and the system's errors
        reason = (str(error).strip().splitlines() or ["no details"])[0][:160]
        raise ModelError(
            f"cannot push to {repository} ({type(error).__name__}: {reason}); `hf auth login` logs in to the hub"
        ) from error
