"""A guide: a frozen model by which wrong candidates that may be right are found, and left out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.candidates import Pool, Rows
from models.recipe import Guide, Term

GUIDED = ("batch", "other-view", "own")  # kinds of candidates that are whole texts beside an anchor that is one
SLACK = 1e-6  # scores so close are equal: else rounding, which unlike workers do unlike, would decide
CELLS = 4_000_000  # numbers of hard rows' vectors looked at together

LIMITS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "absolute": lambda score_A, margin: score_A + margin,
    "relative": lambda score_A, margin: score_A + margin * score_A.abs(),
}


@dataclass(frozen=True)
class Guiding:
    """
    Which candidates a guide finds as right as the right answer, or more so.

        likely[a, c]   if   g[a, c] >= limit(max over p of g[a, answer[a, p]]),   g the cosine of the guide's vectors

    where limit(s) is s + margin, or s + margin |s|. Of several right answers the one that the guide likes best counts:
    what is left out beats them all. Answers stay, and so does an anchor's own row, of which `candidates.self` decides.
    A guide without a vector for the anchor, for all of its answers, or for the candidate (zeros) says nothing.

    Args:
        kind: `absolute` or `relative`.
        margin: in cosines, or a share of the right answer's score; below 0 leaves more out.
    Source:
        Solatorio 2024 (GISTEmbed), where a candidate has to score higher; here an equal score is enough,
        as a text in another writing has it.
    """

    kind: str
    margin: float

    def likely(self, rows: Rows, anchor_A: Tensor) -> Tensor:
        """Rows that may be right answers of some anchors without being marked so, bool [A, B]."""
        unit_BE, known_B = _unit(rows)
        likely_AB = unit_BE[anchor_A] @ unit_BE.T >= self._limits(rows, anchor_A, unit_BE, known_B)[:, None]
        likely_AB &= known_B
        place_A, answer_AP = torch.arange(len(anchor_A), device=anchor_A.device), rows.answers_BP[anchor_A]
        likely_AB[place_A, anchor_A] = False
        place_N, at_N = (answer_AP >= 0).nonzero(as_tuple=True)
        likely_AB[place_N, answer_AP[place_N, at_N]] = False
        return likely_AB

    def without(self, pool: Pool, rows: Rows, anchor_A: Tensor) -> Pool:
        """A pool whose columns are the batch's rows and perhaps a queue, less what may be right of the rows."""
        likely_AB = self.likely(rows, anchor_A)
        shift_AC = pool.candidate_CD.new_zeros(len(anchor_A), len(pool.candidate_CD))
        shift_AC = shift_AC if pool.shift_AC is None else pool.shift_AC.clone()
        shift_AC[:, : likely_AB.shape[1]].masked_fill_(likely_AB, -torch.inf)
        return replace(pool, shift_AC=shift_AC)

    def hard(self, rows: Rows) -> Rows:
        """The rows, their anchors' own hard rows less those that may be right."""
        if rows.hard_BH is None:
            return rows
        unit_BE, known_B = _unit(rows)
        hard_BH, size = rows.hard_BH.clone(), max(1, rows.hard_BH.shape[1] * unit_BE.shape[1])
        for part_A in rows.anchors().split(max(1, CELLS // size)):
            limit_A = self._limits(rows, part_A, unit_BE, known_B)
            own_AH = rows.hard_BH[part_A]
            likely_AH = (_scores(unit_BE, part_A, own_AH) >= limit_A[:, None]) & known_B[own_AH]
            hard_BH[part_A] = own_AH.masked_fill(likely_AH, -1)  # of -1 it does not matter what it says
        return replace(rows, hard_BH=hard_BH)

    def _limits(self, rows: Rows, anchor_A: Tensor, unit_BE: Tensor, known_B: Tensor) -> Tensor:
        """From which score on a candidate of each anchor may be right, [A]; inf where the guide says nothing."""
        answer_AP = rows.answers_BP[anchor_A]
        told_AP = (answer_AP >= 0) & known_B[answer_AP] & known_B[anchor_A][:, None]
        best_A = _scores(unit_BE, anchor_A, answer_AP).where(told_AP, -torch.inf).amax(dim=1)
        return torch.where(told_AP.any(dim=1), LIMITS[self.kind](best_A, self.margin) - SLACK, torch.inf)


def guiding(guide: Guide | None, term: Term) -> Guiding | None:
    """What a recipe's guide does to a term: nothing, if it is only to tell, or if the term asks it nothing."""
    return Guiding(guide.kind, guide.margin) if guide and guide.mask and guides(term) else None


def guides(term: Term) -> bool:
    """Whether a guide knows a term's anchors and candidates: texts that stand in the batch by themselves."""
    return term.candidates is not None and term.candidates.kind in GUIDED and not term.ahead


def _unit(rows: Rows) -> tuple[Tensor, Tensor]:
    """
    The guide's vectors at length 1, float64 [B, E], and where there is one, bool [B].

    Raises:
        ValueError: the table does not have them.
    """
    if rows.guide_BE is None:
        raise ValueError("batches without the column guide say no vectors of one; a recipe with a guide needs it")
    vector_BE = rows.guide_BE.double()
    length_B1 = vector_BE.norm(dim=1, keepdim=True)
    return vector_BE / length_B1.where(length_B1 > 0, 1.0), length_B1[:, 0] > 0


def _scores(unit_BE: Tensor, anchor_A: Tensor, column_AK: Tensor) -> Tensor:
    """Cosines of each anchor with columns of its own, [A, K]; what stands where there is none (-1) says nothing."""
    return torch.einsum("ae,ake->ak", unit_BE[anchor_A], unit_BE[column_AK])
