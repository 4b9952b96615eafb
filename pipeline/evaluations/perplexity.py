"""Evaluation `perplexity`: how well words are predicted."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import Field

from pipeline import perplexity as predicting
from pipeline.evaluations.scores import Scores, WordModel, called
from pipeline.vocabulary import unknown


def perplexity(
    model: WordModel,
    sentences: pl.DataFrame,
    vectors: np.ndarray | None = None,
    *,
    path: str = "",
    text: str = "text",
    most: Annotated[int, Field(ge=1)] = 5_000,
    name: str = "",
) -> Scores:
    """
    How well a model predicts each word and the end of texts, beside single words' shares of the training text.

    Args:
        path: a text file, one text a line with its words apart, or a table file; or a folder or glob of either. Empty:
            held-out sentences.
        text: the table's column.
        most: held-out sentences at most, of documents in order of their digests.
        name: figures are called `perplexity.<name>.normalised`; empty: the path's last part, or `held-out`.
    Returns:
        Figures of `pipeline.perplexity.figures`; counts `tokens` (predicted, ends among them), `texts`, `unseen`.
    Raises:
        SourceError: the file cannot be used.
        FolderError: the model predicts no words.
    """
    own_name = f"perplexity.{called(path, name)}"
    held_out = sentences.sort("document", "place").head(most)["text"].to_list() if not path else []
    texts = predicting.read(path, text) if path else held_out
    if not texts:
        return Scores(own_name, note=f"{own_name}: no held-out sentence; raise corpus.held_out, or name a file as path")
    ids = model.tokens(texts)
    found = predicting.figures(model.score_tokens(ids), ids, unknown(model.tokenizer), model.word_counts)
    flat = {f"{own_name}.{key}": value for key, value in found.values.items()}
    note = f"{own_name}: {'; '.join(found.notes)}" if found.notes else ""
    return Scores(own_name, flat, {**found.counts, "texts": len(texts)}, note=note)


def read(options: Mapping[str, Any]) -> None:
    """Fail where the file cannot be used."""
    if options["path"]:
        predicting.read(options["path"], options["text"])


def texts(options: Mapping[str, Any]) -> list[str]:
    """Those that are read from a file."""
    return predicting.read(options["path"], options["text"]) if options["path"] else []


def digests(options: Mapping[str, Any]) -> list[str]:
    """Of the bytes that are read."""
    return predicting.digests(options["path"])
