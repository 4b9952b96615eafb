"""
Plain text and Markdown: files that are documents, and paragraphs that are records.
"""

from collections.abc import Iterable, Iterator

import polars as pl

from models.recipe import Corpus
from pipeline import rows
from pipeline.markdown import cleaned

Line = str | bytes  # bytes where they are not UTF-8


def text(name: str, data: bytes, corpus: Corpus) -> pl.DataFrame:
    """Raw rows of a text file: paragraphs, or with `corpus.lines` a sentence a line."""
    lines = _lines(data)
    if corpus.lines:
        return _frame(name, _each_line(name, lines), corpus)
    return _frame(name, _paragraphs(name, ((row, "", line) for row, line in lines), corpus.longest), corpus)


def markdown(name: str, data: bytes, corpus: Corpus) -> pl.DataFrame:
    """Raw rows of a Markdown file: its paragraphs and list items without markup, each under its heading."""
    return _frame(name, _paragraphs(name, cleaned(_lines(data)), corpus.longest), corpus)


def _lines(data: bytes) -> list[tuple[int, Line]]:
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return list(enumerate(data.decode().split("\n"), 1))
    except UnicodeDecodeError:
        pairs = [(line, rows.decoded(line)[0]) for line in data.split(b"\n")]
        return [(row, line if text is None else text) for row, (line, text) in enumerate(pairs, 1)]


def _each_line(name: str, lines: list[tuple[int, Line]]) -> Iterator[tuple[int, str, str, Line]]:
    number, ended = 0, True
    for row, line in lines:
        if isinstance(line, str) and not line.strip():
            ended = True
            continue
        number, ended = number + ended, False
        yield row, f"{name}:{number}", "", line.strip()


def _paragraphs(
    name: str, lines: Iterable[tuple[int, str, Line]], longest: int
) -> Iterator[tuple[int, str, str, Line]]:
    """
    First row, document, title and text of each paragraph.

    A line that cannot be used stands alone, and cuts its paragraph. One that would grow too long is cut at a line end.
    """
    held: list[str] = []
    size, begun, under = 0, 0, ""
    for row, title, line in lines:
        plain = line.strip()
        alone = isinstance(plain, bytes) or len(plain) > longest
        if held and (alone or not plain or size + 1 + len(plain) > longest):
            yield begun, name, under, " ".join(held)
            held = []
        if alone:
            yield row, name, title, plain
        elif isinstance(plain, str) and plain:
            if not held:
                size, begun, under = -1, row, title
            held.append(plain)
            size += 1 + len(plain)
    if held:
        yield begun, name, under, " ".join(held)


def _frame(name: str, records: Iterable[tuple[int, str, str, Line]], corpus: Corpus) -> pl.DataFrame:
    found = list(records) or [(1, name, "", "")]  # a file without text is told, not dropped
    pairs = [rows.decoded(line) if isinstance(line, bytes) else (line, None) for *_, line in found]
    nothing = [None] * len(found)
    return pl.DataFrame(
        {
            "source": [name] * len(found),
            "row": [row for row, *_ in found],
            "id": [document for _, document, _, _ in found],
            "title": [title for _, _, title, _ in found],
            "language": nothing,
            "text": [text for text, _ in pairs],
            "reason": [reason for _, reason in pairs],
            "excerpt": [rows.excerpt(line) if isinstance(line, bytes) else None for *_, line in found],
        }
        | {f"order {column}": nothing for column in corpus.order},
        schema=rows.schema(corpus),
    )
