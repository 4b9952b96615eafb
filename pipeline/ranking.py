"""
Measures of ranked answers to many questions, on flat numpy arrays: a score, a label and a question for each candidate.

Of answers with the same score the wrong ones stand first, so a constant scorer cannot look good. A score that is no
number counts against the scorer too. Every measure looks at the same ordered lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

NoPositive = Literal["drop", "zero", "clean"]


@dataclass(frozen=True)
class Lists:
    """
    The candidates of Q questions, one question behind the other, each with the best first.

    Args:
        question_Q: the questions' names in ascending order.
        of_N: which of them a candidate stands under.
        label_N: whether it is right.
        place_N: its place in its list, from 1.
    """

    question_Q: np.ndarray
    of_N: np.ndarray
    label_N: np.ndarray
    place_N: np.ndarray

    def summed(self, value_N: np.ndarray) -> np.ndarray:
        """Sum of a question's candidates, [Q]."""
        return np.bincount(self.of_N, weights=value_N, minlength=len(self.question_Q))

    def right(self) -> np.ndarray:
        """How many right answers a question has, [Q]."""
        return self.summed(self.label_N)

    def sizes(self) -> np.ndarray:
        """How many candidates a question has, [Q]."""
        return np.bincount(self.of_N, minlength=len(self.question_Q))


def ordered(score_N: ArrayLike, label_N: ArrayLike, question_N: ArrayLike) -> Lists:
    """
    Put the candidates of each question in order of falling score.

    Args:
        score_N: larger is better; no unit.
        label_N: 1 right, 0 wrong.
        question_N: names of the questions, whole numbers or text; candidates of one need not stand together.
    Raises:
        ValueError: sides of unlike length, or a label that is neither 0 nor 1.
    """
    score, label, question = np.asarray(score_N, float), np.asarray(label_N), np.asarray(question_N)
    if not (score.shape == label.shape == question.shape and score.ndim == 1):
        shapes = f"{score.shape}, {label.shape} and {question.shape}"
        raise ValueError(f"scores, labels and questions of shape {shapes}; all should be [N], one for each candidate")
    wrong = np.flatnonzero((label != 0) & (label != 1))
    if len(wrong):
        raise ValueError(f"candidate {wrong[0]} has the label {label[wrong[0]]}; should be 1, right, or 0, wrong")
    score = np.where(np.isnan(score), np.where(label == 1, -np.inf, np.inf), score)
    name_Q, of_N = np.unique(question, return_inverse=True)
    order_N = np.lexsort((label, -score, of_N))
    of_N, label = of_N[order_N], label[order_N].astype(np.int64)
    start_N = np.searchsorted(of_N, of_N)  # the first candidate of the same question
    return Lists(name_Q, of_N, label, np.arange(len(of_N)) - start_N + 1)


def average_precision(lists: Lists) -> np.ndarray:
    """Mean over a question's right answers of the share of right ones down to their place, [Q]; 0 without any."""
    so_far_N = np.cumsum(lists.label_N)
    right_Q = lists.right()
    before_Q = np.cumsum(right_Q) - right_Q
    precision_N = (so_far_N - before_Q[lists.of_N]) / lists.place_N
    return lists.summed(lists.label_N * precision_N) / right_Q.clip(min=1)


def reciprocal_rank(lists: Lists) -> np.ndarray:
    """1 / place of a question's first right answer, [Q]; 0 without any."""
    best_Q = np.zeros(len(lists.question_Q))
    np.maximum.at(best_Q, lists.of_N, lists.label_N / lists.place_N)
    return best_Q


def hit(lists: Lists, k: int) -> np.ndarray:
    """1 for questions that have any right answer among the first k, else 0, [Q]; `hit` at 1 is P@1."""
    return (lists.summed(lists.label_N * (lists.place_N <= k)) > 0).astype(float)


def recall(lists: Lists, k: int) -> np.ndarray:
    """Share of a question's right answers that stand among the first k, [Q]; 0 without any."""
    return lists.summed(lists.label_N * (lists.place_N <= k)) / lists.right().clip(min=1)


def ndcg(lists: Lists, k: int) -> np.ndarray:
    """
    Discounted gain of the first k, as a share of what the best order would have, [Q]; 0 without a right answer.

        sum over places i <= k of label[i] / log2(i + 1),   over the same with all right answers first

    Source:
        Järvelin and Kekäläinen 2002, with the discount log2(i + 1) from the first place on that is usual since.
    """
    gain_N = np.where(lists.place_N <= k, 1 / np.log2(lists.place_N + 1), 0.0)
    best_Q = lists.summed(gain_N * (lists.place_N <= lists.right()[lists.of_N]))
    return lists.summed(gain_N * lists.label_N) / np.where(best_Q > 0, best_Q, 1)


def counted(lists: Lists, no_positive: NoPositive) -> np.ndarray:
    """
    Which questions a mean is over, bool [Q].

    Args:
        no_positive: `drop` leaves out questions without a right answer, `zero` none, `clean` those without a wrong
            answer too.
    Raises:
        ValueError: another rule.
    Source:
        `clean` is the TrecQA test set of Rao, He and Lin 2016.
    """
    if no_positive not in get_args(NoPositive):
        raise ValueError(f'no_positive is "{no_positive}"; known: {", ".join(get_args(NoPositive))}')
    some_right_Q, some_wrong_Q = lists.right() > 0, lists.right() < lists.sizes()
    return {"drop": some_right_Q, "zero": np.ones_like(some_right_Q), "clean": some_right_Q & some_wrong_Q}[no_positive]


def ranking(
    score_N: ArrayLike,
    label_N: ArrayLike,
    question_N: ArrayLike,
    *,
    no_positive: NoPositive = "drop",
    ks: Sequence[int] = (1,),
) -> dict[str, float]:
    """
    Means over questions of average precision, reciprocal rank, P@1, hit@k, recall@k and nDCG@k.

    Args:
        score_N, label_N, question_N: see `ordered`.
        no_positive: see `counted`.
        ks: places, from 1.
    Returns:
        `map`, `mrr`, `p@1`, `hit@k`, `recall@k`, `ndcg@k`, from 0 to 1, nan if no question counts; `questions` that
        count; `none_right` and `all_right`, questions as they came, whether they count or not.
    Raises:
        ValueError: what `ordered` and `counted` refuse, or a k below 1.
    """
    if any(k < 1 for k in ks):
        raise ValueError(f"ks are {list(ks)}; places in a list, from 1")
    lists = ordered(score_N, label_N, question_N)
    keep_Q = counted(lists, no_positive)
    mean = lambda value_Q: float(value_Q[keep_Q].mean()) if keep_Q.any() else float("nan")
    figures = {"map": average_precision(lists), "mrr": reciprocal_rank(lists), "p@1": hit(lists, 1)}
    figures |= {f"{name}@{k}": of(lists, k) for name, of in _AT.items() for k in ks}
    counts = {"questions": keep_Q, "none_right": lists.right() == 0, "all_right": lists.right() == lists.sizes()}
    return {name: mean(value_Q) for name, value_Q in figures.items()} | {k: int(v.sum()) for k, v in counts.items()}


def chance(label_N: ArrayLike, question_N: ArrayLike, *, no_positive: NoPositive = "drop") -> dict[str, float]:
    """
    What is expected of an order that is drawn blindly, of N answers with R right ones, as a mean over questions.

        map = (H + (R - 1) (N - H) / (N - 1)) / N,   H = 1 + 1/2 + ... + 1/N
        mrr = sum over k of C(N - k, R - 1) / (k C(N, R)),   p@1 = R / N

    An answer stands at place k with chance 1 / N, and (R - 1) (k - 1) / (N - 1) other right ones before it.

    Args:
        label_N, question_N: see `ordered`.
        no_positive: see `counted`.
    Returns:
        `map`, `mrr` and `p@1`, nan if no question counts.
    """
    lists = ordered(np.zeros(np.shape(label_N)), label_N, question_N)
    keep_Q = counted(lists, no_positive)
    pairs_Q = zip(lists.sizes()[keep_Q].tolist(), lists.right()[keep_Q].astype(int).tolist(), strict=True)
    found = np.array([_chance(*pair) for pair in pairs_Q]).reshape(-1, 3)
    mean_3 = found.mean(axis=0) if len(found) else np.full(3, np.nan)
    return dict(zip(("map", "mrr", "p@1"), mean_3.tolist(), strict=True))


@cache
def _chance(size: int, right: int) -> tuple[float, float, float]:
    if right == 0:
        return 0.0, 0.0, 0.0
    harmonic = sum(1 / place for place in range(1, size + 1))
    precision = (harmonic + (right - 1) * (size - harmonic) / max(1, size - 1)) / size
    first, here = 0.0, right / size  # C(N - k, R - 1) / C(N, R), from one k to the next by its factors
    for place in range(1, size - right + 2):
        first += here / place
        here *= (size - place - right + 1) / max(1, size - place)
    return precision, first, right / size


_AT = {"hit": hit, "recall": recall, "ndcg": ndcg}
