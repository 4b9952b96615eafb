"""
Classes of texts that say the same or answer the same: none of a class is ever told apart from another one of it.

Two texts are of a class if they are near repeats, if one is a right answer of the other, or through any number of such
steps. All such pairs are in memory, 16 bytes each, several times over while classes are found.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from models.recipe import Dedup, Recipe
from pipeline import groups, merged, near
from pipeline.cluster import Progress, silent
from pipeline.manifest import Manifest, Stage, run
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import ANSWERED, JOINED, TEXTS

JOINED_VERSION = 1
ANSWERED_VERSION = 1
ANSWERING = ("pairs", "triples", "qa")  # kinds of pairs whose positives are right answers; of groups kin knows

Numbers = NDArray[np.uint64]


def joined(
    store: Store, recipe: Recipe, sentences: Manifest, pairs: Manifest, progress: Progress = silent
) -> Piece | None:
    """
    Table `joined` of a corpus; None where the recipe joins nothing. A second call only reads.

    Its counts: `classes`, `texts` in them, `largest`, and `crowded`, texts in so many pairs that they join nobody.
    Where documents are groups of similar texts, groups are joined, by the numbers that `kin` gives them.
    """
    rules = recipe.dedup
    if rules is None or recipe.counting:
        return None
    alike = near.found(store, sentences, rules.shingle, rules.near, progress) if rules.near else None
    has_answers = rules.positives and recipe.pairs.kind in ANSWERING
    answered = _answered(store, sentences, pairs) if has_answers else {}
    if alike is None and not has_answers:
        return None
    kin = groups.kindred(store, sentences.pieces) if alike and recipe.pairs.kind == "groups" else None
    inputs = (*(piece.key for piece in (alike, kin) if piece), *sorted(piece.key for piece in answered.values()))
    key = piece_key("joined", JOINED_VERSION, rules.partners if has_answers else {}, inputs)
    return store.piece("joined", key) or _write(store, key, inputs, rules, alike, kin, answered, sentences)


def _write(
    store: Store,
    key: str,
    inputs: tuple[str, ...],
    rules: Dedup,
    alike: Piece | None,
    kin: Piece | None,
    answered: Mapping[int, Piece],
    sentences: Manifest,
) -> Piece:
    started, parts = time.time(), [ANSWERED.empty()]
    counts = {"crowded": 0}
    if answered:
        right = pl.concat(store.read(piece) for piece in answered.values()).unique()
        sparse, counts["crowded"] = uncrowded(right, rules.partners)
        parts.append(sparse)
    if alike:
        same = store.read(alike, ["one", "other"])
        parts.append(_by_group(store, same, store.read(kin), sentences) if kin else same)
    edges = pl.concat(parts)
    number_N, least_N = classes(edges["one"].to_numpy(), edges["other"].to_numpy())
    size_C = np.unique(least_N, return_counts=True)[1]
    counts |= {"classes": len(size_C), "texts": len(number_N), "largest": int(size_C.max(initial=0))}
    frame = pl.DataFrame({"group": number_N, "joined": least_N}, schema=JOINED.empty().schema)
    return store.write(JOINED, key, frame, started=started, inputs=inputs, counts=counts)


def classes(one_E: Numbers, other_E: Numbers) -> tuple[Numbers, Numbers]:
    """All numbers of some pairs, ascending, and of each the least that it is joined with, through any steps."""
    number_N, place_M = np.unique(np.concatenate([one_E, other_E]), return_inverse=True)
    if not len(number_N):
        return number_N, number_N
    ends = (place_M[: len(one_E)], place_M[len(one_E) :])
    graph = coo_array((np.ones(len(one_E), np.int8), ends), shape=(len(number_N), len(number_N)))
    _, class_N = connected_components(graph, directed=False)
    _, first_C = np.unique(class_N, return_index=True)
    return number_N, number_N[first_C][class_N]


def uncrowded(right: pl.DataFrame, most: int) -> tuple[pl.DataFrame, int]:
    """
    Pairs without those of a text that has more than `most` partners, and how many texts have.

    An answer like "Yes." is right for many questions that have nothing else in common.

    Args:
        right: columns one and other, each pair once.
    """
    ends = pl.concat([right["one"], right["other"]]).rename("text")
    crowd = ends.value_counts().filter(pl.col("count") > most)["text"]
    if not len(crowd):
        return right, 0
    return right.filter(~merged.among(right["one"], crowd) & ~merged.among(right["other"], crowd)), len(crowd)


def _answered(store: Store, sentences: Manifest, pairs: Manifest) -> Mapping[int, Piece]:
    items: dict[int, tuple[tuple[str, ...], Any]] = {
        number: ((piece.key, pairs.pieces[number].key), (piece, pairs.pieces[number]))
        for number, piece in sentences.pieces.items()
    }
    stage = Stage("answered", ANSWERED_VERSION, make_answered)
    return run(store, stage, items, alone=merged.FEW).pieces


def make_answered(store: Store, key: str, item: tuple[Piece, Piece]) -> Piece:
    """A shard's texts and their right answers, by groups; what is held out joins nobody."""
    started, (sentences, pairs) = time.time(), item
    rows = store.read(sentences, ["group", "held_out"])
    found = store.read(pairs, ["anchor", "positive"])
    group_R, is_secret_R = rows["group"].to_numpy(), rows["held_out"].to_numpy()
    anchor_P = found["anchor"].to_numpy()
    one_P, other_P = group_R[anchor_P], group_R[found["positive"].to_numpy()]
    kept_P = (one_P != other_P) & ~is_secret_R[anchor_P]
    both = pl.DataFrame({"one": np.minimum(one_P, other_P)[kept_P], "other": np.maximum(one_P, other_P)[kept_P]})
    inputs = (sentences.key, pairs.key)
    return store.write(ANSWERED, key, both.unique(), started=started, inputs=inputs)


def _by_group(store: Store, alike: pl.DataFrame, kin: pl.DataFrame, sentences: Manifest) -> pl.DataFrame:
    """Pairs of groups of similar texts that have near repeats, by their numbers."""
    texts = pl.concat([alike["one"], alike["other"]]).unique().sort()
    found = [TEXTS.empty()]
    for rows in merged.ranges(store, groups.standing(store, sentences.pieces), "group"):
        found.append(rows.filter(merged.among(rows["group"], texts)).select("group", "document"))
    # All documents in which a text stands have one number, which is what kin says.
    known = pl.concat(found).unique("group", keep="first", maintain_order=True).sort("group")
    number = groups.numbers(known, kin)
    ends = {name: merged.looked_up(alike[name], known["group"], number).alias(name) for name in ("one", "other")}
    return pl.DataFrame(ends).filter(pl.col("one") != pl.col("other"))
