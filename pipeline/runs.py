"""Runs: neighbouring sentences of a document that stand together in a batch, each once, and answer each other."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import polars as pl

from pipeline.gathered import numbered
from pipeline.merged import among
from pipeline.tables import BATCHES, BOTH, FILLER, schema


def shard_runs(
    sentences: pl.DataFrame,
    tokens: pl.DataFrame,
    pairs: pl.DataFrame,
    held_out: pl.Series,
    shard: int,
    run: int,
    draw: np.random.Generator,
    ordered: bool = False,
) -> pl.DataFrame:
    """
    A shard's training rows, cut into runs of at most `run` neighbours; the first cut of each stretch is drawn anew.

    Args:
        ordered: whoever reads the batches wants to know where a row's sentence stands.
    Returns:
        One row a sentence, in order: the columns of `batches` without `answers`, `positives` (texts), `run` (number of
        the run in this shard), and document and place if `ordered`.
    """
    positives = pairs.group_by("anchor", maintain_order=True).agg("positive")
    rows = pl.concat([sentences.with_row_index("row"), tokens], how="horizontal")
    rows = rows.join(positives, left_on="row", right_on="anchor", how="left", maintain_order="left")
    rows = rows.filter(~pl.col("held_out") & ~among(rows["group"], held_out))
    first = (pl.col("document") != pl.col("document").shift(1)) | (pl.col("place") != pl.col("place").shift(1) + 1)
    rows = rows.with_columns(stretch=first.fill_null(True).cum_sum())
    offset = pl.Series("offset", draw.integers(0, run, size=cast(int, rows["stretch"].max() or 0) + 1), dtype=pl.UInt32)
    inside = pl.int_range(pl.len(), dtype=pl.UInt32).over("stretch")
    rows = rows.with_columns(inside=inside, offset=offset.gather(rows["stretch"])).with_columns(
        cut=(pl.col("inside") + pl.col("offset")) // run
    )
    new_run = (pl.col("stretch") != pl.col("stretch").shift(1)) | (pl.col("cut") != pl.col("cut").shift(1))
    return rows.select(
        text=numbered(pl.col("row"), shard),
        tokens="tokens",
        group="group",
        positives=pl.col("positive").fill_null([]).list.eval(numbered(pl.element(), shard)),
        run=(new_run.fill_null(True).cum_sum() - 1).cast(pl.UInt32),
        **({"document": pl.col("document"), "place": pl.col("place")} if ordered else {}),
    )


def answered(rows: pl.DataFrame, size: int) -> pl.DataFrame:
    """
    Rows in batches of `size`, with the row numbers of those of their positives that are in the same batch.

    Args:
        rows: columns text, tokens, group, positives (texts); perhaps document and place, teacher, guide.
    Returns:
        Table `batches`; the answers of a row ascend.
    """
    numbered = rows.with_row_index("at").with_columns(batch=pl.col("at") // size, row=pl.col("at") % size)
    wanted = numbered.select("at", "batch", text="positives").explode("text", empty_as_null=True).drop_nulls("text")
    found = wanted.join(numbered.select("batch", "text", "row"), on=["batch", "text"], how="inner")
    answers = found.sort("at", "row").group_by("at", maintain_order=True).agg(answers=pl.col("row").cast(pl.UInt16))
    whole = numbered.join(answers, on="at", how="left", maintain_order="left")
    return BATCHES.check(
        whole.with_columns(pl.col("answers").fill_null([]), side=pl.lit(BOTH, pl.UInt8)).select(
            "text", pl.col("tokens"), "side", "group", "answers", pl.col("^(document|place|teacher|guide)$")
        )
    )


def fillers(columns: Sequence[str], count: int) -> pl.DataFrame:
    """Rows of table `batches` that are in no pool and no count."""
    empty = {"text": [0], "tokens": [[0]], "side": [FILLER], "group": [0], "answers": [[]], "view": [0], "hard": [[]]}
    empty |= {"document": [0], "place": [0], "target": [[]], "teacher": [[]], "guide": [[]]}
    one = pl.DataFrame({name: empty[name] for name in columns}, schema=schema(BATCHES, columns))
    return one.select(pl.all().gather([0] * count))
