"""Evaluation `probe`: texts whose classes people gave."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import Field

from pipeline import classes, table_files, word_vectors
from pipeline import probe as probing
from pipeline.evaluations.scores import Model, Scores, called, encoded
from pipeline.tables import PREDICTIONS


def probe(
    model: Model,
    sentences: pl.DataFrame,
    readout_ND: np.ndarray | None = None,
    *,
    path: str,
    text: str = "text",
    label: str = "label",
    test: str = "",
    vectors: str = "",
    folds: Annotated[int, Field(gt=probing.INNER)] = 10,
    name: str = "",
) -> Scores:
    """
    Classes that people gave to texts: accuracy of logistic regression on the model's vectors, against the same on
    counts of words. Held-out sentences play no part.

    Args:
        path: a CSV, TSV, JSONL or Parquet file, or a folder or glob of them; see `table_files.rows`.
        text, label: columns of the text and of its class.
        test: the same of texts to try; empty: each fold is tried by a regression on the others.
        vectors: a text file of word vectors, whose mean over a text's words is a second baseline; empty: none.
        folds: how many; with `test`, of the training part, to choose the strength by.
        name: figures are called `probe.<name>.accuracy`; empty: the path's last part without suffix.
    Returns:
        Figures of `probe.agreement`; counts `texts` (tried), `trained` (with `test`), `classes`, `dropped` (no label).
    Raises:
        SourceError: the file cannot be used.
        WordVectorsError: the word vectors cannot be used.
        ValueError: a vector that is not finite.
    Source:
        the transfer tasks of Logeswaran and Lee 2018.
    """
    own_name = called(path, name)
    found = classes.read(path, test, classes.Columns(text, label), folds)
    texts, label_N = found.every["text"].to_list(), found.every["label"].to_numpy()
    split = probing.splits(found, folds)
    words = probing.word_means(vectors, texts) if vectors else None
    said = lambda feature_ND: np.concatenate([probing.said(feature_ND, label_N, part) for part in split])
    own = said(_once(model, texts))
    rows = probing.kept(found, own_name, split, own, said(probing.bag(texts)), said(words.mean_ND) if words else None)
    figures = {f"probe.{own_name}.{key}": value for key, value in probing.agreement(rows).items()}
    counts = {"texts": len(rows), "classes": len(set(label_N)), "dropped": found.unlabelled}
    counts |= {"trained": len(found.texts)} if test else {}
    note = f"probe.{own_name}: {words.scarce}" if words and words.scarce else ""
    return Scores(f"probe.{own_name}", figures, counts, rows, note, PREDICTIONS)


def _once(model: Model, texts: list[str]) -> np.ndarray:
    """A vector for each text; one that repeats is encoded once."""
    place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    return encoded(model, list(place))[[place[text] for text in texts]]


def read(options: Mapping[str, Any]) -> None:
    """Fail where a file cannot be used."""
    columns = classes.Columns(options["text"], options["label"])
    found = classes.read(options["path"], options["test"], columns, options["folds"])
    if options["vectors"]:
        probing.word_means(options["vectors"], found.every["text"].to_list())


def texts(options: Mapping[str, Any]) -> list[str]:
    """Those that are read, to train a probe on and to try it with."""
    columns = classes.Columns(options["text"], options["label"])
    return classes.read(options["path"], options["test"], columns, options["folds"]).every["text"].to_list()


def digests(options: Mapping[str, Any]) -> list[str]:
    """Of the bytes that are read."""
    tables = [table_files.digest(path) if path else "" for path in (options["path"], options["test"])]
    return [*tables, *word_vectors.digests(options["vectors"])]
