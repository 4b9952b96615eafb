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

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from models.candidates import FILLER, Rows
from models.lookup import Encoder
from models.method import Method
from models.rowwise import summed_rows
from models.summand import CELLS, Summand

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Batch:
    """A batch as read: the texts' numbers one behind the other, and what the table says of its rows."""

    flat_ids: Tensor
    length_B: Tensor
    rows: Rows

    def padded(self, row_L: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers and lengths of some rows, [L, T] and [L]; padding is 0."""
        length_L = self.length_B[row_L]
        start_L = (self.length_B.cumsum(0) - self.length_B)[row_L]
        place_T = torch.arange(int(length_L.max()))
        inside_LT = place_T < length_L[:, None]
        at_LT = (start_L[:, None] + place_T).where(inside_LT, 0)
        return self.flat_ids[at_LT].where(inside_LT, 0), length_L

    def seen(self, row_L: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Numbers [L, T], lengths [L] and views [L] of some rows, on a device."""
        ids_LT, length_L = self.padded(row_L)
        view_L = None if self.rows.view_B is None else self.rows.view_B[row_L].to(device)
        return ids_LT.to(device), length_L.to(device), view_L


@dataclass(frozen=True)
class World:
    """Who takes part in a step; the default is one worker without a process group."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU


@dataclass(frozen=True)
class Setup:
    """What a step needs to know beside the batch."""

    seed: int
    lane_rows: int
    precision: str = "fp32"
    cached: bool = False
    lazy: bool = False  # gradients of word tables stay sparse, for an optimizer that moves their rows alone

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Open over all lanes of a step: casts of weights are kept until it closes."""
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()


@dataclass(frozen=True)
class Lane:
    """Rows that are encoded together, and their number among the batch's lanes."""

    number: int
    row_L: Tensor


def lanes(length_B: Tensor, lane_rows: int) -> list[Lane]:
    """A batch's rows in order of (length, row), cut into lanes of `lane_rows`; the last may be shorter."""
    order_B = torch.sort(length_B, stable=True).indices
    return [Lane(number, row_L) for number, row_L in enumerate(order_B.split(lane_rows))]


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
    every = lanes(batch.length_B, setup.lane_rows)
    loss = torch.zeros((), dtype=_vector_type(setup), device=world.device)
    if method.summands:
        loss = loss + _compared(method, batch, every, number, setup, world, bound_S)
    if method.lane_terms:
        loss = loss + _told(method, batch, every, number, setup, world)
    for place in range(len(method.summands)):
        _queue_up(method, place, batch, every, setup, world)
    return _reduced(method, batch, loss, number, setup, world, bound_S)


def _compared(
    method: Method,
    batch: Batch,
    every: list[Lane],
    number: int,
    setup: Setup,
    world: World,
    bound_S: Tensor | None,
) -> Tensor:
    """Take the gradient of the terms that compare vectors; my part of their loss."""
    mine = every[world.rank :: world.size]
    encode = Encode(method, batch, number, setup, world)
    chosen = chosen_rows(encode, every)
    with setup.autocast(world.device):
        vectors = [encode(lane, graph=not setup.cached) for lane in mine]
    leaf_ND = torch.cat([encode.nothing(), *(vector_LD.detach() for vector_LD in vectors)]).requires_grad_()
    loss = _loss(method, batch, every, leaf_ND, world, chosen, bound_S)
    loss.backward()
    assert leaf_ND.grad is not None
    with setup.autocast(world.device) if setup.cached else nullcontext():
        for lane, vector_LD, gradient_LD in zip(
            mine, vectors, leaf_ND.grad.split([len(v) for v in vectors]), strict=True
        ):
            again_LD = encode(lane, graph=True) if setup.cached else vector_LD
            if again_LD.requires_grad:
                again_LD.backward(gradient_LD)
    return loss.detach()


def chosen_rows(encode: "Encode", every: list[Lane]) -> dict[int, Rows]:
    """
    The batch's rows as those terms see them that choose among an anchor's own candidates, by the term's number.

    Every worker chooses for the whole batch, so that all know how many there are. Only where a choice depends on scores
    is the batch encoded for them, without dropout; no random state moves.
    """
    method, rows, world = encode.method, encode.batch.rows, encode.world
    choosing = {at: term.choosing for at, term in enumerate(method.summands) if term.choosing}
    looking = any(choice.looks(rows) for choice in choosing.values())
    vectors = encode.calm(every) if looking else {}
    draw, chosen = torch.Generator(), {}
    for at, choice in choosing.items():
        draw.manual_seed(step_seed(encode.setup.seed, encode.number, -1, 2 * at + 2))
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
    total = torch.zeros((), dtype=_vector_type(setup), device=world.device)
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
    parts = [torch.zeros(0, tower.width, dtype=_vector_type(setup, tower), device=world.device)]
    with setup.autocast(world.device):
        for lane in kept[world.rank :: world.size]:
            if len(lane.row_L):
                parts.append(queue.encode(*batch.seen(lane.row_L, world.device)))
    row_of_rank = [_rows_of(kept[rank :: world.size]) for rank in range(world.size)]
    vector_ND = _batch_order(torch.cat(parts), row_of_rank, world)
    queue.push(vector_ND, batch.rows.group_B[enters_B].to(world.device))


@dataclass(frozen=True)
class Encode:
    """The vectors of a lane, all towers side by side, [L, D of all towers]; the same whenever it is called."""

    method: Method
    batch: Batch
    number: int
    setup: Setup
    world: World

    def __call__(self, lane: Lane, graph: bool) -> Tensor:
        ids_LT, length_L, view_L = self.batch.seen(lane.row_L, self.world.device)
        shared = self._shared_masks()
        torch.manual_seed(step_seed(self.setup.seed, self.number, lane.number))
        with torch.set_grad_enabled(graph):
            given = [(tower, ids_LT, length_L, shared.get(tower), view_L) for tower in self.method.used]
            return torch.cat([self.method.encode(*one) for one in given], dim=1)

    @torch.no_grad()
    def calm(self, every: list[Lane]) -> dict[str, Tensor]:
        """Each tower's vectors of the whole batch, [B, D], without dropout and without a gradient."""
        modes = {module: module.training for module in self.method.modules()}
        self.method.eval()
        parts = [self.nothing()]
        with self.setup.autocast(self.world.device):
            for lane in every[self.world.rank :: self.world.size]:
                ids_LT, length_L, view_L = self.batch.seen(lane.row_L, self.world.device)
                given = [(tower, ids_LT, length_L, None, view_L) for tower in self.method.used]
                parts.append(torch.cat([self.method.encode(*one) for one in given], dim=1))
        for module, training in modes.items():
            module.training = training
        row_of_rank = [_rows_of(every[rank :: self.world.size]) for rank in range(self.world.size)]
        return _by_tower(self.method, _batch_order(torch.cat(parts), row_of_rank, self.world))

    def nothing(self) -> Tensor:
        """The vectors of no lane, [0, D of all towers]; where one tower's are float64, all are."""
        towers = [self.method.tower(tower) for tower in self.method.used]
        width, kind = sum(tower.width for tower in towers), _vector_type(self.setup, *towers)
        return torch.zeros(0, width, dtype=kind, device=self.world.device)

    def _shared_masks(self) -> Mapping[str, Tensor]:
        """Dropout masks that all rows of the batch share; towers of one word width share them too."""
        masks = {}
        for tower in self.method.used:
            drop, words = self.method.tower(tower).drop, self.method.tower(tower).words
            if words is not None and drop.active and drop.shared:
                draw = torch.Generator().manual_seed(step_seed(self.setup.seed, self.number, -1))
                keep = torch.rand(words.width, generator=draw) >= drop.rate
                masks[tower] = keep.to(words.weight.device, words.weight.dtype)
        return masks


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


def step_seed(seed: int, number: int, lane: int, turn: int = 0) -> int:
    """
    A lane's random state, of each turn that it takes in a step; lane -1 is what the whole batch shares.

    Odd turns of lane -1 are of terms that live in a lane, even ones of choices. Torch reads the low 32 bits.
    """
    seed += turn * 0xD1B54A32D192ED03
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + (lane + 2) * 0x94D049BB133111EB) % 2**64
    return ((mixed ^ (mixed >> 31)) * 0xD6E8FEB86659FD93) % 2**63


def _vector_type(setup: Setup, *towers: Encoder) -> torch.dtype:
    precise = setup.precision == "fp64" or any(tower.precise for tower in towers)
    return torch.float64 if precise else torch.float32


def _by_tower(method: Method, vector_BD: Tensor) -> dict[str, Tensor]:
    """Vectors of all towers side by side, taken apart by tower."""
    widths = [method.tower(tower).width for tower in method.used]
    return dict(zip(method.used, vector_BD.split(widths, dim=1), strict=True))


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
    row_of_rank = [_rows_of(every[rank :: world.size]) for rank in range(world.size)]
    vector_BD = _batch_order(leaf_ND, row_of_rank, world)
    own_B = torch.zeros(len(batch.length_B), dtype=torch.bool)
    own_B[row_of_rank[world.rank]] = True
    rows, vectors = batch.rows.to(world.device), _by_tower(method, vector_BD)
    loss = method.loss(rows, own_B.to(world.device), vectors, chosen, bound_S)
    return loss + 0.0 * vector_BD.sum()  # a worker without anchors joins the gather's backward all the same


def _rows_of(owned: list[Lane]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *(lane.row_L for lane in owned)])


def _batch_order(leaf_ND: Tensor, row_of_rank: list[Tensor], world: World) -> Tensor:
    """The vectors of all workers' rows, in ascending order of row."""
    most = max(len(rows) for rows in row_of_rank)
    gathered = Gather.apply(leaf_ND, most, world) if world.size > 1 else leaf_ND
    at_N = torch.cat([rank * most + torch.arange(len(rows)) for rank, rows in enumerate(row_of_rank)])
    return gathered[at_N[torch.cat(row_of_rank).argsort()].to(leaf_ND.device)]


class Gather(torch.autograd.Function):
    """
    All workers' vectors, worker by worker, each padded to `most` rows; the gradient flows back to every owner.

    Backward: each worker's loss has a cotangent for every row; they are summed over workers, and each takes its own.
    Without that sum, or with the others' rows detached, the gradient is that of another loss.
    """

    @staticmethod
    def forward(ctx: "torch.autograd.function.FunctionCtx", leaf: Tensor, most: int, world: World) -> Tensor:
        """[N, D] of this worker to [W * most, D]."""
        ctx.most, ctx.world, ctx.rows = most, world, len(leaf)  # type: ignore[attr-defined]
        padded = leaf.new_zeros(most, leaf.shape[1])
        padded[: len(leaf)] = leaf
        full = leaf.new_empty(world.size * most, leaf.shape[1])
        dist.all_gather_single(full, padded)
        return full

    @staticmethod
    def backward(ctx: "torch.autograd.function.FunctionCtx", *grads: Tensor) -> tuple[Tensor, None, None]:
        """[W * most, D] to [N, D]."""
        total = grads[0].contiguous()
        dist.all_reduce(total)
        own = total[ctx.world.rank * ctx.most :][: ctx.rows]  # type: ignore[attr-defined]
        return own, None, None


def _reduced(
    method: Method, batch: Batch, loss: Tensor, number: int, setup: Setup, world: World, bound_S: Tensor | None
) -> float:
    """Put the sum of all workers' gradients into the parameters; returns the sum of their losses."""
    by_rows = method.by_rows() if setup.lazy else []
    for table in by_rows:
        table.grad = summed_rows(table, world.size)
    alone = {id(table) for table in by_rows}
    trained = [parameter for parameter in trainable(method) if id(parameter) not in alone]
    gradients = [_dense(parameter) for parameter in trained]
    if world.size > 1:
        told = torch.cat([loss.reshape(1), *([] if bound_S is None else [bound_S.to(loss)])])
        told = _summed(method, batch, trained, gradients, told, world)
        loss = told[0]
        if bound_S is not None:
            bound_S.copy_(told[1:])
    for parameter, gradient in zip(trained, gradients, strict=True):
        parameter.grad = gradient
    if not torch.isfinite(loss):
        raise FloatingPointError(
            f"step {number}: the loss is {loss.item()}, should be a number; try training.precision=fp32 or a lower "
            "training.rate"
        )
    return loss.item()


def _dense(parameter: torch.nn.Parameter) -> Tensor:
    """A parameter's gradient as one dense tensor: word tables collect their lanes' rows, some workers have none."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def _summed(
    method: Method, batch: Batch, trained: list[torch.nn.Parameter], gradients: list[Tensor], told: Tensor, world: World
) -> Tensor:
    """One flat reduction, in place; of word tables it carries only the rows of this batch's words. Returns `told`'s."""
    word_N = batch.flat_ids.unique().to(world.device)
    words = [method.tower(tower).words for tower in method.used]
    tables = {id(table.weight) for table in words if table is not None} if not method.told else set()
    parts = [g[word_N] if id(p) in tables else g for p, g in zip(trained, gradients, strict=True)]
    kind = parts[0].dtype if parts else told.dtype
    flat = torch.cat([*(part.flatten() for part in parts), told.to(kind)])
    dist.all_reduce(flat)
    totals = flat[: -len(told)].split([part.numel() for part in parts])
    for parameter, gradient, part, total in zip(trained, gradients, parts, totals, strict=True):
        if id(parameter) in tables:
            gradient[word_N] = total.view_as(part)
        else:
            gradient.copy_(total.view_as(part))
    return flat[-len(told) :]


def trainable(method: Method) -> Iterator[torch.nn.Parameter]:
    """Parameters that move, each once, in a fixed order."""
    return (parameter for parameter in method.parameters() if parameter.requires_grad)
