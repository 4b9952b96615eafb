"""
JSON lines: cut into byte ranges between documents, and read line by line.
"""

import json
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

import polars as pl
import xxhash

from models.recipe import Corpus
from pipeline import files, rows
from pipeline.shard import Chunk

BLOCK = 1 << 20
Row = tuple[Any, ...]


def chunks(file: files.File, corpus: Corpus) -> list[Chunk]:
    """
    Byte ranges of about `corpus.shard_bytes` each, cut at a line end where the document changes.

    Where the cuts fall depends on the bytes before them only (and the line behind), so lines that are appended leave
    earlier chunks alone.
    """
    found, first_row = [], 1
    with files.open_file(file.uri) as stream:
        for start, stop in _ranges(stream, file, corpus):
            stream.seek(start)
            digest, lines = digest_lines(stream, stop - start)
            whole = start == 0 and stop == file.size
            found.append(Chunk(digest, start, -1 if whole else stop, first_row))
            first_row += lines
    return found


def raw(name: str, data: bytes, first_row: int, corpus: Corpus) -> pl.DataFrame:
    """
    Raw rows of the lines of some bytes.

    Raises:
        SourceError: no line has a column that the recipe names; those there are named.
    """
    parsed = list(_parsed(data.removeprefix(b"\xef\xbb\xbf"), first_row))
    there = set().union(*(value for _, value, _ in parsed if value))
    if parsed and first_row == 1 and any(value for _, value, _ in parsed):
        rows.check_columns(name, corpus, list(there))
    document = rows.naming(corpus, there) or (() if corpus.texts else ("file",))
    columns = list(zip(*(_row(name, item, document, corpus) for item in parsed), strict=True))
    schema = rows.schema(corpus)
    return pl.DataFrame(dict(zip(schema, columns, strict=True)) if columns else None, schema=schema)


def _ranges(stream: BufferedReader, file: files.File, corpus: Corpus) -> Iterator[tuple[int, int]]:
    start = 0
    while start < file.size:
        stop = file.size
        if corpus.scattered == "refuse" and start + corpus.shard_bytes < file.size:
            stream.seek(start + corpus.shard_bytes)
            stop = _change(stream, corpus)
        yield start, stop
        start = stop


def _change(stream: BufferedReader, corpus: Corpus) -> int:
    """Where the first whole line begins whose document is not that of the line before; lines of none go with it."""
    stream.readline()
    before: Any = None
    at = stream.tell()
    while line := stream.readline():
        value = _loads(line)
        if isinstance(value, dict):
            document = rows.naming(corpus, value)
            here = [value.get(column) for column in document if column != "file"]
            if corpus.texts and not document:
                here = [at]  # each row is a document
            if before is not None and here != before:
                return at
            before = here
        at = stream.tell()
    return at


def digest_lines(stream: BufferedReader, length: int) -> tuple[str, int]:
    """Digest and number of lines of the next `length` bytes."""
    hasher, lines = xxhash.xxh3_128(), 0
    while length > 0 and (block := stream.read(min(BLOCK, length))):
        hasher.update(block)
        lines += block.count(b"\n")
        length -= len(block)
    return hasher.hexdigest(), lines


def _loads(line: bytes | str) -> Any:
    try:
        return json.loads(line.decode() if isinstance(line, bytes) else line)
    except (ValueError, RecursionError):
        return None


def _parsed(data: bytes, first_row: int) -> Iterator[tuple[int, dict[str, Any] | None, bytes | str]]:
    """Number, value (none: unusable) and source of each line that is not blank."""
    lines: list[str | bytes]
    try:
        lines = [*data.decode().split("\n")]
    except UnicodeDecodeError:
        lines = [*data.split(b"\n")]
    for row, line in enumerate(lines, first_row):
        if line and not line.isspace():
            value = _loads(line)
            yield row, value if isinstance(value, dict) else None, line


def _row(name: str, item: tuple[int, Any, bytes | str], document: tuple[str, ...], corpus: Corpus) -> Row:
    """One raw row, its values in the order of `rows.schema`."""
    row, value, line = item
    if value is None:
        return _unusable(name, row, line, _why(line), corpus)
    keys = [name if column == "file" else _plain(value.get(column)) for column in document]
    texts = [value.get(column) for column in rows.texts(corpus)]
    is_named, reason = None not in keys and "" not in keys, None
    known = ("/".join(map(str, keys)) if keys else f"{name}#{row}") if is_named else None
    if not is_named:
        reason = rows.unnamed(corpus, document)
    elif odd := [i for i, text in enumerate(texts) if not isinstance(text, str | None)]:
        column = f"column `{corpus.texts[odd[0]]}`" if corpus.texts else corpus.text
        reason = f"{column} is {type(texts[odd[0]]).__name__}, should be a string; quote it"
    texts = [text if isinstance(text, str) else None for text in texts]
    more = [_plain(value.get(column)) for column in corpus.order] + (texts if corpus.texts else [])
    more += [_plain(value.get(corpus.label))] if corpus.label else []
    rest = (_plain(value.get(corpus.title)), _plain(value.get(corpus.language_column)))
    whole = (name, row, known, *rest, None if corpus.texts else texts[0], reason, None, *more)
    if "\\u" in (line if isinstance(line, str) else line.decode(errors="replace")) and not _sound(whole):
        return _unusable(name, row, line, "half of a surrogate pair; write the text as UTF-8", corpus)
    return whole if reason is None else (*whole[:7], rows.excerpt(line), *more)


def _unusable(name: str, row: int, line: bytes | str, reason: str, corpus: Corpus) -> Row:
    """A raw row of which nothing can be used."""
    told = {"source": name, "row": row, "reason": reason, "excerpt": rows.excerpt(line)}
    return tuple(told.get(column) for column in rows.schema(corpus))


def _plain(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) else None


def _sound(values: Row) -> bool:
    try:
        "".join(value for value in values if isinstance(value, str)).encode()
        return True
    except UnicodeEncodeError:
        return False


def _why(line: bytes | str) -> str:
    text, reason = rows.decoded(line) if isinstance(line, bytes) else (line, None)
    if reason is not None:
        return reason
    try:
        return f"a JSON {type(json.loads(text or '')).__name__}, should be an object on one line"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error or 'nested too deep'}; mend or drop the line"
