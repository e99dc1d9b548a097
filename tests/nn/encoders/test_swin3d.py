"""What `swin3d-t` hands to the fused attention kernels of a GPU, looked at without one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from escounts.nn.encoders.registry import build_encoder
from escounts.nn.packing import RowMap

FUSED = F.scaled_dot_product_attention


def test_attention_gets_a_bias_that_fused_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last stride of 1, which the transposed table did not have: the likely reason for 12 GB at 32 windows and for
    4 % of the bf16 rate on a GPU."""
    strides, moved = [], []

    def seen(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor) -> Tensor:
        assert attn_mask.dtype == query.dtype
        strides.append((attn_mask.stride(-1), attn_mask.shape[-1]))
        return FUSED(query, key, value, attn_mask=attn_mask)

    to_target = RowMap.to_target

    def noted(rows: RowMap, x: Tensor) -> Tensor:
        moved.append(x.dtype)
        return to_target(rows, x)

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    monkeypatch.setattr(RowMap, "to_target", noted)
    torch.manual_seed(0)
    encoder = build_encoder("swin3d-t", width=12, depths=(2, 2), heads=(3, 6), window=(4, 3, 3), size=32).eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        encoder(torch.randn(1, 16, 3, 32, 32))
    assert len(strides) >= 4 and all(stride == 1 and length % 4 == 0 for stride, length in strides)
    assert moved == [torch.bfloat16] * 4, "windows are cut from bf16, not from float32 that is cast afterwards"
