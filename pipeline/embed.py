"""A model and sentences become vectors, shard by shard; the `vectors` stage."""

import json
import os
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from models.folder import RECIPE, load
from models.model import Model
from models.recipe import parse
from pipeline.cluster import Progress, processors, scratch, silent
from pipeline.manifest import Manifest, Stage, run
from pipeline.store import Piece, Store
from pipeline.tables import VECTORS

VECTORS_VERSION = 1


@dataclass(frozen=True)
class Texts:
    """What a worker embeds: one shard's sentences, and which model does it."""

    sentences: Piece
    folder: str
    upto: int | None


def vectors(
    store: Store, weights: str, folder: str, sentences: Manifest, upto: int | None = None, progress: Progress = silent
) -> Manifest:
    """
    Vectors of all sentences, or of the held-out ones of documents whose digest is at most `upto`.

    Args:
        weights: key of the weights; with the sentences' key it makes the piece's.
        folder: the model folder's name in the store, or a path.
    """
    items = {
        number: ((piece.key, weights), Texts(piece, folder, upto))
        for number, piece in sentences.pieces.items()
        if upto is None or piece.counts.get("held_out", 0)
    }
    return run(store, Stage("vectors", VECTORS_VERSION, make_vectors, {"upto": upto}), items, progress)


def make_vectors(store: Store, key: str, item: Texts) -> Piece:
    """Worker's part of stage `vectors`: one shard."""
    started = time.time()
    rows = store.read(item.sentences, ["held_out", "document", "text"]).with_row_index("row")
    rows = rows if item.upto is None else rows.filter(pl.col("held_out") & (pl.col("document") <= item.upto))
    none, texts = _counting(store, item.folder), rows["text"].to_list()
    vectors = np.zeros((len(texts), 0), np.float32) if none else opened(store.root, item.folder).encode(texts)
    frame = rows.select(pl.col("row").cast(pl.UInt32)).with_columns(vector=listed(vectors))
    return store.write(VECTORS, key, frame, started=started, inputs=(item.sentences.key,))


def listed(vectors: np.ndarray) -> pl.Series:
    """[N, D] as a column of lists."""
    return pl.Series("vector", vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])).cast(pl.List(pl.Float32))


def matrix(column: pl.Series) -> np.ndarray:
    """A column of lists of one length as [N, D] float32."""
    width = len(column[0]) if len(column) else 0
    return column.explode().to_numpy().reshape(len(column), width).astype(np.float32, copy=False)


def _counting(store: Store, folder: str) -> bool:
    """Whether a model counts and has no vectors. Its recipe alone tells; its counts are large."""
    file = Path(folder) / RECIPE
    said = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else store.get(f"{folder}/{RECIPE}")
    return said is not None and parse(said).counting


@lru_cache(maxsize=1)
def opened(root: str, folder: str) -> Model:
    """A model folder, read once a process."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:  # Ray sets it in its workers to the processors that a task has
        torch.set_num_threads(max(1, processors() // 2))
    if Path(folder).is_dir():
        return load(folder)
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        return load(Store(root).fetch(folder, Path(place)))
