"""Strokes on a CUDA device: all strokes of a pixel in one pass, where Triton is installed.

The same arithmetic as `strokes._stroke`, in single precision. Drawing stroke by stroke reads and writes every
pixel some twenty times a stroke; here a pixel is read once and written once.
"""

from __future__ import annotations

from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # the CPU build of torch comes without it
    triton = None

AVAILABLE = triton is not None
BLOCK = 1024
"""Pixels a program draws."""


def draw(view_FCHW: Tensor, axes_FK32: Tensor, geometry_FK7: Tensor, paint_FK8: Tensor, sharp_F: Tensor) -> None:
    """Draw every stroke of every moment onto the view, in place. All but the view in float32."""
    moments, _, height, width = view_FCHW.shape
    grid = (moments, -(-height * width // BLOCK))
    _draw_pixels[grid](
        view_FCHW, axes_FK32, geometry_FK7, paint_FK8, sharp_F, geometry_FK7.shape[1], height, width, BLOCK=BLOCK
    )


if AVAILABLE:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _draw_pixels(  # type: ignore[no-untyped-def]
        view, axes, geometry, paint, sharp, strokes, height, width, BLOCK: tl.constexpr
    ):
        moment = tl.program_id(0)
        pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = pixel < height * width
        x = ((pixel % width).to(tl.float32) + 0.5) * 2 / width - 1
        y = ((pixel // width).to(tl.float32) + 0.5) * 2 / height - 1
        place = view + moment.to(tl.int64) * 3 * height * width + pixel
        red = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        green = tl.load(place + height * width, mask=inside, other=0.0).to(tl.float32)
        blue = tl.load(place + 2 * height * width, mask=inside, other=0.0).to(tl.float32)
        edge = tl.load(sharp + moment)
        for k in range(strokes):
            row = moment * strokes + k
            g = geometry + row * 7
            opacity = tl.load(g + 6)
            if opacity > 0:
                a = axes + row * 6
                p = paint + row * 8
                along = tl.load(a) * x + tl.load(a + 2) * y + tl.load(a + 4)
                aside = tl.load(a + 1) * x + tl.load(a + 3) * y + tl.load(a + 5)
                dx = tl.load(g + 2) - tl.load(g)
                dy = tl.load(g + 3) - tl.load(g + 1)
                length = tl.maximum(tl.sqrt(dx * dx + dy * dy), 0.002)
                part = tl.minimum(tl.maximum(along, 0.0), 1.0)
                r0 = tl.load(g + 4)
                radius = r0 + (tl.load(g + 5) - r0) * part
                beyond = (along - part) * length
                root = tl.sqrt(beyond * beyond + aside * aside)
                far = root - radius
                bar = tl.maximum((tl.abs(along - 0.5) - 0.5) * length, tl.abs(aside) - radius)
                far = tl.where(tl.load(p + 6) > 0, bar, far)
                depth = root / tl.maximum(radius, 0.01)
                light = tl.maximum(1.06 - 0.35 * depth * depth, 0.71)
                outline = tl.load(p + 7)
                far = tl.where(outline > 0, tl.abs(far) - outline, far)
                light = tl.where(outline > 0, 1.0, light)
                stripes = tl.sin(along * (tl.load(p + 3) * length) + tl.load(p + 4) * aside)
                light = light + tl.load(p + 5) * stripes
                cover = tl.minimum(tl.maximum(0.5 + far * edge, 0.0), 1.0) * opacity
                shade = cover * light * 255
                red = red * (1 - cover) + shade * tl.load(p)
                green = green * (1 - cover) + shade * tl.load(p + 1)
                blue = blue * (1 - cover) + shade * tl.load(p + 2)
        kind = view.dtype.element_ty
        tl.store(place, red.to(kind), mask=inside)
        tl.store(place + height * width, green.to(kind), mask=inside)
        tl.store(place + 2 * height * width, blue.to(kind), mask=inside)
