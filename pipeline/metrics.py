"""
Measures of vectors and of ranks, on plain numpy arrays; no files, no models. For ranked lists see `ranking`.

Ties are always broken against the scorer: a wrong answer that scores as high as the right one stands before it, so a
constant scorer cannot look good. A score that is no number counts against the scorer too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata


@dataclass(frozen=True)
class Interval:
    """A mean or other estimate, and the bounds between which it lies with 95 % confidence; unit of the measure."""

    mean: float
    low: float
    high: float


def spearman(left_N: ArrayLike, right_N: ArrayLike) -> float:
    """
    Rank correlation times 100: Pearson's correlation of the ranks, ties taking the mean of theirs.

    Returns:
        -100 to 100; nan when a side is constant, for then it has no order to agree with.
    Raises:
        ValueError: the sides have unlike lengths.
    """
    left, right = _pairs(left_N, right_N)
    return _correlation(rankdata(left), rankdata(right))


def pearson(left_N: ArrayLike, right_N: ArrayLike) -> float:
    """
    Correlation times 100.

    Returns:
        -100 to 100; nan when a side is constant.
    Raises:
        ValueError: the sides have unlike lengths.
    """
    return _correlation(*_pairs(left_N, right_N))


def _pairs(left_N: ArrayLike, right_N: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.asarray(left_N, float), np.asarray(right_N, float)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError(f"sides of shape {left.shape} and {right.shape}; both should be [N], a number for each pair")
    return left, right


def _correlation(left_N: np.ndarray, right_N: np.ndarray) -> float:
    if not len(left_N) or not np.ptp(left_N) or not np.ptp(right_N):  # a mean may round, so that a spread is not 0
        return float("nan")
    x, y = left_N - left_N.mean(), right_N - right_N.mean()
    return float(100 * np.dot(x, y) / np.sqrt(np.dot(x, x) * np.dot(y, y)))


def spearman_all(subsets: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """
    One `spearman` over all subsets put behind each other; neither the plain nor the weighted mean of theirs.

    Source:
        the "all" setting of Gao, Yao and Chen 2021, appendix B, for STS 2012-2016.
    """
    left = np.concatenate([np.asarray(side, float) for side, _ in subsets])
    right = np.concatenate([np.asarray(side, float) for _, side in subsets])
    return spearman(left, right)


def normalised(vector_ND: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1; a row of zeros stays."""
    return vector_ND / np.linalg.norm(vector_ND, axis=1, keepdims=True).clip(min=1e-12)


def cosine(left_ND: np.ndarray, right_ND: np.ndarray) -> np.ndarray:
    """
    Cosine of each left vector with the right one of its row, [N] float64; 0 where one of them is zeros.

    Rounded to ten decimals: float32 holds no more, and what is the same should be a tie.
    """
    dot = lambda x, y: np.einsum("nd,nd->n", x, y, dtype=np.float64)
    length_N = np.sqrt(dot(left_ND, left_ND)) * np.sqrt(dot(right_ND, right_ND))
    zero_N = length_N == 0
    return np.where(zero_N, 0, dot(left_ND, right_ND) / np.where(zero_N, 1, length_N)).round(10)


def random_cosine(vector_ND: np.ndarray) -> float:
    """
    Mean cosine over all pairs of different rows: what a pair drawn at random has on average.

        ( |sum over i of x_i|^2 - sum over i of |x_i|^2 ) / ( N (N - 1) ),   x scaled to length 1

    Returns:
        -1 / (N - 1) to 1; near 0 where vectors fill the sphere evenly, near 1 where they fill a narrow cone; nan for
        fewer than two.
    """
    unit_ND, size = normalised(vector_ND), len(vector_ND)
    total_D = unit_ND.sum(axis=0, dtype=np.float64)
    own = np.square(unit_ND).sum(dtype=np.float64)
    return float((np.dot(total_D, total_D) - own) / (size * (size - 1))) if size > 1 else float("nan")


def alignment(left_ND: np.ndarray, right_ND: np.ndarray) -> float:
    """
    How far right pairs lie apart: mean over rows of |x - y|^2, on vectors of length 1.

    Returns:
        0 (the same direction) to 4 (opposite).
    Source:
        Wang and Isola 2020, section 4.1.1, alpha = 2.
    """
    return float(np.square(normalised(left_ND) - normalised(right_ND)).sum(axis=1).mean())


def uniformity(vector_ND: np.ndarray, block: int = 1024) -> float:
    """
    How evenly vectors fill the sphere: log of the mean over pairs i < j of exp(-2 |x_i - x_j|^2).

    Args:
        vector_ND: at least two vectors of any length; they are scaled to 1.
        block: rows compared at once; memory is block * N numbers.
    Returns:
        0 (all the same) downwards; nan for fewer than two vectors.
    Source:
        Wang and Isola 2020, section 4.1.2, t = 2.
    """
    unit_ND, total, size = normalised(vector_ND), 0.0, len(vector_ND)
    for start in range(0, size, block):
        dot_BN = unit_ND[start : start + block] @ unit_ND[start:].T
        near_BN = np.triu(np.exp(4 * dot_BN - 4), k=1)  # |x - y|^2 = 2 - 2 x.y; a vector is no pair with itself
        total += float(near_BN.sum(dtype=np.float64))
    pairs = size * (size - 1) / 2
    return float(np.log(total / pairs)) if pairs else float("nan")


def effective_rank(vector_ND: np.ndarray) -> float:
    """
    How many directions vectors fill: e to the entropy of their singular values as shares of the sum.

    Args:
        vector_ND: vectors of any length; they are scaled to 1.
    Returns:
        1 (one direction) to D (all alike); nan without a vector that is not zero.
    Source:
        Roy and Vetterli 2007, equation 4.
    """
    unit_ND = normalised(np.asarray(vector_ND, np.float64))
    value_D = np.sqrt(np.linalg.eigvalsh(unit_ND.T @ unit_ND).clip(min=0))
    if not value_D.sum() > 0:
        return float("nan")
    share_D = value_D[value_D > 0] / value_D.sum()
    return float(np.exp(-(share_D * np.log(share_D)).sum()))


def ranks(score_QN: np.ndarray, target_Q: np.ndarray, own_Q: np.ndarray | None = None) -> np.ndarray:
    """
    Place of each query's target among the candidates: 1 + how many others score as high or higher.

    Args:
        score_QN: a query's scores of all candidates.
        target_Q: column of the right answer.
        own_Q: column of the query itself, which is no candidate; None: it does not stand among them.
    Returns:
        1 (best) to N, or to N - 1 with `own_Q`; int64 [Q].
    """
    row_Q = np.arange(len(target_Q))
    above_QN = ~(score_QN < score_QN[row_Q, target_Q][:, None])  # a nan is not below anything, nor anything below it
    if own_Q is not None:
        above_QN[row_Q, own_Q] = False
    above_QN[row_Q, target_Q] = True
    return above_QN.sum(axis=1)


def from_ranks(rank_Q: np.ndarray, ks: Sequence[int] = (1, 10)) -> dict[str, float]:
    """Mean reciprocal rank and hit@k of queries that have one right answer each; nan without queries."""
    if not len(rank_Q):
        return {"mrr": float("nan"), **{f"hit@{k}": float("nan") for k in ks}}
    return {"mrr": float((1 / rank_Q).mean()), **{f"hit@{k}": float((rank_Q <= k).mean()) for k in ks}}


def bootstrap_difference(left_Q: ArrayLike, right_Q: ArrayLike, *, seed: int = 0, draws: int = 10_000) -> Interval:
    """
    Mean of `left - right` over queries, and its 95 % interval by the paired percentile bootstrap.

    Queries are drawn with replacement as pairs, so what makes a query hard for both sides cancels.

    Raises:
        ValueError: unlike lengths, no queries, or a value that is not finite.
    Source:
        Efron and Tibshirani 1993, chapter 13; for ranking, Sakai 2006.
    """
    left, right = np.asarray(left_Q, float), np.asarray(right_Q, float)
    if left.shape != right.shape or left.ndim != 1 or not len(left):
        raise ValueError(f"sides of shape {left.shape} and {right.shape}; both should be [Q], a value for each query")
    difference_Q = left - right
    if not np.isfinite(difference_Q).all():
        where = np.flatnonzero(~np.isfinite(difference_Q))[:5].tolist()
        raise ValueError(f"queries {where} have a difference that is not finite; score every query on both sides")
    means, random, size = np.empty(draws), np.random.default_rng(seed), len(difference_Q)
    step = max(1, 1_000_000 // size)  # about 4 MB of row numbers at once; measured .6 s for 20,000 queries
    for start in range(0, draws, step):
        count = min(step, draws - start)
        means[start : start + count] = difference_Q[random.integers(size, size=(count, size), dtype=np.uint32)].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(difference_Q.mean()), float(low), float(high))


def bootstrap_spearman(
    gold_N: ArrayLike, left_N: ArrayLike, right_N: ArrayLike, *, seed: int = 0, draws: int = 2_000
) -> Interval:
    """
    Spearman of `left` with `gold` minus that of `right`, and its 95 % interval by the paired percentile bootstrap.

    Pairs are drawn with replacement, both sides on the same draw, and ranked anew in each. A draw in which a side is
    constant says nothing and is left out.

    Returns:
        Points, -200 to 200.
    Raises:
        ValueError: unlike lengths, a value that is not finite, or a side that is constant.
    Source:
        Efron and Tibshirani 1993, chapter 13.
    """
    gold, left = _pairs(gold_N, left_N)
    gold, right = _pairs(gold_N, right_N)
    difference = spearman(left, gold) - spearman(right, gold)
    if not np.isfinite([gold, left, right]).all() or not np.isfinite(difference):
        raise ValueError("a side is constant or has a value that is not finite; Spearman is undefined")
    random, size, found = np.random.default_rng(seed), len(gold), []
    step = max(1, 500_000 // size)  # a few arrays of 4 MB at once; measured .6 s for 1,500 pairs
    for start in range(0, draws, step):
        count = min(step, draws - start)
        place = random.integers(size, size=(count, size)) + size * np.arange(count)[:, None]
        times_BN = np.bincount(place.ravel(), minlength=count * size).reshape(count, size)
        gold_BN, left_BN, right_BN = (_ranks_in_draws(side, times_BN) for side in (gold, left, right))
        found.append(_weighted(left_BN, gold_BN, times_BN) - _weighted(right_BN, gold_BN, times_BN))
    difference_B = np.concatenate(found)
    low, high = np.percentile(difference_B[np.isfinite(difference_B)], [2.5, 97.5])
    return Interval(difference, float(low), float(high))


def _ranks_in_draws(value_N: np.ndarray, times_BN: np.ndarray) -> np.ndarray:
    """
    Rank of each value among those drawn, ties taking the mean of theirs: no draw need be sorted, for the order of
    values is the same in all. [draws, N], from -1/2 to 1/2 so that the mean is 0.
    """
    order_N = np.argsort(value_N, kind="stable")
    _, level_N, size_L = np.unique(value_N, return_inverse=True, return_counts=True)
    last_BL = np.cumsum(times_BN[:, order_N], axis=1)[:, np.cumsum(size_L) - 1]
    before_BL = np.pad(last_BL[:, :-1], ((0, 0), (1, 0)))
    middle_BL = (before_BL + last_BL) / (2 * len(value_N)) - 0.5
    return middle_BL[:, level_N]


def _weighted(left_BN: np.ndarray, right_BN: np.ndarray, times_BN: np.ndarray) -> np.ndarray:
    """Correlation times 100 of ranks that have the mean 0, each as often as it was drawn; nan for a constant side."""
    dot = lambda x, y: np.einsum("bn,bn,bn->b", x, y, times_BN)
    spread_B = np.sqrt(dot(left_BN, left_BN) * dot(right_BN, right_BN))
    return 100 * dot(left_BN, right_BN) / np.where(spread_B > 0, spread_B, np.nan)
