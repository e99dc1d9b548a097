"""Which device to run on, from a person's word for it, in which precision, and on how many cores.

Counting runs pieces of inference side by side, one on each core, while the caller reads the video. An operation that
is spread over the cores ends with the slowest of them: where the video's decoder, or anyone else, has one of two
cores for a moment, the other waits, spinning. A piece of work a core waits for nobody.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from escounts.errors import ModelError

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

Precision = Literal["auto", "float32", "bf16"]
PRECISION_VARIABLE = "ESCOUNTS_PRECISION"
"""In the environment: one of them, for counting."""

if hasattr(os, "register_at_fork"):  # not on Windows
    # OpenMP's other threads are not in a forked process, which would wait for them for ever once it counts.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def choose_device(name: str = "auto") -> torch.device:
    """ "auto" takes a CUDA GPU where there is one; "cpu", "cuda", "cuda:1" and "mps" are taken at their word."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise ModelError(f"device is {name!r}; it takes auto, cpu, cuda, cuda:N or mps")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device is {name!r}, but no CUDA device is here; use --device cpu or auto")
    if kind == "mps":
        if not torch.backends.mps.is_available():
            raise ModelError(f"device is {name!r}, but torch has no Metal device here; use --device cpu or auto")
        log.warning("mps: nobody has tried escounts on Apple's GPUs; compare a count with --device cpu")
    return torch.device(name)


def chosen_devices(names: str | None) -> tuple[str, ...]:
    """The devices in "cuda:0,cuda:1", each checked; none for None."""
    return tuple(str(choose_device(name.strip())) for name in names.split(",")) if names else ()


def precision(device: torch.device, wanted: Precision = "auto") -> torch.autocast:
    """The context networks run in; "auto" is bf16 where the device is fast at it, else float32."""
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    low = wanted == "bf16" or (wanted == "auto" and fast)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def counting_precision(device: torch.device, wanted: Precision = "auto") -> Precision:
    """What counting with the default model runs in; "auto" is what ESCOUNTS_PRECISION says and, where it says
    nothing, bf16 on a CPU with units for it. Counts are the same (benchmarks/agreement.py), the sums before rounding
    not quite.

    Training and the paper's encoders do not ask this: on a CPU they stay in float32 (see `precision`).
    """
    if wanted == "auto":
        wanted = _asked_for()
    if wanted == "auto" and device.type == "cpu":
        return "bf16" if cpu_has_bf16() else "float32"
    return wanted


def _asked_for() -> Precision:
    said = os.environ.get(PRECISION_VARIABLE) or "auto"
    for known in get_args(Precision):
        if said == known:
            return known  # type: ignore[no-any-return]
    raise ModelError(f"{PRECISION_VARIABLE} is {said!r}; it takes {', '.join(get_args(Precision))}")


@lru_cache(maxsize=1)
def cpu_has_bf16() -> bool:
    """Does this processor multiply bf16 (AVX512-BF16), and does torch have the library that uses it? By the
    processor's own word: nothing is timed. Without the units bf16 takes many times as long as float32."""
    capabilities: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # older versions of torch do not tell
    return bool(capabilities.get("avx512_bf16")) and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def in_float32_on_cpu(layers: Callable[[Tensor], R], x: Tensor) -> R:
    """layers(x), on a CPU in float32 whatever autocast says: for the last few, where bf16 would round the answer
    itself and saves nothing."""
    if x.device.type != "cpu" or autocast_type("cpu") is None:
        return layers(x)
    with torch.autocast("cpu", enabled=False):
        return layers(x.float())


def attention(q_BhNd: Tensor, k_BhMd: Tensor, v_BhMd: Tensor, bias: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention, in q's type. On a CPU always computed in float32: in bf16 torch takes longer over
    it, and the softmax is rounded for nothing."""
    if q_BhNd.device.type != "cpu" or autocast_type("cpu") is None:
        return F.scaled_dot_product_attention(q_BhNd, k_BhMd, v_BhMd, attn_mask=bias)
    with torch.autocast("cpu", enabled=False):
        q, k, v = (x.float() for x in (q_BhNd, k_BhMd, v_BhMd))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.float())
    return seen.to(q_BhNd.dtype)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. To a GPU it goes on a stream of its own: neither the host nor the copy waits for what
    the GPU has in hand. (Pinning memory for it costs more: half a millisecond for every new size.)"""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    used_on, copies = torch.cuda.current_stream(index), _copy_stream(index)
    with torch.cuda.stream(copies):
        moved = tensor.to(device, non_blocking=True)
    used_on.wait_stream(copies)
    moved.record_stream(used_on)  # its memory belongs to the other stream, and is not to be given away too soon
    return moved


@lru_cache(maxsize=16)
def _copy_stream(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


def autocast_type(kind: str) -> torch.dtype | None:
    """What autocast casts to on such a device ("cpu", "cuda"); None where it is off."""
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def as_layers_take_it(x: Tensor, otherwise: torch.dtype | None = None) -> Tensor:
    """x in autocast's type, where that is on: a linear layer would cast it anyway, after larger moves and copies.

    otherwise: its type where autocast is off; None leaves it as it is.
    """
    return x.to(autocast_type(x.device.type) or otherwise or x.dtype)


MOST = 4
"""Pieces at a time, for the sake of memory: 40 MB each. From twice as many cores on, several share a piece."""

AHEAD = 2
"""Pieces that may wait for each that runs: what they take (frames) is held that long."""

LARGEST_BLOCK = 16 * 2**20
"""Bytes; see keep_freed_memory. Twice as much holds the activations of one piece."""


_starting = threading.Lock()
"""While threads start, torch's number of cores for threads to come is not the one that holds: one at a time."""


@contextmanager
def one_core() -> Iterator[None]:
    """For small work, such as reading weights: torch's other threads would spin, waiting for a share of it."""
    with _starting:
        cores = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(cores)


class InferencePool:
    """Runs pieces of inference in the order they come, on as many cores as torch may use here; with a GPU, at once.

    >>> with InferencePool(device) as cores:
    ...     futures = [cores.submit(encoder.image_features, images, 8) for images in chunks]
    """

    def __init__(self, device: torch.device, wanted: Precision = "auto") -> None:
        self.device, self.wanted = device, counting_precision(device, wanted)
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[Any]] = deque()
        self._pieces = 1

    def __enter__(self) -> InferencePool:
        if self.device.type == "cpu":
            keep_freed_memory()
            self._pool = self._started()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Waits for the pieces that run; those that have not begun are dropped if something went wrong."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=error is not None)

    def submit(self, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> Future[R]:
        """The work's future result. Waits where too much is waiting, and raises what the oldest piece raised.

        A piece may wait for the results of pieces that were submitted before it.
        """

        def run() -> R:
            with torch.inference_mode(), precision(self.device, self.wanted):  # both hold for one thread only
                return work(*args, **options)

        if self._pool is None:
            done: Future[R] = Future()
            done.set_result(run())
            return done
        while len(self._waiting) >= self._pieces * (1 + AHEAD):
            self._waiting.popleft().result()
        future = self._pool.submit(run)
        self._waiting.append(future)
        return future

    def _started(self) -> ThreadPoolExecutor:
        """All threads at once. torch keeps a number of cores for each thread, and one for threads to come: that one
        is put back."""
        with _starting:
            cores = torch.get_num_threads()
            self._pieces = min(cores, MOST)
            begun = threading.Barrier(self._pieces + 1)

            def prepare() -> None:
                torch.get_num_threads()  # the first use in a thread takes over the number for threads to come
                torch.set_num_threads(cores // self._pieces)
                with suppress(threading.BrokenBarrierError):  # who starts it was interrupted, and says so himself
                    begun.wait()

            pool = ThreadPoolExecutor(self._pieces, "escounts-core", initializer=prepare)
            try:
                for _ in range(self._pieces):
                    pool.submit(int)
                begun.wait()
            except BaseException:  # no more threads to be had, or interrupted: nobody is left waiting for the others
                begun.abort()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                torch.set_num_threads(cores)
            return pool


def keep_freed_memory() -> None:
    """Let the C library keep what torch frees: without this, glibc gives the memory of every activation back to the
    system, and filling its pages anew takes a fifth of the frame stage's time.

    glibc keeps as much as twice the largest block that was freed so far. The block freed here is never touched: it
    costs nothing. Other C libraries have their own rules, and lose nothing by it.
    """
    torch.empty(LARGEST_BLOCK, dtype=torch.uint8)
