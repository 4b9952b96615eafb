"""Candidates: what an anchor's right answers are told apart from, and which of it is left out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

BOTH, ANCHOR, CANDIDATE, FILLER = range(4)


@dataclass(frozen=True)
class Rows:
    """
    What the batches table says of a batch's rows, in batch order; equal on every worker.

    Args:
        side_B: uint8: 0 anchor and candidate, 1 anchor only, 2 candidate only, 3 filler (in no pool and no count).
        group_B: int64: rows of one group must not be each other's wrong answers.
        answers_BP: int64 row numbers of the right answers in this batch; -1 fills.
    """

    side_B: Tensor
    group_B: Tensor
    answers_BP: Tensor

    def anchors(self) -> Tensor:
        """Row numbers [A] that are anchors: side 0 or 1, and at least one right answer."""
        return ((self.side_B <= ANCHOR) & (self.answers_BP >= 0).any(dim=1)).nonzero().flatten()

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        return Rows(self.side_B.to(device), self.group_B.to(device), self.answers_BP.to(device))


@dataclass(frozen=True)
class Pool:
    """
    The candidates of one worker's anchors.

    Args:
        candidate_CD: vectors of the candidates.
        answer_AP: int64 column of each right answer; -1 fills.
        shift_AC: added to the scores; -inf leaves a candidate out. None: nothing to add.
        fixed_AC: a score that overrides the similarity's; NaN elsewhere. None: nothing to override.
    """

    candidate_CD: Tensor
    answer_AP: Tensor
    shift_AC: Tensor | None = None
    fixed_AC: Tensor | None = None


def scores(pool: Pool, anchor_AD: Tensor, similarity: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Scores [A, C] of a pool: the similarity's, then those that are fixed, then the shift on top."""
    score_AC = similarity(anchor_AD, pool.candidate_CD)
    if pool.fixed_AC is not None:
        score_AC = torch.where(pool.fixed_AC.isnan(), score_AC, pool.fixed_AC)
    return score_AC if pool.shift_AC is None else score_AC + pool.shift_AC


def batch(rows: Rows, anchor_A: Tensor, candidate_BD: Tensor, *, self: Literal["mask", "zero"] = "mask") -> Pool:
    """
    All candidates of the batch, but for those that may be right without being marked so.

    A candidate is left out for an anchor when its group is the anchor's or that of one of its answers, the answers
    themselves excepted. Columns are the batch's rows, so that answers are columns as they stand; rows that are no
    candidates are left out for every anchor.

    Args:
        rows: the whole batch.
        anchor_A: int64 row numbers of this worker's anchors.
        candidate_BD: vectors of all rows, in batch order, gathered from all workers.
        self: an anchor's own row is left out ("mask"), or stays with the fixed score 0 ("zero").
    Returns:
        A pool with C = B columns.
    Raises:
        ValueError: `self` is neither, or an answer is not a candidate.
    Source:
        Logeswaran and Lee 2018, equation 2; "zero" is what the authors' code does: it adds 1 to the denominator.
    """
    if self not in ("mask", "zero"):
        raise ValueError(f'candidates.self is "{self}"; known: mask, zero')
    answer_AP = rows.answers_BP[anchor_A]
    is_candidate_B = (rows.side_B == BOTH) | (rows.side_B == CANDIDATE)
    _check_answers(anchor_A, answer_AP, is_candidate_B)
    left_M, column_M = _alike(rows.group_B, anchor_A, answer_AP)
    own_M = column_M == anchor_A[left_M]
    fixed_AC = None
    if self == "zero":
        fixed_AC = candidate_BD.new_full((len(anchor_A), len(candidate_BD)), torch.nan)
        fixed_AC[left_M[own_M], column_M[own_M]] = 0.0
        left_M, column_M = left_M[~own_M], column_M[~own_M]
    if not len(left_M) and bool(is_candidate_B.all()):
        return Pool(candidate_BD, answer_AP, None, fixed_AC)
    shift_AC = candidate_BD.new_zeros(len(anchor_A), len(candidate_BD))
    shift_AC[left_M, column_M] = -torch.inf
    shift_AC[:, ~is_candidate_B] = -torch.inf
    return Pool(candidate_BD, answer_AP, shift_AC, fixed_AC)


def _check_answers(anchor_A: Tensor, answer_AP: Tensor, is_candidate_B: Tensor) -> None:
    wrong_AP = (answer_AP >= 0) & ~is_candidate_B[answer_AP.clamp(min=0)]
    if wrong_AP.any():
        a, p = wrong_AP.nonzero()[0].tolist()
        raise ValueError(
            f"row {int(anchor_A[a])} of the batch names row {int(answer_AP[a, p])} as a right answer, "
            "which is no candidate; answers must have side 0 or 2"
        )


def _alike(group_B: Tensor, anchor_A: Tensor, answer_AP: Tensor) -> tuple[Tensor, Tensor]:
    """
    Places (anchor, column) whose group is the anchor's or an answer's, without the answers; [M] each.

    Few groups occur twice in a batch, so the places are listed by looking groups up in a sorted list: comparing every
    row with every anchor and answer would cost more than the scores themselves.
    """
    own_A1 = group_B[anchor_A][:, None]
    wanted_AK = torch.cat([own_A1, torch.where(answer_AP >= 0, group_B[answer_AP.clamp(min=0)], own_A1)], dim=1)
    sorted_B, order_B = group_B.sort()
    first_AK = torch.searchsorted(sorted_B, wanted_AK)
    count_K = (torch.searchsorted(sorted_B, wanted_AK, right=True) - first_AK).flatten()
    key_M = torch.repeat_interleave(count_K)  # which (anchor, wanted group) a place belongs to
    nth_M = torch.arange(len(key_M), device=key_M.device) - (count_K.cumsum(0) - count_K)[key_M]
    column_M = order_B[first_AK.flatten()[key_M] + nth_M]
    left_M = key_M // wanted_AK.shape[1]
    keep_M = (answer_AP[left_M] != column_M[:, None]).all(dim=1)
    return left_M[keep_M], column_M[keep_M]


CANDIDATES: dict[str, Callable[..., Pool]] = {"batch": batch}
