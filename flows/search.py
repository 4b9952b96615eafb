"""Search over a corpus: its sentences' vectors are kept in the store, so a second query costs one encoding."""

from typing import Any

import numpy as np
import polars as pl

from flows.progress import watched
from flows.registry import folder_of
from models.folder import load
from models.trouble import MendableError
from pipeline.cluster import session
from pipeline.embed import matrix, vectors
from pipeline.manifest import Manifest
from pipeline.records import keep, using
from pipeline.road import Road
from pipeline.store import Store

Found = tuple[float, int, int]  # score, shard, row


class QueryError(MendableError, ValueError):
    """A query that asks nothing."""


def hits(
    model: str, query: str, corpus: str, *, store: str = ".firth", most: int = 5, tracking: str | None = None
) -> list[dict[str, Any]]:
    """
    The sentences that answer a query best, best first, each text once: score, text, title, source, row.

    Args:
        model: a model folder or a registered name.
        corpus: as for `retrain`; the model's recipe says how it is read.
    Raises:
        QueryError: nothing is asked.
    """
    if not query.strip():
        raise QueryError('the query is empty; ask something, as in firth search MODEL "sort a table"')
    with folder_of(model, store, tracking) as folder, session():
        opened = load(folder)
        asked = opened.encode([query])  # a model without vectors says so before any work
        place = Store.at(store)
        road = Road(place, opened.recipe, corpus)
        with using(place):
            with watched("documents") as progress:
                documents = road.documents(road.numbered(), progress)
            with watched("sentences") as progress:
                sentences = road.sentences(documents, progress)
            with watched("vectors") as progress:
                table = vectors(place, opened.lineage["weights"], str(folder), sentences, progress=progress)
            keys = {each.name: each.key for each in (documents, sentences, table)}
            keep(place, corpus, f"search by {model}", keys)
    found: dict[int, Found] = {}
    for number, piece in table.pieces.items():
        if not piece.rows:
            continue
        score_N = opened.score(asked, matrix(place.read(piece)["vector"]))[0]
        group_N = place.read(sentences.pieces[number], ["group"])["group"].to_numpy()
        for row in best(score_N, group_N, most):
            hit, group = (float(score_N[row]), number, int(row)), int(group_N[row])
            found[group] = max(hit, found.get(group, hit))
    ordered = sorted(found.values(), key=lambda hit: (-hit[0], hit[1], hit[2]))
    return [_described(place, documents, sentences, hit) for hit in ordered[:most]]


def best(score_N: np.ndarray, group_N: np.ndarray, most: int) -> np.ndarray:
    """Rows of the `most` highest scores, best first, one row a group."""
    order = np.argsort(-score_N, kind="stable")
    _, first = np.unique(group_N[order], return_index=True)
    return order[np.sort(first)[:most]]


def _described(store: Store, documents: Manifest, sentences: Manifest, hit: Found) -> dict[str, Any]:
    score, number, row = hit
    sentence = store.scan([sentences.pieces[number]]).slice(row, 1).collect().row(0, named=True)
    record = (
        store.scan([documents.pieces[number]], ["document", "place", "title", "source", "row"])
        .filter((pl.col("document") == sentence["document"]) & (pl.col("place") == sentence["record"]))
        .collect()
        .row(0, named=True)
    )
    return {"score": score, "text": sentence["text"], **{name: record[name] for name in ("title", "source", "row")}}
