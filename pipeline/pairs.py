"""
Which texts belong together.

Of an *example* all texts stand next to each other in a batch: `views` says how many rows it has there. A question and
its answers have as many as there are. Neighbours make no examples but runs of sentences, each of which stands in a
batch once.
"""

from collections.abc import Callable
from typing import Annotated

import polars as pl
from pydantic import Field

from pipeline.tables import PAIRS

PAIRS_VERSION = 1
FARTHEST = 127  # sentences; what `distance` can hold


def neighbours(sentences: pl.DataFrame, *, context_size: int = 1) -> pl.DataFrame:
    """
    Pair each sentence with those up to `context_size` places away in its own document.

    A place that is missing (its sentence went to quarantine) is a place: nobody is paired across it at distance 1.

    Args:
        sentences: rows of table `sentences`, sorted; row numbers are theirs.
        context_size: sentences either way.
    Returns:
        Table `pairs`; `distance` counts sentences from anchor to positive.
    Raises:
        ValueError: no such context.
    Source:
        Logeswaran and Lee 2018, section 3: the context of a sentence.
    """
    if not 1 <= context_size <= FARTHEST:
        raise ValueError(f"pairs.context_size is {context_size}; from 1 to {FARTHEST} sentences either way")
    rows = sentences.lazy().select("document", pl.col("place").cast(pl.Int64)).with_row_index("row")
    steps = range(1, context_size + 1)  # present rows are at least as near as their places
    pairs = pl.concat([_beside(rows, step * sign) for step in steps for sign in (-1, 1)])
    near = pairs.filter(pl.col("distance").abs() <= context_size)
    return PAIRS.check(near.with_columns(pl.col("distance").cast(pl.Int8)).collect())


def _beside(rows: pl.LazyFrame, step: int) -> pl.LazyFrame:
    other = lambda column: pl.col(column).shift(-step)
    same = pl.col("document") == other("document")
    pair = rows.select(
        anchor="row", positive=other("row"), distance=pl.when(same).then(other("place") - pl.col("place"))
    )
    return pair.drop_nulls()


def single(sentences: pl.DataFrame) -> pl.DataFrame:
    """
    Pair each sentence with itself: what differs is how its two rows are augmented or encoded.

    Args:
        sentences: rows of table `sentences`; row numbers are theirs.
    Returns:
        Table `pairs`; `distance` is 0.
    Source:
        Gao, Yao and Chen 2021, section 3: dropout as the only difference.
    """
    row = pl.int_range(pl.len(), dtype=pl.UInt32)
    return PAIRS.check(sentences.select(anchor=row, positive=row, distance=pl.lit(0, pl.Int8)))


def pairs(sentences: pl.DataFrame) -> pl.DataFrame:
    """
    Pair the sentences of a document two by two: place 0 with 1, 2 with 3; a place whose partner is missing has no pair.

    Args:
        sentences: rows of table `sentences`, sorted; row numbers are theirs.
    Returns:
        Table `pairs`; `distance` is 1.
    """
    return PAIRS.check(_examples(sentences, 2))


def triples(sentences: pl.DataFrame) -> pl.DataFrame:
    """
    Take the sentences of a document three by three: an anchor, its positive and a hard negative of its own.

    Args:
        sentences: rows of table `sentences`, sorted; row numbers are theirs.
    Returns:
        Table `pairs` with `negative`; a triple of which a place is missing is left out.
    Source:
        Gao, Yao and Chen 2021, equation 5: contradictions as hard negatives.
    """
    return PAIRS.check(_examples(sentences, 3))


def qa(sentences: pl.DataFrame, *, most: Annotated[int, Field(ge=0)] = 64) -> pl.DataFrame:
    """
    Pair each question with each of its right answers; its wrong ones stand beside, for all of them together.

    Args:
        sentences: rows of table `sentences` with `label`, sorted; row numbers are theirs. A text without a label
            begins a question.
        most: wrong answers of a question in an epoch; of more, each epoch draws others. 0: none but mined ones.
    Returns:
        Table `pairs` with `wrong`; `distance` is 1.
    """
    rows = (
        sentences.select("document", "label")
        .with_row_index("row", offset=0)
        .with_columns(question=pl.when(pl.col("label").is_null()).then("row").forward_fill().over("document"))
    )
    wrong = rows.filter(pl.col("label") == 0).group_by("question").agg(wrong=pl.col("row").sort())
    right = rows.filter(pl.col("label") == 1).join(wrong, on="question", how="left", maintain_order="left")
    found = right.select(
        anchor="question",
        positive="row",
        distance=pl.lit(1, pl.Int8),
        wrong=pl.col("wrong").fill_null(pl.lit([], pl.List(pl.UInt32))),
    )
    return PAIRS.check(found)


def groups(sentences: pl.DataFrame) -> pl.DataFrame:
    """
    Take each document as a group of similar texts, of which each epoch draws two.

    Args:
        sentences: rows of table `sentences`, sorted; row numbers are theirs.
    Returns:
        Table `pairs` with `members`, the first row of each of the group's different texts; `anchor` and `positive` are
        the first two of them. A group of one text has no row.
    """
    rows = sentences.lazy().select("document", "group").with_row_index("row")
    texts = rows.unique(["document", "group"], keep="first", maintain_order=True)
    found = texts.group_by("document", maintain_order=True).agg(members="row").filter(pl.col("members").list.len() > 1)
    member = lambda number: pl.col("members").list.get(number)
    return PAIRS.check(
        found.select("members", anchor=member(0), positive=member(1), distance=pl.lit(1, pl.Int8)).collect()
    )


def none(sentences: pl.DataFrame) -> pl.DataFrame:
    """No pairs: each sentence is an example of its own, as for masked words."""
    return PAIRS.empty()


def _examples(sentences: pl.DataFrame, views: int) -> pl.DataFrame:
    """Rows at places k v, k v + 1, ... of one document, where all of them are there."""
    rows = sentences.lazy().select("document", "place").with_row_index("row")
    beside = lambda step: (
        (pl.col("document").shift(-step) == pl.col("document"))
        & (pl.col("place").shift(-step) == pl.col("place") + step)
    )
    whole = rows.filter(pl.col("place") % views == 0, *(beside(step) for step in range(1, views)))
    named = {name: pl.col("row") + step for step, name in enumerate(("anchor", "positive", "negative")[:views])}
    return whole.select(**named, distance=pl.lit(1, pl.Int8)).collect()


PAIRINGS: dict[str, Callable[..., pl.DataFrame]] = {
    "neighbours": neighbours,
    "single": single,
    "pairs": pairs,
    "triples": triples,
    "groups": groups,
    "qa": qa,
    "none": none,
}
# Rows of an example; 0: runs instead. Of a question there are three kinds of rows: itself, right and wrong answers.
VIEWS = {"neighbours": 0, "single": 2, "pairs": 2, "triples": 3, "groups": 2, "qa": 3, "none": 1}
READS = {"qa": ("document", "place", "label"), "groups": ("document", "group")}  # columns of sentences, if others
