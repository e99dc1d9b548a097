"""Configs to JSON and back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from escounts.nn.decoder import DecoderConfig
from escounts.nn.heads import RateHeadConfig
from escounts.nn.network import LITE_DECODER, LITE_TINY, NetworkConfig
from escounts.research.training.batches import ExemplarSampling
from escounts.research.training.objective import RateObjectiveConfig
from escounts.research.training.stored_tokens import StoredTokensConfig
from escounts.research.training.token_run import TokenRun
from escounts.system.config_codec import from_plain, to_plain, tuples

RATE_RUN = TokenRun(
    decoder=LITE_DECODER,
    tokens=StoredTokensConfig(exemplars=ExemplarSampling(), target="rate"),
    objective=RateObjectiveConfig(head=RateHeadConfig(bins=12)),
)


@pytest.mark.parametrize("config", [replace(LITE_TINY), LITE_DECODER])
def test_back_from_json_a_config_is_what_it_was(config: Any) -> None:
    assert from_plain(type(config), to_plain(config)) == config


@pytest.mark.parametrize("run", [TokenRun(), RATE_RUN])
def test_back_from_json_a_run_has_its_head_and_objective(run: TokenRun) -> None:
    assert TokenRun.from_plain(to_plain(run)) == run


def test_a_union_of_configs_is_told_by_its_kind() -> None:
    assert isinstance(from_plain(DecoderConfig, to_plain(LITE_DECODER)).head, RateHeadConfig)


def test_an_unknown_setting_is_named_with_what_there_is() -> None:
    with pytest.raises(
        ValueError, match="unknown settings colour; NetworkConfig has encoder, encoder_options, decoder"
    ):
        from_plain(NetworkConfig, {"colour": "red"})


def test_settings_of_a_later_version_are_left_out_where_that_is_asked_for() -> None:
    @dataclass(frozen=True)
    class Layout:
        offsets: tuple[int, ...] = ()
        options: dict[str, Any] = field(default_factory=dict)

    layout = from_plain(Layout, {"offsets": [0, 2], "options": {"widths": [1, 2]}, "later": 1}, ignore_unknown=True)
    assert layout == Layout((0, 2), {"widths": (1, 2)})


def test_lists_become_tuples_however_deep() -> None:
    assert tuples({"a": [1, [2, 3]], "b": {"c": []}, "d": "text"}) == {"a": (1, (2, 3)), "b": {"c": ()}, "d": "text"}
