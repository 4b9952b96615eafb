"""The one file format of a model folder that is a table: counted n-grams as Parquet, a sixth of what they are bare."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

COUNT = "count"


def columns(order: int) -> list[str]:
    """Columns of a table of n-grams: `back_1` is the word just before `word`."""
    return [*(f"back_{back}" for back in range(1, order)), "word", COUNT]


def read(file: Path, order: int, end: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """
    N-grams [G, order], nearest context word first and the next word last, in ascending order, and their counts [G].

    Args:
        end: number of the end symbol; `end + 1` stands before a text.
    Raises:
        ValueError: it has another order, a word that there is not, or another order of rows.
    """
    table = pq.read_table(file)
    if table.column_names != columns(order):
        raise ValueError(f"{file.name} has columns {table.column_names}; should be {columns(order)}")
    gram_GO = np.stack([table[name].to_numpy() for name in columns(order)[:-1]], axis=1)
    if len(gram_GO) == 0 or gram_GO[:, -1].max() > end or gram_GO.max() > end + 1:
        raise ValueError(f"{file.name} is empty, or has words that the tokenizer lacks")
    if not _ascending(gram_GO):
        raise ValueError(f"{file.name} is not in ascending order of its columns, or has an n-gram twice")
    return gram_GO, table[COUNT].to_numpy().astype(np.int64)


def _ascending(gram_GO: NDArray[np.uint32]) -> bool:
    """Whether each row is above the one before it, the first column weighing most."""
    open_G = np.ones(len(gram_GO) - 1, dtype=bool)  # equal so far
    for column_G in gram_GO.T:
        if (open_G & (column_G[1:] < column_G[:-1])).any():
            return False
        open_G &= column_G[1:] == column_G[:-1]
    return not open_G.any()
