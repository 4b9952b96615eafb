"""
What evaluations read stays out of training: texts of their files, and near repeats of these and of held-out texts.

Held-out texts are a tenth of a corpus, so near repeats are looked for band by band: one column of their sketches is in
memory at a time, and one shard's texts beside it. What a band holds to be the same is compared piece by piece.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
import sentencex
from numpy.typing import NDArray

from models.recipe import Recipe
from pipeline import near
from pipeline.cluster import Progress, silent
from pipeline.corpus import group
from pipeline.evaluate import GIVEN, completed
from pipeline.gathered import IN_SHARD, gathered, numbered
from pipeline.manifest import Manifest
from pipeline.merged import among, looked_up
from pipeline.store import Piece, Store

EVALUATED, NEAR_EVALUATED, NEAR_HELD_OUT = "evaluated", "near an evaluated one", "near a held-out one"
FILES = IN_SHARD  # the shard that texts of evaluation files would stand in: a number that no shard has
FIRST = FILES << 32  # the number of the first of them
ALIKE = 5  # texts of one digest in a band, with which another of that digest is compared
BLOCK = 1_000_000  # candidates whose texts are in memory at once
U64 = pl.UInt64()


def texts(recipe: Recipe) -> pl.Series:
    """
    Texts of all files that the recipe's evaluations read, the watched ones too, each once.

    A corpus of running text is cut into sentences, so theirs stand beside them, cut in the same way.
    """
    found: dict[str, None] = {}
    for choice in (*recipe.evaluation, *recipe.watch.evaluation):
        if choice.kind in GIVEN:
            found |= dict.fromkeys(GIVEN[choice.kind].texts(completed(choice).options))
    if not recipe.corpus.texts:
        parts = [part.strip() for text in found for part in sentencex.segment(recipe.corpus.language, text)]
        found |= dict.fromkeys(parts)
    whole = pl.Series("text", list(found), dtype=pl.String)
    return whole.filter(whole.str.contains(r"[\p{L}\p{N}]"))


def same(evaluated: pl.Series) -> pl.DataFrame:
    """Groups of some texts, as a part of table `left_out`."""
    return _part(group(evaluated).unique(), EVALUATED)


def alike(
    store: Store,
    sentences: Mapping[int, Piece],
    evaluated: pl.Series,
    size: int,
    threshold: float,
    progress: Progress = silent,
) -> list[pl.DataFrame]:
    """
    Training texts that are near repeats of evaluated and of held-out ones, as parts of table `left_out`.

    Args:
        evaluated: texts of evaluation files.
        size, threshold: characters of a piece, and the least share of pieces in common.
    """
    sketched = near.sketches(store, sentences, size, threshold, progress)
    bands_EB = near.sketch(evaluated, size, threshold)
    pairs = pl.concat([_none(), *_candidates(store, sketched, group(evaluated), bands_EB)]).unique(["one", "other"])
    pairs = pairs.sort("one", "other")
    found = [_none()]
    for start in range(0, len(pairs), BLOCK):
        block = pairs[start : start + BLOCK]
        number = pl.concat([block["one"], block["other"]]).unique().sort()
        one_P, other_P = (number.search_sorted(block[name]).to_numpy() for name in ("one", "other"))
        share_P = near.shares(_read(store, sentences, evaluated, number), size, one_P, other_P)
        found.append(block.filter(pl.Series(share_P >= threshold)))
    kept = pl.concat(found)
    is_file = kept["other"] >= FIRST
    return [
        _part(kept.filter(which)["group"].unique(), reason)
        for which, reason in ((is_file, NEAR_EVALUATED), (~is_file, NEAR_HELD_OUT))
    ]


def _candidates(
    store: Store, sketched: Manifest, evaluated: pl.Series, bands_EB: NDArray[np.uint32]
) -> Iterator[pl.DataFrame]:
    """Training texts (`one`, and its group) and known ones (`other`) with a digest in common, band by band."""
    held_out = [
        store.read(piece, ["group", "held_out"]).filter("held_out")["group"] for piece in sketched.pieces.values()
    ]
    known = pl.concat([evaluated, *held_out]).unique().sort()
    for at in range(bands_EB.shape[1]):
        name = near.band(at)
        by_digest = _known(store, sketched, evaluated, bands_EB[:, at], name)
        for number, piece in sketched.pieces.items():
            rows = store.read(piece, ["group", "row", "held_out", name])
            rows = rows.filter(~among(rows["group"], known))
            other = looked_up(rows[name], by_digest["digest"], by_digest["text"])
            pairs = rows.select("group", one=numbered(pl.col("row"), number), other=other).drop_nulls("other")
            yield pairs.explode("other", empty_as_null=False)


def _known(
    store: Store, sketched: Manifest, evaluated: pl.Series, digest_E: NDArray[np.uint32], name: str
) -> pl.DataFrame:
    """Digests of a band, ascending, each with the first few known texts that have it, those of files first."""
    number = pl.int_range(len(evaluated), dtype=pl.UInt64, eager=True) + FIRST
    parts = [pl.DataFrame({"group": evaluated, "text": number, "digest": pl.Series(digest_E)})]
    for shard, piece in sketched.pieces.items():
        rows = store.read(piece, ["group", "row", "held_out", name]).filter("held_out")
        parts.append(rows.select("group", text=numbered(pl.col("row"), shard), digest=name))
    rows = pl.concat(parts).unique(["digest", "group"], keep="first", maintain_order=True)
    return (
        rows.sort("digest", maintain_order=True).group_by("digest", maintain_order=True).agg(pl.col("text").head(ALIKE))
    )


def _read(store: Store, sentences: Mapping[int, Piece], evaluated: pl.Series, number: pl.Series) -> pl.Series:
    """Texts by their numbers, which ascend, so that those of files come last."""
    of_files, others = number.filter(number >= FIRST), number.filter(number < FIRST)
    files = evaluated.gather(of_files - FIRST)
    return pl.concat([gathered(store, sentences, "text", others), files]) if len(others) else files


def _part(groups: pl.Series, reason: str) -> pl.DataFrame:
    return pl.DataFrame({"group": groups}).with_columns(reason=pl.lit(reason), first=pl.lit(None, U64))


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema={"group": U64, "one": U64, "other": U64})
