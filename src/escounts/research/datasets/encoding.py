"""From videos to tokens: windows at every offset, pooled, and the exemplars' tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import escounts
from escounts.counting.maps import filled, shift_starts, windows
from escounts.errors import VideoError
from escounts.nn.device import precision
from escounts.nn.encoders.interface import Encoder, EncoderSpec
from escounts.nn.network import exemplar_cells
from escounts.research.datasets.annotations import Span, VideoAnnotation
from escounts.research.datasets.tokens import TokenLayout, VideoTokens
from escounts.system.arrays import Image

if TYPE_CHECKING:
    from escounts.video.files import Video

WINDOWS_AT_ONCE = 4


def layout_for(
    spec: EncoderSpec,
    identity: str,
    *,
    pool: tuple[int, int] | None = None,
    shifts: int = 4,
    exemplars: int = 8,
    padding: Literal["last", "mean"] = "last",
) -> TokenLayout:
    """The layout of an encoder's tokens. pool: grid to average to (none: as they come). shifts: K; the
    sequences start at 0, 1/K … of a window, rounded down to whole cells."""
    grid = pool or spec.grid
    cut = spec.fps is not None  # exemplars are then cells of the sequence itself
    cells = spec.exemplar_frames if cut else spec.exemplar_frames // spec.frames_per_cell
    return TokenLayout(
        encoder=spec.name,
        identity=identity,
        channels=spec.channels,
        grid=grid,
        exemplar_grid=grid if cut else spec.grid,
        exemplar_cells=cells,
        window_cells=spec.cells,
        every=spec.every,
        fps=spec.fps,
        frames_per_cell=spec.frames_per_cell,
        offsets=tuple(shift_starts(spec.cells, min(shifts, spec.cells))),
        exemplars=exemplars,
        padding=padding,
    )


def encode_video(path: Path, video: VideoAnnotation, encoder: Encoder, layout: TokenLayout) -> VideoTokens:
    """The tokens of one annotated video: a sequence at each offset, and its exemplars."""
    source = escounts.Video(path)
    end = None if video.duration is None else video.begin + video.duration
    size = encoder.spec.read_size(source.info.width, source.info.height)
    rate, every = layout.fps, None if layout.fps else layout.every
    frames = source.frames(size=size, start=video.begin, end=end, rate=rate, every=every)
    sequences = _sequences((encoder.spec.cut(frame.image) for frame in frames), encoder, layout)
    if not sequences:
        raise VideoError(f"{path}: no picture falls on a sampled time; sample more of them")
    step = layout.step(video.fps or source.info.fps)
    duration = video.duration or source.info.duration - video.begin
    late = [span for span in video.spans if span[1] > duration + max(0.5, step)]
    if late:
        raise VideoError(f"{path}: repetition at {late[0][0]:.2f} s lies past its end ({duration:.2f} s)")
    spans = spread(video.exemplars, layout.exemplars)
    if layout.fps is not None:
        exemplars = exemplars_in_place(sequences[0], spans, step, layout.exemplar_cells)
    else:
        exemplars = _exemplars(source, spans, video.begin, encoder, layout)
    return VideoTokens(
        name=video.name,
        sequences=sequences,
        exemplars=exemplars,
        exemplar_spans=np.asarray(spans, dtype=np.float64).reshape(-1, 2),
        step=step,
        duration=duration,
    )


def encode_exemplars(path: Path, video: VideoAnnotation, encoder: Encoder, layout: TokenLayout) -> VideoTokens:
    """The exemplars of one annotated video, without its sequences where the encoder can encode them alone."""
    if layout.fps is not None:  # its exemplars are cells of the sequence itself
        return encode_video(path, video, encoder, layout)
    source = escounts.Video(path)
    spans = spread(video.exemplars, layout.exemplars)
    return VideoTokens(
        name=video.name,
        sequences={},
        exemplars=_exemplars(source, spans, video.begin, encoder, layout),
        exemplar_spans=np.asarray(spans, dtype=np.float64).reshape(-1, 2),
        step=layout.step(video.fps or source.info.fps),
        duration=video.duration or source.info.duration - video.begin,
    )


def spread(spans: Sequence[Span], most: int) -> list[Span]:
    """At most that many spans, evenly over the video, always the same ones."""
    if len(spans) <= most:
        return list(spans)
    return [spans[int((i + 0.5) * len(spans) / most)] for i in range(most)]


def _sequences(images: Iterator[Image], encoder: Encoder, layout: TokenLayout) -> dict[int, Tensor]:
    """Tokens (T, H, W, C) from each offset to the end of the video, cut at the last frame."""
    parts: list[list[Tensor]] = [[] for _ in layout.offsets]
    pending: list[tuple[int, list[Image]]] = []
    length = layout.window_cells * layout.frames_per_cell
    starts = [offset * layout.frames_per_cell for offset in layout.offsets]
    for window in windows(images, size=length, starts=starts):
        pending.append(window)
        if len(pending) == WINDOWS_AT_ONCE:
            _encode_windows(pending, parts, encoder, layout)
            pending = []
    _encode_windows(pending, parts, encoder, layout)
    return {offset: torch.cat(tokens) for offset, tokens in zip(layout.offsets, parts, strict=True) if tokens}


def _encode_windows(
    pending: Sequence[tuple[int, list[Image]]],
    parts: list[list[Tensor]],
    encoder: Encoder,
    layout: TokenLayout,
) -> None:
    """Encode windows, those of one length together, and append their tokens to their sequence.

    An encoder with a fixed window gets the layout's padding up to its length; cells past the end are cut.
    """
    fixed = layout.window_cells * layout.frames_per_cell if layout.fps is None else 0
    by_length: dict[int, list[tuple[int, list[Image]]]] = {}
    for window in pending:
        by_length.setdefault(max(len(window[1]), fixed), []).append(window)
    for length, group in by_length.items():
        frames = np.stack([filled(images, length) for _, images in group])
        real = [len(images) for _, images in group] if layout.padding == "mean" else None
        tokens_BTHWC = encoded_tokens(encoder, torch.from_numpy(frames), layout.grid, real=real)
        for (sequence, images), tokens_THWC in zip(group, tokens_BTHWC, strict=True):
            parts[sequence].append(tokens_THWC[: -(-len(images) // layout.frames_per_cell)])


def exemplars_in_place(tokens_THWC: Tensor, spans: Sequence[Span], step: float, cells: int) -> Tensor:
    """Exemplars (R, cells, H, W, C) as cells of the video's own sequence, spread evenly over each span."""
    index = [exemplar_cells(start / step, end / step, len(tokens_THWC), cells) for start, end in spans]
    return tokens_THWC[torch.from_numpy(np.array(index, dtype=np.int64).reshape(-1, cells))]


def _exemplars(source: Video, spans: Sequence[Span], begin: float, encoder: Encoder, layout: TokenLayout) -> Tensor:
    """Tokens (R, T, H, W, C) of frames spread evenly over each span."""
    shape = (layout.exemplar_cells, *layout.exemplar_grid, layout.channels)
    frames = encoder.spec.exemplar_frames
    size = encoder.spec.read_size(source.info.width, source.info.height)
    shots = []
    for start, end in spans:
        rate = frames / (end - start)
        shown = source.frames(size=size, start=begin + start, end=begin + end, rate=rate)
        images = [encoder.spec.cut(frame.image) for frame in shown]
        if not images:
            raise VideoError(f"{source.path}: no frame between {start:.2f} and {end:.2f} s")
        window_1THWC = torch.from_numpy(filled(images[:frames], frames)[None])
        shots.append(encoded_tokens(encoder, window_1THWC, layout.exemplar_grid)[0])
    return torch.stack(shots) if shots else torch.zeros(0, *shape, dtype=torch.float16)


@torch.no_grad()
def encoded_tokens(
    encoder: Encoder, frames_BTHWC: Tensor, grid: tuple[int, int], *, real: Sequence[int] | None = None
) -> Tensor:
    """float16 tokens (B, T', H', W', C) of uint8 frames (B, T, H, W, 3), averaged to the grid, on the CPU.

    real: frames of each window that are the video's; the others become the mean colour.
    """
    frames_BTCHW = frames_BTHWC.permute(0, 1, 4, 2, 3)
    device = next(iter(encoder.parameters()), torch.zeros(0)).device
    x_BTCHW = encoder.normalise(frames_BTCHW)
    for row, count in enumerate(real or ()):
        x_BTCHW[row, count:] = 0.0
    with precision(device):
        tokens_BTHWC: Tensor = encoder(x_BTCHW).float()
    if tuple(tokens_BTHWC.shape[2:4]) != grid:
        flat = tokens_BTHWC.flatten(0, 1).permute(0, 3, 1, 2)
        pooled = F.adaptive_avg_pool2d(flat, grid).permute(0, 2, 3, 1)
        tokens_BTHWC = pooled.reshape(*tokens_BTHWC.shape[:2], *pooled.shape[1:])
    return tokens_BTHWC.half().cpu()
