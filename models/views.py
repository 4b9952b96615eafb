"""
Views: how one text is shown to an encoder in two ways.

Those here act inside the encoder: on its positions, on its embeddings, or by the words around a text. What changes the
tokens themselves is data (`augment` in a recipe). Draws come from torch's default generator, which a step sets for each
lane. Counts are exact, not by chance: a cut of a tenth of ten tokens is one token, always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.lookup import real
from models.recipe import RecipeError

SLOT, MASK = "[X]", "[MASK]"  # as templates write them; the tokenizer's own mask word may have another name
NAMES = {"first": ("[CLS]", "<s>"), "last": ("[SEP]", "</s>"), "mask": (MASK, "<mask>")}


def none() -> None:
    """The text as it is."""


def template(*, text: str, delta: Literal["none", "positions", "x-tokens"] = "positions", frozen: bool = False) -> None:
    """
    The text in a sentence around it, `This sentence : "[X]" means [MASK].`; its vector is the state at the mask.

    Args:
        text: words with one [X], where the text goes, and one [MASK].
        delta: what is taken off the vector: nothing; the state at the mask of the template alone, its words at the
            same positions ("positions"); or that with as many unknown words in place of the text ("x-tokens").
        frozen: no gradient flows through what is taken off.
    Source:
        Jiang et al. 2022 (PromptBERT), sections 4.1 and 4.2; "x-tokens" is a literal reading of their figure.
    """


def shuffle(length_L: Tensor, most: int) -> Tensor:
    """
    Position numbers of each text in another order, [L, T]; those of what fills stay in place.

    Source:
        Yan et al. 2021 (ConSERT), section 3.3: the tokens stay, their position ids are shuffled.
    """
    real_LT = real(length_L, most)
    place_LT = torch.arange(most, device=length_L.device).expand_as(real_LT)
    # Fillers sort behind every real token, and among themselves by place.
    order_LT = torch.rand(real_LT.shape, device=length_L.device).where(real_LT, 1.0 + place_LT.float())
    return order_LT.argsort(dim=1)


def token_cutoff(length_L: Tensor, most: int, width: int, *, rate: float = 0.15) -> Tensor:
    """
    True [L, T, 1] for tokens that stay: of n real ones exactly int(n rate) are left out.

    Source:
        Yan et al. 2021 (ConSERT), section 3.3; the rate from section 4.
    """
    real_LT = real(length_L, most)
    rank_LT = _ranks(torch.rand(real_LT.shape, device=length_L.device).where(real_LT, 2.0))
    return (rank_LT >= (length_L.double() * _share(rate)).long()[:, None])[:, :, None]


def feature_cutoff(length_L: Tensor, most: int, width: int, *, rate: float = 0.2) -> Tensor:
    """
    True [L, 1, D] for features that stay: the same int(D rate) of all tokens of a text are left out.

    Source:
        Yan et al. 2021 (ConSERT), section 3.3.
    """
    rank_LD = _ranks(torch.rand(len(length_L), width, device=length_L.device))
    return (rank_LD >= int(width * _share(rate)))[:, None, :]


def dropout(length_L: Tensor, most: int, width: int, *, rate: float = 0.2) -> Tensor:
    """
    True [L, T, D] for numbers that stay: of n D of a text exactly int(n D rate) are left out, and nothing is rescaled.

    Source:
        Yan et al. 2021 (ConSERT), section 3.3; exact counts without rescaling as in the authors' code.
    """
    real_LT = real(length_L, most)
    draw_LTD = torch.rand(*real_LT.shape, width, device=length_L.device).where(real_LT[:, :, None], 2.0)
    count_L = (length_L.double() * width * _share(rate)).long()
    return (_ranks(draw_LTD.flatten(1)) >= count_L[:, None]).view_as(draw_LTD)


VIEWS: dict[str, Callable[..., object]] = {
    "none": none,
    "template": template,
    "shuffle": shuffle,
    "token-cutoff": token_cutoff,
    "feature-cutoff": feature_cutoff,
    "dropout": dropout,
}
CUTS: dict[str, Callable[..., Tensor]] = {
    "token-cutoff": token_cutoff,
    "feature-cutoff": feature_cutoff,
    "dropout": dropout,
}


@dataclass(frozen=True)
class Frame:
    """What stands around each text: vocabulary numbers before and behind it, and where the mask word is, if any."""

    before: tuple[int, ...]
    behind: tuple[int, ...]
    mask: int = -1  # place in `before`, or len(before) plus that in `behind`: the text itself not counted

    def __len__(self) -> int:
        return len(self.before) + len(self.behind)


def split(text: str) -> tuple[str, str]:
    """
    A template's words before and behind the text.

    Raises:
        ValueError: not exactly one slot and one mask word.
    """
    if text.count(SLOT) != 1 or text.count(MASK) != 1:
        raise ValueError(
            f'template "{text}" has {text.count(SLOT)} {SLOT} and {text.count(MASK)} {MASK}; should have one of each, '
            f"as in 'This sentence : \"{SLOT}\" means {MASK}.'"
        )
    before, behind = text.split(SLOT)
    return before, behind


def frame(text: str | None, tokenizer: Tokenizer) -> Frame:
    """
    The numbers around a text: the tokenizer's first and last word, and those of a template between.

    Raises:
        RecipeError: the tokenizer lacks a special word.
    """
    first, last = special(tokenizer, "first"), special(tokenizer, "last")
    if text is None:
        return Frame((first,), (last,))
    mask = special(tokenizer, "mask")
    before, behind = (_numbers(part, mask, tokenizer) for part in split(text))
    whole = (first, *before, *behind, last)
    return Frame(whole[: 1 + len(before)], whole[1 + len(before) :], whole.index(mask))


def framed(
    id_LT: Tensor, length_L: Tensor, view_L: Tensor, frames: list[Frame], filler: int
) -> tuple[Tensor, Tensor, Tensor]:
    """
    Texts with the words of their frame around them.

    Args:
        id_LT: vocabulary numbers; whatever stands behind a text's end is not read.
        view_L: which frame each text has.
        filler: what stands behind the end.
    Returns:
        Numbers [L, S], lengths [L], and the place of the mask word [L], which is 0 where there is none.
    """
    device = id_LT.device
    before_VP = _table([f.before for f in frames]).to(device)
    behind_VQ = _table([f.behind for f in frames]).to(device)
    count_V2 = torch.tensor([[len(f.before), len(f.behind)] for f in frames], device=device)
    before_L, behind_L = count_V2[view_L].unbind(dim=1)
    whole_L = before_L + length_L + behind_L
    place_S = torch.arange(int(whole_L.max()), device=device)
    inner_LS = place_S - before_L[:, None]
    outer_LS = inner_LS - length_L[:, None]
    pick = lambda table_LN, at_LS: table_LN.gather(1, at_LS.clamp(0, table_LN.shape[1] - 1))
    id_LS = torch.where(inner_LS < 0, pick(before_VP[view_L], place_S.expand_as(inner_LS)), pick(id_LT, inner_LS))
    id_LS = id_LS.where(outer_LS < 0, pick(behind_VQ[view_L], outer_LS))
    mask_L = torch.tensor([max(f.mask, 0) for f in frames], device=device)[view_L]
    mask_L = torch.where(mask_L < before_L, mask_L, mask_L + length_L)
    return id_LS.where(place_S < whole_L[:, None], filler), whole_L, mask_L


def special(tokenizer: Tokenizer, role: str) -> int:
    """
    Number of the first, last or mask word.

    Raises:
        RecipeError: there is none.
    """
    found = [number for name in NAMES[role] if (number := tokenizer.token_to_id(name)) is not None]
    if not found:
        raise RecipeError(
            f"the tokenizer has no {' or '.join(NAMES[role])}; use one that has, as tokenizer.kind=wordpiece makes it"
        )
    return found[0]


def _numbers(part: str, mask: int, tokenizer: Tokenizer) -> list[int]:
    first, *rest = (_encoded(piece, tokenizer) for piece in part.split(MASK))
    return first + [number for piece in rest for number in (mask, *piece)]


def _encoded(words: str, tokenizer: Tokenizer) -> list[int]:
    """Numbers of some words, without what a tokenizer may fill a text up with."""
    if not words.strip():
        return []
    entry = tokenizer.encode(words, add_special_tokens=False)
    return [number for number, real in zip(entry.ids, entry.attention_mask, strict=True) if real]


def _share(rate: float) -> float:
    if not 0 <= rate < 1:
        raise ValueError(f"view.rate is {rate}; it is a share to leave out, from 0 to below 1")
    return rate


def _ranks(draw_LN: Tensor) -> Tensor:
    """Each number's place when its row is sorted."""
    return draw_LN.argsort(dim=1).argsort(dim=1)


def _table(rows: Sequence[tuple[int, ...]]) -> Tensor:
    """Rows of unequal length as a matrix with at least one column."""
    most = max(1, *map(len, rows)) if len(rows) > 1 else max(1, len(rows[0]))
    return torch.tensor([[*row, *[0] * (most - len(row))] for row in rows])
