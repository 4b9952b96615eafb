"""
One training step, the same on one worker and on many.

A batch is cut into lanes of fixed size in order of (length, row); workers take lanes round-robin. Each encodes its
lanes, all vectors are gathered with their gradient and put back into batch order, each scores its own anchors against
all candidates, and one reduction sums the gradients. A lane's randomness comes from (seed, step, lane), never from the
worker, so nothing but rounding depends on how many there are. With `cached`, lanes are encoded twice: once without a
graph for the scores, and once more from the same random state, to take their gradient; one lane is in memory at a time.
A term that chooses candidates by their scores has the batch encoded once more before all that, without dropout.

Gradient caching: Gao, Zhang, Han and Callan 2021, Scaling deep contrastive learning batch size under memory limited
setup.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from models.batch import Batch, Lane
from models.candidates import FILLER, Rows
from models.encoding import Encode, Setup, by_tower, step_seed, vector_type
from models.gathering import World, batch_order, rows_of
from models.method import Method
from models.reduction import reduced
from models.summand import CELLS, Summand


def step_gradient(
    method: Method, batch: Batch, number: int, setup: Setup, world: World, bound_S: Tensor | None = None
) -> float:
    """
    Put the gradient of step `number` into the method's parameters, in place of what was there.

    Args:
        bound_S: `method.no_bounds()`, to be filled for `method.bounds`; every worker asks, or none does.
    Returns:
        The loss of the whole batch.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    method.zero_grad()
    every = batch.lanes(setup.lane_rows)
    loss = torch.zeros((), dtype=vector_type(setup), device=world.device)
    if method.used:
        loss = loss + _compared(method, batch, every, number, setup, world, bound_S)
    if method.lane_terms:
        loss = loss + _told(method, batch, every, number, setup, world)
    for place in range(len(method.summands)):
        _queue_up(method, place, batch, every, setup, world)
    return reduced(method, batch, loss, number, setup, world, bound_S)


def _compared(
    method: Method,
    batch: Batch,
    every: list[Lane],
    number: int,
    setup: Setup,
    world: World,
    bound_S: Tensor | None,
) -> Tensor:
    """Take the gradient of the terms that compare vectors, and of those that generate; my part of their loss."""
    mine = every[world.rank :: world.size]
    encode = Encode(method, batch, number, setup, world)
    chosen = chosen_rows(encode, every)
    shares = method.shares(batch.length_B, batch.target_lengths()) if method.generating else {}
    with setup.autocast(world.device):
        first = [encode(lane, graph=not setup.cached) for lane in mine]
    leaf_ND = torch.cat([encode.nothing(), *(lane.vector_LD.detach() for lane in first)]).requires_grad_()
    loss = _loss(method, batch, every, leaf_ND, world, chosen, bound_S)
    loss.backward()
    loss = loss.detach()
    assert leaf_ND.grad is not None
    gradients = leaf_ND.grad.split([len(lane.row_L) for lane in mine])
    with setup.autocast(world.device) if setup.cached else nullcontext():
        for lane, encoded, gradient_LD in zip(mine, first, gradients, strict=True):
            again = encode(lane, graph=True) if setup.cached else encoded
            again.backward(gradient_LD, shares)
            loss = loss + again.told(shares).to(loss)
    return loss


def chosen_rows(encode: Encode, every: list[Lane]) -> dict[int, Rows]:
    """
    The batch's rows as those terms see them that choose among an anchor's own candidates, by the term's number.

    Every worker chooses for the whole batch, so that all know how many there are. Only where a choice depends on scores
    is the batch encoded for them, without dropout; no random state moves.
    """
    method, rows, world = encode.method, encode.batch.rows, encode.world
    choosing = {at: term.choosing for at, term in enumerate(method.summands) if term.choosing}
    owned = {at: method.summands[at].own(rows) for at in choosing}
    looking = any(choice.looks(owned[at]) for at, choice in choosing.items())
    vectors = encode.calm(every) if looking else {}
    draw, chosen = torch.Generator(), {}
    for at, choice in choosing.items():
        draw.manual_seed(step_seed(encode.setup.seed, encode.number, -1, 2 * at + 2))
        rows = owned[at]
        score_AH = _own_scores(method.summands[at], rows.to(world.device), vectors) if choice.looks(rows) else None
        chosen[at] = choice.among(rows, None if score_AH is None else score_AH.cpu(), draw).to(world.device)
        hard_BH = chosen[at].hard_BH
        if world.size > 1 and score_AH is not None and hard_BH is not None:
            dist.broadcast(hard_BH, 0)  # unlike processors may round a tie differently
    return chosen


@torch.no_grad()
def _own_scores(term: Summand, rows: Rows, vectors: Mapping[str, Tensor]) -> Tensor:
    """Scores [A, H] of the anchors' own hard rows; those of places without one say nothing."""
    assert rows.hard_BH is not None
    anchor_A = rows.anchors()
    parts = [
        term.similarity(vectors[term.anchor][part_A], vectors[term.candidate]).gather(
            1, rows.hard_BH[part_A].clamp(min=0)
        )
        for part_A in anchor_A.split(max(1, CELLS // len(rows.side_B)))
    ]
    return torch.cat(parts)


def _told(method: Method, batch: Batch, every: list[Lane], number: int, setup: Setup, world: World) -> Tensor:
    """
    Take the gradient of the terms that live in a lane; my part of their loss.

    What is to be told is drawn for all lanes first, so that the count of the whole batch is known before any backward.
    """
    mine = [_Own(lane, batch, world) for lane in every[world.rank :: world.size]]
    mine = [own for own in mine if len(own.rows())]
    drawn = [
        [
            term.objective.draw(
                method.tower(term.tower),
                *own.seeded(setup, number, 2 * at + 1),
                step_seed(setup.seed, number, -1, 2 * at + 1),
            )
            for own in mine
        ]
        for at, term in enumerate(method.lane_terms)
    ]
    count_T = torch.tensor([sum(one.count for one in ones) for ones in drawn], device=world.device)
    if world.size > 1:
        dist.all_reduce(count_T)
    total = torch.zeros((), dtype=vector_type(setup), device=world.device)
    with setup.autocast(world.device):
        for at, (term, ones) in enumerate(zip(method.lane_terms, drawn, strict=True)):
            for own, one in zip(mine, ones, strict=True):
                _, length_R = own.seeded(setup, number, 2 * at + 2)
                towers = method.tower(term.tower), method.tower(term.candidate)
                amount = term.objective.told(*towers, one, length_R)
                amount = term.weight * amount / (count_T[at].clamp(min=1) if term.mean else 1)
                if amount.requires_grad:
                    amount.backward()
                total = total + amount.detach()
    return total


@torch.no_grad()
def _queue_up(method: Method, place: int, batch: Batch, every: list[Lane], setup: Setup, world: World) -> None:
    """
    Let the batch's own vectors into a term's queue, the same on every worker.

    The slow encoder follows the weights as they were before the step, since the optimizer has not moved them yet.
    """
    queue, term = method.queue(place), method.summands[place]
    if queue is None:
        return
    queue.follow(method.tower(term.candidate))
    enters_B = torch.zeros(len(batch.length_B), dtype=torch.bool)
    enters_B[term.anchors(batch.rows)] = True
    kept = [Lane(lane.number, lane.row_L[enters_B[lane.row_L]]) for lane in every]
    tower = method.tower(term.candidate)
    parts = [torch.zeros(0, tower.width, dtype=vector_type(setup, tower), device=world.device)]
    with setup.autocast(world.device):
        for lane in kept[world.rank :: world.size]:
            if len(lane.row_L):
                parts.append(queue.encode(*batch.seen(lane.row_L, world.device)))
    row_of_rank = [rows_of(kept[rank :: world.size]) for rank in range(world.size)]
    vector_ND = batch_order(torch.cat(parts), row_of_rank, world)
    queue.push(vector_ND, batch.rows.group_B[enters_B].to(world.device))


@dataclass(frozen=True)
class _Own:
    """A lane's rows that are texts, for terms that live in a lane."""

    lane: Lane
    batch: Batch
    world: World

    def rows(self) -> Tensor:
        """Row numbers, [R]."""
        return self.lane.row_L[self.batch.rows.side_B[self.lane.row_L] != FILLER]

    def seeded(self, setup: Setup, number: int, turn: int) -> tuple[Tensor, Tensor]:
        """Numbers and lengths of the rows; the random state is that of this lane's turn."""
        torch.manual_seed(step_seed(setup.seed, number, self.lane.number, turn))
        ids_RT, length_R, _ = self.batch.seen(self.rows(), self.world.device)
        return ids_RT, length_R


def _loss(
    method: Method,
    batch: Batch,
    every: list[Lane],
    leaf_ND: Tensor,
    world: World,
    chosen: Mapping[int, Rows],
    bound_S: Tensor | None,
) -> Tensor:
    """My anchors' part of the loss, against the vectors of all workers."""
    row_of_rank = [rows_of(every[rank :: world.size]) for rank in range(world.size)]
    vector_BD = batch_order(leaf_ND, row_of_rank, world)
    own_B = torch.zeros(len(batch.length_B), dtype=torch.bool)
    own_B[row_of_rank[world.rank]] = True
    rows, vectors = batch.rows.to(world.device), by_tower(method, vector_BD)
    loss = method.loss(rows, own_B.to(world.device), vectors, chosen, bound_S)
    return loss + 0.0 * vector_BD.sum()  # a worker without anchors joins the gather's backward all the same
