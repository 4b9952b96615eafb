"""
Pairs of sentences that people rated, from a table file, or from all those of a folder or glob put behind each other.
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from pipeline import table_files
from pipeline.shard import SourceError
from pipeline.table_files import Row

LEAST = 3  # pairs; of two, a rank correlation is always 100 or -100
SCHEMA = {"source": pl.String, "row": pl.UInt64, "left": pl.String, "right": pl.String, "gold": pl.Float64}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # float() would take 1_0 and nan too


@dataclass(frozen=True)
class Columns:
    """Names of the two texts' columns and of the score's."""

    left: str
    right: str
    score: str


@dataclass(frozen=True)
class Rated:
    """Rated pairs (`source`, `row`, `left`, `right`, `gold`), and how many rows had no score."""

    pairs: pl.DataFrame
    unscored: int


def read(path: str, columns: Columns) -> Rated:
    """
    The pairs of all files, in order of their names.

    A row without a score was not rated and is counted, not read. White space in texts is collapsed.

    Raises:
        SourceError: no file, no column, a row that cannot be used, fewer than three pairs, or one score for all.
    """
    found, unscored = [], 0
    wanted = table_files.Columns((columns.left, columns.right, columns.score), "left, right and score")
    for row in table_files.rows(path, wanted):
        if row.blank(columns.score):
            unscored += 1
        else:
            gold = _score(row, columns.score)
            found.append((row.source, row.row, row.text(columns.left), row.text(columns.right), gold))
    pairs = pl.DataFrame(found, schema=SCHEMA, orient="row")
    if len(pairs) < LEAST:
        raise SourceError(f"{path}: {len(pairs)} scored pairs, {unscored} without a score; should be {LEAST} or more")
    if pairs["gold"].n_unique() == 1:
        raise SourceError(
            f"{path}: Spearman undefined: all {len(pairs)} pairs have the {columns.score} {pairs['gold'][0]:g}; "
            "give pairs that people rated differently, or name another column as score"
        )
    return Rated(pairs, unscored)


def _score(row: Row, column: str) -> float:
    """A score as a number."""
    value, number = row.values[column], math.nan
    if NUMBER.fullmatch(value.strip()) if isinstance(value, str) else _is_number(value):
        with suppress(OverflowError):  # a whole number of more than 308 digits
            number = float(value)
    if not math.isfinite(number):
        raise SourceError(
            f"{row.place}: {column} is {value!r}, should be a number as 3.5; mend it, or leave it empty where "
            "the pair was not scored"
        )
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
