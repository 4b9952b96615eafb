"""The vectors of all workers' rows, with their gradient."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from models.batch import Lane

CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """Who takes part in a step; the default is one worker without a process group."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU


def rows_of(owned: list[Lane]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.int64), *(lane.row_L for lane in owned)])


def batch_order(leaf_ND: Tensor, row_of_rank: list[Tensor], world: World) -> Tensor:
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
