"""Evaluation `words`: pairs of words that people rated. Its files are read as those of `sts` are."""

import numpy as np
import polars as pl

from pipeline import rated
from pipeline import sts as similarity
from pipeline.evaluations.scores import Scores, WordModel, called, encoded
from pipeline.perplexity import known_pairs
from pipeline.tables import SIMILARITIES


def words(
    model: WordModel,
    sentences: pl.DataFrame,
    vectors: np.ndarray | None = None,
    *,
    path: str,
    left: str = "word1",
    right: str = "word2",
    score: str = "score",
    name: str = "",
) -> Scores:
    """
    Pairs of words that people rated: Spearman of the vectors' cosines with the scores, in hundredths.

    A pair with a word that the vocabulary lacks is left out and counted. Held-out sentences play no part.

    Args:
        path: a CSV, TSV, JSONL or Parquet file, or a folder or glob of them; see `table_files.rows`.
        left, right, score: columns of the two words and of the number that people gave.
        name: figures are called `words.<name>.spearman`; empty: the path's last part without suffix.
    Returns:
        Figures `spearman` and `pearson`; counts `pairs`, `unknown` (left out) and `dropped` (not scored).
    Raises:
        SourceError: the file cannot be used.
        ValueError: a vector that is not finite.
    """
    own_name = f"words.{called(path, name)}"
    found = rated.read(path, rated.Columns(left, right, score))
    pairs = found.pairs.filter(pl.Series(known_pairs(model.tokenizer, found.pairs), dtype=pl.Boolean))
    once = list(dict.fromkeys([*pairs["left"], *pairs["right"]]))
    unknown = len(found.pairs) - len(pairs)
    counts = {"pairs": len(pairs), "unknown": unknown, "dropped": found.unscored}
    notes = [f"{unknown} of {len(found.pairs)} pairs have a word that the vocabulary lacks"] * (unknown > len(pairs))
    if not once:
        return Scores(own_name, {}, counts, note=f"{own_name}: {notes[0]}")
    rows = similarity.measured(pairs, own_name, once, encoded(model, once))
    figures = similarity.correlation(rows)
    notes += figures.missing
    flat = {f"{own_name}.{key}": value for key, value in figures.values.items()}
    return Scores(own_name, flat, counts, rows, f"{own_name}: {'; '.join(notes)}" if notes else "", SIMILARITIES)
