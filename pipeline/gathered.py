"""Columns of per-shard pieces for rows whose texts lie in any shard."""

from collections.abc import Mapping

import polars as pl

from pipeline.store import Piece, Store

IN_SHARD = 2**32 - 1  # bits of a text's number that are its row in the shard's sentences


def gathered(store: Store, pieces: Mapping[int, Piece], column: str, text: pl.Series) -> pl.Series:
    """
    What a column says of some texts; one shard is in memory at a time, and only those that hold one of the texts.

    Args:
        pieces: by shard number, row-aligned with the shard's sentences.
        text: at least one, as in table `batches`.
    """
    shard, row = text // (IN_SHARD + 1), text & IN_SHARD
    parts, places = [], []
    for number in shard.unique().sort():
        place = (shard == number).arg_true()
        parts.append(store.read(pieces[number], [column])[column].gather(row.gather(place)))
        places.append(place)
    return parts[0] if len(parts) == 1 else pl.concat(parts).gather(pl.concat(places).arg_sort())
