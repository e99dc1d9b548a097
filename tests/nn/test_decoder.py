"""The decoder: parameter counts, hand-checked attention, and what must not change its result."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from escounts.errors import ExemplarError, ModelError
from escounts.models.conversion import released_key
from escounts.nn import attention, packing
from escounts.nn.attention import CrossBlock
from escounts.nn.decoder import PAPER, RELEASED, Decoder, DecoderConfig, check_tokens
from escounts.nn.heads import RateHeadConfig
from escounts.nn.similarity import SimilarityConfig
from escounts.system.config_codec import from_plain, to_plain

SMALL = DecoderConfig(in_channels=12, channels=32, heads=4, grid=(4, 4), window=(4, 3, 3), latent_tokens=10)
LITE = replace(
    SMALL,
    grid=(2, 2),
    window=(6, 2, 2),
    window_blocks=2,
    window_shift="alternate",
    mlp_ratio=2,
    pool_exemplars=True,
    spatial_position="learnt",
    exemplar_position=True,
    exemplar_length=True,
    exemplar_norm=True,
    input_norm=True,
    middle_norm=False,
    final_norm=True,
    cross_qkv_bias=True,
    head=RateHeadConfig(),
    similarity=SimilarityConfig(lags=8),
)
CONFIGS = {
    "paper": SMALL,
    "full": replace(SMALL, window="full"),
    "alternate": replace(SMALL, window_shift="alternate", spatial_position="none"),
    "sa-only": replace(SMALL, self_attention_only=True),
    "lite": LITE,
}


@lru_cache(maxsize=8)
def build(config: DecoderConfig) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that every part shows in the result
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
    return model


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(module: nn.Module | None) -> int:
    assert module is not None
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("config", [PAPER, RELEASED], ids=["paper", "compat"])
def test_parameter_counts(config: DecoderConfig) -> None:
    with torch.device("meta"):
        model = Decoder(config)
    assert parameters(model.embed) == 393_728
    assert model.latent is not None and model.latent.numel() == 802_816
    assert [parameters(block) for block in model.cross] == [4_200_960] * 2
    assert parameters(model.middle_norm) == 1_024
    assert [parameters(block) for block in model.windows] == [3_161_848] * 3
    assert parameters(model.head) == 513
    # The released cross block carries three norms that nothing uses.
    assert 4_200_960 + 3 * 1_024 == 4_204_032


def test_released_keys_are_known_needed_or_refused() -> None:
    assert released_key("module.decoder_blocks.1.attn.to_kv.weight") == "cross.1.cross_attention.key_value.weight"
    assert released_key("decoder_blocks.0.norm0.weight") is None
    assert released_key("patch_embed.proj.weight") is None
    with pytest.raises(KeyError, match="surprise"):
        released_key("decoder_blocks.0.surprise.weight")


def test_a_missing_or_extra_key_is_refused_by_name() -> None:
    model = build(SMALL)
    state = model.state_dict()
    state.pop("latent")
    with pytest.raises(RuntimeError, match="latent"):
        model.load_state_dict(state)
    with pytest.raises(RuntimeError, match="stowaway"):
        model.load_state_dict({**model.state_dict(), "stowaway": torch.zeros(1)})


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_config_survives_json(config: DecoderConfig) -> None:
    assert from_plain(DecoderConfig, to_plain(config)) == config
    with pytest.raises(ValueError, match="colour"):
        from_plain(DecoderConfig, {"colour": "red"})


def test_cross_block_by_hand() -> None:
    """Eqs. 2 to 4 with explicit softmax, two exemplars of their own length each."""
    model = build(SMALL)
    block = model.cross[0]
    assert isinstance(block, CrossBlock)
    x = tokens(1, 7, 32)
    shots = [tokens(1, 5, 32, seed=1), tokens(1, 3, 32, seed=2)]

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for head in range(4):
            of = slice(8 * head, 8 * head + 8)
            parts.append((q[..., of] @ k[..., of].mT / 8**0.5).softmax(-1) @ v[..., of])
        return torch.cat(parts, -1)

    own, cross = block.self_attention, block.cross_attention
    expected = x + own.out(attention(*own.qkv(own.norm(x)).chunk(3, -1)))
    query = cross.query(cross.norm(expected))
    seen = [cross.out(attention(query, *cross.key_value(shot).chunk(2, -1))) for shot in shots]
    expected = expected + (seen[0] + seen[1]) / 2
    mlp = block.mlp
    expected = expected + mlp.narrow(F.gelu(mlp.widen(mlp.norm(expected))))
    ours = block(x, tuple(cross.keys_values(shot) for shot in shots), None, None)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def run(model: Decoder, video: Tensor, exemplars: Tensor | None = None, **options: Tensor) -> Tensor:
    if exemplars is not None and model.config.exemplar_length and "cells_BS" not in options:
        options["cells_BS"] = torch.full(exemplars.shape[:2], 7.0)
    with torch.inference_mode():
        return model(video, exemplars, **options).density_BT  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["paper", "full", "lite"])
@given(order=st.permutations(range(3)), seed=st.integers(0, 100))
@settings(max_examples=8, deadline=None)
def test_order_of_exemplars_does_not_matter(name: str, order: list[int], seed: int) -> None:
    model = build(CONFIGS[name])
    video, exemplars = tokens(1, 9, 4, 4, 12, seed=seed), tokens(1, 3, 2, 4, 4, 12, seed=seed + 1)
    torch.testing.assert_close(
        run(model, video, exemplars[:, order]), run(model, video, exemplars), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("name", ["paper", "lite"])
@given(seed=st.integers(0, 100), times=st.integers(2, 4))
@settings(max_examples=8, deadline=None)
def test_one_exemplar_given_again_changes_nothing(name: str, seed: int, times: int) -> None:
    model = build(CONFIGS[name])
    video, exemplar = tokens(1, 9, 4, 4, 12, seed=seed), tokens(1, 1, 2, 4, 4, 12, seed=seed + 1)
    once = run(model, video, exemplar)
    torch.testing.assert_close(run(model, video, exemplar.repeat(1, times, 1, 1, 1, 1)), once, atol=1e-5, rtol=0)
    assert (once - run(model, video)).abs().max() > 1e-4  # and exemplars do matter


@pytest.mark.parametrize("name", ["paper", "full", "alternate", "sa-only", "lite"])
@given(
    lengths=st.lists(st.integers(1, 15), min_size=1, max_size=4),
    shots=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    seed=st.integers(0, 100),
)
@settings(max_examples=10, deadline=None)
def test_batching_changes_nothing(name: str, lengths: list[int], shots: list[int], seed: int) -> None:
    """Videos of different length with different numbers of shots: each as if it were alone."""
    model = build(CONFIGS[name])
    batch, longest = len(lengths), max(lengths) + seed % 2
    video = tokens(batch, longest, 4, 4, 12, seed=seed) * 3  # padding holds rubbish, not zeros
    exemplars, cells = tokens(batch, 2, 3, 4, 4, 12, seed=seed + 1), tokens(batch, 2, seed=seed).abs() * 9 + 1
    valid = torch.arange(longest) < torch.tensor(lengths)[:, None]
    together = run(model, video, exemplars, shots_B=torch.tensor(shots[:batch]), cells_BS=cells, valid_BT=valid)
    for i, (length, count) in enumerate(zip(lengths, shots, strict=False)):
        own = exemplars[i : i + 1, :count] if count else None
        options = {"cells_BS": cells[i : i + 1, :count]} if count else {}
        alone = run(model, video[i : i + 1, :length], own, **options)
        torch.testing.assert_close(together[i, :length], alone[0], atol=1e-5, rtol=0)
        assert (together[i, length:] == 0).all()


@pytest.mark.parametrize("name", ["paper", "full", "sa-only"])
def test_one_packed_call_is_a_call_a_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU's packed kernel is given, with a mask over all tokens in its place: densities and gradients."""
    calls = 0

    def by_mask(
        q_Nhd: Tensor, k_Mhd: Tensor, v_Mhd: Tensor, starts_q: Tensor, starts_k: Tensor, most_q: int, most_k: int
    ) -> Tensor:
        nonlocal calls
        calls += 1
        assert starts_q.dtype == starts_k.dtype == torch.int32
        assert (int(starts_q.diff().max()), int(starts_k.diff().max())) == (most_q, most_k)
        assert (int(starts_q[-1]), int(starts_k[-1])) == (len(q_Nhd), len(k_Mhd)) and len(v_Mhd) == len(k_Mhd)
        whose = [torch.bucketize(torch.arange(int(s[-1])), s[1:], right=True) for s in (starts_q, starts_k)]
        q, k, v = (x.transpose(0, 1)[None] for x in (q_Nhd, k_Mhd, v_Mhd))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=whose[0][:, None] == whose[1])
        return seen[0].transpose(0, 1)

    model = build(CONFIGS[name])
    valid = torch.arange(12) < torch.tensor([7, 12, 3])[:, None]
    results = []
    for kernel in (None, by_mask):
        monkeypatch.setattr(packing, "packed_kernel", lambda device, kernel=kernel: kernel)
        monkeypatch.setattr(attention, "_narrow", lambda q: True)
        model.zero_grad()
        video = tokens(3, 12, 4, 4, 12).requires_grad_()
        density = model(video, tokens(3, 2, 2, 4, 4, 12), shots_B=torch.tensor([1, 0, 2]), valid_BT=valid).density_BT
        density.square().sum().backward()
        weights = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        results.append((density, video.grad, weights))
    assert calls > 0
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_float32_goes_one_by_one_whatever_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's packed kernel takes 16 bits only."""

    def refuses(*_: object) -> Tensor:
        raise AssertionError("float32 was given to the packed kernel")

    model = build(SMALL)
    valid = torch.arange(12) < torch.tensor([7, 12, 3])[:, None]
    without = run(model, tokens(3, 12, 4, 4, 12), valid_BT=valid)
    monkeypatch.setattr(packing, "packed_kernel", lambda device: refuses)
    assert torch.equal(run(model, tokens(3, 12, 4, 4, 12), valid_BT=valid), without)


def test_gaps_in_a_sample_are_refused() -> None:
    valid = torch.tensor([[True, False, True]])
    with pytest.raises(ValueError, match="first cells of every sample"):
        build(SMALL)(tokens(1, 3, 4, 4, 12), valid_BT=valid)


def test_memory_of_one_serves_a_batch() -> None:
    model = build(LITE)
    video = tokens(3, 12, 4, 4, 12)
    with torch.inference_mode():
        projected = model.project(video)
        shot = model.project_exemplars(tokens(1, 2, 4, 4, 4, 12, seed=5))
        for exemplars in (
            model.encode_exemplars(),
            model.encode_exemplars(shot, cells_BS=torch.tensor([[4.0, 6.0]])),
        ):
            together = model.decode(projected, exemplars).density_BT
            torch.testing.assert_close(model.decode(projected, exemplars.expand(3)).density_BT, together)
            assert together.shape == (3, 12)
        torch.testing.assert_close(
            model.decode(projected, model.encode_exemplars(batch=3)).density_BT, run(model, video)
        )


def test_time_offset_moves_the_position_only() -> None:
    model = build(SMALL)
    video = tokens(2, 8, 4, 4, 12)
    moved = run(model, video, time_offset=torch.tensor([0.0, 40.0]))
    still = run(model, video)
    torch.testing.assert_close(moved[0], still[0])
    assert (moved[1] - still[1]).abs().max() > 1e-4


def test_bfloat16_stays_close() -> None:
    """Angles of the time sinusoid and periods are float32 in a bfloat16 model: late cells are as good as early."""
    model = build(replace(LITE, similarity=None))
    video = tokens(1, 200, 4, 4, 12)
    exact = run(model, video, time_offset=5000.0)  # type: ignore[arg-type]
    rough = run(model.bfloat16(), video.bfloat16(), time_offset=5000.0)  # type: ignore[arg-type]
    assert rough.dtype == torch.float32
    assert abs(rough.sum() / exact.sum() - 1) < 0.1


@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_parameter_learns(name: str) -> None:
    model = build(CONFIGS[name]).train()
    output = model(
        tokens(2, 9, 4, 4, 12),
        tokens(2, 2, 2, 4, 4, 12, seed=1),
        shots_B=torch.tensor([0, 2]),
        cells_BS=torch.full((2, 2), 5.0),
    )
    output.density_BT.sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_no_tokens_by_tokens_matrix() -> None:
    """4,096 tokens would need a 256 MB matrix a block; no tensor the decoder makes comes near."""
    model = build(SMALL)
    largest = 0

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for one in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(one, Tensor):
                    largest = max(largest, one.untyped_storage().nbytes())
            return result

    with torch.no_grad(), Largest():  # type: ignore[no-untyped-call]
        model(tokens(1, 256, 4, 4, 12))
    assert largest < 4_096 * 4_096


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 0, 4, 4, 12), "no tokens"), ((1, 5, 4, 4, 11), "12 channels"), ((5, 4, 4, 12), r"B×T×H×W×C")],
)
def test_bad_tokens_are_named(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(SMALL)(torch.zeros(shape))


def test_bad_exemplars_are_named() -> None:
    model, video = build(LITE), tokens(1, 6, 4, 4, 12)
    with pytest.raises(ValueError, match="no tokens"):
        model(video, torch.zeros(1, 1, 0, 4, 4, 12))
    with pytest.raises(ExemplarError, match="no tokens"):
        model.encode_exemplars(torch.zeros(1, 1, 0, 2, 2, 32))
    with pytest.raises(ExemplarError, match="length of every exemplar"):
        model(video, tokens(1, 1, 2, 4, 4, 12))
    with pytest.raises(ValueError, match="3×3 grid"):
        build(SMALL)(tokens(1, 5, 3, 3, 12))


def test_nan_is_named() -> None:
    video = tokens(1, 6, 4, 4, 12)
    check_tokens(video)
    video[0, 2, 1, 1, 3] = torch.nan
    with pytest.raises(ModelError, match="exemplar tokens hold 1 values that are not finite"):
        check_tokens(video, "exemplar tokens")
