"""Which of the texts that a miner found become an anchor's hard negatives."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.recipe import Negatives
from pipeline.mine_search import Lists


@dataclass(frozen=True)
class Chosen:
    """
    Places in the lists, [Q, C]; -1 where a query has too few.

    Args:
        place_QC: in order of rank.
        rank_QK: of each listed text among those that the rules leave, from 0; -1 for one that they do not.
        counts: texts left out by each rule, queries with too few, and with none.
    """

    place_QC: NDArray[np.int64]
    rank_QK: NDArray[np.int64]
    counts: dict[str, int]


def chosen(
    lists: Lists,
    barred_QK: NDArray[np.bool_],
    right_Q: NDArray[np.float32],
    rules: Negatives,
    draw: np.random.Generator,
) -> Chosen:
    """
    Of each list, the texts that the rules choose.

    Of the `last` nearest that are not barred, those whose scores pass; of these the ones of ranks `first` and above;
    and of these the first `count`, or as many drawn.

        score <= right - absolute_margin,   score <= right - relative_margin |right|,   floor <= score <= ceiling

    Args:
        barred_QK: texts that could be right: of the query's group, or of an answer's.
        right_Q: the score of the query's right answer, of several the lowest; NaN: nothing to compare with.
        draw: numbers are taken for each place of each list, so what is drawn of one depends on no other's scores.
    Source:
        Moreira et al. 2024 (NV-Retriever), section 4: a share of the positive's score, as `relative_margin`.
    """
    there_QK = (lists.score_QK > -np.inf) & ~barred_QK
    counts = {"barred": int((barred_QK & (lists.score_QK > -np.inf)).sum())}
    there_QK &= np.cumsum(there_QK, axis=1) <= rules.last
    for name, limit_Q1, above in _limits(right_Q[:, None], rules):
        wrong_QK = there_QK & (lists.score_QK > limit_Q1 if above else lists.score_QK < limit_Q1)
        counts[name] = int(wrong_QK.sum())
        there_QK &= ~wrong_QK
    rank_QK = np.where(there_QK, np.cumsum(there_QK, axis=1) - 1, -1)
    in_range_QK = rank_QK >= rules.first
    key_QK = draw.random(in_range_QK.shape) if rules.choose == "sample" else rank_QK.astype(np.float64)
    key_QK = np.where(in_range_QK, key_QK, np.inf)
    place_QC = np.argsort(key_QK, axis=1, kind="stable")[:, : rules.count]
    place_QC = np.where(np.take_along_axis(in_range_QK, place_QC, axis=1), place_QC, key_QK.shape[1])
    place_QC = np.sort(place_QC, axis=1)
    place_QC = np.where(place_QC < key_QK.shape[1], place_QC, -1)
    missing = np.full((len(place_QC), rules.count - place_QC.shape[1]), -1)
    place_QC = np.concatenate([place_QC, missing], axis=1)
    found_Q = (place_QC >= 0).sum(axis=1)
    counts |= {"short": int((found_Q < rules.count).sum()), "without": int((found_Q == 0).sum())}
    return Chosen(place_QC, rank_QK, counts)


def _limits(right_Q1: NDArray[np.floating], rules: Negatives) -> list[tuple[str, NDArray[np.floating], bool]]:
    """Each score rule that is asked for: its name, its limit, and whether scores above it are wrong."""
    found: list[tuple[str, NDArray[np.floating], bool]] = []
    right_Q1 = right_Q1.astype(np.float64)
    if rules.absolute_margin is not None:
        found.append(("absolute_margin", right_Q1 - rules.absolute_margin, True))
    if rules.relative_margin is not None:
        found.append(("relative_margin", right_Q1 - rules.relative_margin * np.abs(right_Q1), True))
    if rules.ceiling is not None:
        found.append(("ceiling", np.full_like(right_Q1, rules.ceiling), True))
    if rules.floor is not None:
        found.append(("floor", np.full_like(right_Q1, rules.floor), False))
    return found


def may_be_right(
    group_QK: NDArray[np.uint64], own_Q: NDArray[np.uint64], at_P: NDArray[np.int64], answer_P: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """
    Which listed texts are of the query's group or of an answer's: the one place where mining compares groups.

    Args:
        own_Q: the queries' groups.
        at_P, answer_P: the query of each answer, ascending, and the answer's group.
    """
    barred_QK = group_QK == own_Q[:, None]
    count_Q = np.bincount(at_P, minlength=len(own_Q))
    first_Q = np.cumsum(count_Q) - count_Q
    for nth in range(int(count_Q.max(initial=0))):
        has_Q = count_Q > nth
        barred_QK[has_Q] |= group_QK[has_Q] == answer_P[first_Q[has_Q] + nth][:, None]
    return barred_QK
