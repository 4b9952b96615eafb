"""The `scores` stage: a recipe's evaluations, kept query by query, pair by pair and text by text."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from models.parts import bind
from models.recipe import Choice
from pipeline.embed import matrix, opened
from pipeline.evaluate import EVALUATIONS, completed, given
from pipeline.evaluations.scores import Scores
from pipeline.manifest import Manifest
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import PREDICTIONS, RANKINGS, SCORES, SIMILARITIES, Table

SCORES_VERSION = 3
EVERY = 2**64 - 1
BESIDE = {
    "rated": SIMILARITIES,
    "predicted": PREDICTIONS,
    "ranked": RANKINGS,
}  # tables beside `scores`, by what their rows are
SPARE = 2  # sentences looked at for each candidate wanted: repeats and lone sentences fall away


@dataclass(frozen=True)
class Outcome:
    """Figures by flat name, and what getting them took; `queries` counts queries, rated pairs, texts and answers."""

    key: str
    figures: Mapping[str, float]
    queries: int
    notes: tuple[str, ...]
    seconds: float
    cached: bool

    def row(self) -> dict[str, Any]:
        """The stage as `--json` shows it."""
        new = int(not self.cached)
        return {
            "name": "scores",
            "key": self.key,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "shards_new": new,
            "shards_same": 1 - new,
            "shards_gone": 0,
            "rows": self.queries,
            "quarantined": 0,
        }


def sample(sentences: Iterable[Piece], evaluations: Sequence[Choice]) -> int:
    """
    The largest document digest that evaluations look at: held-out documents are taken in order of digest, so that the
    work stays the same however large the corpus.
    """
    options = [completed(choice).options for choice in evaluations]
    most = max((int(chosen.get("most", 0)) for chosen in options if not chosen.get("path")), default=0)
    held_out = sum(piece.counts.get("held_out", 0) for piece in sentences)
    return EVERY if held_out <= SPARE * most else EVERY * SPARE * most // held_out


def outcome(
    store: Store, evaluations: Sequence[Choice], folder: str, sentences: Manifest, vectors: Manifest, weights: str
) -> Outcome:
    """
    All evaluations of one model; a second call only reads.

    Cosines of rated pairs lie in table `similarities`, predicted classes in `predictions`, scores of answers in
    `rankings`, under the same key and written before the scores.

    Args:
        folder: the model folder's name in the store, or a path.
        weights: their key. Vectors of held-out sentences are known by it; where there are none, files are still read.
    """
    started = time.time()
    choices = [completed(choice) for choice in evaluations]
    files = given(choices)
    inputs = (vectors.key, weights, *files) if files else (vectors.key,)
    key = piece_key("scores", SCORES_VERSION, [choice.model_dump() for choice in choices], inputs)
    piece = store.piece("scores", key)
    cached = piece is not None
    if piece is None:
        rows, matrix_ND = held_out(store, sentences, vectors)
        model = opened(store.root, folder)
        scores = [bind(EVALUATIONS, choice)(model, rows, matrix_ND) for choice in choices]
        figures = {name: value for score in scores for name, value in score.flat().items()}
        facts = {"figures": figures, "notes": [score.note for score in scores if score.note]}
        beside = {name: _rows(scores, table) for name, table in BESIDE.items()}
        counts = {name: len(found) for name, found in beside.items() if len(found)}
        for name in counts:
            store.write(BESIDE[name], key, beside[name], started=started, inputs=inputs)
        frame = _rows(scores, SCORES)
        piece = store.write(SCORES, key, frame, started=started, inputs=inputs, counts=counts, facts=facts)
    asked, found = piece.rows + sum(piece.counts.values()), piece.facts
    return Outcome(key, found["figures"], asked, tuple(found["notes"]), time.time() - started, cached)


def _rows(scores: Sequence[Scores], table: Table) -> pl.DataFrame:
    return pl.concat([table.empty(), *(score.rows for score in scores if score.table is table and len(score.rows))])


def held_out(store: Store, sentences: Manifest, vectors: Manifest) -> tuple[pl.DataFrame, np.ndarray]:
    """The sentences that have vectors, and these, row for row."""
    frames, matrices = [], []
    for number, piece in vectors.pieces.items():
        found = store.read(piece)
        if len(found):
            frames.append(store.read(sentences.pieces[number]).select(pl.all().gather(found["row"])))
            matrices.append(matrix(found["vector"]))
    if not frames:
        return store.read(next(iter(sentences.pieces.values()))).clear(), np.zeros((0, 1), np.float32)
    return pl.concat(frames), np.concatenate(matrices)
