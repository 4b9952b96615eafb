"""Runs of one document in batches of their own: for methods that read a batch's runs in order."""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import polars as pl

from pipeline.tables import FILLER

Run = tuple[int, int]  # number of a run, and its document


def apart(rows: pl.DataFrame, size: int) -> pl.DataFrame:
    """
    The same rows in an order in which a batch of `size` rows holds one run of a document, as far as that goes.

    Batches are filled one after the other, each time by the first run whose document the batch does not hold yet; a run
    that reaches beyond a batch goes on in the next. Where only documents are left that the batch holds (one document
    is most of the corpus, or all of it), the first of their runs is taken: it is told from the others by its start, so
    nothing is mixed up, but sentences of one document are then each other's wrong answers more often (`beside`).

    Args:
        rows: columns document and place, runs one behind the other.
        size: rows of a batch.
    """
    start_R = starts(rows)
    length_R = np.diff([*start_R, len(rows)])
    order_R = _order(rows["document"].to_numpy()[start_R].tolist(), length_R.tolist(), size)
    return rows[np.concatenate([np.arange(start_R[r], start_R[r] + length_R[r]) for r in order_R])] if order_R else rows


def beside(rows: pl.DataFrame, size: int) -> int:
    """Runs in batches of `size` rows that stand beside another run of their document."""
    batch_R = starts(rows, size) // size
    runs = pl.DataFrame({"batch": batch_R, "document": rows["document"].gather(starts(rows, size))})
    real = runs.filter(rows["side"].gather(starts(rows, size)) != FILLER)
    return len(real) - len(real.unique())


def starts(rows: pl.DataFrame, size: int = 0) -> np.ndarray[Any, Any]:
    """Rows at which a run begins, [R]: at borders, at gaps, and with `size` at every batch."""
    document, place = rows["document"].to_numpy(), rows["place"].to_numpy().astype(np.int64)
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (document[1:] != document[:-1]) | (place[1:] != place[:-1] + 1)
    if size:
        begins[::size] = True
    return np.flatnonzero(begins)


def longest(rows: pl.DataFrame, size: int) -> int:
    """Rows of the longest run in batches of `size`."""
    return int(np.diff([*starts(rows, size), len(rows)]).max(initial=0))


def _order(document_R: list[int], length_R: list[int], size: int) -> list[int]:
    """The runs in their new order; time grows as n log n of them."""
    runs: dict[int, deque[int]] = {}
    for run, document in enumerate(document_R):
        runs.setdefault(document, deque()).append(run)
    free: list[Run] = [(own[0], document) for document, own in runs.items()]
    held: list[Run] = []  # of documents that the batch holds
    heapify(free)
    order, filled = [], 0
    while free or held:
        run, document = heappop(free or held)
        order.append(runs[document].popleft())
        filled += length_R[run]
        if filled >= size:
            filled %= size
            for waiting in held:
                heappush(free, waiting)
            held = []
        if runs[document]:
            follows = (runs[document][0], document)
            heappush(held if filled else free, follows)
    return order
