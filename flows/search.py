"""Search over a corpus: its sentences' vectors are kept in the store, so a second query costs one encoding."""

import heapq
from typing import Any

import numpy as np
import polars as pl

from flows.progress import watched
from flows.registry import folder_of
from models.folder import load
from pipeline.cluster import session
from pipeline.embed import matrix, vectors
from pipeline.manifest import Manifest
from pipeline.road import Road
from pipeline.store import Store


def hits(
    model: str, query: str, corpus: str, *, store: str = ".firth", most: int = 5, tracking: str | None = None
) -> list[dict[str, Any]]:
    """
    The sentences that answer a query best, best first, each text once: score, title, source, row, text.

    Args:
        model: a model folder or a registered name.
        corpus: as for `retrain`; the model's recipe says how it is read.
    """
    folder = folder_of(model, store, tracking)
    opened = load(folder)
    place = Store.at(store)
    road = Road(place, opened.recipe, corpus)
    with session():
        with watched("documents") as progress:
            documents = road.documents(road.numbered(), progress)
        with watched("sentences") as progress:
            sentences = road.sentences(documents, progress)
        with watched("vectors") as progress:
            table = vectors(place, opened.lineage["weights"], str(folder), sentences, progress=progress)
    asked = opened.encode([query])
    found: list[tuple[float, int, int]] = []
    for number, piece in table.pieces.items():
        score_N = opened.score(asked, matrix(place.read(piece)["vector"]))[0]
        for row in np.argsort(-score_N)[: 4 * most]:  # spare ones: texts repeat
            found.append((float(score_N[row]), number, int(row)))
    return _described(place, documents, sentences, heapq.nlargest(16 * most, found), most)


def _described(
    store: Store, documents: Manifest, sentences: Manifest, found: list[tuple[float, int, int]], most: int
) -> list[dict[str, Any]]:
    seen: set[int] = set()
    rows: list[dict[str, Any]] = []
    for score, number, row in found:
        sentence = store.scan([sentences.pieces[number]]).slice(row, 1).collect().row(0, named=True)
        if sentence["group"] in seen or len(rows) == most:
            continue
        seen.add(sentence["group"])
        record = (
            store.scan([documents.pieces[number]], ["document", "place", "title", "source", "row"])
            .filter((pl.col("document") == sentence["document"]) & (pl.col("place") == sentence["record"]))
            .collect()
            .row(0, named=True)
        )
        rows.append({"score": score, "text": sentence["text"], **{k: record[k] for k in ("title", "source", "row")}})
    return rows
