"""Rows of unequal length, one behind the other, and numbers drawn for them without a loop over rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Keys = NDArray[np.uint64]
Flags = NDArray[np.bool_]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd numbers without a pattern
APART = 0xD1342543DE82EF95


@dataclass(frozen=True, eq=False)
class Ragged:
    """
    All tokens, one row behind the other.

    Args:
        flat_T: vocabulary numbers.
        offset_R: where each row starts, and where the last one ends; one more than there are rows.
    """

    flat_T: NDArray[np.int32]
    offset_R: Whole

    @classmethod
    def of(cls, tokens: pl.Series) -> "Ragged":
        """A column of lists."""
        offset_R = np.concatenate([[0], np.cumsum(tokens.list.len().to_numpy(), dtype=np.int64)])
        return cls(tokens.explode(empty_as_null=False).to_numpy(), offset_R)

    def series(self) -> pl.Series:
        """As a column of lists."""
        rows: Any = pa.LargeListArray.from_arrays(self.offset_R, self.flat_T)
        return pl.Series("tokens", rows, dtype=pl.List(pl.Int32))

    @property
    def lengths(self) -> Whole:
        """Tokens of each row."""
        return np.diff(self.offset_R)

    def counted(self, marked_T: Flags) -> Whole:
        """Marked tokens of each row."""
        total_T = np.concatenate([[0], np.cumsum(marked_T)])
        return np.diff(total_T[self.offset_R])

    def only(self, kept_T: Flags) -> "Ragged":
        """The same rows without the other tokens."""
        return Ragged(self.flat_T[kept_T], offsets(self.counted(kept_T)))

    def put(self, marked_T: Flags, value_M: NDArray[np.int32]) -> "Ragged":
        """The same rows with other numbers in the marked places."""
        flat_T = self.flat_T.copy()
        flat_T[marked_T] = value_M
        return Ragged(flat_T, self.offset_R)

    def units(self, first_T: Flags) -> tuple[Whole, Whole]:
        """Where each unit starts, and how many a row has; a row's first token begins one whatever is marked."""
        first_T = first_T.copy()
        first_T[self.offset_R[:-1][self.lengths > 0]] = True
        start_U = np.flatnonzero(first_T)
        return start_U, np.diff(np.searchsorted(start_U, self.offset_R))


def offsets(count_R: Whole) -> Whole:
    """Where rows of these lengths start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(count_R, dtype=np.int64)])


def within(count_R: Whole) -> Whole:
    """Of all members of all rows, the number of each in its own row, from 0."""
    return np.arange(count_R.sum()) - np.repeat(np.cumsum(count_R) - count_R, count_R)


def spread(start_U: Whole, length_U: Whole) -> Whole:
    """Places start, start + 1, ... of each unit, one unit behind the other."""
    return np.repeat(start_U, length_U) + within(length_U)


def keys(draw: np.random.Generator, rows: int) -> Keys:
    """One number a row, of which all that is drawn for the row is made."""
    return draw.integers(0, 1 << 64, size=rows, dtype=np.uint64)


def mixed(number: Keys) -> Keys:
    """Numbers without a trace of order: the finisher of SplitMix64 (Steele, Lea and Flood 2014)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def part(key_R: Keys, number: int) -> Keys:
    """Keys of the same rows for another purpose."""
    return mixed(key_R + np.uint64((number + 1) * APART % (1 << 64)))


def numbered(key_M: Keys, place_M: Whole) -> Keys:
    """A number for each member of a row, from the row's key and the member's own place there."""
    return mixed(key_M + (place_M + 1).astype(np.uint64) * GOLDEN)


def even(number: Keys) -> NDArray[np.float64]:
    """The same as shares, 0 to below 1."""
    return (number >> np.uint64(11)).astype(np.float64) * 2.0**-53


def members(key_R: Keys, count_R: Whole) -> Keys:
    """A number for each of so many members a row."""
    return numbered(np.repeat(key_R, count_R), within(count_R))


def ranks(key_R: Keys, count_R: Whole) -> Whole:
    """For each of so many members a row its place in an order that is drawn for the row, from 0."""
    row_U = np.repeat(np.arange(len(count_R), dtype=np.uint64), count_R)
    order_U = np.argsort((row_U << np.uint64(32)) | (members(key_R, count_R) >> np.uint64(32)), kind="stable")
    rank_U = np.empty(len(row_U), dtype=np.int64)
    rank_U[order_U] = within(count_R)  # sorting leaves each row where it is
    return rank_U
