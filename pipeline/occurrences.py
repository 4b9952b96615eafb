"""
Texts that stand more than once: boilerplate, which many documents have, and repeats, of which the first may do.

Each shard keeps how often its texts stand in it, so a grown corpus counts its new shards alone.
"""

import time
from collections.abc import Mapping

import polars as pl

from pipeline import merged
from pipeline.store import Piece, Store
from pipeline.tables import OCCURRENCES

OCCURRENCES_VERSION = 1
BOILERPLATE, REPEAT = "boilerplate", "repeat"


def often(
    store: Store, sentences: Mapping[int, Piece], boilerplate: int, share: float, repeats: bool
) -> list[pl.DataFrame]:
    """
    Texts that stand too often, as parts of table `left_out`.

    Args:
        boilerplate, share: a text in so many documents, and in this share of all that have any sentence, is
            boilerplate, and all of it is left out; held-out documents count. 0 documents: nothing is boilerplate.
        repeats: of any other text that several training sentences say the first stays: that of the lowest shard, and
            there of the lowest row.
    """
    pieces = merged.small(store, OCCURRENCES, OCCURRENCES_VERSION, sentences, shard_occurrences)
    documents = sum(piece.counts["documents"] for piece in pieces.values())
    found = []
    for rows in merged.ranges(store, pieces, "group"):
        whole = rows.group_by("group").agg(
            pl.col("documents", "texts").sum(),
            first=(pl.col("row").cast(pl.UInt64) + pl.col("shard").cast(pl.UInt64) * 2**32).min(),
        )
        is_line = (pl.col("documents") >= max(boilerplate, 1)) & (pl.col("documents") / documents >= share)
        is_line &= pl.lit(boilerplate > 0)
        reason = (
            pl.when(is_line)
            .then(pl.lit(BOILERPLATE))
            .when(pl.lit(repeats) & (pl.col("texts") > 1))
            .then(pl.lit(REPEAT))
        )
        out = whole.with_columns(reason=reason).drop_nulls("reason")
        found.append(out.select("group", "reason", first=pl.when(pl.col("reason") == REPEAT).then("first")))
    return found


def shard_occurrences(store: Store, key: str, sentences: Piece) -> Piece:
    """How often each text stands in a shard, and how many documents it has."""
    started, rows = time.time(), store.read(sentences, ["group", "document", "held_out"]).with_row_index("row")
    training = pl.col("row").filter(~pl.col("held_out"))
    frame = rows.group_by("group").agg(
        documents=pl.col("document").n_unique(), texts=training.len(), row=training.min()
    )
    counts = {"documents": rows["document"].n_unique()}
    return store.write(OCCURRENCES, key, frame, started=started, inputs=(sentences.key,), counts=counts)
