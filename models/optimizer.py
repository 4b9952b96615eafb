"""How the weights move: optimizer, rate over time, clipping."""

from typing import Any

import torch
from torch import nn

from models.lazy import LazyAdam
from models.recipe import Training


def optimizer(parameters: list[nn.Parameter], training: Training) -> torch.optim.Optimizer:
    """
    The recipe's optimizer; weight decay as in its paper, on every parameter or on matrices alone.

    It is weight_decay w in the gradient, as of a loss with weight_decay |w|^2 / 2; `adamw` has it beside the gradient.
    Lazy ones take sparse gradients.
    """
    if training.optimizer == "lazy-adam":
        return LazyAdam(parameters, rate=training.rate, betas=training.betas, epsilon=training.epsilon)
    if training.optimizer == "lazy-sgd":
        return torch.optim.SGD(parameters, lr=training.rate, foreach=False)
    groups = _groups(parameters, training)
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.rate, weight_decay=training.weight_decay)
    kind: Any = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    moments = {"betas": training.betas, "eps": training.epsilon}
    return kind(groups, lr=training.rate, **moments, weight_decay=training.weight_decay, fused=True)


def _groups(parameters: list[nn.Parameter], training: Training) -> list[dict[str, Any]]:
    if training.decay == "all":
        return [{"params": parameters}]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    rest = [parameter for parameter in parameters if parameter.dim() < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def rate(training: Training, step: int, steps: int) -> float:
    """Learning rate of step `step` (from 0) of `steps`."""
    rising = training.warmup * steps
    if step < rising:
        return training.rate * min(1.0, (step + 1) / rising)  # the share may end within a step
    if training.schedule == "linear":
        return training.rate * (steps - step) / max(1.0, steps - rising)
    return training.rate


def clip(parameters: list[nn.Parameter], training: Training) -> None:
    """Scale gradients down to norm `clip`: of all together, or of each tensor by itself."""
    if training.clip is None:
        return
    if training.clip_by == "global":
        nn.utils.clip_grad_norm_(parameters, training.clip)
        return
    for parameter in parameters:
        if parameter.grad is not None:
            nn.utils.clip_grad_norm_([parameter], training.clip)
