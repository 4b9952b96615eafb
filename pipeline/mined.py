"""Mined negatives as rows of batches, beside the examples of their anchors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline import groups
from pipeline.gathered import gathered
from pipeline.store import Piece, Store


def rows(
    store: Store,
    negatives: Piece,
    sentences: Mapping[int, Piece],
    tokens: Mapping[int, Piece],
    kin: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """
    The negatives of a shard's anchors: `anchor` (row), `text`, `tokens` and `group`, by anchor and rank.

    Their tokens lie in any shard; one at a time is in memory.

    Args:
        kin: table `kin`, where documents are groups.
    """
    found = store.read(negatives, ["anchor", "rank", "candidate"]).sort("anchor", "rank")
    text = found["candidate"].alias("text")
    if found.is_empty():
        return found.select("anchor", text).with_columns(
            tokens=pl.lit([], pl.List(pl.Int32)), group=pl.lit(0, pl.UInt64)
        )
    group = gathered(store, sentences, "group" if kin is None else "document", text)
    group = group if kin is None else pl.Series(groups.classes(group.to_numpy(), kin), dtype=pl.UInt64)
    return pl.DataFrame([found["anchor"], text, gathered(store, tokens, "tokens", text), group.alias("group")])


def having(member_EV: NDArray[np.int64], mined: pl.DataFrame, count: int) -> tuple[NDArray[np.int64], int]:
    """The examples whose anchors have `count` negatives, and how many have not."""
    keep_E = _found(member_EV[:, 0], mined)[1] >= count
    return member_EV[keep_E], int((~keep_E).sum())


def _found(anchor_E: NDArray[np.int64], mined: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each anchor the first of its rows in `mined`, and how many there are."""
    anchor_N = mined["anchor"].to_numpy()
    first_E = np.searchsorted(anchor_N, anchor_E)
    return first_E, np.searchsorted(anchor_N, anchor_E, side="right") - first_E


def beside(
    own: pl.DataFrame, anchor_E: NDArray[np.int64], mined: pl.DataFrame, views: int, count: int
) -> tuple[pl.DataFrame, int]:
    """
    Rows of examples with their anchors' negatives behind, and how many negatives are missing.

    Args:
        own: rows of the views, as `examples.shard_rows` makes them.
        anchor_E: rows of the anchors in the shard's sentences.
    Returns:
        `views + count` rows an example; with `found`, how many negatives it has, and `is_filler`, where one is missing.
    """
    first_E, found_E = _found(anchor_E, mined)
    nth_C = np.arange(count)
    is_there_EC = nth_C < found_E[:, None]
    place = pl.Series(np.where(is_there_EC, first_E[:, None] + nth_C, len(mined)).ravel())
    filled = pl.concat([mined.select("text", "tokens", "group"), _filler()])
    more: dict[str, Any] = {
        "view": np.tile((views + nth_C).astype(np.uint8), len(anchor_E)),
        "run": np.repeat(np.arange(len(anchor_E), dtype=np.uint32), count),
        "is_filler": ~is_there_EC.ravel(),
    }
    behind = filled.select(pl.all().gather(place)).with_columns(**{k: pl.Series(k, v) for k, v in more.items()})
    if "target" in own.columns:
        behind = behind.with_columns(target=pl.lit([], own.schema["target"]))
    whole = pl.concat([own.with_columns(is_filler=False), behind.select(*own.columns, "is_filler")])
    whole = whole.sort("run", "view", maintain_order=True)
    found = pl.Series("found", np.repeat(found_E.clip(max=count), views + count), dtype=pl.Int64)
    return whole.with_columns(found), int((~is_there_EC).sum())


def _filler() -> pl.DataFrame:
    """What stands where there is no negative: in no pool and no count."""
    schema = {"text": pl.UInt64(), "tokens": pl.List(pl.Int32()), "group": pl.UInt64()}
    return pl.DataFrame({"text": [0], "tokens": [[0]], "group": [0]}, schema=schema)
