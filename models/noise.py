"""
Noise words, and the logistic loss of telling a text's words from them.

Letters besides those of `models`: A anchors, P predicted words, K noise words of each, S noise words that all share.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Counted:
    """
    What a corpus holds.

    Args:
        word_V: how often each word of the vocabulary stands there.
        texts: how many texts these words are; each has an end.
    """

    word_V: Tensor
    texts: float


@dataclass(frozen=True, kw_only=True)
class EveryWord:
    """Candidates: all words."""


@dataclass(frozen=True, kw_only=True)
class NoiseWords:
    """
    Candidates: a text's own word, and noise words.

    Args:
        count: k, noise words for each word of a text.
        power: q is proportional to a word's count to this power: 1 is the unigram distribution, 0 an even one.
        shared: one draw for the whole batch, in place of one for each word.
        drawn: how many words are drawn where they are shared; 0: `count`. Each weighs count / drawn, so that the loss
            is expected to be the same.
        correct: log(k q) is taken off the scores, as noise-contrastive estimation has it; else negative sampling.
    Raises:
        ValueError: no noise word, or `drawn` without `shared`.
    Source:
        Mnih and Teh 2012; with power 0.75 and not corrected Mikolov et al. 2013, section 2.2.
    """

    count: int = 25
    power: float = 1.0
    shared: bool = False
    drawn: int = 0
    correct: bool = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"candidates.count is {self.count}; how many noise words a word has, at least 1")
        if self.drawn < 0 or (self.drawn and not self.shared):
            raise ValueError(f"candidates.drawn is {self.drawn}; above 0 only where candidates.shared is true, else 0")


class Noise(nn.Module):
    """
    The distribution that noise words come from.

        q(w) = count[w]^power / sum over v of count[v]^power

    Args:
        count_V: how often each word stands in the corpus; a word that it lacks counts as one there.
        power: no unit.
    Raises:
        ValueError: a word that may occur would never be drawn, or a count is no number.
    """

    log_q_V: Tensor
    own_V: Tensor
    other_V: Tensor

    def __init__(self, count_V: Tensor, *, power: float = 1.0) -> None:
        super().__init__()
        times_V = count_V.double().clamp(min=1)
        log_V = power * (times_V / times_V.sum()).log()
        q_V = (log_V - log_V.logsumexp(0)).exp()
        if not q_V.is_meta and not bool((q_V > 0).all()):
            word = int((~(q_V > 0)).nonzero()[0])
            raise ValueError(
                f"noise gives word {word}, which stands {count_V[word].item():g} times in the corpus, the chance "
                f"{q_V[word].item():g}; every word that can occur needs one above 0: bring candidates.power "
                f"({power:g}) nearer to 1"
            )
        self.register_buffer("log_q_V", q_V.log(), persistent=False)
        own_V, other_V = (q_V, q_V.long()) if q_V.is_meta else _two_words_each(q_V)
        self.register_buffer("own_V", own_V, persistent=False)
        self.register_buffer("other_V", other_V, persistent=False)

    def draw(self, *shape: int, seed: int | None = None) -> Tensor:
        """Noise words, with replacement; from torch's default generator, or from a seed that others share."""
        device = self.own_V.device
        if seed is None:
            place = torch.rand(shape, dtype=torch.float64, device=device)
        else:
            place = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(device)
        place = place * len(self.own_V)
        word = place.long().clamp(max=len(self.own_V) - 1)
        return word.where(place - word < self.own_V[word], self.other_V[word])


def _two_words_each(q_V: Tensor) -> tuple[Tensor, Tensor]:
    """
    V equally likely cells that hold a word and another each, so that a draw costs the same for any V.

    Returns:
        The chance of a cell's own word, and the cell's other word.
    Source:
        Vose 1991, the alias method.
    """
    own, other = (q_V * len(q_V)).tolist(), list(range(len(q_V)))
    short = [word for word, much in enumerate(own) if much < 1]
    ample = [word for word, much in enumerate(own) if much >= 1]
    while short and ample:
        cell, giver = short.pop(), ample[-1]
        other[cell] = giver
        own[giver] -= 1 - own[cell]
        if own[giver] < 1:
            short.append(ample.pop())
    for word in (*short, *ample):  # what rounding left over
        own[word] = 1.0
    return torch.tensor(own, dtype=torch.float64), torch.tensor(other)


@dataclass(frozen=True, kw_only=True)
class Normalised:
    """Scores are turned into chances by the softmax over all words."""


@dataclass(frozen=True, kw_only=True)
class Unnormalised:
    """
    Scores, less log Z, are logarithms of chances as they stand.

    Args:
        log_z: it is 0 ("fixed"), one trained number ("global"), or one of each context ("per-context").
    Source:
        Gutmann and Hyvärinen 2010; Mnih and Teh 2012, who fix it at 0.
    """

    log_z: Literal["fixed", "global", "per-context"] = "fixed"


def logistic(right_P: Tensor, wrong_AS: Tensor, weight_A: Tensor | float = 1.0) -> Tensor:
    """
    Logistic loss of telling words of a text from noise.

        - sum over p of log sig(right[p]) - sum over a, s of weight[a] log sig(-wrong[a, s])

    Args:
        right_P: score of each word of a text, less log Z and log(k q) where the estimate is noise-contrastive.
        wrong_AS: the same of noise words.
        weight_A: how often an anchor's noise words count: 1 with K of its own, k times its number of words over S where
            S are shared.
    Returns:
        Nats summed, []; divided by the number of a text's words it is -J in expectation.
    Source:
        Gutmann and Hyvärinen 2010; Mikolov, Sutskever, Chen, Corrado and Dean 2013, equation 4.
    """
    wrong_A = nn.functional.logsigmoid(-wrong_AS).sum(dim=1)
    return -nn.functional.logsigmoid(right_P).sum() - (weight_A * wrong_A).sum()


WORD_CANDIDATES: dict[str, type[EveryWord] | type[NoiseWords]] = {"noise": NoiseWords, "vocabulary": EveryWord}
WORD_OBJECTIVES: dict[str, type[Normalised] | type[Unnormalised]] = {"logistic": Unnormalised, "softmax": Normalised}
