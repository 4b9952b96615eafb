"""Adam for gradients that may be sparse: rows of a table that have none stay as they are, moments included."""

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

    def __init__(self, parameters: list[nn.Parameter], *, rate: float, betas: tuple[float, float], epsilon: float):
        super().__init__(parameters, {"lr": rate, "betas": betas, "eps": epsilon})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _move(parameter, parameter.grad, self._state_of(parameter), group)

    def _state_of(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["m"], state["v"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state


def _move(parameter: nn.Parameter, gradient: Tensor, state: dict[str, Tensor], group: dict[str, object]) -> None:
    (first, second), rate, epsilon = group["betas"], group["lr"], group["eps"]  # type: ignore[misc]
    state["step"] += 1
    step = state["step"].item()
    row_N, change = None, gradient
    m, v = state["m"], state["v"]
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        row_N, change = gradient.indices()[0], gradient.values()
        m, v = m[row_N], v[row_N]
    m.lerp_(change, 1 - first)
    v.mul_(second).addcmul_(change, change, value=1 - second)
    root = (v / (1 - second**step)).sqrt_().add_(epsilon)
    if row_N is None:
        parameter.addcdiv_(m, root, value=-rate / (1 - first**step))
        return
    state["m"][row_N], state["v"][row_N] = m, v
    parameter.index_add_(0, row_N, m / root, alpha=-rate / (1 - first**step))
