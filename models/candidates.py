"""Candidates: what an anchor's right answers are told apart from, and which of it is left out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from models.sequence import Runs

BOTH, ANCHOR, CANDIDATE, FILLER = range(4)


@dataclass(frozen=True)
class Rows:
    """
    What the batches table says of a batch's rows, in batch order; equal on every worker.

    Args:
        side_B: uint8: 0 anchor and candidate, 1 anchor only, 2 candidate only, 3 filler (in no pool and no count).
        group_B: int64: rows of one group must not be each other's wrong answers.
        answers_BP: int64 row numbers of the right answers in this batch; -1 fills.
        view_B: uint8: which of its example's views a row is, from 0; None: all 0.
        hard_BH: int64 row numbers of an anchor's own hard negatives; -1 fills; None: there are none.
        document_B, place_B: int64: where a row's sentence stands; None: nobody asks for its run.
        teacher_BE: float32 vectors of a teacher, of the rows' clean texts; None: nobody teaches.
        guide_BE: float32 vectors of a guide, likewise; None: nobody guides.
    """

    side_B: Tensor
    group_B: Tensor
    answers_BP: Tensor
    view_B: Tensor | None = None
    hard_BH: Tensor | None = None
    document_B: Tensor | None = None
    place_B: Tensor | None = None
    teacher_BE: Tensor | None = None
    guide_BE: Tensor | None = None

    def runs(self) -> Runs:
        """
        The runs of sentences that the batch is made of.

        Raises:
            ValueError: the table does not say where sentences stand.
        """
        if self.document_B is None or self.place_B is None:
            raise ValueError(
                "batches without the columns document and place have no runs; a term with `ahead` needs both"
            )
        return Runs.of(self.document_B, self.place_B)

    def ahead(self, steps: int) -> "Rows":
        """The same rows, each answered by the one that stands `steps` later in its run, if there is one."""
        return replace(self, answers_BP=self.runs().later(steps)[:, None])

    def anchors(self) -> Tensor:
        """Row numbers [A] that are anchors: side 0 or 1, and at least one right answer."""
        return ((self.side_B <= ANCHOR) & (self.answers_BP >= 0).any(dim=1)).nonzero().flatten()

    def is_candidate(self) -> Tensor:
        """Whether a row may stand in a pool, bool [B]: side 0 or 2."""
        return (self.side_B == BOTH) | (self.side_B == CANDIDATE)

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        moved = (None if part is None else part.to(device) for part in vars(self).values())
        return Rows(*moved)  # type: ignore[arg-type]


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


@dataclass(frozen=True)
class Memory:
    """
    Vectors of earlier batches that stand as candidates too.

    Args:
        vector_MD: newest last; no gradient.
        group_M: int64 groups of their texts.
    """

    vector_MD: Tensor
    group_M: Tensor


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
    is_candidate_B = rows.is_candidate()
    check_answers(anchor_A, answer_AP, is_candidate_B)
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


def other_view(
    rows: Rows,
    anchor_A: Tensor,
    candidate_BD: Tensor,
    *,
    hard: bool = False,
    log_alpha: float = 0.0,
    queue: int = 0,
    momentum: float = 0.995,
    memory: Memory | None = None,
) -> Pool:
    """
    The second views of the batch, but for those that may be right without being marked so; anchors are first views.

    Columns are the batch's rows, then what the queue holds. Groups leave candidates out as in `batch`.

    Args:
        rows: the whole batch.
        anchor_A: int64 row numbers of this worker's anchors, all of view 0.
        candidate_BD: vectors of all rows, in batch order, gathered from all workers.
        hard: every anchor's hard negatives are candidates of every anchor.
        log_alpha: added to the score of an anchor's own hard negative.
        queue: vectors of earlier first views that stay candidates, from an encoder that follows the trained one.
        momentum: share of that encoder that stays as it is in a step.
        memory: what the queue holds; from the step.
    Returns:
        A pool with C = B + M columns.
    Raises:
        ValueError: the queue is smaller than zero, the momentum no share, or an answer no candidate.
    Source:
        Gao, Yao and Chen 2021 (SimCSE), equations 1, 4 and 5, and the weight of section 4.2; for the queue Wu et al.
        2022 (ESimCSE), equations 5 and 6.
    """
    if queue < 0:
        raise ValueError(f"candidates.queue is {queue}; 0 for none, or how many vectors to keep")
    if not 0 <= momentum <= 1:
        raise ValueError(f"candidates.momentum is {momentum}; a share from 0 to 1")
    answer_AP = rows.answers_BP[anchor_A]
    view_B = torch.zeros_like(rows.side_B) if rows.view_B is None else rows.view_B
    is_candidate_B = rows.is_candidate() & ((view_B > 0) if hard else (view_B == 1))
    check_answers(anchor_A, answer_AP, is_candidate_B)
    groups_C = rows.group_B if memory is None else torch.cat([rows.group_B, memory.group_M])
    candidate_CD = candidate_BD if memory is None else torch.cat([candidate_BD, memory.vector_MD.to(candidate_BD)])
    left_M, column_M = _alike(groups_C, anchor_A, answer_AP)
    shift_AC = candidate_BD.new_zeros(len(anchor_A), len(candidate_CD))
    if hard and log_alpha and rows.hard_BH is not None:
        own_AH = rows.hard_BH[anchor_A]
        place_AH = torch.arange(len(anchor_A), device=own_AH.device)[:, None].expand_as(own_AH)
        shift_AC[place_AH[own_AH >= 0], own_AH[own_AH >= 0]] = log_alpha
    shift_AC[left_M, column_M] = -torch.inf
    shift_AC[:, : len(is_candidate_B)].masked_fill_(~is_candidate_B, -torch.inf)
    return Pool(candidate_CD, answer_AP, shift_AC)


def own(
    rows: Rows,
    anchor_A: Tensor,
    candidate_BD: Tensor,
    *,
    choose: Literal["random", "max", "mix"] = "mix",
    count: int = 4,
) -> Pool:
    """
    An anchor's right answers and its own hard rows; of those, the ones that may be right are left out.

    Columns are the batch's rows. Groups leave hard rows out as in `batch`. An anchor without any is none.

    Args:
        rows: the whole batch; anchors' hard rows are those that the step has chosen.
        anchor_A: int64 row numbers of this worker's anchors.
        candidate_BD: vectors of all rows, in batch order, gathered from all workers.
        choose: how the step chooses wrong candidates. `random`: it draws. `max`: those of the highest scores by the
            weights as they are, without dropout. `mix`: half of them drawn, and half the highest of the others.
        count: how many it chooses for each anchor; too few are all taken.
    Returns:
        A pool with C = B columns.
    Raises:
        ValueError: the count is below 1, or an answer is no candidate.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA), who take `mix` from Rao, He and Lin 2016.
    """
    if count < 1:
        raise ValueError(f"candidates.count is {count}; how many wrong candidates an anchor has, 1 or more")
    answer_AP = rows.answers_BP[anchor_A]
    check_answers(anchor_A, answer_AP, rows.is_candidate())
    shift_AC = candidate_BD.new_full((len(anchor_A), len(candidate_BD)), -torch.inf)
    for column_AK in (answer_AP, wrong(rows, anchor_A)):
        place_N, at_N = (column_AK >= 0).nonzero(as_tuple=True)
        shift_AC[place_N, column_AK[place_N, at_N]] = 0.0
    return Pool(candidate_BD, answer_AP, shift_AC)


def wrong(rows: Rows, anchor_A: Tensor) -> Tensor:
    """Row numbers [A, H] of anchors' hard rows; -1 for one of the group of its anchor or of an answer, and for none."""
    if rows.hard_BH is None:
        return anchor_A.new_zeros(len(anchor_A), 0)
    hard_AH = rows.hard_BH[anchor_A]
    right_AK = _right_groups(rows.group_B, anchor_A, rows.answers_BP[anchor_A])
    alike_AH = (rows.group_B[hard_AH.clamp(min=0)][:, :, None] == right_AK[:, None, :]).any(dim=2)
    return hard_AH.where((hard_AH >= 0) & ~alike_AH, -1)


def ahead(
    rows: Rows, anchor_A: Tensor, candidate_BD: Tensor, *, among: Literal["batch", "sequence", "both"] = "batch"
) -> Pool:
    """
    Sentences that could stand where the answer of a context does, t + k.

    A run is the sequence, and its first row in the batch is time 0. A candidate of the answer's group is left out, the
    answer excepted. The sentence at t itself stays where it is a candidate: the context has read it, and it is a fair
    wrong answer to what comes k later.

    Args:
        rows: the whole batch, each row answered by the one k later in its run (`Rows.ahead`).
        anchor_A: int64 row numbers of this worker's anchors, those at t.
        candidate_BD: vectors of all rows, in batch order, gathered from all workers.
        among: "batch": the rows at time t + k of every run. "sequence": all rows of the anchor's run, past ones too.
            "both": all rows of the batch.
    Returns:
        A pool with C = B columns; runs that have no row at t + k, and fillers, have none in it.
    Raises:
        ValueError: `among` is none of them, or an answer is not a candidate.
    Source:
        van den Oord, Li and Vinyals 2018 (CPC), section 2.3: N - 1 others from the proposal distribution; table 2
        compares from where they are drawn.
    """
    if among not in ("batch", "sequence", "both"):
        raise ValueError(f'candidates.among is "{among}"; known: batch, sequence, both')
    answer_AP = rows.answers_BP[anchor_A]
    is_candidate_B = rows.is_candidate()
    check_answers(anchor_A, answer_AP, is_candidate_B)
    runs, answer_A1 = rows.runs(), answer_AP[:, :1]
    kept_AC = is_candidate_B & (rows.group_B != rows.group_B[answer_A1])
    if among == "batch":
        kept_AC &= runs.step_B == runs.step_B[answer_A1]
    elif among == "sequence":
        kept_AC &= runs.run_B == runs.run_B[answer_A1]
    kept_AC.scatter_(1, answer_A1, value=True)
    shift_AC = candidate_BD.new_zeros(kept_AC.shape).masked_fill_(~kept_AC, -torch.inf)
    return Pool(candidate_BD, answer_AP, shift_AC)


def every(rows: Rows, anchor_A: Tensor, candidate_BD: Tensor) -> Pool:
    """
    All rows of the batch that are texts, the anchor too; for an objective that asks for no right answer.

    Args:
        rows: the whole batch; each of its texts is an anchor, whatever its side.
        anchor_A: int64 row numbers of this worker's anchors.
        candidate_BD: vectors of all rows, in batch order, gathered from all workers.
    Returns:
        A pool with C = B columns, and no answers.
    """
    filler_B = rows.side_B == FILLER
    shift_AC = candidate_BD.new_zeros(len(anchor_A), len(candidate_BD)).masked_fill_(filler_B, -torch.inf)
    return Pool(candidate_BD, anchor_A.new_full((len(anchor_A), 1), -1), shift_AC if filler_B.any() else None)


def anchors(kind: str, rows: Rows) -> Tensor:
    """Row numbers [A] of the anchors of a term with this kind of candidates."""
    if kind == "all":
        return (rows.side_B != FILLER).nonzero().flatten()
    every_A = rows.anchors()
    if kind == "own":
        return every_A[(wrong(rows, every_A) >= 0).any(dim=1)]
    if kind != "other-view" or rows.view_B is None:
        return every_A
    return every_A[rows.view_B[every_A] == 0]


def check_answers(anchor_A: Tensor, answer_AP: Tensor, is_candidate_B: Tensor) -> None:
    wrong_AP = (answer_AP >= 0) & ~is_candidate_B[answer_AP.clamp(min=0)]
    if wrong_AP.any():
        a, p = wrong_AP.nonzero()[0].tolist()
        raise ValueError(
            f"row {int(anchor_A[a])} of the batch names row {int(answer_AP[a, p])} as a right answer, "
            "which is no candidate; answers must have side 0 or 2"
        )


def _right_groups(group_B: Tensor, anchor_A: Tensor, answer_AP: Tensor) -> Tensor:
    """Groups of each anchor and of its answers, [A, 1 + P]; the anchor's own where there is no answer."""
    own_A1 = group_B[anchor_A][:, None]
    return torch.cat([own_A1, torch.where(answer_AP >= 0, group_B[answer_AP.clamp(min=0)], own_A1)], dim=1)


def _alike(group_B: Tensor, anchor_A: Tensor, answer_AP: Tensor) -> tuple[Tensor, Tensor]:
    """
    Places (anchor, column) whose group is the anchor's or an answer's, without the answers; [M] each.

    Few groups occur twice in a batch, so the places are listed by looking groups up in a sorted list: comparing every
    row with every anchor and answer would cost more than the scores themselves.
    """
    wanted_AK = _right_groups(group_B, anchor_A, answer_AP)
    sorted_B, order_B = group_B.sort()
    first_AK = torch.searchsorted(sorted_B, wanted_AK)
    count_K = (torch.searchsorted(sorted_B, wanted_AK, right=True) - first_AK).flatten()
    key_M = torch.repeat_interleave(count_K)  # which (anchor, wanted group) a place belongs to
    nth_M = torch.arange(len(key_M), device=key_M.device) - (count_K.cumsum(0) - count_K)[key_M]
    column_M = order_B[first_AK.flatten()[key_M] + nth_M]
    left_M = key_M // wanted_AK.shape[1]
    keep_M = (answer_AP[left_M] != column_M[:, None]).all(dim=1)
    return left_M[keep_M], column_M[keep_M]


CANDIDATES: dict[str, Callable[..., Pool]] = {
    "ahead": ahead,
    "all": every,
    "batch": batch,
    "other-view": other_view,
    "own": own,
}
