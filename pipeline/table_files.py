"""
Tables that people keep in files: CSV, TSV, JSONL or Parquet, one, or all those of a folder or glob behind each other;
or folders of parallel lines.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import files, parallel
from pipeline.shard import SourceError

KINDS = ("csv", "jsonl", "parquet")

Numbered = tuple[int, dict[str, Any]]  # row of a file, and its values by column


@dataclass(frozen=True)
class Columns:
    """
    Names of the columns that are wanted, and of the options that name them: `left, right and score`.

    `header` names all columns of CSV and TSV files whose first line does not; .txt is then TSV too. `parallel` takes
    each file of a folder for a column, and its lines for rows.
    """

    names: tuple[str, ...]
    options: str
    header: tuple[str, ...] = ()
    parallel: bool = False

    def check(self, source: str, there: list[str]) -> None:
        """
        Raises:
            SourceError: a column is missing, or there twice; the message names those there.
        """
        missing = [name for name in dict.fromkeys(self.names) if name not in there]
        if missing:
            raise SourceError(
                f"{source}: no column {', '.join(missing)}; columns there: {', '.join(there) or 'none'}; set "
                f"{self.options}, and give the file a first line that names its columns"
            )
        if twice := [name for name in self.names if there.count(name) > 1]:
            raise SourceError(f"{source}: column {twice[0]} is there twice; columns: {', '.join(there)}; rename one")


@dataclass(frozen=True)
class Row:
    """Values by column, the file that they stand in, and its line or row, from 1."""

    source: str
    row: int
    values: dict[str, Any]

    @property
    def place(self) -> str:
        """As messages say it."""
        return f"{self.source}, row {self.row}"

    def text(self, column: str) -> str:
        """
        A text, its white space collapsed.

        Raises:
            SourceError: it is empty, no text, or cannot be written as UTF-8.
        """
        value = self.values.get(column)
        if value is not None and not isinstance(value, str):
            raise SourceError(f"{self.place}: {column} is {type(value).__name__}, should be a text; quote it")
        text = " ".join((value or "").split())
        if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise SourceError(f"{self.place}: {column} holds half of a surrogate pair; write the text as UTF-8")
        if not text:
            raise SourceError(f"{self.place}: {column} is empty; fill it in or drop the row")
        return text

    def blank(self, column: str) -> bool:
        """Whether there is no value."""
        value = self.values.get(column)
        return value is None or (isinstance(value, str) and not value.strip())


def rows(path: str, columns: Columns) -> Iterator[Row]:
    """
    Rows of all files, in order of their names.

    Raises:
        SourceError: no file, no column, or a file that cannot be read.
    """
    if columns.parallel:
        for folder in _folders(path, columns):
            for row, values in _parallel(folder):
                yield Row(folder.name, row, values)
        return
    for file in _tables(path, bool(columns.header)):
        for row, values in _rows(file, columns):
            yield Row(file.relative, row, values)


def digest(path: str, columns: Columns | None = None) -> str:
    """Digest of the files' names and bytes: what the rows are read from."""
    found = _tables(path, bool(columns and columns.header)) if not (columns and columns.parallel) else []
    if columns and columns.parallel:
        found = [file for folder in _folders(path, columns) for file in folder.columns.values()]
    state = hashlib.sha256()
    for file in found:
        state.update(f"{file.relative}\0{hashlib.sha256(files.content(file.uri)).hexdigest()}\n".encode())
    return state.hexdigest()


def name(path: str) -> str:
    """A path's last part that is no wildcard, without its suffixes; letters, digits, `_` and `-` are kept."""
    parts = [part for part in PurePosixPath(path).parts if not re.search(r"[*?\[]", part)]
    stem = PurePosixPath(parts[-1] if parts else "")
    while stem.suffix in files.PACKINGS or stem.suffix.lower() in files.KINDS:
        stem = stem.with_suffix("")
    return re.sub(r"[^\w-]+", "-", str(stem)).strip("-")


def _folders(path: str, columns: Columns) -> list[parallel.Folder]:
    return parallel.folders(path, files.listing(path)[1], columns.names, columns.options)


def _parallel(folder: parallel.Folder) -> Iterator[Numbered]:
    found = {name: parallel.lines(file.uri, files.content(file.uri)) for name, file in folder.columns.items()}
    parallel.check_lengths({folder.columns[name].relative: len(lines) for name, lines in found.items()})
    decoded = [_decoded(folder.columns[name].relative, b"\n".join(lines)).split("\n") for name, lines in found.items()]
    for row, values in enumerate(zip(*decoded, strict=True), 1):
        yield row, dict(zip(found, values, strict=True))


def _tables(path: str, texts: bool = False) -> list[files.File]:
    """Files of a kind with columns, `texts` among them; others beside them, as a licence, are passed over."""
    _, found = files.listing(path)
    tables = [file for file in found if file.kind in KINDS or (texts and file.kind == "text")]
    if refused := [file for file in tables if file.refused]:
        raise SourceError(f"{refused[0].relative}: {refused[0].refused}")
    if not tables:
        suffixes = ", ".join(suffix for suffix, kind in files.KINDS.items() if kind in KINDS)
        raise SourceError(f"{path}: no table among {len(found)} files; known suffixes: {suffixes}")
    return tables


def _rows(file: files.File, columns: Columns) -> Iterator[Numbered]:
    source, data = file.relative, files.unpack(file.uri, files.content(file.uri))
    if file.kind == "parquet":
        yield from _parquet(source, data, columns)
    elif file.kind == "jsonl":
        yield from _jsonl(source, _decoded(source, data), columns)
    else:
        yield from _delimited(source, _decoded(source, data), not files.by_commas(source), columns)


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{source}, line {line}: not UTF-8; convert the file, as with iconv -t UTF-8") from None


def _delimited(source: str, text: str, tabs: bool, columns: Columns) -> Iterator[Numbered]:
    """Rows from 1, below the header if there is one, blank lines left out."""
    form: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), **form)
    row = 0
    try:
        header = list(columns.header) or next(reader, [])
        columns.check(source, header)
        for values in filter(None, reader):
            row += 1
            if len(values) != len(header):
                remedy = "no tab may stand in a text" if tabs else "quote or mend the line"
                raise SourceError(f"{source}, row {row}: {len(values)} values, should be {len(header)}; {remedy}")
            yield row, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise SourceError(f"{source}, row {row + 1}: not CSV: {error}; close or double the quote") from None


def _jsonl(source: str, text: str, columns: Columns) -> Iterator[Numbered]:
    """Objects with the number of their line."""
    found: list[Numbered] = []
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


def _parquet(source: str, data: bytes, columns: Columns) -> Iterator[Numbered]:
    try:
        table = pq.ParquetFile(pa.BufferReader(data))
        columns.check(source, table.schema_arrow.names)
        found = table.read(list(dict.fromkeys(columns.names))).to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{source}: broken Parquet: {error}; write the file again or move it away") from None
    yield from enumerate(found, 1)
