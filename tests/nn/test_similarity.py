"""Self-similarity features: periods show as ridges, padding changes nothing."""

import torch

from escounts.nn.similarity import SelfSimilarity, SimilarityConfig

SMALL = SimilarityConfig(lags=32, widths=(8, 16, 16))


def periodic_tokens(period: int, cells: int = 96) -> torch.Tensor:
    """(1, T, 2, 2, 16): every channel a sinusoid of the same period."""
    time = torch.arange(cells)[:, None, None, None]
    phase = torch.linspace(0, 6, 16)
    return torch.sin(2 * torch.pi * time / period + phase).expand(cells, 2, 2, 16)[None]


def test_bands_are_most_similar_at_multiples_of_the_period() -> None:
    torch.manual_seed(0)
    module = SelfSimilarity(SMALL, 16)
    bands = module.bands(periodic_tokens(12))
    profile = bands[0, 0, 40:60].mean(0)  # first head, looking back, by lag
    assert profile[12] > 0.99 and profile[24] > 0.99
    assert profile[6] < 0.5 and profile[18] < 0.5


def test_lags_outside_the_video_are_marked_and_hold_no_similarity() -> None:
    torch.manual_seed(0)
    module = SelfSimilarity(SMALL, 16)
    bands = module.bands(torch.randn(1, 20, 2, 2, 16))
    heads = SMALL.cell_heads + SMALL.pooled_heads
    known = bands[0, -1]
    assert known[5, 5] == 1 and known[5, 6] == 0
    assert bands[0, :heads, 5, 6].abs().max() == 0  # looking back past the start
    assert bands[0, heads : 2 * heads, 15, 6].abs().max() == 0  # looking forward past the end


def test_scale_of_the_tokens_does_not_matter() -> None:
    torch.manual_seed(0)
    module = SelfSimilarity(SMALL, 16)
    torch.nn.init.zeros_(module.cell.bias), torch.nn.init.zeros_(module.pooled.bias)
    tokens = torch.randn(1, 40, 2, 2, 16)
    assert torch.allclose(module.bands(tokens), module.bands(tokens * 7), atol=1e-4)


def test_padding_does_not_change_a_video() -> None:
    torch.manual_seed(0)
    module = SelfSimilarity(SMALL, 16).eval()
    tokens = torch.randn(2, 50, 2, 2, 16)
    valid = torch.ones(2, 50, dtype=torch.bool)
    valid[1, 30:] = False
    together = module(tokens, valid)
    assert torch.allclose(together[1, :30], module(tokens[1:, :30])[0], atol=1e-5)
    assert together[1, 30:].abs().max() == 0
