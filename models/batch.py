"""A batch as it is read, and the lanes that its rows are encoded in."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.candidates import Rows


@dataclass(frozen=True)
class Batch:
    """
    A batch as read: the texts' numbers one behind the other, and what the table says of its rows.

    Args:
        target_ids, target_length_B: the clean texts of the rows' answers, likewise; None: nobody tells them.
    """

    flat_ids: Tensor
    length_B: Tensor
    rows: Rows
    target_ids: Tensor | None = None
    target_length_B: Tensor | None = None

    def padded(self, row_L: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers and lengths of some rows, [L, T] and [L]; padding is 0."""
        return _padded(self.flat_ids, self.length_B, row_L)

    def targets(self, row_L: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """
        Numbers [L, U] and lengths [L] of some rows' targets, on a device.

        Raises:
            ValueError: the table has none.
        """
        target_LU, target_L = _padded(*self._told(), row_L)
        return target_LU.to(device), target_L.to(device)

    def lanes(self, lane_rows: int) -> list["Lane"]:
        """Its rows in lanes, by length; where a target stands behind a text, by that of both."""
        return lanes(self.length_B if self.target_length_B is None else self.length_B + self.target_length_B, lane_rows)

    def target_lengths(self) -> Tensor:
        """
        Tokens of each row's target, [B].

        Raises:
            ValueError: the table has none.
        """
        return self._told()[1]

    def _told(self) -> tuple[Tensor, Tensor]:
        if self.target_ids is None or self.target_length_B is None:
            raise ValueError("batches without the column target say no answers; a term that generates needs it")
        return self.target_ids, self.target_length_B

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


def _padded(flat_ids: Tensor, length_B: Tensor, row_L: Tensor) -> tuple[Tensor, Tensor]:
    length_L = length_B[row_L]
    start_L = (length_B.cumsum(0) - length_B)[row_L]
    place_T = torch.arange(int(length_L.max()))
    inside_LT = place_T < length_L[:, None]
    if not len(flat_ids):
        return torch.zeros(inside_LT.shape, dtype=torch.int64), length_L
    at_LT = (start_L[:, None] + place_T).where(inside_LT, 0)
    return flat_ids[at_LT].where(inside_LT, 0), length_L
