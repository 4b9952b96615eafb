"""
Gradients of word tables by rows: only the words of a batch have one, so that a step costs the same for any vocabulary.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn


def summed_rows(parameter: nn.Parameter, workers: int) -> Tensor:
    """
    The sum of all workers' gradients of a table, sparse, each row once and in order; the same on every worker.

    Args:
        parameter: its gradient is sparse, or None on a worker that has none of the batch's words.
        workers: how many take part.
    """
    own = parameter.grad
    if own is None:
        none_1N = torch.zeros(1, 0, dtype=torch.int64, device=parameter.device)
        own = torch.sparse_coo_tensor(none_1N, parameter.detach()[:0], parameter.shape, check_invariants=False)
    own = own.coalesce()
    if workers == 1:
        return own
    ids_N, row_ND = own.indices()[0], own.values()
    most = torch.tensor([len(ids_N)], device=ids_N.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    short = int(most) - len(ids_N)
    ids_M = _gathered(nn.functional.pad(ids_N, (0, short), value=-1), workers)
    row_MD = _gathered(nn.functional.pad(row_ND, (0, 0, 0, short)), workers)
    there_M = ids_M >= 0
    return torch.sparse_coo_tensor(ids_M[None, there_M], row_MD[there_M], own.shape, check_invariants=False).coalesce()


def _gathered(own: Tensor, workers: int) -> Tensor:
    full = own.new_empty(workers * len(own), *own.shape[1:])
    dist.all_gather_single(full, own.contiguous())
    return full
