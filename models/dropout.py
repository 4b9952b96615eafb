"""
Dropout whose masks are cheap to draw on a processor, and attention that uses it.

torch draws one random double for each number on a CPU, which took an eighth of the time of a training step of a small
transformer. Here one draw of 64 bits decides four numbers.
"""

from typing import Any

import torch
from torch import Tensor, nn

LEVELS = 2**16  # a share is rounded to a multiple of 1 / 65,536
ATTENTION = "firth"  # its name in the transformers library


class Dropout(nn.Module):
    """
    Sets a share p of numbers to 0 in training, and scales the rest by 1 / (1 - p).

    Draws from torch's default generator. On other devices than a CPU it is torch's own.

    Source:
        Srivastava et al. 2014.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, number: Tensor) -> Tensor:
        """The numbers, some of them 0."""
        return dropped(number, self.p) if self.training else number


def dropped(number: Tensor, share: float) -> Tensor:
    """A share of the numbers set to 0, the rest scaled up so that the expected sum stays."""
    cut = round(share * LEVELS)
    if cut == 0:
        return number
    if number.device.type != "cpu" or cut == LEVELS:
        return nn.functional.dropout(number, share)
    count = number.numel()
    draw = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    keep = draw.view(torch.int16)[:count] >= cut - LEVELS // 2
    # By way of bytes: from bool to bfloat16 takes three times as long.
    return number * keep.view(torch.uint8).view(number.shape).to(number.dtype).mul_(LEVELS / (LEVELS - cut))


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """
    Scaled dot-product attention as the transformers library calls it: [L, heads, T, d] to [L, T, heads, d].

    torch's fused kernels know no dropout on a CPU; without dropout, and elsewhere, they are used.

    Source:
        Vaswani et al. 2017, equation 1; dropout on the weights as in their code.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if dropout == 0 or query.device.type != "cpu":
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scale
        )
        return out.transpose(1, 2).contiguous(), None
    score = (query * scale) @ key.transpose(2, 3)
    if attention_mask is not None:
        score = score.masked_fill(~attention_mask, -torch.inf)  # no text is empty: its special words are always there
    return (dropped(score.softmax(dim=-1), dropout) @ value).transpose(1, 2).contiguous(), None


def install(body: Any) -> None:
    """Let a model of the transformers library use both; one that knows no attention but its own keeps it."""
    if getattr(body, "_supports_sdpa", False) and getattr(body, "_supports_attention_backend", False):
        register()
        body.set_attn_implementation(ATTENTION)
    for module in body.modules():
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))


def register() -> None:
    """Name the attention in the transformers library, with masks that are True where a token sees another."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
