"""
Counts of n-grams in sorted arrays, and the probabilities that they give.

A context of m words is a node of depth m in a tree whose first step is the nearest word, so that one way from the root
passes the contexts of all lengths. A node's key is its parent's number and a word, an event's key is a node's number
and the next word; both are exact 64-bit numbers in ascending order, and finding many of them is one `searchsorted`.

Letters besides those of `models`: G different n-grams, P predicted tokens, E events of a depth, C contexts of a depth.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]
Reals = NDArray[np.float64]
Smoothing = Literal["mle", "add-k", "interpolated", "backoff"]


@dataclass(frozen=True)
class Formula:
    """How counts become probabilities; see `probability`."""

    smoothing: Smoothing = "backoff"
    k: float = 1.0
    share: float = 0.7
    discount: float = 0.5


@dataclass(frozen=True)
class Depth:
    """All contexts of one length, and what followed them."""

    context_C: Numbers  # keys, ascending; a context's number is its place here
    event_E: Numbers  # keys, ascending
    count_E: NDArray[np.int64]
    total_C: NDArray[np.int64]  # N(c)
    distinct_C: NDArray[np.int64]  # different words that followed


def windows(id_N: NDArray[np.uint32], length_S: NDArray[np.int64], order: int, end: int) -> NDArray[np.uint32]:
    """
    Every predicted token with the words before it, [P, order], nearest first and the token last.

    Args:
        id_N: the words of all texts, one text behind the other.
        length_S: words of each text.
        end: number of the end symbol, predicted once a text; `end + 1` is the start symbol, of which order - 1 stand
            before each text.
    """
    stop_S = np.cumsum(length_S + 1) - 1
    id_P = np.full(len(id_N) + len(length_S), end, dtype=np.uint32)
    is_word_P = np.ones(len(id_P), dtype=bool)
    is_word_P[stop_S] = False
    id_P[is_word_P] = id_N
    inside_P = np.arange(len(id_P)) - np.repeat(stop_S - length_S, length_S + 1)
    gram_PO = np.full((len(id_P), order), end + 1, dtype=np.uint32)
    gram_PO[:, -1] = id_P
    for back in range(1, min(order, len(id_P))):
        there_P = inside_P[back:] >= back
        gram_PO[back:, back - 1][there_P] = id_P[:-back][there_P]
    return gram_PO


class Counts:
    """
    Counts of n-grams, and those of all shorter ones, which are their sums.

    Args:
        gram_GO: different n-grams [G, order], nearest context word first and the next word last, in ascending order.
        count_G: how often each was seen.
        words: words that can be predicted V', numbered from 0, the end symbol last.
    Source:
        Jelinek and Mercer 1980 for interpolation; Ney, Essen and Kneser 1994 for the absolute discount.
    """

    def __init__(self, gram_GO: NDArray[np.uint32], count_G: NDArray[np.int64], words: int) -> None:
        self.words, self.order = words, gram_GO.shape[1]
        next_G, number_G = gram_GO[:, -1].astype(np.uint64), np.zeros(len(gram_GO), dtype=np.uint64)
        self.depths = [_depth(np.zeros(1, dtype=np.uint64), number_G, next_G, count_G)]
        for back in range(self.order - 1):
            key_G = _keys(number_G, gram_GO[:, back])
            new_G = np.ones(len(key_G), dtype=bool)
            new_G[1:] = key_G[1:] != key_G[:-1]
            number_G = (np.cumsum(new_G) - 1).astype(np.uint64)
            self.depths.append(_depth(key_G[new_G], number_G, next_G, count_G))
        self._unseen: dict[float, list[Reals]] = {}

    @property
    def word_counts(self) -> NDArray[np.int64]:
        """How often each word was seen, [V']."""
        count_V = np.zeros(self.words, dtype=np.int64)
        count_V[self.depths[0].event_E.astype(np.int64)] = self.depths[0].count_E
        return count_V

    def probability(self, gram_PO: NDArray[np.uint32], formula: Formula) -> Reals:
        """
        p(w|c) of each row, [P] in 0 to 1; N() counts predicted tokens.

            mle           N(c,w) / N(c); 0 where that was never seen
            add-k         (N(c,w) + k) / (N(c) + k V')
            interpolated  share N(c,w)/N(c) + (1 - share) p(w|shorter c)
            backoff       (N(c,w) - discount) / N(c) if seen; else the rest, shared out in proportion to p(w|shorter c)
                          over the words unseen after c; no discount where none is unseen

        The last two are p(w|shorter c) where N(c) = 0, and 1/V' below the empty context.

        Args:
            gram_PO: as from `windows`.
        """
        if formula.smoothing in ("mle", "add-k"):
            count_P, total_P, _ = self._found(gram_PO)[-1]
            k = formula.k if formula.smoothing == "add-k" else 0.0
            return (count_P + k) / np.maximum(total_P + k * self.words, k or 1)
        p_P = np.full(len(gram_PO), 1 / self.words)
        for depth, (count_P, total_P, number_P) in enumerate(self._found(gram_PO)):
            known_P = total_P > 0
            if formula.smoothing == "interpolated":
                mixed_P = formula.share * count_P / np.maximum(total_P, 1) + (1 - formula.share) * p_P
                p_P = np.where(known_P, mixed_P, p_P)
            else:
                p_P = np.where(known_P, self._backoff(depth, count_P, number_P, p_P, formula.discount), p_P)
        return p_P

    def _found(
        self, gram_PO: NDArray[np.uint32]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """N(c,w), N(c) and the context's number (-1: never seen), [P] each, for each length of context."""
        number_P, found = np.zeros(len(gram_PO), dtype=np.int64), []
        for depth, level in enumerate(self.depths):
            if depth:
                number_P = _places(level.context_C, number_P, gram_PO[:, depth - 1])
            event_P = _places(level.event_E, number_P, gram_PO[:, -1])
            total_P = np.where(number_P >= 0, level.total_C[number_P], 0)
            found.append((np.where(event_P >= 0, level.count_E[event_P], 0), total_P, number_P))
        return found

    def _backoff(
        self, depth: int, count_P: NDArray[np.int64], number_P: NDArray[np.int64], p_P: Reals, discount: float
    ) -> Reals:
        level, unseen_C = self.depths[depth], self._unseen_mass(discount)[depth]
        total_P, distinct_P = level.total_C[number_P], level.distinct_C[number_P]
        own_P = np.where(distinct_P < self.words, discount, 0.0)
        left_P = own_P * distinct_P / total_P
        return np.where(count_P > 0, (count_P - own_P) / total_P, left_P * p_P / unseen_C[number_P])

    def _unseen_mass(self, discount: float) -> list[Reals]:
        """
        For each depth and context the sum of p(w|shorter c) over words unseen after it, [C].

        What followed a context followed the shorter one too, so each summand is a count less the discount.
        """
        if discount not in self._unseen:
            found: list[Reals] = []
            for depth, level in enumerate(self.depths):
                context_E = (level.event_E >> np.uint64(32)).astype(np.int64)
                if depth == 0:
                    p_E = np.full(len(context_E), 1 / self.words)
                else:
                    shorter = self.depths[depth - 1]
                    parent_E = (level.context_C >> np.uint64(32)).astype(np.int64)[context_E]
                    place_E = _places(shorter.event_E, parent_E, level.event_E.astype(np.uint32))
                    own_E = np.where(shorter.distinct_C[parent_E] < self.words, discount, 0.0)
                    p_E = (shorter.count_E[place_E] - own_E) / shorter.total_C[parent_E]
                seen_C = np.bincount(context_E, weights=p_E, minlength=len(level.context_C))
                # Where nothing is unseen nobody asks for the rest, which rounding may have made nothing or less.
                found.append(np.where(level.distinct_C < self.words, 1 - seen_C, 1.0))
            self._unseen[discount] = found
        return self._unseen[discount]


def _depth(context_C: Numbers, number_G: Numbers, next_G: Numbers, count_G: NDArray[np.int64]) -> Depth:
    """What followed each context, summed over what stood before it."""
    key_G = _keys(number_G, next_G)
    if (key_G[1:] <= key_G[:-1]).any():
        order_G = np.argsort(key_G, kind="stable")
        key_G, count_G = key_G[order_G], count_G[order_G]
    new_G = np.ones(len(key_G), dtype=bool)
    new_G[1:] = key_G[1:] != key_G[:-1]
    start_E = np.flatnonzero(new_G)
    event_E, count_E = key_G[start_E], np.add.reduceat(count_G, start_E) if len(start_E) else count_G
    context_E = (event_E >> np.uint64(32)).astype(np.int64)
    total_C = np.zeros(len(context_C), dtype=np.int64)
    np.add.at(total_C, context_E, count_E)
    return Depth(context_C, event_E, count_E, total_C, np.bincount(context_E, minlength=len(context_C)))


def _keys(number_P: NDArray[np.integer], word_P: NDArray[np.integer]) -> Numbers:
    return number_P.astype(np.uint64) << np.uint64(32) | word_P.astype(np.uint64)


def _places(key_K: Numbers, number_P: NDArray[np.int64], word_P: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where each key stands, [P]; -1 where there is none, or its context (-1) was never seen."""
    wanted_P = _keys(number_P, word_P)
    place_P = np.minimum(np.searchsorted(key_K, wanted_P), len(key_K) - 1)
    return np.where((number_P >= 0) & (key_K[place_P] == wanted_P), place_P, -1)
