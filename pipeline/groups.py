"""
Groups of similar texts: a document is one. Each epoch draws two different members of it, which are then a pair.

All members of a group have one number, so that none is ever the wrong answer of another; groups that share a text have
the same one, wherever in the corpus they stand.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline import merged
from pipeline.merged import among, looked_up
from pipeline.ragged import Flags, even, keys, part
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import KIN, TEXTS

KIN_VERSION = 1
OUT = "left_out."  # before a reason: the name of its count


def drawn(pairs: pl.DataFrame, barred_R: Flags, draw: np.random.Generator) -> NDArray[np.int64]:
    """
    Two different members of each group, in drawn order, [E, 2].

    Args:
        pairs: table `pairs` with `members`, a row a group.
        barred_R: sentences that must not be drawn; a group that has not two others is left out.
        draw: one number a group is taken, so what is drawn of a group depends on no other.
    """
    key = pl.Series("key", keys(draw, len(pairs)), dtype=pl.UInt64)
    rows = pairs.select("members", key).with_row_index("at").explode("members", empty_as_null=True)
    rows = rows.filter(~pl.Series(barred_R[rows["members"].to_numpy()]))
    left = rows.group_by("at", maintain_order=True).agg("members", pl.col("key").first())
    left = left.filter(pl.col("members").list.len() > 1)
    key_E, count_E = left["key"].to_numpy(), left["members"].list.len().to_numpy().astype(np.int64)
    one_E = (even(part(key_E, 0)) * count_E).astype(np.int64)
    step_E = 1 + (even(part(key_E, 1)) * (count_E - 1)).astype(np.int64)
    flat = left["members"].explode(empty_as_null=False).to_numpy().astype(np.int64)
    first_E = np.cumsum(count_E) - count_E
    return np.stack([flat[first_E + one_E], flat[first_E + (one_E + step_E) % count_E]], axis=1)


def counts(sentences: pl.DataFrame, pairs: pl.DataFrame) -> dict[str, int]:
    """Training groups of which there is no pair: of one member, and of several that all say the same."""
    size = sentences.filter(~pl.col("held_out")).group_by("document").agg(members=pl.len())
    paired = sentences["document"].gather(pairs["anchor"]).unique()
    alone = size.filter(~pl.col("document").is_in(paired.implode()))["members"]
    return {"groups_of_one": int((alone == 1).sum()), "groups_of_one_text": int((alone > 1).sum())}


def numbers(sentences: pl.DataFrame, kin: pl.DataFrame) -> pl.Series:
    """The number of each sentence's group."""
    rows = sentences.select("document").join(kin, on="document", how="left", maintain_order="left")
    return rows.select(pl.coalesce("group", "document").alias("group")).to_series()


def classes(number_N: NDArray[np.uint64], kin: pl.DataFrame | None) -> NDArray[np.uint64]:
    """The same for numbers alone: what mining compares."""
    if kin is None:
        return number_N
    rows = pl.DataFrame({"document": pl.Series(number_N, dtype=pl.UInt64)})
    return numbers(rows, kin).to_numpy()


@dataclass(frozen=True)
class Known:
    """
    What is known of texts by their groups, read once for all shards.

    Args:
        held_out: groups of held-out texts.
        joined: table `joined`; None: each group is a class of its own.
        left_out: table `left_out`; None: nothing is.
        kin: table `kin`, where documents are groups.
    """

    held_out: pl.Series
    joined: pl.DataFrame | None = None
    left_out: pl.DataFrame | None = None
    kin: pl.DataFrame | None = None

    def classes(self, group: pl.Series) -> pl.Series:
        """The number that each group has in batches."""
        if self.joined is None:
            return group
        found = looked_up(group, self.joined["group"], self.joined["joined"])
        return pl.select(pl.coalesce(found, group).alias(group.name)).to_series()

    def barred(self, sentences: pl.DataFrame, shard: int) -> tuple[pl.DataFrame, dict[str, int]]:
        """
        A shard's sentences, those that are left out being marked as held out, so that nobody trains on them; and how
        many training sentences each reason takes. What repeats a held-out text is counted as such alone.
        """
        if self.left_out is None:
            return sentences, {}
        reason = looked_up(sentences["group"], self.left_out["group"], self.left_out["reason"])
        out = reason.is_not_null() & ~sentences["held_out"] & ~among(sentences["group"], self.held_out)
        if "first" in self.left_out.columns:
            first = looked_up(sentences["group"], self.left_out["group"], self.left_out["first"])
            out &= first.ne_missing(pl.int_range(len(first), dtype=pl.UInt64, eager=True) + (shard << 32))
        counts = {OUT + name: times for name, times in reason.filter(out).value_counts().iter_rows()}
        return sentences.with_columns(held_out=sentences["held_out"] | out), counts


def kindred(store: Store, sentences: Mapping[int, Piece]) -> Piece:
    """Groups that share a text, one with another or through a third, each with the number that they have together."""
    inputs = tuple(sorted(piece.key for piece in sentences.values()))
    key = piece_key("kin", KIN_VERSION, {}, inputs)
    return store.once(KIN, key, inputs, lambda: _joined(_shared(store, sentences)))


def _shared(store: Store, sentences: Mapping[int, Piece]) -> pl.DataFrame:
    """Texts that stand in more than one document, and those documents."""
    found = [TEXTS.empty()]
    for rows in merged.ranges(store, standing(store, sentences), "group"):
        found.append(rows.select("group", "document").filter(pl.col("group").is_duplicated()))
    return pl.concat(found)


def standing(store: Store, sentences: Mapping[int, Piece]) -> Mapping[int, Piece]:
    """Table `texts` of each shard."""
    return merged.small(store, TEXTS, KIN_VERSION, sentences, shard_texts)


def shard_texts(store: Store, key: str, sentences: Piece) -> Piece:
    """A shard's texts and the documents in which they stand."""
    started, rows = time.time(), store.read(sentences, ["group", "document"])
    return store.write(TEXTS, key, rows.unique(), started=started, inputs=(sentences.key,))


def _joined(shared: pl.DataFrame) -> pl.DataFrame:
    """Table `kin` of documents and their texts: the least of all numbers in reach, until no one changes."""
    rows = shared.with_columns(least="document")
    while True:
        least = pl.col("least").min().over("group")
        spread = rows.with_columns(least).with_columns(pl.col("least").min().over("document"))
        if spread["least"].equals(rows["least"]):
            return KIN.check(rows.select("document", group="least").unique())
        rows = spread
