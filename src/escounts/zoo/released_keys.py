"""Names in the published decoder checkpoints (`repcount_trained.pyth` and its like) and ours.

Plain data: what a released key is called here, and which released keys nobody needs.
"""

from __future__ import annotations

import re

_RULES: tuple[tuple[str, str], ...] = (
    (r"decoder_embed\.(weight|bias)", r"embed.\1"),
    (r"shot_token", r"latent"),
    (r"decoder_spatial_pos_embed", r"space.table_HWC"),
    (r"decoder_blocks\.(\d+)\.selfattn\.norm\.(weight|bias)", r"cross.\1.self_attention.norm.\2"),
    (r"decoder_blocks\.(\d+)\.selfattn\.to_qkv\.weight", r"cross.\1.self_attention.qkv.weight"),
    (r"decoder_blocks\.(\d+)\.selfattn\.to_out\.0\.(weight|bias)", r"cross.\1.self_attention.out.\2"),
    (r"decoder_blocks\.(\d+)\.attn\.norm\.(weight|bias)", r"cross.\1.cross_attention.norm.\2"),
    (r"decoder_blocks\.(\d+)\.attn\.to_q\.weight", r"cross.\1.cross_attention.query.weight"),
    (r"decoder_blocks\.(\d+)\.attn\.to_kv\.weight", r"cross.\1.cross_attention.key_value.weight"),
    (r"decoder_blocks\.(\d+)\.attn\.to_out\.0\.(weight|bias)", r"cross.\1.cross_attention.out.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.0\.(weight|bias)", r"cross.\1.mlp.norm.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.1\.(weight|bias)", r"cross.\1.mlp.widen.\2"),
    (r"decoder_blocks\.(\d+)\.mlp\.net\.4\.(weight|bias)", r"cross.\1.mlp.narrow.\2"),
    (r"decoder_norm\.(weight|bias)", r"middle_norm.\1"),
    (r"decode_heads\.(\d+)\.norm1\.(weight|bias)", r"windows.\1.attention.norm.\2"),
    (r"decode_heads\.(\d+)\.attn\.relative_position_bias_table", r"windows.\1.attention.bias_table"),
    (r"decode_heads\.(\d+)\.attn\.qkv\.(weight|bias)", r"windows.\1.attention.qkv.\2"),
    (r"decode_heads\.(\d+)\.attn\.proj\.(weight|bias)", r"windows.\1.attention.out.\2"),
    (r"decode_heads\.(\d+)\.norm2\.(weight|bias)", r"windows.\1.mlp.norm.\2"),
    (r"decode_heads\.(\d+)\.mlp\.fc1\.(weight|bias)", r"windows.\1.mlp.widen.\2"),
    (r"decode_heads\.(\d+)\.mlp\.fc2\.(weight|bias)", r"windows.\1.mlp.narrow.\2"),
    (r"map\.(weight|bias)", r"head.linear.\1"),
)

KNOWN_UNNEEDED: tuple[str, ...] = (
    r"cls_token",
    r"pos_embed_(spatial|temporal|class)",
    r"patch_embed\.proj\.(weight|bias)",
    r"norm\.(weight|bias)",
    r"decoder_pos_embed",
    r"example_spatial_pos_embed",
    r"decoder_blocks\.\d+\.norm[012]\.(weight|bias)",
    r"decode_heads\.\d+\.attn\.relative_position_index",
)
"""Patterns of released keys that are not used: encoder leftovers, idle norms and positions, index tables."""


def released_key(name: str) -> str | None:
    """Our decoder's name for a released key; None when it is known and not needed.

    Raises KeyError for a key that is neither, so that nothing is dropped in silence. A leading `module.`
    (from training on several devices) is taken off.
    """
    bare = name.removeprefix("module.")
    for pattern, ours in _RULES:
        if match := re.fullmatch(pattern, bare):
            return match.expand(ours)
    if any(re.fullmatch(pattern, bare) for pattern in KNOWN_UNNEEDED):
        return None
    raise KeyError(name)
