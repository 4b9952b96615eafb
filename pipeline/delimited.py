"""
CSV, quoted as RFC 4180 says, and TSV, which knows no quotes; the first line names the columns, or the recipe does.
"""

import polars as pl
import pyarrow as pa
from pyarrow import csv

from models.recipe import Corpus
from pipeline import rows
from pipeline.shard import SourceError

LARGEST_BLOCK = 1 << 30  # arrow counts a block in 32 bits


def raw(name: str, data: bytes, tabs: bool, corpus: Corpus) -> pl.DataFrame:
    """
    Raw rows of a whole file; `row` counts them from 1, below the header if there is one, blank lines left out.

    Raises:
        SourceError: no header, a column is missing, or the file cannot be cut into rows.
    """
    bad: list[tuple[int, str, str]] = []

    headers = 0 if corpus.columns else 1

    def put_aside(row: csv.InvalidRow) -> str:
        reason = f"{row.actual_columns} values, should be {row.expected_columns}; quote or mend the line"
        bad.append((row.number - headers, reason, rows.excerpt(row.text)))
        return "skip"

    table = _table(name, data, tabs, corpus, put_aside)
    columns = {column: table[column].combine_chunks().cast(pa.large_binary()) for column in table.column_names}
    aside = [number for number, _, _ in bad]
    numbers = pl.int_range(1, len(table) + len(bad) + 1, eager=True)
    good = rows.from_columns(name, numbers.filter(~numbers.is_in(aside)), columns, corpus)
    if not tabs and data.count(b'"') % 2 and len(good):
        good = _open_quote(good, corpus)
    lost = pl.DataFrame(
        {"source": [name] * len(bad), "row": aside, "reason": [b[1] for b in bad], "excerpt": [b[2] for b in bad]},
        schema_overrides=rows.RAW,
    )
    return pl.concat([good, lost], how="diagonal").select(good.columns).sort("row")


def _table(name: str, data: bytes, tabs: bool, corpus: Corpus, put_aside: object) -> pa.Table:
    blocks = max(1 << 16, min(len(data) + 1, LARGEST_BLOCK))
    read = csv.ReadOptions(use_threads=False, block_size=blocks, column_names=list(corpus.columns) or None)
    form = {"delimiter": "\t" if tabs else ",", "quote_char": False if tabs else '"', "newlines_in_values": not tabs}
    peek, parse = (csv.ParseOptions(**form, invalid_row_handler=handler) for handler in (lambda row: "skip", put_aside))
    try:
        header = csv.open_csv(pa.BufferReader(data), read, peek, csv.ConvertOptions(check_utf8=False)).schema.names
        rows.check_columns(name, corpus, header)
        wanted = list(dict.fromkeys([*rows.named(corpus), *rows.naming(corpus, header)]))
        wanted = [column for column in wanted if column != "file"]
        if twice := [column for column in wanted if header.count(column) > 1]:
            raise SourceError(f"{name}: column {twice[0]} is there twice; header: {', '.join(header)}; rename one")
        as_bytes = csv.ConvertOptions(
            check_utf8=False,
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.binary()),
        )
        return csv.read_csv(pa.BufferReader(data), read, parse, as_bytes)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{name}: cannot be read as CSV: {error}; mend the file or move it away") from None


def _open_quote(frame: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """A quote that is never closed swallows the rest of the file: put that last row aside."""
    last = pl.col("row") == frame["row"].max()
    texts = [f"text {i}" for i in range(len(corpus.texts))] or ["text"]
    swallowed = last & pl.any_horizontal(pl.col(texts).str.contains("\n", literal=True))
    reason = pl.lit("a quote is opened and never closed, and holds all lines to the end of the file; close it")
    return frame.with_columns(reason=pl.when(swallowed).then(reason).otherwise("reason"))
