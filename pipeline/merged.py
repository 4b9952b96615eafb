"""
Answers that need the whole corpus, from a small piece of each shard: a grown corpus adds those of its new shards.

The small pieces hold digests, so they are compared a range of digests at a time, and memory does not grow with them.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.cluster import scratch
from pipeline.manifest import Stage, run
from pipeline.store import Piece, Store
from pipeline.tables import Table

RANGE_ROWS = 4_000_000  # rows that are compared at once, about
FEW = 64  # small pieces that are made in this process, some hundredths of a second each


def small(
    store: Store,
    table: Table,
    version: int,
    pieces: Mapping[int, Piece],
    make: Callable[[Store, str, Piece], Piece],
) -> Mapping[int, Piece]:
    """
    For each shard its piece of `table`, made from its piece of another one where it is not there yet.

    Args:
        make: writes the piece of a key from a shard's piece; a function that travels to workers.
    """
    items = {number: ((piece.key,), piece) for number, piece in pieces.items()}
    return run(store, Stage(table.name, version, make, "shard"), items, alone=FEW, lasting=False).pieces


def ranges(store: Store, pieces: Mapping[int, Piece], column: str, most: int = RANGE_ROWS) -> Iterator[pl.DataFrame]:
    """
    All rows of some pieces, and their `shard`, by ranges of a column: equal values come together, ranges ascend.

    Args:
        column: digests, spread evenly over 64 bits.
        most: rows of a range, about; so many are in memory, and as many again while they are read.
    """
    bits = max(0, (-(-sum(piece.rows for piece in pieces.values()) // most) - 1).bit_length())
    numbered = (_numbered(store, number, piece) for number, piece in pieces.items() if piece.rows)
    if bits == 0:
        frames = list(numbered)
        yield from [pl.concat(frames)] if frames else []
        return
    folder = Path(tempfile.mkdtemp(prefix="firth-merged-", dir=scratch()))
    try:
        _scatter(numbered, column, bits, most, folder)
        for part in sorted(folder.iterdir()):
            yield pl.concat([pl.read_ipc_stream(file) for file in sorted(part.iterdir())])
    finally:
        shutil.rmtree(folder)


def among(digests: pl.Series, known: pl.Series) -> pl.Series:
    """
    Whether each digest is one of the known ones.

    Where those are sorted, as tables are, nothing is made of them that grows with their number; a hash table, made
    anew for each shard of a corpus that holds so many, would take time that grows as its square.
    """
    _, found = _places(digests, known if known.is_sorted() else known.sort())
    return pl.Series(digests.name, found)


def looked_up(digests: pl.Series, known: pl.Series, values: pl.Series) -> pl.Series:
    """
    The value of each digest; null where it has none.

    Args:
        known, values: digests, ascending, and what stands beside them.
    """
    place, found = _places(digests, known)
    return values.gather(pl.select(pl.when(pl.Series(found)).then(pl.Series(place))).to_series())


def _places(digests: pl.Series, ordered: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Where each digest stands among ascending ones, and whether it does."""
    known, wanted = ordered.to_numpy(), digests.to_numpy()
    if not len(known):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    order = np.argsort(wanted)  # neighbours look at neighbouring places: four times as fast
    place = np.empty(len(wanted), dtype=np.int64)
    place[order] = np.minimum(np.searchsorted(known, wanted[order]), len(known) - 1)
    return place, known[place] == wanted


def _numbered(store: Store, number: int, piece: Piece) -> pl.DataFrame:
    return store.read(piece).with_columns(shard=pl.lit(number, pl.UInt32))


def _scatter(frames: Iterator[pl.DataFrame], column: str, bits: int, most: int, folder: Path) -> None:
    """A folder for each range, and in it a file each time that `most` rows have come together."""
    waiting: list[pl.DataFrame] = []
    times = 0

    def write() -> None:
        rows = pl.concat(waiting).with_columns(range=pl.col(column) // pl.lit(2 ** (64 - bits), pl.UInt64))
        for (number,), part in rows.partition_by("range", as_dict=True, include_key=False).items():
            place = folder / f"{number:08d}"
            place.mkdir(exist_ok=True)
            part.write_ipc_stream(place / f"{times:08d}", compression="lz4")

    for frame in frames:
        waiting.append(frame)
        if sum(map(len, waiting)) >= most:
            write()
            waiting, times = [], times + 1
    if waiting:
        write()
