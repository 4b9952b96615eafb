"""Adam for gradients that may be sparse: rows of a table that have none stay as they are, moments included."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class LazyAdam(torch.optim.Optimizer):
    """
    Adam that moves the rows that a sparse gradient has, and whole tensors where the gradient is dense.

        m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,
        weight -= rate (m / (1 - b1^t)) / ( sqrt(v / (1 - b2^t)) + epsilon )

    where t counts steps, and of rows without a gradient neither m, v nor weight changes. A step costs what the rows of
    its batch cost, however large the table. Where every row has a gradient it is Adam.

    Args:
        parameters: what moves.
        rate: step width.
        betas: b1 and b2.
        epsilon: added to the root.
    Source:
        Kingma and Ba 2015, algorithm 1; for the rows that stay, `torch.optim.SparseAdam`, which takes no dense ones.
    """

    def __init__(
        self, parameters: list[nn.Parameter], *, rate: float, betas: tuple[float, float], epsilon: float
    ) -> None:
        super().__init__(parameters, {"lr": rate, "betas": betas, "eps": epsilon})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:  # the two moments of a number side by side, so that a row is fetched once
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["moments"] = parameter.new_zeros(*parameter.shape[:1], 2, *parameter.shape[1:])
                state["step"] += 1
                _move(parameter, parameter.grad, state["moments"], state["step"].item(), group)


def _move(parameter: nn.Parameter, gradient: Tensor, moments: Tensor, step: float, group: dict[str, Any]) -> None:
    rate = group["lr"] / (1 - group["betas"][0] ** step)
    if not gradient.is_sparse:
        both = moments.unbind(1) if parameter.dim() else moments.unbind(0)
        parameter.sub_(_way(both, gradient, step, group), alpha=rate)
        return
    gradient = gradient.coalesce()
    row_N = gradient.indices()[0]
    some_N2D = moments.index_select(0, row_N)
    way_ND = _way(some_N2D.unbind(1), gradient.values(), step, group)
    moments.index_copy_(0, row_N, some_N2D)
    parameter.index_add_(0, row_N, way_ND, alpha=-rate)


def _way(moments: Sequence[Tensor], gradient: Tensor, step: float, group: dict[str, Any]) -> Tensor:
    """m over the root of v, less the bias of m; both moments move."""
    (first, second), (m, v) = group["betas"], moments
    m.lerp_(gradient, 1 - first)
    v.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    return m / (v / (1 - second**step)).sqrt_().add_(group["eps"])
