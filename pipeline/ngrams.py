"""
Counting n-grams out of core: the `counts` stage.

Each shard's n-grams are counted and written in ascending order, a piece each; merging reads all pieces side by side,
some rows at a time, and writes one file in the same order. So no more than a shard, or `batches.bucket_rows` rows of a
merge, is in memory at once.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from models.counting import windows
from models.counts_file import COUNT, columns
from pipeline.batches import BatchesError, Source
from pipeline.cluster import Progress, scratch, silent
from pipeline.groups import Known
from pipeline.manifest import Manifest, Stage, run
from pipeline.merged import among
from pipeline.store import ROW_GROUP, Piece, Store
from pipeline.tables import Column, Table

COUNTS_VERSION = 1
LEAST = 1_000  # rows that are read of a piece at once, at least
SIDES = 8  # tables that are merged at once: each block looks at all of them
U32, U64 = pl.UInt32(), pl.UInt64()


def table(order: int) -> Table:
    """The contract of counted n-grams."""
    about = {"word": "vocabulary number of the predicted word; V: the end of a sentence", COUNT: "times it was seen"}
    before = "the word so many places before it; V + 1: before the sentence"
    kept = columns(order)
    described = {name: Column(U64 if name == COUNT else U32, about.get(name, before)) for name in kept}
    return Table("counts", described, sort=tuple(kept[:-1]))


def counts(store: Store, source: Source, order: int, words: int, progress: Progress = silent) -> Manifest:
    """
    The n-grams of all training sentences, shard by shard.

    Args:
        words: entries of the vocabulary; the end symbol has this number.
    Raises:
        BatchesError: there is no training sentence.
    """
    left_out = [source.left_out.key] if source.left_out else []
    items = {
        number: (
            (piece.key, source.tokens[number].key, source.held_out.key, *left_out),
            (number, piece, source.tokens[number], source.held_out, source.left_out, order, words),
        )
        for number, piece in source.sentences.items()
    }
    made = run(store, Stage("counts", COUNTS_VERSION, make_counts, [order, words]), items, progress)
    if made.rows == 0:
        out = made.count("repeats_of_held_out")
        raise BatchesError(f"the corpus has no training sentence to count: give more text; {out} repeat held-out ones")
    return made


def make_counts(store: Store, key: str, item: tuple[int, Piece, Piece, Piece, Piece | None, int, int]) -> Piece:
    """Worker's part of stage `counts`: one shard."""
    started, (shard, sentences, tokens, held_out, left_out, order, words) = time.time(), item
    groups = store.read(held_out)["group"]
    known = Known(groups, left_out=store.read(left_out) if left_out else None)
    rows, out = known.barred(store.read(sentences, ["held_out", "group"]), shard)
    rows = rows.with_columns(store.read(tokens)["tokens"])
    training = rows.filter(~pl.col("held_out"))
    kept = training.filter(~among(training["group"], groups))["tokens"]
    frame = counted(kept, order, words)
    counts = {
        **out,
        "repeats_of_held_out": len(training) - len(kept),
        "texts": len(kept),
        "predicted": int(kept.list.len().sum()) + len(kept),
    }
    inputs = (sentences.key, tokens.key, held_out.key, *([left_out.key] if left_out else []))
    return store.write(table(order), key, frame, started=started, inputs=inputs, counts=counts)


def counted(tokens: pl.Series, order: int, words: int) -> pl.DataFrame:
    """The n-grams of some texts, each once, in ascending order."""
    id_N = tokens.explode(empty_as_null=False).to_numpy().astype(np.uint32)
    gram_PO = windows(id_N, tokens.list.len().to_numpy().astype(np.int64), order, words)
    names = columns(order)[:-1]
    rows = pl.DataFrame({name: gram_PO[:, at] for at, name in enumerate(names)})
    return rows.group_by(names).agg(pl.len().cast(U64).alias(COUNT)).sort(names)


def merge(store: Store, made: Manifest, order: int, rows: int, file: Path) -> int:
    """
    Write the sums over all pieces as one Parquet file in ascending order.

    Args:
        rows: rows in memory at once, about.
    Returns:
        Different n-grams.
    """
    names = columns(order)[:-1]
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        sources = [store.path(piece.file) for piece in made.pieces.values() if piece.rows]
        most = max(2, rows // LEAST)
        while len(sources) > most:
            parts = [sources[at : at + most] for at in range(0, len(sources), most)]
            files = [Path(place) / f"{len(sources)}-{number}.parquet" for number in range(len(parts))]
            for part, into in zip(parts, files, strict=True):
                _write(merged([_read(path, rows // most) for path in part], names), into)
            sources = [str(path) for path in files]
        each = max(LEAST, rows // max(1, len(sources)))
        return _write(merged([_read(path, each) for path in sources], names), file)


def merged(sources: Sequence[Iterator[pl.DataFrame]], names: list[str]) -> Iterator[pl.DataFrame]:
    """
    Rows of several ascending tables as one ascending table, equal n-grams added up, some rows at a time.

    Many are merged in a tree, a few at a time, so that the work grows with their rows and hardly with their number.
    """
    while len(sources) > SIDES:
        sources = [_beside(sources[at : at + SIDES], names) for at in range(0, len(sources), SIDES)]
    return _beside(sources, names)


def _beside(sources: Sequence[Iterator[pl.DataFrame]], names: list[str]) -> Iterator[pl.DataFrame]:
    """What is read of each table reaches to some n-gram; up to the least of those, nothing more can come."""
    waiting = {number: frame for number, source in enumerate(sources) if (frame := next(source, None)) is not None}
    while waiting:
        ends = pl.concat([frame.select(names).tail(1) for frame in waiting.values()])
        bound = ends.sort(names).row(0)
        ready = []
        for number, frame in list(waiting.items()):
            reached = frame.filter(_up_to(names, bound))
            ready.append(reached)
            if len(reached) < len(frame):
                waiting[number] = frame.slice(len(reached))
            elif (more := next(sources[number], None)) is not None:
                waiting[number] = more
            else:
                del waiting[number]
        yield pl.concat(ready).group_by(names).agg(pl.col(COUNT).sum()).sort(names)


def _up_to(names: Sequence[str], bound: tuple[int, ...]) -> pl.Expr:
    """Rows that are not above a bound, column by column."""
    first, here = pl.col(names[0]), pl.lit(bound[0], U32)
    if len(names) == 1:
        return first <= here
    return (first < here) | ((first == here) & _up_to(names[1:], bound[1:]))


def _read(path: str, rows: int) -> Iterator[pl.DataFrame]:
    """A file's rows, some at a time; of one in a bucket polars reads them."""
    if "://" not in path:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(rows):
                yield pl.DataFrame(batch)
        return
    scan = pl.scan_parquet(path)
    for at in range(0, scan.select(pl.len()).collect().item(), rows):
        yield scan.slice(at, rows).collect()


def _write(frames: Iterator[pl.DataFrame], file: Path) -> int:
    writer, total = None, 0
    for frame in frames:
        arrow = frame.to_arrow()
        writer = writer or pq.ParquetWriter(file, arrow.schema, compression="zstd", compression_level=1)
        writer.write_table(arrow, row_group_size=ROW_GROUP)
        total += len(frame)
    if writer:
        writer.close()
    return total
