"""
Texts that are never trained on, each with its reason: the first one that holds of evaluated, near an evaluated or a
held-out text, boilerplate, repeat.

What repeats a held-out text to the letter stays out whatever a recipe says, see `batches.held_out`.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from models.recipe import Dedup, Recipe, RecipeError, digest
from pipeline import decontaminated, occurrences
from pipeline.cluster import Progress, silent
from pipeline.corpus import group
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import LEFT_OUT

LEFT_OUT_VERSION = 1
ALONE = ("none", "single")  # kinds of pairs of which a sentence can go without a neighbour or a partner missing it


def check(recipe: Recipe) -> None:
    """
    Find what leaves nothing to be trained on, or tears apart what belongs together.

    Raises:
        RecipeError: a setting of `dedup` does not fit the recipe or another setting.
    """
    dedup = recipe.dedup
    if dedup is None:
        return
    if dedup.boilerplate == 1:
        raise RecipeError("dedup.boilerplate is 1, and every sentence is in a document; 2 or more, or 0 for none")
    if dedup.boilerplate_share and not dedup.boilerplate:
        raise RecipeError(
            f"dedup.boilerplate_share is {dedup.boilerplate_share:g}, but dedup.boilerplate is 0, so nothing is looked "
            "for; set dedup.boilerplate to the least count of documents, 2 or more"
        )
    if dedup.repeats == "drop" and recipe.pairs.kind not in ALONE:
        known = " or ".join(f'"{kind}"' for kind in ALONE)
        raise RecipeError(
            f'dedup.repeats is "drop", but pairs.kind is "{recipe.pairs.kind}", whose texts belong together; leave it '
            f'at "keep", or use pairs.kind = {known}'
        )


def left_out(store: Store, recipe: Recipe, sentences: Mapping[int, Piece], progress: Progress = silent) -> Piece | None:
    """
    Table `left_out` of a corpus; None where the recipe leaves nothing out.

    Its key knows the texts of evaluation files, not the files: one that has other scores changes nothing.
    """
    dedup = recipe.dedup
    if dedup is None:
        return None
    evaluated = decontaminated.texts(recipe) if dedup.decontaminate else pl.Series("text", [], dtype=pl.String)
    asked = _asked(dedup, evaluated)
    if not asked:
        return None
    read = sentences if set(asked) - {"evaluated"} else {}
    inputs = tuple(sorted(piece.key for piece in read.values()))
    what = [asked, [f"{number}:{piece.key}" for number, piece in sorted(read.items())]]
    key = piece_key("left_out", LEFT_OUT_VERSION, what, inputs)
    return store.once(LEFT_OUT, key, inputs, lambda: _found(store, dedup, sentences, evaluated, progress))


def _asked(dedup: Dedup, evaluated: pl.Series) -> dict[str, Any]:
    """All settings that decide what is left out, and what is evaluated on; empty: nothing is."""
    asked: dict[str, Any] = {}
    if len(evaluated):
        asked["evaluated"] = digest(group(evaluated).unique().sort().to_list())
    if dedup.decontaminate and dedup.near:
        asked["near"] = [dedup.near, dedup.shingle]
    if dedup.boilerplate:
        asked["boilerplate"] = [dedup.boilerplate, dedup.boilerplate_share]
    if dedup.repeats == "drop":
        asked["repeats"] = dedup.repeats
    return asked


def _found(
    store: Store, dedup: Dedup, sentences: Mapping[int, Piece], evaluated: pl.Series, progress: Progress
) -> pl.DataFrame:
    parts = [decontaminated.same(evaluated)]
    if dedup.decontaminate and dedup.near:
        parts += decontaminated.alike(store, sentences, evaluated, dedup.shingle, dedup.near, progress)
    if dedup.boilerplate or dedup.repeats == "drop":
        share, repeats = dedup.boilerplate_share, dedup.repeats == "drop"
        parts += occurrences.often(store, sentences, dedup.boilerplate, share, repeats)
    return LEFT_OUT.check(pl.concat(parts).unique("group", keep="first", maintain_order=True))
