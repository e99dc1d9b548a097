"""Times the decoder against the same arithmetic written plainly, side by side in one run.

    python benchmarks/decoder.py                      # all sizes, float32 and bfloat16
    python benchmarks/decoder.py --windows 1 4 16     # fewer
    python benchmarks/decoder.py --device cuda

"Plain" is explicit softmax, float32, one video, keys and values of z_0 computed in every call, with the same
weights and the same result. Each measurement is a process of its own, so that peaks of memory do not mix. The
share is of the rate this machine reaches in a large matrix product of the same type, measured in the same
process; where a product in bf16 is slower than in float32 (no units for it), bf16 is left out and the row says so.
Prints a table and writes it as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from escounts.nn.attention import CrossBlock
from escounts.nn.decoder import PAPER, Decoder, DecoderConfig, WindowBlock
from escounts.nn.window_attention import WindowAttention, plan_windows

CELLS_A_WINDOW = 8
QUIET = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
"""Waiting threads sleep, so that processor time is work and comparable on a machine that others use, too."""

BUDGET_SHARE = 0.85
"""Share of the free memory the plain form may ask for before its cell says that it does not fit."""


def bf16_speedup(device: torch.device, side: int = 512) -> float:
    """How many times faster a matrix product is in bf16 than in float32 here, measured by turns; below 1 on a
    processor without units for it, which computes it by way of float32."""
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    pairs = {dtype: torch.randn(2, side, side, device=device).to(dtype) for dtype in best}
    for _ in range(4):  # the first of them warms up
        for dtype, (a, b) in pairs.items():
            began = time.perf_counter()
            (a @ b)[0, 0].item()  # waits for a GPU
            best[dtype] = min(best[dtype], time.perf_counter() - began)
    return best[torch.float32] / best[torch.bfloat16]


def config_for(grid: int) -> DecoderConfig:
    return DecoderConfig(**{**vars(PAPER), "grid": (grid, grid)})


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention with its whole matrix in memory; in place, so that there is one of them and not three."""
    scores = q @ k.transpose(-1, -2)
    scores *= q.shape[-1] ** -0.5
    if bias is not None:
        scores += bias
    scores -= scores.amax(-1, keepdim=True)
    scores.exp_()
    scores /= scores.sum(-1, keepdim=True)
    return scores @ v


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(-2, -3)


def plain_window_attention(part: WindowAttention, x: Tensor) -> Tensor:
    """All windows at once, with one mask for each of them; one video."""
    _, time, height, width, _ = x.shape
    plan = plan_windows(
        (time,),
        (height, width),
        part.window,
        shifted=part.shifted,
        padding=part.padding,
        bias=part.bias_rule,
        device=x.device,
    )
    bias = part.bias_table[plan.groups[0].bias_index_nn].permute(2, 0, 1)
    masks = []
    for group in plan.groups:
        mask = bias if group.forbidden_K1nn is None else bias.masked_fill(group.forbidden_K1nn, -30000.0)
        masks.append(mask.expand(group.windows, -1, -1, -1))
    cells = plan.rows.to_target(part.norm(x).flatten(0, 3)).unflatten(0, (-1, plan.groups[0].cells))
    q, k, v = (heads_of(y, part.heads) for y in part.qkv(cells).chunk(3, -1))
    seen = softmax_attention(q, k, v, torch.cat(masks)).transpose(-2, -3).flatten(-2)
    return part.out(plan.rows.to_source(seen.flatten(0, 1))).view(x.shape)


def plain_decode(model: Decoder, tokens: Tensor) -> Tensor:
    """The decoder, zero-shot, one video, step by step as the equations stand."""
    x = model._positioned(model.project(tokens), 0.0)
    shape, x = x.shape, x.flatten(1, 3)
    for block in model.cross:
        assert isinstance(block, CrossBlock)
        own, cross, mlp = block.self_attention, block.cross_attention, block.mlp
        q, k, v = (heads_of(y, own.heads) for y in own.qkv(own.norm(x)).chunk(3, -1))
        x = x + own.out(softmax_attention(q, k, v).transpose(1, 2).flatten(2))
        del q, k, v
        q = heads_of(cross.query(cross.norm(x)), cross.heads)
        k, v = (heads_of(y, cross.heads) for y in cross.key_value(model.latent[None]).chunk(2, -1))
        x = x + cross.out(softmax_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + mlp.narrow(F.gelu(mlp.widen(mlp.norm(x))))
    x = model.middle_norm(x).view(shape)
    for block in model.windows:
        assert isinstance(block, WindowBlock) and isinstance(block.attention, WindowAttention)
        x = x + plain_window_attention(block.attention, x)
        x = x + block.mlp.narrow(F.gelu(block.mlp.widen(block.mlp.norm(x))))
    return model.head(x).density_BT


def operations(config: DecoderConfig, windows: int) -> float:
    """Floating-point operations of one zero-shot call, z_0's keys and values aside (2 a multiply-add)."""
    tokens = windows * CELLS_A_WINDOW * config.grid[0] * config.grid[1]
    width, cells = config.channels, 1
    for size, window in zip((windows * CELLS_A_WINDOW, *config.grid), config.window, strict=True):
        cells *= min(size, int(window))
    mlp = 2 * config.mlp_ratio * width**2
    cross = 4 * width**2 + 2 * tokens * width + 2 * width**2 + 2 * config.latent_tokens * width + mlp
    window = 4 * width**2 + 2 * cells * width + mlp
    per_token = config.in_channels * width + config.cross_blocks * cross + config.window_blocks * window
    return 2.0 * tokens * per_token


def plain_bytes(config: DecoderConfig, windows: int) -> int:
    """The self-attention matrix of the plain form, float32."""
    tokens = windows * CELLS_A_WINDOW * config.grid[0] * config.grid[1]
    return config.heads * tokens**2 * 4


def free_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


class PeakMemory:
    """Bytes by which the process's (or the GPU's) peak rose above where it stood at the start."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> PeakMemory:
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        else:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = self._status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self.device == "cuda":
            self.bytes = torch.cuda.max_memory_allocated() - self.before
        else:
            self.bytes = self._status("VmHWM") - self.before

    @staticmethod
    def _status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def seconds(call: Callable[[], object], device: str, *, at_most: int) -> float:
    """The shortest of up to `at_most` calls; long calls are made once."""
    best = float("inf")
    for _ in range(at_most):
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
        if best > 20:
            break
    return best


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    side = 8192 if device == "cuda" else 2048
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / seconds(lambda: a @ b, device, at_most=6)


def measure(form: str, grid: int, windows: int, device: str, result: Path) -> dict[str, Any]:
    """One cell of the table; the float32 density is left in `result` for comparison."""
    torch.manual_seed(0)
    config = config_for(grid)
    dtype = torch.bfloat16 if form == "ours-bf16" else torch.float32
    if form == "ours-bf16" and (gain := bf16_speedup(torch.device(device))) < 1:
        return {"fits": False, "slower_product": 1 / gain}
    model = Decoder(config).eval().to(device)
    tokens = torch.randn(1, windows * CELLS_A_WINDOW, grid, grid, config.in_channels, device=device)
    if form == "plain" and plain_bytes(config, windows) > BUDGET_SHARE * free_bytes(device):
        return {"fits": False, "needs_bytes": plain_bytes(config, windows)}
    model, tokens = model.to(dtype), tokens.to(dtype)
    with torch.inference_mode():
        rate = matrix_rate(device, dtype)
        memory = None if form == "plain" else model.encode_exemplars()

        def call() -> Tensor:
            if memory is None:
                return plain_decode(model, tokens)
            return model.decode(model.project(tokens), memory).density_BT

        with PeakMemory(device) as peak:
            begin, busy = time.perf_counter(), time.process_time()
            density = call()
            first = time.perf_counter() - begin
            processor = time.process_time() - busy
        best = first if first > 20 else min(first, seconds(call, device, at_most=3))
        rate = max(rate, matrix_rate(device, dtype))
    torch.save(density.float().cpu(), result)
    return {
        "fits": True,
        "seconds": best,
        "processor_seconds": processor,
        "peak_bytes": peak.bytes,
        "matrix_rate": rate,
        "share": operations(config, windows) / best / rate,
    }


def in_own_process(form: str, grid: int, windows: int, device: str, result: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", form, str(grid), str(windows), str(result), "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=QUIET)
    if done.returncode != 0:
        return {"fits": False, "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def cell(row: dict[str, Any]) -> str:
    if row["fits"]:
        times = f"{row['seconds']:9.3f} s ({row['processor_seconds']:.1f})"
        return f"{times} {row['peak_bytes'] / 2**20:9.0f} MB {row['share']:5.0%}"
    if "needs_bytes" in row:
        return f"does not fit: {row['needs_bytes'] / 2**30:.1f} GB a matrix"
    if "slower_product" in row:
        return f"left out: a product in bf16 takes {row['slower_product']:.1f} times as long as in float32 here"
    return f"failed: {row['error']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grids", type=int, nargs="+", default=[6, 14])
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "decoder.json")
    parser.add_argument("--one", nargs=4, metavar=("FORM", "GRID", "WINDOWS", "RESULT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        form, grid, windows, result = options.one
        print(json.dumps(measure(form, int(grid), int(windows), options.device, Path(result))))
        return
    rows: list[dict[str, Any]] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    print(f"torch {torch.__version__}, {options.device}, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    print(f"{'grid':>5} {'windows':>7} {'form':>9}   time (processor), peak memory, share of the matrix-product rate")
    for grid in options.grids:
        for windows in options.windows:
            densities = {}
            for form in ("ours", "ours-bf16", "plain"):
                result = options.output.with_suffix(".pt")
                row = in_own_process(form, grid, windows, options.device, result)
                rows.append({"grid": grid, "windows": windows, "form": form, **row})
                if row["fits"]:
                    densities[form] = torch.load(result)
                    result.unlink()
                note = ""
                if form != "ours" and form in densities and "ours" in densities:
                    rows[-1]["largest_difference"] = (densities[form] - densities["ours"]).abs().max().item()
                    note = f"   differs by {rows[-1]['largest_difference']:.1e}"
                print(f"{grid:2}×{grid:<2} {windows:7} {form:>9}   {cell(row)}{note}", flush=True)
                facts = {"torch": torch.__version__, "device": options.device, "threads": torch.get_num_threads()}
                options.output.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
