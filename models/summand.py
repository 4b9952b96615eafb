"""A term of the loss that compares vectors, its parts bound to their options."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.candidates import CANDIDATES, Memory, Pool, Rows, anchors, scores
from models.choosing import Choosing
from models.guiding import Guiding, guiding
from models.objectives import COUNTS, OBJECTIVES, kept
from models.parts import bind
from models.queue import Queue
from models.recipe import Choice, Guide, Term
from models.similarity import SIMILARITIES, cosine, dot

CELLS = 4_000_000  # pairs of anchor and candidate: arrays of 16 MB


@dataclass(frozen=True)
class Summand:
    """A term of the loss that compares vectors, its parts bound to their options."""

    anchor: str
    candidate: str
    kind: str
    candidates: Callable[..., Any]
    similarity: Callable[..., Tensor]
    objective: Callable[..., tuple[Tensor, Tensor]]
    counted: Callable[[Tensor, Tensor], Tensor] | None
    weight: float
    mean: bool
    choosing: Choosing | None = None
    ahead: int = 0
    softmax: bool = False
    taught: bool = False
    guiding: Guiding | None = None

    def anchors(self, rows: Rows) -> Tensor:
        """Row numbers of the batch's anchors, [A]."""
        return anchors(self.kind, self._answered(rows))

    def __call__(
        self,
        rows: Rows,
        anchor_A: Tensor,
        vectors: Mapping[str, Tensor],
        queue: Queue | None = None,
        contexts: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """
        Sum and count of this term over some anchors.

        Args:
            anchor_A: row numbers of the anchors, [A].
            vectors: each tower's vectors of the whole batch, [B, D].
            queue: earlier vectors, if the term has them.
            contexts: of the towers that have them, the contexts of the whole batch, [B, E], for a term with `ahead`.
        """
        held = {"memory": queue.memory()} if queue else {}
        pool = self._pool(rows, anchor_A, vectors[self.candidate], held)
        seen = {**vectors, **(contexts or {})} if self.ahead else vectors
        score_AC = scores(pool, seen[self.anchor][anchor_A], self.similarity)
        return self.objective(score_AC, _taught(rows, anchor_A).to(score_AC) if self.taught else pool.answer_AP)

    def own(self, rows: Rows) -> Rows:
        """The rows as a term that chooses among their hard rows finds them."""
        return self.guiding.hard(rows) if self.guiding else rows

    def _pool(self, rows: Rows, anchor_A: Tensor, candidate_BD: Tensor, held: Mapping[str, Any]) -> Pool:
        """The candidates of some anchors, less those that a guide finds right."""
        pool: Pool = self.candidates(self._answered(rows), anchor_A, candidate_BD, **held)
        return self.guiding.without(pool, rows, anchor_A) if self.guiding else pool

    def _answered(self, rows: Rows) -> Rows:
        """The rows with the answers that this term asks for."""
        return rows.ahead(self.ahead) if self.ahead else rows

    def divisor(self, rows: Rows, queue: Queue | None = None, cells: int = CELLS) -> Tensor | int:
        """
        What this term's sum over the whole batch is divided by: 1, its anchors, or what else the objective counts.

        Rows alone decide it, so that every worker knows it before any backward and without asking the others. Pools
        of vectors that have no width say who stands in which.

        Args:
            cells: pairs of anchor and candidate looked at together; it bounds the memory and changes nothing.
        """
        if not self.mean:
            return 1
        anchor_A = self.anchors(rows)
        if self.counted is None:
            return len(anchor_A)
        total = torch.zeros((), dtype=torch.int64, device=rows.side_B.device)
        for kept_AC, answer_AP in self.pools(rows, anchor_A, queue, cells):
            total = total + self.counted(kept_AC, answer_AP)
        return total.clamp(min=1)  # anchors without a wrong candidate make no triple

    def choices(self, rows: Rows, anchor_A: Tensor, queue: Queue | None = None, cells: int = CELLS) -> Tensor:
        """Sum over some anchors of log N, [], N being the candidates left in an anchor's pool with the right ones."""
        total = torch.zeros((), dtype=torch.float64, device=rows.side_B.device)
        for kept_AC, _ in self.pools(rows, anchor_A, queue, cells):
            total = total + kept_AC.sum(dim=1).double().log().sum()
        return total

    def pools(
        self, rows: Rows, anchor_A: Tensor, queue: Queue | None = None, cells: int = CELLS
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Of some anchors after the other: who stands in their pools, [A, C], and their answers' columns, [A, P]."""
        nothing_B0 = torch.zeros(len(rows.side_B), 0, device=rows.side_B.device)
        memory = queue.memory() if queue else None
        held = {"memory": Memory(memory.vector_MD[:, :0], memory.group_M)} if memory else {}
        for part_A in anchor_A.split(max(1, cells // len(rows.side_B))):
            pool = self._pool(rows, part_A, nothing_B0, held)
            yield kept(scores(pool, nothing_B0[part_A], dot)), pool.answer_AP


def summand(term: Term, widths: tuple[int, int], guide: Guide | None = None) -> Summand:
    """
    A recipe's term with its parts bound; a similarity that learns gets new weights.

    Args:
        widths: numbers of an anchor's vector and of a candidate's.
        guide: the recipe's, if it has one.
    """
    assert term.candidates and term.similarity
    return Summand(
        anchor=term.anchor,
        candidate=term.candidate,
        kind=term.candidates.kind,
        candidates=bind(CANDIDATES, term.candidates),
        similarity=_similarity(term.similarity, widths),
        objective=bind(OBJECTIVES, term.objective),
        counted=COUNTS.get(term.objective.kind),
        weight=term.weight,
        mean=term.reduce == "mean",
        choosing=Choosing(**term.candidates.options) if term.candidates.kind == "own" else None,
        ahead=term.ahead,
        softmax=term.objective.kind == "softmax",
        taught=term.objective.kind == "gram",
        guiding=guiding(guide, term),
    )


def _taught(rows: Rows, anchor_A: Tensor) -> Tensor:
    """
    A teacher's cosines of some anchors with all rows, [A, B].

    Raises:
        ValueError: the table does not have its vectors.
    """
    if rows.teacher_BE is None:
        raise ValueError("batches without the column teacher say no vectors of one; objective gram needs it")
    teacher_BE = rows.teacher_BE.double()  # both are small beside the scores, and 1 should be 1
    return cosine(teacher_BE[anchor_A], teacher_BE)


def _similarity(choice: Choice, widths: tuple[int, int]) -> Callable[..., Tensor]:
    part = SIMILARITIES[choice.kind]
    return part(**choice.options, widths=widths) if isinstance(part, type) else bind(SIMILARITIES, choice)
