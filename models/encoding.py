"""The vectors of a lane, the same on whichever worker and however often it is encoded."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from models.batch import Batch, Lane
from models.gathering import World, batch_order, rows_of
from models.lookup import Encoder
from models.method import Method


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
class Encoded:
    """
    What encoding a lane gives.

    Args:
        vector_LD: vectors, all towers side by side, [L, D of all towers].
        nats: of towers that generate, what the answers take, [], summed; none without a graph.
    """

    vector_LD: Tensor
    nats: Mapping[str, Tensor]

    def told(self, shares: Mapping[str, float]) -> Tensor:
        """The lane's part of the loss that generating takes, []; `shares` of a nat, by tower."""
        return sum((share * self.nats[tower].detach() for tower, share in shares.items()), torch.zeros(()))

    def backward(self, gradient_LD: Tensor, shares: Mapping[str, float]) -> None:
        """Send back the gradient of the vectors and that of the nats, in one go: they come from one pass."""
        roots = [(self.vector_LD, gradient_LD)]
        roots += [(self.nats[tower], torch.full_like(self.nats[tower], share)) for tower, share in shares.items()]
        wanted = [(root, gradient) for root, gradient in roots if root.requires_grad]
        if wanted:
            torch.autograd.backward([root for root, _ in wanted], [gradient for _, gradient in wanted])


@dataclass(frozen=True)
class Encode:
    """Encodes lanes; a lane gives the same whenever it is asked for."""

    method: Method
    batch: Batch
    number: int
    setup: Setup
    world: World

    def __call__(self, lane: Lane, graph: bool) -> Encoded:
        ids_LT, length_L, view_L = self.batch.seen(lane.row_L, self.world.device)
        telling = {term.tower for term in self.method.generating}
        answers = self.batch.targets(lane.row_L, self.world.device) if telling else None
        shared, vectors, nats = self._shared_masks(), [], {}
        torch.manual_seed(step_seed(self.setup.seed, self.number, lane.number))
        with torch.set_grad_enabled(graph):
            for tower in self.method.used:
                if answers and tower in telling:
                    vector_LD, nats[tower] = self.method.encode_packed(tower, (ids_LT, length_L), answers, graph)
                else:
                    vector_LD = self.method.encode(tower, ids_LT, length_L, shared.get(tower), view_L)
                vectors.append(vector_LD)
        return Encoded(torch.cat(vectors, dim=1), nats if graph else {})

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
        row_of_rank = [rows_of(every[rank :: self.world.size]) for rank in range(self.world.size)]
        return by_tower(self.method, batch_order(torch.cat(parts), row_of_rank, self.world))

    def nothing(self) -> Tensor:
        """The vectors of no lane, [0, D of all towers]; where one tower's are float64, all are."""
        towers = [self.method.tower(tower) for tower in self.method.used]
        width, kind = sum(tower.width for tower in towers), vector_type(self.setup, *towers)
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


def step_seed(seed: int, number: int, lane: int, turn: int = 0) -> int:
    """
    A lane's random state, of each turn that it takes in a step; lane -1 is what the whole batch shares.

    Odd turns of lane -1 are of terms that live in a lane, even ones of choices. Torch reads the low 32 bits.
    """
    seed += turn * 0xD1B54A32D192ED03
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + (lane + 2) * 0x94D049BB133111EB) % 2**64
    return ((mixed ^ (mixed >> 31)) * 0xD6E8FEB86659FD93) % 2**63


def vector_type(setup: Setup, *towers: Encoder) -> torch.dtype:
    precise = setup.precision == "fp64" or any(tower.precise for tower in towers)
    return torch.float64 if precise else torch.float32


def by_tower(method: Method, vector_BD: Tensor) -> dict[str, Tensor]:
    """Vectors of all towers side by side, taken apart by tower."""
    widths = [method.tower(tower).width for tower in method.used]
    return dict(zip(method.used, vector_BD.split(widths, dim=1), strict=True))
