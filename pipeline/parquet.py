"""
Parquet: cut into row ranges between documents, and known by the values of the columns that are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from models.recipe import Corpus
from pipeline import files, rows
from pipeline.shard import Chunk, ColumnError, SourceError

BATCH = 4096  # rows decoded at a time
PAGES = 1 << 20  # bytes that are read at a time, or arrow holds a row group's whole column, however large it is


class Values:
    """
    A digest of values: the same for the same columns, however rows are grouped, compressed or batched.

    Lengths and bytes of each column run through hashers of their own, because a batch holds a part of every column.
    """

    def __init__(self) -> None:
        self._hashers: dict[str, tuple[xxhash.xxh3_128, xxhash.xxh3_128]] = {}

    def update(self, columns: dict[str, pa.Array]) -> None:
        """Take the next rows."""
        for name, column in columns.items():
            lengths, bytes_ = self._hashers.setdefault(name, (xxhash.xxh3_128(), xxhash.xxh3_128()))
            lengths.update(_lengths(column, -1).tobytes())
            _, offsets, values = column.buffers()
            if len(column):
                ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
                bytes_.update(memoryview(values or b"")[ends[0] : ends[-1]])

    def hexdigest(self) -> str:
        """32 hex digits."""
        parts = [f"{name} {a.hexdigest()} {b.hexdigest()}" for name, (a, b) in sorted(self._hashers.items())]
        return xxhash.xxh3_128("\n".join(parts).encode()).hexdigest()


def chunks(file: files.File, corpus: Corpus) -> list[Chunk]:
    """
    Row ranges of about `corpus.shard_bytes` of text each, cut where the document changes.

    Where the cuts fall depends on the rows before them only, so rows that are appended leave earlier chunks alone.

    Raises:
        SourceError: the file is broken, or lacks a column.
    """
    found, values, size, start, at = [], Values(), 0, 0, 0
    previous: pl.DataFrame | None = None
    cutting = corpus.scattered == "refuse"  # rows that lie apart can be sorted only where they are all at hand
    with _opened(file.uri, file.relative) as source:
        for columns in _batches(source, file.relative, corpus):
            changes, previous = _changes(columns, _keys(source, corpus), previous)
            lengths = sum(_lengths(columns[name], 0) for name in rows.texts(corpus))
            ends = np.concatenate([[0], np.cumsum(lengths)])
            if corpus.texts and not rows.naming(corpus, columns):
                changes = np.arange(len(ends) - 1)  # each row is a document
            begin = 0
            while cutting and (cut := _cut(changes, ends, begin, corpus.shard_bytes - size)) is not None:
                values.update(_sliced(columns, begin, cut))
                found.append(Chunk(values.hexdigest(), start, at + cut, start + 1))
                values, size, start, begin = Values(), 0, at + cut, cut
            values.update(_sliced(columns, begin, None))
            size, at = size + int(ends[-1] - ends[begin]), at + len(ends) - 1
    return [*found, Chunk(values.hexdigest(), start, at if found else -1, start + 1, empty=at == 0)]


def raw(uri: str, name: str, chunk: Chunk, corpus: Corpus) -> tuple[pl.DataFrame, str]:
    """
    Raw rows of a chunk, and the digest of its values.

    Raises:
        SourceError: the file is broken, or lacks a column.
    """
    values, frames = Values(), [pl.DataFrame(schema=rows.schema(corpus))]
    with _opened(uri, name) as source:
        group, at = _group(source, chunk.start)
        for columns in _batches(source, name, corpus, group):
            length = len(columns[rows.texts(corpus)[0]])
            stop = length if chunk.stop < 0 else min(length, chunk.stop - at)
            begin = max(0, chunk.start - at)
            if begin < stop:
                part = _sliced(columns, begin, stop)
                values.update(part)
                frames.append(
                    rows.from_columns(name, pl.int_range(at + begin + 1, at + stop + 1, eager=True), part, corpus)
                )
            at += length
            if 0 <= chunk.stop <= at:
                break
    return pl.concat(frames), values.hexdigest()


@contextmanager
def _opened(uri: str, name: str) -> Iterator[pq.ParquetFile]:
    with files.open_file(uri) as stream:
        try:
            yield pq.ParquetFile(stream, buffer_size=PAGES, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"{name}: broken Parquet: {error}; write the file again or move it away") from None


def _keys(source: pq.ParquetFile, corpus: Corpus) -> list[str]:
    return [column for column in rows.naming(corpus, source.schema_arrow.names) if column != "file"]


def _group(source: pq.ParquetFile, row: int) -> tuple[int, int]:
    """The row group in which a row stands, and that group's first row; of a row beyond the end, the last one's."""
    first = 0
    for number in range(source.num_row_groups - 1):
        after = first + source.metadata.row_group(number).num_rows
        if row < after:
            return number, first
        first = after
    return max(0, source.num_row_groups - 1), first


def _batches(source: pq.ParquetFile, name: str, corpus: Corpus, group: int = 0) -> Iterator[dict[str, pa.Array]]:
    """The columns that are needed, as arrays of bytes, from a row group on; a part of a group is in memory at once."""
    rows.check_columns(name, corpus, source.schema_arrow.names)
    wanted = list(dict.fromkeys([*rows.named(corpus), *_keys(source, corpus)]))
    for column in wanted:
        _check_type(name, column, source.schema_arrow.field(column).type, column in rows.texts(corpus))
    for batch in source.iter_batches(BATCH, row_groups=list(range(group, source.num_row_groups)), columns=wanted):
        yield {column: _bytes(batch.column(column)) for column in wanted}


def _check_type(name: str, column: str, kind: pa.DataType, is_text: bool) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    textual = any(is_(inner) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    textual = textual or any(
        is_(inner) for is_ in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    )
    if is_text and not (textual or pa.types.is_null(inner)):
        raise ColumnError(f"{name}: column {column} is {kind}; text must be a string column; set corpus.text or texts")
    if pa.types.is_nested(inner):
        raise ColumnError(f"{name}: column {column} is {kind}; names, labels and order must be text, numbers or dates")


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_large_binary(column.type) and not pa.types.is_binary(column.type):
        column = column if pa.types.is_string(column.type) else pc.cast(column, pa.large_string())
    return pc.cast(column, pa.large_binary())


def _lengths(column: pa.Array, missing: int) -> np.ndarray:
    return pc.fill_null(pc.binary_length(column), missing).to_numpy(zero_copy_only=False).astype(np.int64)


def _sliced(columns: dict[str, pa.Array], begin: int, stop: int | None) -> dict[str, pa.Array]:
    return {name: column[begin:stop] for name, column in columns.items()}


def _changes(
    columns: dict[str, pa.Array], keys: list[str], before: pl.DataFrame | None
) -> tuple[np.ndarray, pl.DataFrame]:
    """Rows of the batch at which another document begins than in the row before, and its last row's names."""
    here = pl.DataFrame({key: pl.Series(columns[key], dtype=pl.Binary()) for key in keys})
    if not keys:
        return np.empty(0, np.int64), here
    joined = here if before is None else pl.concat([before, here])
    differs = [pl.col(key).ne_missing(pl.col(key).shift()) for key in keys]
    moved = joined.select(pl.any_horizontal(differs)).to_series().to_numpy()
    return np.flatnonzero(moved[0 if before is None else 1 :]), here.tail(1)


def _cut(changes: np.ndarray, ends: np.ndarray, begin: int, wanted: int) -> int | None:
    """First change from `begin` on with at least `wanted` bytes of text before it."""
    enough = changes[ends[changes] - ends[begin] >= wanted]
    return int(enough[0]) if len(enough) else None
