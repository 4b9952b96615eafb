"""A queue of vectors that outlive their batch, and the encoder that makes them: a slow copy of the trained one."""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from models.candidates import Memory
from models.lookup import Encoder


class Queue(nn.Module):
    """
    The newest vectors of a momentum encoder; part of a run's state, and of no model folder.

    In a step the copy first follows the encoder as it was before the step, the loss sees the queue as it was, and
    then the batch's own vectors enter: no text meets its own entry.

    Args:
        encoder: the trained one. Its copy starts equal, takes no gradient, and shares its head.
        size: vectors kept.
        momentum: share of the copy that stays in each step.
    Source:
        Wu et al. 2022 (ESimCSE), equation 4; the order within a step as in the authors' code.
    """

    vector_MD: Tensor
    group_M: Tensor
    filled: Tensor

    def __init__(self, encoder: Encoder, size: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.slow = copy.deepcopy(encoder).requires_grad_(False)
        self.slow.share_head(encoder)  # the average is taken of the encoder alone
        width = encoder.width
        self.register_buffer("vector_MD", torch.zeros(size, width))
        self.register_buffer("group_M", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def memory(self) -> Memory | None:
        """What it holds; None: nothing yet."""
        filled = int(self.filled)
        return Memory(self.vector_MD[-filled:], self.group_M[-filled:]) if filled else None

    @torch.no_grad()
    def follow(self, encoder: Encoder) -> None:
        """slow <- momentum slow + (1 - momentum) encoder."""
        for slow, trained in zip(self.slow.parameters(), encoder.parameters(), strict=True):
            if slow is not trained:
                slow.lerp_(trained, 1 - self.momentum)

    @torch.no_grad()
    def encode(self, id_LT: Tensor, length_L: Tensor, view_L: Tensor | None) -> Tensor:
        """Vectors [L, D] of the slow encoder, without dropout."""
        modes = {module: module.training for module in self.slow.modules()}
        vector_LD = cast(Tensor, self.slow.eval()(id_LT, length_L, None, view_L))
        for module, training in modes.items():
            module.training = training
        return vector_LD

    @torch.no_grad()
    def push(self, vector_ND: Tensor, group_N: Tensor) -> None:
        """Let vectors in, in this order; the oldest leave."""
        size = len(self.vector_MD)
        self.vector_MD.copy_(torch.cat([self.vector_MD, vector_ND.to(self.vector_MD)])[-size:])
        self.group_M.copy_(torch.cat([self.group_M, group_N])[-size:])
        self.filled.copy_((self.filled + len(vector_ND)).clamp(max=size))
