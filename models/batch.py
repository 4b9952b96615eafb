"""A batch as it is read, and the lanes that its rows are encoded in."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.candidates import Rows


@dataclass(frozen=True)
class Batch:
    """A batch as read: the texts' numbers one behind the other, and what the table says of its rows."""

    flat_ids: Tensor
    length_B: Tensor
    rows: Rows

    def padded(self, row_L: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers and lengths of some rows, [L, T] and [L]; padding is 0."""
        length_L = self.length_B[row_L]
        start_L = (self.length_B.cumsum(0) - self.length_B)[row_L]
        place_T = torch.arange(int(length_L.max()))
        inside_LT = place_T < length_L[:, None]
        at_LT = (start_L[:, None] + place_T).where(inside_LT, 0)
        return self.flat_ids[at_LT].where(inside_LT, 0), length_L

    def seen(self, row_L: Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Numbers [L, T], lengths [L] and views [L] of some rows, on a device."""
        ids_LT, length_L = self.padded(row_L)
        view_L = None if self.rows.view_B is None else self.rows.view_B[row_L].to(device)
        return ids_LT.to(device), length_L.to(device), view_L


@dataclass(frozen=True)
class Lane:
    """Rows that are encoded together, and their number among the batch's lanes."""

    number: int
    row_L: Tensor


def lanes(length_B: Tensor, lane_rows: int) -> list[Lane]:
    """A batch's rows in order of (length, row), cut into lanes of `lane_rows`; the last may be shorter."""
    order_B = torch.sort(length_B, stable=True).indices
    return [Lane(number, row_L) for number, row_L in enumerate(order_B.split(lane_rows))]
