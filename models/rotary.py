"""
Rotary positions: queries and keys are turned by angles that grow with their place, so scores know differences alone.

The model is the `transformers` library's RoFormer. Its attention is replaced by one that is fused and drops cheaply;
weights keep their names, so folders open there as they do here.
"""

from typing import Any

import torch
from torch import Tensor, nn

from models.dropout import ATTENTION, attention, register

KIND = "roformer"  # as config.json names it


def rotate(number_HTK: Tensor, sine_TI: Tensor, cosine_TI: Tensor) -> Tensor:
    """
    Numbers with each pair (2 i, 2 i + 1) turned by the angle of its place.

        (x, y) becomes (x cos - y sin, y cos + x sin), where place m has the angle m 10000^(-2 i / K)

    Norms stay, place 0 stays as it is, and the product of two turned vectors depends on the difference of their places.

    Args:
        number_HTK: queries or keys: H heads, T places, K numbers, which is even; texts may stand in front.
        sine_TI: sine of each place's angles, I = K / 2.
        cosine_TI: their cosine.
    Source:
        Su et al. 2021 (RoFormer), section 3.2.2, equations 14 to 16.
    """
    # A pair is a complex number and the turn a product: an eighth of the time of the same sums on strided halves,
    # measured on one processor, forwards and backwards, for 64 texts of 32 tokens. There are no complex halves.
    full = number_HTK.dtype if number_HTK.dtype in (torch.float32, torch.float64) else torch.float32
    pair_HTI = torch.view_as_complex(number_HTK.to(full).unflatten(-1, (-1, 2)))
    turn_TI = torch.complex(cosine_TI.to(full), sine_TI.to(full))
    return torch.view_as_real(pair_HTI * turn_TI).flatten(-2).to(number_HTK.dtype)


class RotaryAttention(nn.Module):
    """
    The attention of one layer, with the linear maps of the one that it replaces.

    Args:
        old: the library's, which is not used any more.
    """

    def __init__(self, old: Any) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dropout = old.query, old.key, old.value, old.dropout
        self.width, self.turns_values, self.layer = old.attention_head_size, bool(old.rotary_value), old.layer_idx

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        sinusoidal_pos: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        cache: Any = None,
        output_attentions: bool = False,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """
        New states [L, T, D], as the library calls it.

        Args:
            attention_mask: True [L, 1, T, S] where a token, T, sees another, S; None: all see all.
            sinusoidal_pos: the places' sines, then their cosines, [1, 1, T, K].
            cache: keys and values of what stood before, which those of these tokens are added to.
        """
        assert sinusoidal_pos is not None and encoder_hidden_states is None
        sine_TI, cosine_TI = sinusoidal_pos.chunk(2, dim=-1)
        query_LHTK, key_LHSK, value_LHSK = (self._heads(part, hidden_states) for part in ("query", "key", "value"))
        query_LHTK, key_LHSK = (rotate(part, sine_TI, cosine_TI) for part in (query_LHTK, key_LHSK))
        if self.turns_values:
            value_LHSK = rotate(value_LHSK, sine_TI, cosine_TI)
        if cache is not None:
            key_LHSK, value_LHSK = cache.update(key_LHSK, value_LHSK, self.layer)
        share = self.dropout.p if self.training else 0.0
        out_LTHK, _ = attention(self, query_LHTK, key_LHSK, value_LHSK, attention_mask, dropout=share)
        return out_LTHK.flatten(2), None

    def _heads(self, part: str, state_LTD: Tensor) -> Tensor:
        return getattr(self, part)(state_LTD).unflatten(-1, (-1, self.width)).transpose(1, 2)


def fuse(whole: Any) -> None:
    """Replace the attention of each layer of a RoFormer; other models stay as they are."""
    if whole.config.model_type != KIND:
        return
    for layer in whole.base_model.encoder.layer:
        layer.attention.self = RotaryAttention(layer.attention.self)
    register()
    whole.config._attn_implementation = (
        ATTENTION  # which decides how masks are made; the library knows none but its own
    )
