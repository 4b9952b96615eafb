"""Which texts belong together."""

import polars as pl

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


PAIRINGS = {"neighbours": neighbours}
