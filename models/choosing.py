"""
Choosing among an anchor's own wrong candidates, as a question has its wrong answers.

It is done anew in each step, before anything is encoded for its gradient; see `models.step`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.candidates import Rows, wrong


@dataclass(frozen=True)
class Choosing:
    """How many of an anchor's wrong candidates are chosen, and how."""

    choose: str
    count: int

    @property
    def hardest(self) -> int:
        """How many are chosen by score; of an odd number, one more is drawn."""
        return {"random": 0, "mix": self.count // 2, "max": self.count}[self.choose]

    def looks(self, rows: Rows) -> bool:
        """Whether any anchor's choice depends on scores; rows alone decide it."""
        many = (wrong(rows, rows.anchors()) >= 0).sum(dim=1) > self.count
        return self.hardest > 0 and bool(many.any())

    def among(self, rows: Rows, score_AH: Tensor | None, draw: torch.Generator) -> Rows:
        """
        The same rows, whose anchors have the chosen wrong candidates for hard ones, and no others.

        Some are drawn, and then of those that were not the ones with the highest scores are taken, of equal ones the
        first. No candidate is chosen twice; an anchor with too few has them all.

        Args:
            score_AH: of each anchor's hard rows; what stands where there is none is not read. None: all alike.
            draw: on the CPU; it gives as many numbers whatever is chosen.
        """
        if rows.hard_BH is None:
            return rows
        anchor_A = rows.anchors()
        wrong_AH = wrong(rows, anchor_A)
        drawn_AH = torch.rand(wrong_AH.shape, generator=draw).to(wrong_AH.device)
        taken_AH = _first(drawn_AH, wrong_AH >= 0, self.count - self.hardest)
        if self.hardest:
            score_AH = torch.zeros_like(drawn_AH) if score_AH is None else score_AH
            taken_AH = taken_AH | _first(-score_AH, (wrong_AH >= 0) & ~taken_AH, self.hardest)
        hard_BH = torch.full_like(rows.hard_BH, -1)
        hard_BH[anchor_A] = wrong_AH.where(taken_AH, -1)
        return replace(rows, hard_BH=hard_BH)


def _first(key_AH: Tensor, may_AH: Tensor, count: int) -> Tensor:
    """True for the `count` smallest keys of each row among those that may be taken, [A, H]; of equal ones the first."""
    order_AH = key_AH.where(may_AH, torch.inf).argsort(dim=1, stable=True)
    return may_AH & (order_AH.argsort(dim=1) < count)
