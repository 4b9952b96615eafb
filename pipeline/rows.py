"""
From raw rows of any format to records: documents named and kept together, bad rows put aside with their reason.

A reader hands over one raw row per record: strings as they stand in the file, and nothing where there is nothing.
"""

from collections.abc import Collection

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from models.recipe import Corpus
from pipeline import tables
from pipeline.shard import ColumnError, SourceError

EXCERPT = 80  # characters
RAW = {
    "source": pl.String(),
    "row": pl.UInt64(),
    "id": pl.String(),  # null: unknown
    "title": pl.String(),
    "language": pl.String(),
    "text": pl.String(),
    "reason": pl.String(),  # null: nothing wrong so far
    "excerpt": pl.String(),
}
RECORDS = {name: RAW[name] for name in ("source", "row", "id", "title", "language", "text")} | {"place": pl.UInt32()}


def schema(corpus: Corpus) -> dict[str, pl.DataType]:
    """
    Columns of raw rows: the order columns come as text too, and are compared as numbers where they all are.

    With `corpus.texts` the texts of a row stand in `text 0`, `text 1`, ... and `text` is empty.
    """
    more = [f"order {name}" for name in corpus.order] + [f"text {i}" for i in range(len(corpus.texts))]
    return RAW | {name: pl.String() for name in [*more, *(["label"] if corpus.label else [])]}


def texts(corpus: Corpus) -> tuple[str, ...]:
    """Columns that hold text."""
    return corpus.texts or (corpus.text,)


def named(corpus: Corpus) -> list[str]:
    """Columns that a recipe asks for, the texts first; `file` is no column of the file."""
    wanted = [*texts(corpus), corpus.label, *corpus.document, *corpus.order, corpus.title, corpus.language_column]
    return [name for name in dict.fromkeys(wanted) if name and name != "file"]


def naming(corpus: Corpus, there: Collection[str]) -> tuple[str, ...]:
    """Columns that together name a document; none: the file is a document, or with `corpus.texts` each row is one."""
    if corpus.document or corpus.label:
        return corpus.document or corpus.texts[:1]
    return ("id",) if "id" in there and "id" not in corpus.texts else ()


def unnamed(corpus: Corpus, columns: tuple[str, ...]) -> str:
    """What is wrong with a row whose document is not named."""
    if corpus.label and not corpus.document:
        return f"no value in column `{columns[0]}`; fill it in or drop the row"
    return f"no value in document column {', '.join(columns)}; fill it in"


def check_columns(source: str, corpus: Corpus, there: list[str]) -> None:
    """
    Raises:
        ColumnError: a column that the recipe names is not in the file; the message names those there.
    """
    if missing := [name for name in named(corpus) if name not in there]:
        raise ColumnError(
            f"{source}: no column {', '.join(missing)}; columns there: {', '.join(sorted(there)) or 'none'}; "
            f"set {'corpus.texts, corpus.label' if corpus.texts else 'corpus.text'}, corpus.document, corpus.order, "
            "corpus.title or corpus.language_column"
        )


def excerpt(value: bytes | str | None) -> str:
    """The first characters of a bad value, printable."""
    if value is None:
        return ""
    text = value[: EXCERPT * 4].decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:EXCERPT])


def from_columns(source: str, row: pl.Series, columns: dict[str, pa.Array], corpus: Corpus) -> pl.DataFrame:
    """Raw rows from columns of bytes, by name; the keys of a row may be null, its texts may be anything."""
    found = {name: _text(column) for name, column in columns.items()}
    keys = {name: text for name, (text, _) in found.items()} | {"file": pl.repeat(source, len(row), eager=True)}
    named_by = naming(corpus, keys.keys() - {corpus.text})
    is_each = bool(corpus.texts) and not named_by
    named_by = named_by or ("file",)
    nothing = pl.Series([None], dtype=pl.String()).new_from_index(0, len(row))
    bad, excerpts = _undecoded(columns, {name: bad for name, (_, bad) in found.items()}, corpus)
    values = {
        "source": keys["file"],
        "row": row.cast(pl.UInt64()),
        "id": _ids([keys[name] for name in named_by], row if is_each else None),
        "title": keys.get(corpus.title, nothing),
        "language": keys.get(corpus.language_column, nothing),
        "text": nothing if corpus.texts else keys[corpus.text],
        "reason": bad,
        "excerpt": excerpts,
        **{f"order {name}": keys[name] for name in corpus.order},
        **{f"text {i}": keys[name] for i, name in enumerate(corpus.texts)},
        **({"label": keys[corpus.label]} if corpus.label else {}),
    }
    frame = pl.DataFrame(values, schema=schema(corpus))
    why = pl.when(pl.col("id").is_null()).then(pl.lit(unnamed(corpus, named_by)))
    return frame.with_columns(reason=pl.coalesce("reason", why))


def finish(raw: pl.DataFrame, corpus: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Records and quarantine of a shard's raw rows.

    A row that cannot be used keeps its place in the document, so that its neighbours never pair across it; when its
    document is unknown too, it is the one of the row before.

    Raises:
        SourceError: rows of a document lie apart and `corpus.scattered` is not `sort`.
    """
    orders = [name for name in raw.columns if name.startswith("order ")]
    filled = ["id", *orders]
    frame = raw.with_columns(pl.col("text").str.strip_prefix("\ufeff")).with_columns(reason=_reason(corpus))
    frame = frame.with_columns(pl.col(filled).forward_fill().backward_fill().over("source"))
    frame = frame.with_columns(pl.coalesce("id", "source").alias("id"))
    frame = together(frame, corpus).with_columns(place=pl.int_range(pl.len(), dtype=pl.UInt32()).over("id"))
    good = frame.filter(pl.col("reason").is_null()).with_columns(
        pl.col("title").fill_null(""), pl.col("language").fill_null(corpus.language)
    )
    bad = frame.filter(pl.col("reason").is_not_null()).with_columns(pl.coalesce("excerpt", "text"))
    return good.select(list(RECORDS)), quarantine(bad)


def quarantine(bad: pl.DataFrame) -> pl.DataFrame:
    """Table `quarantine` of rows that were put aside, their excerpts short and printable."""
    short = [excerpt(value) for value in bad["excerpt"].str.head(EXCERPT)]
    return tables.QUARANTINE.check(bad.with_columns(pl.Series("excerpt", short, dtype=pl.String())))


def kinds(reasons: pl.Series) -> list[str]:
    """What is wrong without the details and the remedy, so that like reasons count together."""
    plain = reasons.str.extract(r"^([^:;]*)").str.replace_all(r"(^| )\d+", "${1}…")
    return [str(kind) for kind in plain.str.strip_chars()]


def _reason(corpus: Corpus) -> pl.Expr:
    text, length = pl.col("text"), pl.col("text").str.len_chars()
    long = pl.format("text of {} characters; corpus.longest is {}", length, pl.lit(corpus.longest))
    return pl.coalesce(
        "reason",
        pl.when(text.is_null()).then(pl.lit("text is missing; fill it in or drop the row")),
        pl.when(text.str.contains("\0", literal=True)).then(pl.lit("NUL in the text; is this a text file?")),
        pl.when(length > corpus.longest).then(long),
        pl.when(text.str.strip_chars() == "").then(pl.lit("text is blank; fill it in or drop the row")),
    )


def together(frame: pl.DataFrame, corpus: Corpus) -> pl.DataFrame:
    """
    The same rows with each document's in one run, sorted within it where the recipe says so.

    Raises:
        SourceError: rows of a document lie apart and `corpus.scattered` is not `sort`.
    """
    orders = [f"order {name}" for name in corpus.order]
    frame = frame.with_row_index("at").with_columns(run=pl.col("id").rle_id())
    if corpus.scattered == "refuse" and frame["run"].n_unique() > frame["id"].n_unique():
        seen = frame.group_by("run", maintain_order=True).first().filter(pl.col("id").is_duplicated())
        back = seen.filter(~pl.col("id").is_first_distinct()).row(0, named=True)
        raise SourceError(
            f"{back['source']}, row {back['row']}: document {back['id']} comes back after rows of another; "
            "put its rows together, or set corpus.scattered=sort"
        )
    first = pl.col("at").min().over("id")
    keys = [_numbers(frame[name]) for name in orders]
    return frame.with_columns(keys).sort(first, *orders, "at", nulls_last=True).drop("run", "at")


def _numbers(column: pl.Series) -> pl.Series:
    for kind in (pl.Int64(), pl.Float64()):
        numbers = column.cast(kind, strict=False)
        if numbers.null_count() == column.null_count():
            return numbers
    return column


def _text(column: pa.Array) -> tuple[pl.Series, pl.Series]:
    """Bytes as text, and what is wrong with each (null: nothing)."""
    try:
        text = pl.Series(pc.cast(column, pa.large_string()), dtype=pl.String())
        return text, pl.Series([None], dtype=pl.String()).new_from_index(0, len(text))
    except pa.ArrowInvalid:
        pairs = [decoded(value) for value in column.to_pylist()]
    return pl.Series([p[0] for p in pairs], dtype=pl.String()), pl.Series([p[1] for p in pairs], dtype=pl.String())


def decoded(value: bytes | None) -> tuple[str | None, str | None]:
    """A value as text, and what is wrong with it (None: nothing)."""
    try:
        return (None if value is None else value.decode()), None
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start} of the value; convert the file, as with iconv -t UTF-8"


def _ids(names: list[pl.Series], row: pl.Series | None) -> pl.Series:
    """Names of documents (null: one is missing), and the number of the row behind where a row is a document."""
    picked = pl.DataFrame({str(i): name for i, name in enumerate(names)})
    whole = picked.select(pl.concat_str(pl.all().replace("", None), separator="/")).to_series()
    return whole if row is None else whole + "#" + row.cast(pl.String())


def _undecoded(columns: dict[str, pa.Array], bad: dict[str, pl.Series], corpus: Corpus) -> tuple[pl.Series, pl.Series]:
    """Of each row what cannot be decoded in its texts, and the first characters of that (null: nothing)."""
    reasons, excerpts = [], []
    for name in [*texts(corpus), *([corpus.label] if corpus.label else [])]:
        if bad[name].null_count() < len(bad[name]):
            values = [excerpt(columns[name][i].as_py()) if why is not None else None for i, why in enumerate(bad[name])]
            excerpts.append(pl.Series(values, dtype=pl.String()))
            reasons.append(f"column `{name}` is " + bad[name] if corpus.texts else bad[name])
    nothing = pl.Series([None], dtype=pl.String()).new_from_index(0, len(bad[texts(corpus)[0]]))
    return pl.select(pl.coalesce(*reasons, nothing)).to_series(), pl.select(pl.coalesce(*excerpts, nothing)).to_series()
