"""Evaluation `sts`: pairs of texts that people rated."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from pipeline import rated, table_files
from pipeline import sts as similarity
from pipeline.evaluations.scores import Model, Scores, called, encoded
from pipeline.tables import SIMILARITIES


def sts(
    model: Model,
    sentences: pl.DataFrame,
    vectors: np.ndarray | None = None,
    *,
    path: str,
    left: str = "sentence1",
    right: str = "sentence2",
    score: str = "score",
    name: str = "",
) -> Scores:
    """
    Pairs that people rated: Spearman of the vectors' cosines with the scores, against the overlap of words.

    The files of a folder or a glob are put behind each other, and correlated once. Held-out sentences play no part.

    Args:
        path: a CSV, TSV, JSONL or Parquet file, or a folder or glob of them; see `table_files.rows`.
        left, right, score: columns of the two texts and of the number that people gave.
        name: figures are called `sts.<name>.spearman`; empty: the path's last part without suffix.
    Returns:
        Figures of `sts.agreement` and `sts.shape`; counts `pairs` and `dropped` (not scored).
    Raises:
        SourceError: the file cannot be used.
        ValueError: a vector that is not finite.
    Source:
        the "all" setting of Gao, Yao and Chen 2021, appendix B.
    """
    own_name = called(path, name)
    found = rated.read(path, rated.Columns(left, right, score))
    texts = list(dict.fromkeys([*found.pairs["left"], *found.pairs["right"]]))
    vector_ND = encoded(model, texts)
    rows = similarity.measured(found.pairs, own_name, texts, vector_ND)
    parts = [similarity.agreement(rows), similarity.shape(found.pairs, texts, vector_ND)]
    figures = {f"sts.{own_name}.{key}": value for part in parts for key, value in part.values.items()}
    note = "; ".join(why for part in parts for why in part.missing)
    counts = {"pairs": len(found.pairs), "dropped": found.unscored}
    return Scores(f"sts.{own_name}", figures, counts, rows, f"sts.{own_name}: {note}" if note else "", SIMILARITIES)


def read(options: Mapping[str, Any]) -> None:
    """Fail where the file cannot be used."""
    rated.read(options["path"], rated.Columns(options["left"], options["right"], options["score"]))


def texts(options: Mapping[str, Any]) -> list[str]:
    """Those that are read."""
    pairs = rated.read(options["path"], rated.Columns(options["left"], options["right"], options["score"])).pairs
    return [*pairs["left"], *pairs["right"]]


def digests(options: Mapping[str, Any]) -> list[str]:
    """Of the bytes that are read."""
    return [table_files.digest(options["path"])]
