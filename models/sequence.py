"""
Runs of neighbouring sentences in a batch, and networks that read a run from its start: the context of each sentence.

Letters besides those of `models`: R runs of a batch, E width of a context vector.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


@dataclass(frozen=True)
class Runs:
    """
    Which run each row of a batch stands in, and how far from its start.

    A run is a stretch of rows one behind the other in the batch, of one document and without a gap between places: a
    border is where the document changes or a place does not follow the one before. So a run is known by nothing but its
    rows, and what a run's rows are told never reaches another run. Two runs of one document that happen to lie side by
    side and follow each other in the document are one run: they are neighbours.

    Args:
        run_B: int64 number of the run.
        step_B: int64 place in the run, from 0.
    """

    run_B: Tensor
    step_B: Tensor

    @classmethod
    def of(cls, document_B: Tensor, place_B: Tensor) -> Self:
        """The runs of rows in batch order; a filler, which stands at place 0, is a run of its own."""
        row_B = torch.arange(len(document_B), device=document_B.device)
        follows_B = (document_B == document_B.roll(1)) & (place_B == place_B.roll(1) + 1) & (row_B > 0)
        run_B = (~follows_B).cumsum(0) - 1
        return cls(run_B, row_B - (~follows_B).nonzero().flatten()[run_B])

    @classmethod
    def alone(cls, rows: int, device: torch.device) -> Self:
        """Rows each of which is a run of its own."""
        return cls(torch.arange(rows, device=device), torch.zeros(rows, dtype=torch.int64, device=device))

    def later(self, steps: int) -> Tensor:
        """Number of the row that stands `steps` later in the same run, [B]; -1 where there is none."""
        rows = len(self.run_B)
        row_B = torch.arange(rows, device=self.run_B.device) + steps
        there_B = (row_B < rows) & (self.run_B[row_B.clamp(max=rows - 1)] == self.run_B)
        return row_B.where(there_B, -1)


class Recurrent(nn.Module):
    """
    Context by a gated recurrent network that reads the vectors of a run one after the other.

        c[t] = GRU( z[0], ..., z[t] )

    All runs go through together, step by step and without padding, so neither the other runs of a batch nor their
    lengths change a context. In the vectors' own precision.

    Args:
        inner: width of a sentence's vector.
        width: width of a context vector; 0: the sentence's.
    Raises:
        ValueError: the width is negative.
    Source:
        van den Oord, Li and Vinyals 2018 (CPC), sections 2.2 and 3.3: a GRU over the sentences' vectors.
    """

    def __init__(self, inner: int, *, width: int = 0) -> None:
        super().__init__()
        if width < 0:
            raise ValueError(f"context.width is {width}; 0 for that of a sentence's vector, or more")
        self.width = width or inner
        self.gru = nn.GRU(inner, self.width)

    def forward(self, vector_BD: Tensor, runs: Runs) -> Tensor:
        """Contexts [B, E] of all rows, each of the rows of its run up to and with itself."""
        length_R = torch.bincount(runs.run_B)
        place_R = length_R.argsort(descending=True, stable=True).argsort()  # longer runs first, as the packing wants
        order_B = (runs.step_B * len(length_R) + place_R[runs.run_B]).argsort()
        state, _ = self.gru(PackedSequence(vector_BD[order_B], torch.bincount(runs.step_B).cpu()))
        context_BE: Tensor = state.data[order_B.argsort()]
        return context_BE


CONTEXTS: dict[str, type[Recurrent]] = {"gru": Recurrent}
