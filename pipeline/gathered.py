"""Texts by number, shard << 32 | row: columns of per-shard pieces for rows whose texts lie in any shard."""

from collections.abc import Mapping, Sequence

import polars as pl

from pipeline.store import Piece, Store

IN_SHARD = 2**32 - 1  # bits of a text's number that are its row in the shard's sentences


def numbered(row: pl.Expr, shard: int) -> pl.Expr:
    """Numbers of a shard's texts, of which the rows in its sentences are given."""
    return row.cast(pl.UInt64) + (shard << 32)


def gathered(store: Store, pieces: Mapping[int, Piece], column: str, text: pl.Series) -> pl.Series:
    """What one column says of some texts; see `columns`."""
    return columns(store, pieces, [column], text)[column]


def columns(store: Store, pieces: Mapping[int, Piece], names: Sequence[str], text: pl.Series) -> pl.DataFrame:
    """
    What some columns say of some texts; one shard is in memory at a time, and only those that hold one of the texts.

    Args:
        pieces: by shard number, row-aligned with the shard's sentences.
        text: at least one, as in table `batches`.
    """
    shard, row = text // (IN_SHARD + 1), text & IN_SHARD
    parts, places = [], []
    for number in shard.unique().sort():
        place = (shard == number).arg_true()
        parts.append(store.read(pieces[number], list(names)).select(pl.all().gather(row.gather(place))))
        places.append(place)
    if len(parts) == 1:
        return parts[0]
    return pl.concat(parts).select(pl.all().gather(pl.concat(places).arg_sort()))
