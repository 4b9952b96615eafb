"""
Labelled rows: a row is an example (an anchor, its positive, perhaps a hard negative), or a judged pair, and the judged
pairs of a premise are made into triples; judged answers to questions stay what they are.

The texts of an example follow one another in its document, and none of them is ever lost alone.
"""

import polars as pl

from models.recipe import Corpus
from pipeline import judged, rows, tables

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
LABELS = {
    name: label
    for number, label in enumerate((ENTAILMENT, NEUTRAL, CONTRADICTION))
    for name in (label, label[0], str(number), f"{number}.0")  # as a table with gaps writes whole numbers
}
KNOWN = "entailment, neutral and contradiction, or e, n and c, or 0, 1 and 2"


def finish(raw: pl.DataFrame, corpus: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Records and quarantine of a shard's raw rows, as `pipeline.rows.finish`.

    A row with a text that cannot be used is put aside as a whole, and keeps its places in its document. With
    `corpus.label` places count triples, and a premise of which no triple can be made is put aside at its first row;
    with `corpus.labels = "right"` they count a question and its answers, and records have a `label`.

    Raises:
        SourceError: rows of a document lie apart and `corpus.scattered` is not `sort`.
    """
    texts = [pl.col(f"text {i}") for i in range(len(corpus.texts))]
    frame = raw.with_columns(text.str.strip_prefix("\ufeff") for text in texts).with_columns(reason=_reason(corpus))
    frame = frame.with_columns(pl.coalesce("excerpt", *_telling(texts, corpus)))
    frame = frame.with_columns(pl.col("title").fill_null(""), pl.col("language").fill_null(corpus.language))
    apart = frame.filter(pl.col("id").is_null())
    frame = rows.together(frame.filter(pl.col("id").is_not_null()), corpus)
    wrong = frame.filter(pl.col("reason").is_not_null())
    bad = pl.concat(part.select(list(tables.QUARANTINE.columns)) for part in (apart, wrong))
    if corpus.asks:
        return judged.records(frame), rows.quarantine(bad)
    if corpus.label:
        records, lost = _triples(frame.filter(pl.col("reason").is_null()))
        return records, rows.quarantine(pl.concat([bad, lost]))
    numbered = frame.with_columns(example=pl.int_range(pl.len()).over("id"))
    good = numbered.filter(pl.col("reason").is_null())
    parts = [good.with_columns(text=text, place=_place(i, len(texts))) for i, text in enumerate(texts)]
    return _records(parts), rows.quarantine(bad)


def _reason(corpus: Corpus) -> pl.Expr:
    wrong = [_wrong(pl.col(f"text {i}"), name, corpus.longest) for i, name in enumerate(corpus.texts)]
    mislabelled = judged.mislabelled if corpus.asks else _mislabelled
    return pl.coalesce("reason", *wrong, *([mislabelled(corpus)] if corpus.label else []))


def _wrong(text: pl.Expr, name: str, longest: int) -> pl.Expr:
    """What is wrong with a text of column `name`; null: nothing."""
    length = text.str.len_chars()
    long = pl.format(
        "text of {} characters in column `{}`; corpus.longest is {}", length, pl.lit(name), pl.lit(longest)
    )
    none = f"no value in column `{name}`; fill it in or drop the row"
    return (
        pl.when(text.is_null() | (text.str.strip_chars() == ""))
        .then(pl.lit(none))
        .when(text.str.contains("\0", literal=True))
        .then(pl.lit(f"NUL in column `{name}`; is this text?"))
        .when(length > longest)
        .then(long)
        .when(~text.str.contains(r"[\p{L}\p{N}]"))
        .then(pl.lit(f"neither letter nor digit in column `{name}`; write a sentence or drop the row"))
    )


def _label() -> pl.Expr:
    """One of the three labels; null: no such label."""
    return pl.col("label").str.strip_chars().str.to_lowercase().replace_strict(LABELS, default=None)


def _mislabelled(corpus: Corpus) -> pl.Expr:
    got = pl.col("label").fill_null("nothing").str.head(rows.EXCERPT)
    name = pl.lit(corpus.label)
    why = pl.format("no label in column `{}`: got {}; known: {}; label or drop the row", name, got, pl.lit(KNOWN))
    return pl.when(_label().is_null()).then(why)


def _telling(texts: list[pl.Expr], corpus: Corpus) -> list[pl.Expr]:
    """Texts by which a bad row is known: the first that cannot be used, or else the first that is there."""
    there = [pl.when(text.str.strip_chars() != "").then(text) for text in texts]
    wrong = [_wrong(text, name, corpus.longest).is_not_null() for text, name in zip(texts, corpus.texts, strict=True)]
    bad = [pl.when(is_wrong).then(text) for is_wrong, text in zip(wrong, there, strict=True)]
    return [pl.when(pl.col("reason").is_not_null()).then(text) for text in bad + there]


def _triples(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Records of a premise, an entailed and a contradicted hypothesis, and the premises of which there are not both.

    The i-th entailed hypothesis stands with the i-th contradicted one; the shorter list begins again.
    """
    group = ["id", "text 0"]  # a document may hold several premises
    frame = frame.with_columns(label=_label())
    is_entailed, is_contradicted = pl.col("label") == ENTAILMENT, pl.col("label") == CONTRADICTION
    counted = frame.group_by(group, maintain_order=True).agg(
        pl.col("source", "row").first(), entailed=is_entailed.sum(), contradicted=is_contradicted.sum()
    )
    is_whole = (pl.col("entailed") > 0) & (pl.col("contradicted") > 0)
    lost = counted.filter(~is_whole).select("source", "row", reason=_without(), excerpt=pl.col("text 0"))
    counted = counted.filter(is_whole)
    sides = []
    numbers = counted.with_columns(turn=pl.int_ranges(pl.max_horizontal("entailed", "contradicted"), dtype=pl.UInt32()))
    numbers = numbers.explode("turn").with_columns(example=pl.int_range(pl.len()).over("id"))
    for count, is_of in (("entailed", is_entailed), ("contradicted", is_contradicted)):
        of = frame.filter(is_of).with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32()).over(group))
        asked = numbers.select(*group, "example", nth=pl.col("turn") % pl.col(count))
        sides.append(asked.join(of, on=[*group, "nth"], how="left", maintain_order="left"))
    entailed, contradicted = sides
    chosen = [(entailed, "text 0"), (entailed, "text 1"), (contradicted, "text 1")]
    parts = [side.with_columns(text=pl.col(text), place=_place(i, 3)) for i, (side, text) in enumerate(chosen)]
    return _records(parts), lost


def _without() -> pl.Expr:
    """Why a premise gives no triple."""
    none = [pl.when(pl.col(kind) == 0).then(pl.lit(f"no {kind} hypothesis")) for kind in ("entailed", "contradicted")]
    return pl.format(
        "premise with {}; a triple needs one of each", pl.concat_str(none, separator=" and ", ignore_nulls=True)
    )


def _place(text: int, texts: int) -> pl.Expr:
    return (pl.col("example") * texts + text).cast(pl.UInt32())


def _records(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """First, second, ... texts of the same examples, put example by example."""
    whole = pl.concat([part.select(list(rows.RECORDS)).with_row_index("at") for part in parts])
    return whole.sort("at", maintain_order=True).drop("at")
