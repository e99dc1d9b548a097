"""The default model's encoder: shapes, sharing of frames between windows, stillness."""

import torch

from escounts.nn.encoders.lite import LiteConfig, LiteEncoder, WindowBlock
from escounts.nn.network import EXEMPLAR_CELLS, LITE, Network, exemplar_cells

TINY = LiteConfig(widths=(8, 8, 16, 16), channels=32, dilations=(1,), size=64)


def test_one_time_cell_a_frame() -> None:
    encoder = LiteEncoder(TINY)
    tokens = encoder(torch.randn(2, 10, 3, 64, 64))
    assert tokens.shape == (2, 10, 2, 2, 32)
    assert encoder.spec.grid == (2, 2) and encoder.spec.channels == 32


def test_chunks_with_the_following_frame_equal_one_go() -> None:
    torch.manual_seed(0)
    encoder = LiteEncoder(TINY).eval()
    frames = torch.randn(1, 9, 3, 64, 64)
    whole = encoder.frame_features(frames)
    first = encoder.frame_features(frames[:, :4], frames[:, 4])
    rest = encoder.frame_features(frames[:, 4:])
    assert torch.allclose(whole, torch.cat([first, rest], 1), atol=1e-5)


def test_what_stands_still_is_taken_out() -> None:
    torch.manual_seed(0)
    encoder = LiteEncoder(TINY).eval()
    features = torch.randn(1, 8, 16, 4, 4)
    background = 5 * torch.randn(1, 1, 16, 4, 4)
    assert torch.allclose(encoder.window_tokens(features), encoder.window_tokens(features + background), atol=1e-4)


def test_a_window_block_mixes_over_time_place_by_place() -> None:
    torch.manual_seed(0)
    for dilation in (1, 2):
        block = WindowBlock(16, dilation).eval()
        x = torch.randn(2, 9, 3, 4, 16)
        mixed = block._over_time(x)
        for b, h, w in ((0, 0, 0), (1, 2, 3)):
            assert torch.allclose(mixed[b, :, h, w].T, block.time(x[b, :, h, w].T[None])[0], atol=1e-5)


def test_normalise_maps_bytes_to_the_declared_scale() -> None:
    encoder = LiteEncoder(TINY)
    assert torch.allclose(
        encoder.normalise(torch.tensor([127, 191], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1))[
            :, 0, 0, 0
        ],
        torch.tensor([0.0, 1.0]),
    )


def test_default_model_has_the_stated_size() -> None:
    network = Network(LITE)
    assert sum(p.numel() for p in network.parameters()) == 4_185_867


def test_exemplar_cells_cover_the_span_evenly_and_stay_inside() -> None:
    cells = exemplar_cells(10.0, 42.0, 100)
    assert len(cells) == EXEMPLAR_CELLS
    assert cells[0] == 11 and cells[-1] == 41
    assert set(cells[1:] - cells[:-1]) == {2}
    assert exemplar_cells(-3.0, 1.0, 100).min() == 0
    assert exemplar_cells(97.0, 103.0, 100).max() == 99


def test_images_go_the_short_way_to_the_same_features() -> None:
    torch.manual_seed(0)
    encoder = LiteEncoder(TINY).eval()
    images = torch.randint(0, 256, (7, 64, 64, 3), dtype=torch.uint8)
    frames = encoder.normalise(images.permute(0, 3, 1, 2))[None]
    with torch.inference_mode():
        assert torch.allclose(
            encoder.image_features(images, 6), encoder.frame_features(frames[:, :6], frames[:, 6])[0], atol=1e-4
        )
        assert torch.allclose(encoder.image_features(images, 7), encoder.frame_features(frames)[0], atol=1e-4)
        alone = encoder.frame_features(frames[:, :1])[0]
        assert torch.allclose(encoder.image_features(images[:1], 1), alone, atol=1e-4)


def test_a_compiled_frame_stage_is_compiled_and_says_the_same() -> None:
    torch.manual_seed(0)
    encoder = LiteEncoder(TINY)
    frames = torch.randn(1, 6, 3, 64, 64)
    eager = encoder.frame_features(frames)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    encoder.compile_frame_stage(backend="eager")
    compiled = encoder.frame_features(frames)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1
    assert torch.allclose(eager, compiled, atol=1e-5)
