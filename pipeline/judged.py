"""
Judged answers: rows of a question, an answer and whether it is right become the question and its answers, in order.

A question's rows are a document, or where the recipe says otherwise several questions are; a text without a label
begins the next.
"""

import polars as pl

from models.recipe import Corpus
from pipeline import rows

RIGHT = {"1": 1, "1.0": 1, "0": 0, "0.0": 0}  # as a table with gaps writes whole numbers
RECORDS = rows.RECORDS | {"label": pl.UInt8()}


def label() -> pl.Expr:
    """1 right, 0 wrong; null: no such label."""
    return pl.col("label").str.strip_chars().replace_strict(RIGHT, default=None, return_dtype=pl.UInt8)


def mislabelled(corpus: Corpus) -> pl.Expr:
    """What is wrong with a row's label; null: nothing."""
    got = pl.col("label").replace("", None).fill_null("nothing").str.head(rows.EXCERPT)
    why = "no label in column `{}`: got {}; should be 1 for a right answer or 0 for a wrong one; label or drop the row"
    return pl.when(label().is_null()).then(pl.format(why, pl.lit(corpus.label), got))


def records(frame: pl.DataFrame) -> pl.DataFrame:
    """
    A question, then its answers as they stand in the file, then the next question of the document.

    Args:
        frame: rows of all documents, each document's in one run; those with a `reason` keep their place and give
            nothing. The rows of one question may lie apart within their document.
    Returns:
        Records as `pipeline.sources.read` has them, with `label`: null for questions, 1 and 0 for answers.
    """
    asked = pl.col("text 0").str.replace_all(r"\s+", " ").str.strip_chars()
    frame = frame.with_row_index("at").with_columns(asked=asked.forward_fill().backward_fill().over("id"))
    frame = frame.with_columns(first=pl.col("at").min().over("id", "asked"), start=pl.col("at").min().over("id"))
    frame = frame.sort("start", "first", "at").with_columns(is_good=pl.col("reason").is_null())
    begins = (pl.col("is_good") & (pl.col("is_good").cum_sum() == 1)).over("id", "asked")
    frame = frame.with_columns(begins=begins)
    place = pl.int_range(pl.len()).over("id") + pl.col("begins").cum_sum().over("id").cast(pl.Int64)
    good = frame.with_columns(place=place.cast(pl.UInt32)).filter("is_good").with_row_index("nth")
    questions = good.filter("begins").with_columns(
        text=pl.col("text 0"), place=pl.col("place") - 1, label=pl.lit(None, pl.UInt8), part=pl.lit(0)
    )
    answers = good.with_columns(text=pl.col("text 1"), label=label(), part=pl.lit(1))
    both = pl.concat([part.select("nth", "part", *RECORDS) for part in (questions, answers)])
    return both.sort("nth", "part").select(list(RECORDS))
