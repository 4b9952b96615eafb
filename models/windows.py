"""
Windows over the words of a lane: the words before a word, or the words around it. Made in the lane, never stored.

Letters besides those of `models`: A anchors, P predicted words, N words of the lane that were kept; n - 1 words are a
context.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.lookup import real


@dataclass(frozen=True)
class Windows:
    """
    What words are told from what.

    Args:
        input: vocabulary numbers that an anchor is made of, [A, n - 1] or [A].
        target_P: the words to be told.
        anchor_P: which anchor each is told from; None: one each, in order.
    """

    input: Tensor
    target_P: Tensor
    anchor_P: Tensor | None = None

    @property
    def anchors(self) -> int:
        """A."""
        return len(self.input)

    def told_words(self) -> Tensor | int:
        """How many words each anchor tells."""
        return 1 if self.anchor_P is None else torch.bincount(self.anchor_P, minlength=self.anchors)


def before(id_LT: Tensor, length_L: Tensor, order: int, mark: int) -> Windows:
    """
    Every word of every text, and the text's end, with the order - 1 words before it, the oldest first.

    Args:
        id_LT: vocabulary numbers; whatever stands behind a text's end is not read.
        length_L: int64 number of words of each text.
        order: n, at least 1.
        mark: the number that stands before a text in contexts, and for its end as a word to be told.
    Source:
        Bengio, Ducharme, Vincent and Jauvin 2003, section 2, whose contexts have the newest word first.
    """
    rows, most = id_LT.shape
    told_LT = real(length_L + 1, most + 1)
    target_LT = torch.cat([id_LT, id_LT.new_full((rows, 1), mark)], dim=1)
    target_LT = target_LT.where(torch.arange(most + 1, device=id_LT.device) < length_L[:, None], mark)
    if order == 1:
        return Windows(id_LT.new_zeros(int(told_LT.sum()), 0), target_LT[told_LT])
    padded_LT = torch.cat([id_LT.new_full((rows, order - 1), mark), id_LT], dim=1)
    return Windows(padded_LT.unfold(1, order - 1, 1)[told_LT], target_LT[told_LT])


Keep = Literal["paper", "word2vec"]


def around(id_LT: Tensor, length_L: Tensor, window: int, keep_V: Tensor) -> Windows:
    """
    Every word that is kept, with the kept words of its text up to r places away, r drawn evenly from 1 to `window`.

    Draws from torch's default generator.

    Args:
        keep_V: chance of each word to be kept.
    Source:
        Mikolov, Chen, Corrado and Dean 2013, section 3.2, for the radius; word2vec leaves words out before it counts
        places.
    """
    kept_LT = real(length_L, id_LT.shape[1])
    chance_LT = torch.rand(id_LT.shape, device=id_LT.device, dtype=keep_V.dtype)
    kept_LT = kept_LT & (chance_LT < keep_V[id_LT])
    text_N, id_N = kept_LT.nonzero(as_tuple=True)[0], id_LT[kept_LT]
    radius_N = torch.randint(1, window + 1, id_N.shape, device=id_N.device)
    anchors, others = [], []
    for away in range(1, window + 1):
        together_N = text_N[away:] == text_N[:-away]
        first_P = (together_N & (radius_N[:-away] >= away)).nonzero().flatten()
        second_P = (together_N & (radius_N[away:] >= away)).nonzero().flatten()
        anchors += [first_P, second_P + away]
        others += [first_P + away, second_P]
    return Windows(id_N, id_N[torch.cat(others)], torch.cat(anchors))


def keep_chances(share_V: Tensor, threshold: float, keep: Keep = "paper") -> Tensor:
    """
    Chance of each word to be kept where common words are left out now and then.

        paper:     keep[w] = min( 1, sqrt( threshold / share[w] ) )
        word2vec:  keep[w] = min( 1, sqrt( threshold / share[w] ) + threshold / share[w] )

    Args:
        share_V: each word's share of the corpus.
        threshold: the share from which on a word is left out at times; 0: none is.
    Source:
        Mikolov, Sutskever, Chen, Corrado and Dean 2013, equation 5; their released code has the second form, which
        keeps more of the words that are not much commoner than the threshold.
    """
    if threshold == 0:
        return torch.ones_like(share_V)
    part_V = threshold / share_V.clamp(min=threshold)
    return part_V.sqrt() if keep == "paper" else (part_V.sqrt() + part_V).clamp(max=1)
