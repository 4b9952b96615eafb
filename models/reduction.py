"""The sum of all workers' gradients."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from models.batch import Batch
from models.encoding import Setup
from models.gathering import World
from models.method import Method
from models.rowwise import summed_rows


def reduced(
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
