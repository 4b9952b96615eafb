"""Terms of the loss that need nothing beyond a lane: something is drawn there, and told."""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Drawn(Protocol):
    """What a lane is to tell."""

    @property
    def count(self) -> int:
        """How many things are told; a mean is over those of the whole batch."""


class LaneObjective(Protocol):
    """
    Draws what is to be told, and tells it.

    All lanes of a worker are drawn before any is told, so that the count of the batch is known before any backward.
    Both find torch's default generator in the state of this lane and this turn; what all lanes of a batch draw alike
    comes from `common`.
    """

    def draw(self, encoder: Any, id_LT: Tensor, length_L: Tensor, common: int) -> Drawn:
        """
        What is to be told.

        Args:
            encoder: of the term's anchors.
            common: a seed, the same for all lanes of the batch.
        """

    def told(self, encoder: Any, other: Any, drawn: Any, length_L: Tensor) -> Tensor:
        """The loss summed over what was drawn, []; `other` is the encoder of the candidates."""


@dataclass(frozen=True)
class LaneTerm:
    """An objective that lives in a lane, with its towers and its weight in the loss."""

    tower: str
    candidate: str
    objective: LaneObjective
    weight: float
    mean: bool
