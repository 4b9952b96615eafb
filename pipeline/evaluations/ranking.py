"""Evaluation `ranking`: answers to questions, put in order."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import Field

from pipeline import ranked, table_files, word_vectors
from pipeline.evaluations.scores import Model, Scores, called, encoded
from pipeline.ranking import NoPositive
from pipeline.shard import SourceError
from pipeline.tables import RANKINGS


def ranking(
    model: Model,
    sentences: pl.DataFrame,
    readout_ND: np.ndarray | None = None,
    *,
    path: str = "",
    question: str = "question",
    answer: str = "answer",
    label: str = "label",
    columns: tuple[str, ...] = (),
    parallel: bool = False,
    no_positive: NoPositive = "drop",
    ks: tuple[Annotated[int, Field(ge=1)], ...] = (5,),
    vectors: str = "",
    most: Annotated[int, Field(ge=1)] = 20_000,
    name: str = "",
) -> Scores:
    """
    Answers to questions, put in order by the model's own scores, against BM25 on the same answers, mean word vectors
    and chance.

    Args:
        path: a CSV, TSV, JSONL or Parquet file, or a folder or glob of them; empty: the held-out documents' questions.
        question, answer, label: columns of the texts and of 1 or 0.
        columns, parallel: see `header` and `parallel` of `table_files.Columns`.
        no_positive: see `ranking.counted`.
        ks: places that hit, recall and nDCG look at.
        vectors: word vectors by path or package, whose mean over a text's words is a second baseline; empty: none.
        most: held-out texts at most.
        name: figures are called `ranking.<name>.map`; empty: the path's last part without suffix, or `held-out`.
    Returns:
        Figures of `ranked.figures`, and `question_norm` and `answer_norm`, mean lengths of vectors; counts of
        `ranked.counts`.
    Raises:
        SourceError: the file cannot be used.
        WordVectorsError: the word vectors cannot be used.
        ValueError: a vector that is not finite.
    Source:
        Rao, He and Lin 2016 for the two ways to count questions.
    """
    own_name = f"ranking.{called(path, name)}"
    how = ranked.Columns(question, answer, label, columns, parallel)
    found = ranked.read(path, how) if path else ranked.held_out(sentences, most)
    counts = ranked.counts(found, no_positive)
    if not counts["questions"]:
        note = f"{own_name}: none of {counts['none_right'] + counts['all_right']} questions counts"
        remedy = "give answers of both kinds" if path else "raise corpus.held_out, or give answers of both kinds"
        return Scores(own_name, counts=counts, note=f"{note}; {remedy}", table=RANKINGS)
    words = ranked.means(vectors, found)
    vector_ND = encoded(model, found.texts)
    rows = ranked.scored(found, own_name.partition(".")[2], vector_ND, model.score, words)
    figures = ranked.figures(rows, no_positive, ks) | ranked.norms(found, vector_ND)
    note = f"{own_name}: {words.scarce}" if words and words.scarce else ""
    flat = {f"{own_name}.{key}": value for key, value in figures.items()}
    return Scores(own_name, flat, counts, rows, note, RANKINGS)


def read(options: Mapping[str, Any]) -> None:
    """Fail where a file cannot be used, or none of its questions counts."""
    if options["path"]:
        found = ranked.read(options["path"], _columns(options))
        if not ranked.counts(found, options["no_positive"])["questions"]:
            raise SourceError(
                f"{options['path']}: no question counts: each has only right or only wrong answers; give answers of "
                "both kinds"
            )
        ranked.means(options["vectors"], found)
    elif options["vectors"]:
        word_vectors.paths(options["vectors"])


def texts(options: Mapping[str, Any]) -> list[str]:
    """Questions and answers that are read from a file."""
    return ranked.read(options["path"], _columns(options)).texts if options["path"] else []


def digests(options: Mapping[str, Any]) -> list[str]:
    """Of the bytes that are read."""
    path = options["path"]
    tables = [table_files.digest(path, _columns(options).wanted())] if path else [""]
    return [*tables, *word_vectors.digests(options["vectors"])]


def _columns(options: Mapping[str, Any]) -> ranked.Columns:
    return ranked.Columns(*(options[name] for name in ("question", "answer", "label", "columns", "parallel")))
