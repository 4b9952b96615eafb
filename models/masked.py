"""Masked words: some tokens of a text are hidden or changed, and the encoder tells what they were."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.lookup import real
from models.transformer import Transformer

HIDDEN, CHANGED = 0.8, 0.1  # of the chosen tokens; the rest stay as they are
ROUND, NOTHING = 64, -100


@dataclass(frozen=True)
class Hidden:
    """
    Texts with hidden tokens.

    Args:
        id_LT: their numbers, the hidden ones replaced.
        chosen_LT: True for tokens that are to be told.
        target_N: what stood there, row after row.
    """

    id_LT: Tensor
    chosen_LT: Tensor
    target_N: Tensor

    @property
    def count(self) -> int:
        """How many tokens are to be told."""
        return len(self.target_N)


def hide(
    encoder: Transformer, id_LT: Tensor, length_L: Tensor, *, rate: float = 0.15, whole_words: bool = False
) -> Hidden:
    """
    Choose tokens, each with the same chance; 80 % become the mask word, 10 % any word, 10 % stay.

    Draws from torch's default generator.

    Args:
        rate: chance of a token, or of a word, to be chosen.
        whole_words: pieces of one word are chosen together.
    Raises:
        ValueError: the rate is no chance above 0.
        RecipeError: the tokenizer has no mask word.
    Source:
        Devlin et al. 2019, section 3.1; whole words as in the authors' later release.
    """
    check(rate=rate)
    real_LT = real(length_L.clamp(max=encoder.room()), id_LT.shape[1])
    draw_LT = torch.rand(id_LT.shape, device=id_LT.device)
    if whole_words:
        draw_LT = draw_LT.gather(1, _word_starts(encoder.continues(id_LT)))
    chosen_LT = (draw_LT < rate) & real_LT
    kind_LT = torch.rand(id_LT.shape, device=id_LT.device)
    words = encoder.vocabulary()
    any_LT = torch.randint(words, id_LT.shape, device=id_LT.device)
    hidden_LT = torch.where(chosen_LT & (kind_LT < HIDDEN), encoder.mask_word(), id_LT)
    changed_LT = chosen_LT & (kind_LT >= HIDDEN) & (kind_LT < HIDDEN + CHANGED)
    return Hidden(torch.where(changed_LT, any_LT, hidden_LT), chosen_LT, id_LT[chosen_LT])


def told(encoder: Transformer, hidden: Hidden, length_L: Tensor) -> Tensor:
    """
    Cross-entropy of the hidden tokens, nats summed over them, [].

    Source:
        Devlin et al. 2019, section 3.1.
    """
    if not len(hidden.target_N):
        return torch.zeros((), device=length_L.device)
    return nats(encoder, encoder.states_of(hidden.id_LT, length_L, hidden.chosen_LT), hidden.target_N)


def nats(encoder: Transformer, state_ND: Tensor, target_N: Tensor) -> Tensor:
    """Cross-entropy of the words that some states should tell, nats summed over them, []; 0 for none."""
    if not len(target_N):
        return state_ND.new_zeros((), dtype=torch.float32)
    # Filled up to a round number: a product of each new size is compiled anew, and kept.
    more = -len(target_N) % ROUND
    target_N = nn.functional.pad(target_N, (0, more), value=NOTHING)
    return surprise(encoder.words_at(nn.functional.pad(state_ND, (0, 0, 0, more))), target_N)


def surprise(score_NV: Tensor, target_N: Tensor) -> Tensor:
    """
    Cross-entropy of words by their scores, nats summed over them, []; a target `NOTHING` counts nothing.

        - sum over n of log( exp score[n, target[n]] / sum over v of exp score[n, v] )
    """
    score_NV = score_NV.float() if score_NV.dtype == torch.bfloat16 else score_NV
    return nn.functional.cross_entropy(score_NV, target_N, ignore_index=NOTHING, reduction="sum")


def _word_starts(continues_LT: Tensor) -> Tensor:
    """For each token the place where its word begins."""
    place_LT = torch.arange(continues_LT.shape[1], device=continues_LT.device).expand_as(continues_LT)
    return place_LT.where(~continues_LT, 0).cummax(dim=1).values


@dataclass(frozen=True, kw_only=True)
class Masked:
    """
    A lane objective: `hide` some tokens, then have them `told`.

    Raises:
        ValueError: the rate is no chance above 0.
    """

    rate: float = 0.15
    whole_words: bool = False

    def __post_init__(self) -> None:
        check(rate=self.rate)

    def draw(self, encoder: Transformer, id_LT: Tensor, length_L: Tensor, common: int) -> Hidden:
        """Tokens that are chosen in a lane; nothing is common to a batch."""
        return hide(encoder, id_LT, length_L, rate=self.rate, whole_words=self.whole_words)

    def told(self, encoder: Transformer, other: Transformer, drawn: Hidden, length_L: Tensor) -> Tensor:
        """Cross-entropy of the hidden tokens, summed."""
        return told(encoder, drawn, length_L)


LANE_OBJECTIVES: dict[str, type[Masked]] = {"mlm": Masked}


def check(*, rate: float) -> None:
    """
    Refuse what `hide` would refuse.

    Raises:
        ValueError: the rate is no chance above 0.
    """
    if not 0 < rate < 1:
        raise ValueError(f"objective.rate is {rate}; a chance between 0 and 1")
