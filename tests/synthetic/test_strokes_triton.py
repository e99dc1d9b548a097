"""The fused CUDA kernel draws what the plain strokes draw. Runs in Triton's interpreter, without a GPU."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch; without it strokes are drawn plainly")

PROGRAM = """
import torch
from escounts.synthetic import Generator, GeneratorConfig, strokes

generator = Generator(GeneratorConfig(clips=0, motion=0, negative=0, sibling=0, single=0), seed=2)
for index in range(6):
    plan = generator.plan(index, 4)
    if plan.shapes is None:
        continue
    geometry, paint = strokes._stack([plan.shapes])
    plain = torch.rand(4 * plan.subframes, 3, 48, 40) * 255
    fused = plain.clone()
    strokes._draw_block(geometry, paint, plan.shapes.lens, plain)
    strokes._draw_fused(geometry, paint, plan.shapes.lens, fused)
    assert (plain - fused).abs().max() < 0.01, plan.kind
"""


def test_fused_strokes_equal_plain_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
