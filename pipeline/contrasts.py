"""How many of the candidates that count as wrong may be right: a guide's word on a sample of batches."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch

from models.candidates import FILLER, Rows
from models.guiding import Guiding, guides
from models.recipe import Guide, Recipe
from models.summand import CELLS, Summand, summand
from pipeline import frozen
from pipeline.batches import Source
from pipeline.embed import opened
from pipeline.gathered import gathered
from pipeline.manifest import Manifest
from pipeline.reader import Epoch
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import CONTRASTS

CONTRASTS_VERSION = 1
STAGES = ("none", "groups", "guide")  # what has left candidates out, each with what stands before it


def contrasts(store: Store, recipe: Recipe, source: Source, batches: Piece) -> Manifest:
    """
    The estimate for one epoch's batches, made from some of them that lie evenly; a second call only reads.

    Batches that do not hold the guide's vectors have their texts embedded here, the sample's alone.

    Args:
        recipe: one with a guide.
    """
    assert recipe.guide
    started, guide = time.time(), recipe.guide.model_copy(update={"mask": True})
    terms = {number: term for number, term in enumerate(recipe.terms) if guides(term)}
    candidates = [[number, term.candidates and term.candidates.model_dump()] for number, term in terms.items()]
    what = [guide.model_dump(include={"kind", "margin", "sample"}), candidates]
    inputs = (batches.key, frozen.key(guide.model))
    key = piece_key("contrasts", CONTRASTS_VERSION, what, inputs)
    found = store.piece("contrasts", key)
    piece = found or store.write(
        CONTRASTS, key, _table(store, recipe, guide, source, batches), started=started, inputs=inputs
    )
    return Manifest("contrasts", key, {0: piece}, time.time() - started, cached=found is not None, new=int(not found))


def estimate(store: Store, recipe: Recipe, table: Manifest) -> dict[str, Any]:
    """
    The sums of table `contrasts` in plain JSON types: for each of `STAGES` wrong candidates, likely ones and share.

    The share is None where there is no wrong candidate.
    """
    rows = store.read(table.pieces[0])
    sums = rows.group_by("stage").agg(pl.col("wrong", "likely").sum())
    by_stage = {row["stage"]: row for row in sums.iter_rows(named=True)}
    shares = {
        stage: {
            "wrong": (wrong := by_stage[stage]["wrong"]),
            "likely": (likely := by_stage[stage]["likely"]),
            "share": likely / wrong if wrong else None,
        }
        for stage in STAGES
    }
    assert recipe.guide
    return {"batches": rows["batch"].n_unique(), "masked": recipe.guide.mask, **shares}


def _table(store: Store, recipe: Recipe, guide: Guide, source: Source, batches: Piece) -> pl.DataFrame:
    opened_epoch, told = Epoch(store, batches), Guiding("absolute", 0.0)
    count = min(opened_epoch.batches, max(1, guide.sample // opened_epoch.rows))
    numbers = np.unique(np.linspace(0, opened_epoch.batches - 1, count).round().astype(int)).tolist()
    terms = {number: term for number, term in enumerate(recipe.terms) if guides(term)}
    bare = {number: summand(term, (1, 1)) for number, term in terms.items()}
    guided = {number: summand(term, (1, 1), guide) for number, term in terms.items()}
    rows = []
    for batch, seen in _sampled(store, guide, source, opened_epoch, numbers):
        apart = replace(seen, group_B=torch.arange(len(seen.side_B)))
        for term in terms:
            by_stage = ((bare[term], apart), (bare[term], seen), (guided[term], guided[term].own(seen)))
            for stage, (one, shown) in zip(STAGES, by_stage, strict=True):
                rows.append((batch, term, stage, *_counted(one, told, shown)))
    return pl.DataFrame(rows, schema={name: column.type for name, column in CONTRASTS.columns.items()}, orient="row")


def _counted(one: Summand, told: Guiding, rows: Rows) -> tuple[int, int, int]:
    """Anchors of a term, their wrong candidates, and how many of these a guide finds likely."""
    anchor_A, wrong, likely = one.anchors(rows), 0, 0
    for part_A in anchor_A.split(max(1, CELLS // len(rows.side_B))):
        for kept_AC, answer_AP in one.pools(rows, part_A):
            kept_AC[torch.arange(len(part_A)), part_A] = False
            place_N, at_N = (answer_AP >= 0).nonzero(as_tuple=True)
            kept_AC[place_N, answer_AP[place_N, at_N]] = False
            wrong += int(kept_AC.sum())
            likely += int((kept_AC & told.likely(rows, part_A)).sum())
    return len(anchor_A), wrong, likely


def _sampled(
    store: Store, guide: Guide, source: Source, batches: Epoch, numbers: list[int]
) -> Iterator[tuple[int, Rows]]:
    """Some batches' rows with the guide's vectors, by number."""
    if batches[numbers[0]].rows.guide_BE is not None:
        yield from ((number, batches[number].rows) for number in numbers)
        return
    all_rows = {number: batches[number].rows for number in numbers}
    real = {number: (rows.side_B != FILLER).numpy() for number, rows in all_rows.items()}
    text_N = np.unique(np.concatenate([batches.texts(number)[real[number]] for number in numbers]))
    words = gathered(store, source.sentences, "text", pl.Series(text_N))
    vector_NE = torch.from_numpy(opened(store.root, guide.model).encode(words.to_list()))
    for number, rows in all_rows.items():
        place_B = torch.from_numpy(np.searchsorted(text_N, batches.texts(number)).clip(max=len(text_N) - 1))
        guide_BE = vector_NE[place_B] * torch.from_numpy(real[number])[:, None]
        yield number, replace(rows, guide_BE=guide_BE)
