"""
Pairs of sentences that people rated, from a table file, or from all those of a folder or glob put behind each other.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import files
from pipeline.shard import SourceError

KINDS = ("csv", "jsonl", "parquet")
LEAST = 3  # pairs; of two, a rank correlation is always 100 or -100
SCHEMA = {"source": pl.String, "row": pl.UInt64, "left": pl.String, "right": pl.String, "gold": pl.Float64}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # float() would take 1_0 and nan too

Row = tuple[int, dict[str, Any]]  # number in the file, and values by column


@dataclass(frozen=True)
class Columns:
    """Names of the two texts' columns and of the score's."""

    left: str
    right: str
    score: str

    def check(self, source: str, there: list[str]) -> None:
        """
        Raises:
            SourceError: a column is missing, or there twice; the message names those there.
        """
        wanted = (self.left, self.right, self.score)
        missing = [name for name in dict.fromkeys(wanted) if name not in there]
        if missing:
            raise SourceError(
                f"{source}: no column {', '.join(missing)}; columns there: {', '.join(there) or 'none'}; set left, "
                "right and score, and give the file a first line that names its columns"
            )
        if twice := [name for name in wanted if there.count(name) > 1]:
            raise SourceError(f"{source}: column {twice[0]} is there twice; columns: {', '.join(there)}; rename one")


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
    for file in _tables(path):
        for row, values in _rows(file, columns):
            gold = _score(file.relative, row, columns.score, values.get(columns.score))
            if gold is None:
                unscored += 1
                continue
            sides = (_text(file.relative, row, name, values.get(name)) for name in (columns.left, columns.right))
            found.append((file.relative, row, *sides, gold))
    pairs = pl.DataFrame(found, schema=SCHEMA, orient="row")
    if len(pairs) < LEAST:
        raise SourceError(f"{path}: {len(pairs)} scored pairs, {unscored} without a score; should be {LEAST} or more")
    if pairs["gold"].n_unique() == 1:
        raise SourceError(
            f"{path}: Spearman undefined: all {len(pairs)} pairs have the {columns.score} {pairs['gold'][0]:g}; "
            "give pairs that people rated differently, or name another column as score"
        )
    return Rated(pairs, unscored)


def digest(path: str) -> str:
    """Digest of the files' names and bytes: what the pairs are read from."""
    state = hashlib.sha256()
    for file in _tables(path):
        state.update(f"{file.relative}\0{hashlib.sha256(files.content(file.uri)).hexdigest()}\n".encode())
    return state.hexdigest()


def name(path: str) -> str:
    """A path's last part that is no wildcard, without its suffixes; letters, digits, `_` and `-` are kept."""
    parts = [part for part in PurePosixPath(path).parts if not re.search(r"[*?\[]", part)]
    stem = PurePosixPath(parts[-1] if parts else "")
    while stem.suffix in files.PACKINGS or stem.suffix.lower() in files.KINDS:
        stem = stem.with_suffix("")
    return re.sub(r"[^\w-]+", "-", str(stem)).strip("-")


def _tables(path: str) -> list[files.File]:
    """Files of a kind with columns; others beside them, as a licence, are passed over."""
    _, found = files.listing(path)
    tables = [file for file in found if file.kind in KINDS]
    if refused := [file for file in tables if file.refused]:
        raise SourceError(f"{refused[0].relative}: {refused[0].refused}")
    if not tables:
        suffixes = ", ".join(suffix for suffix, kind in files.KINDS.items() if kind in KINDS)
        raise SourceError(f"{path}: no table among {len(found)} files; known suffixes: {suffixes}")
    return tables


def _rows(file: files.File, columns: Columns) -> Iterator[Row]:
    source, data = file.relative, files.unpack(file.uri, files.content(file.uri))
    if file.kind == "parquet":
        yield from _parquet(source, data, columns)
    elif file.kind == "jsonl":
        yield from _jsonl(source, _decoded(source, data), columns)
    else:
        yield from _delimited(source, _decoded(source, data), ".tsv" in PurePosixPath(source).suffixes, columns)


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{source}, line {line}: not UTF-8; convert the file, as with iconv -t UTF-8") from None


def _delimited(source: str, text: str, tabs: bool, columns: Columns) -> Iterator[Row]:
    """Rows below the header, from 1, blank lines left out."""
    form: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), **form)
    row = 0
    try:
        header = next(reader, [])
        columns.check(source, header)
        for values in filter(None, reader):
            row += 1
            if len(values) != len(header):
                remedy = "no tab may stand in a text" if tabs else "quote or mend the line"
                raise SourceError(f"{source}, row {row}: {len(values)} values, should be {len(header)}; {remedy}")
            yield row, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise SourceError(f"{source}, row {row + 1}: not CSV: {error}; close or double the quote") from None


def _jsonl(source: str, text: str, columns: Columns) -> Iterator[Row]:
    """Objects with the number of their line."""
    found: list[Row] = []
    for row, line in enumerate(text.split("\n"), 1):
        if not line or line.isspace():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{source}, row {row}: not JSON: {error}; mend or drop the line") from None
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise SourceError(f"{source}, row {row}: a JSON {kind}, should be an object on one line")
        found.append((row, value))
    columns.check(source, list(dict.fromkeys(name for _, value in found for name in value)))
    yield from found


def _parquet(source: str, data: bytes, columns: Columns) -> Iterator[Row]:
    try:
        table = pq.ParquetFile(pa.BufferReader(data))
        columns.check(source, table.schema_arrow.names)
        wanted = [columns.left, columns.right, columns.score]
        rows = table.read(list(dict.fromkeys(wanted))).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{source}: broken Parquet: {error}; write the file again or move it away") from None
    yield from enumerate(rows, 1)


def _score(source: str, row: int, column: str, value: Any) -> float | None:
    """A score as a number; None where there is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = math.nan
    if NUMBER.fullmatch(value.strip()) if isinstance(value, str) else _is_number(value):
        with suppress(OverflowError):  # a whole number of more than 308 digits
            number = float(value)
    if not math.isfinite(number):
        raise SourceError(
            f"{source}, row {row}: {column} is {value!r}, should be a number as 3.5; mend it, or leave it empty where "
            "the pair was not scored"
        )
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(source: str, row: int, column: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise SourceError(f"{source}, row {row}: {column} is {type(value).__name__}, should be a text; quote it")
    text = " ".join((value or "").split())
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise SourceError(f"{source}, row {row}: {column} holds half of a surrogate pair; write the text as UTF-8")
    if not text:
        raise SourceError(f"{source}, row {row}: {column} is empty; fill it in or drop the row")
    return text
