"""
Evaluations: a model and held-out sentences to figures, each beside its baselines.

To add one, write a function that returns `Scores` and name it in `EVALUATIONS`; where it reads files that the recipe
names, name them in `GIVEN` too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from models.parts import complete
from models.recipe import Choice, RecipeError, digest
from pipeline import rated
from pipeline import sts as similarity
from pipeline.metrics import alignment, bootstrap_difference, uniformity
from pipeline.neighbours import Questions, bm25_ranks, model_ranks, questions, random_figures, retrieval
from pipeline.shard import SourceError
from pipeline.tables import SCORES, SIMILARITIES, Table


class Model(Protocol):
    """What an evaluation asks of a model; `score` knows which part of a readout belongs to which tower."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Texts to readout vectors, [N, D] float32."""

    def score(self, left_ND: np.ndarray, right_ND: np.ndarray) -> np.ndarray:
        """Readouts to the model's own scores, [left, right], higher is nearer."""


@dataclass(frozen=True)
class Scores:
    """
    What an evaluation found.

    `figures` have flat names: `neighbours.mrr` is the model's, `neighbours.bm25.mrr` and `neighbours.random.mrr` are
    baselines, `neighbours.mrr_over_bm25`, `.low` and `.high` the difference with its 95 % interval. `rows` keeps each
    query's ranks or each pair's cosine, as rows of `table`, so that another model can be compared one by one. `note`
    says why there are no figures.
    """

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    note: str = ""
    table: Table = SCORES

    def flat(self) -> dict[str, float]:
        """Figures and counts under flat names, as the scoreboard and the registry take them."""
        return {**self.figures, **{f"{self.name}.{name}": float(count) for name, count in self.counts.items()}}


def neighbours(
    model: Model, sentences: pl.DataFrame, vectors: np.ndarray | None = None, *, most: int = 20_000
) -> Scores:
    """
    Retrieval of the next sentence, against BM25 and chance; alignment and uniformity of the readout.

    Args:
        sentences: held-out sentences, columns as in `tables.SENTENCES`.
        vectors: their readouts, row for row; None: the texts that are needed are encoded.
        most: candidates at most, see `neighbours.questions`.
    Raises:
        ValueError: vectors of another number than sentences, or a vector that is not finite.
    """
    asked = questions(sentences, most=most)
    counts = {"queries": len(asked.query_Q), "candidates": asked.candidates}
    counts |= {"same_text": asked.same_text, "repeated": asked.repeated}
    if not len(asked.query_Q):
        note = (
            f"nothing to ask: none of {len(sentences)} held-out sentences is followed by another one; "
            "raise corpus.held_out, or add documents of several sentences"
        )
        return Scores("neighbours", counts={**counts, "candidates": max(0, asked.candidates)}, note=note)
    readout_ND = _readout(model, asked, len(sentences), vectors)
    rank_Q, lexical_Q = model_ranks(readout_ND, readout_ND, asked, model.score), bm25_ranks(asked)
    return Scores("neighbours", _figures(asked, readout_ND, rank_Q, lexical_Q), counts, _rows(asked, rank_Q, lexical_Q))


def _readout(model: Model, asked: Questions, size: int, vectors: np.ndarray | None) -> np.ndarray:
    if vectors is not None and len(vectors) != size:
        raise ValueError(f"{len(vectors)} vectors for {size} sentences; should be row for row")
    return _finite(model.encode(asked.texts) if vectors is None else vectors[asked.row_N], asked.texts)


def _finite(readout_ND: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    finite_N = np.isfinite(readout_ND).all(axis=1)
    if not finite_N.all():
        text = texts[int(np.argmin(finite_N))]
        raise ValueError(f"the vectors of {(~finite_N).sum()} texts are not finite; the first: {text[:60]!r}")
    return readout_ND


def _figures(asked: Questions, readout_ND: np.ndarray, rank_Q: np.ndarray, lexical_Q: np.ndarray) -> dict[str, float]:
    size, plain = asked.candidates, ("mrr", "hit@1", "hit@10")
    sides = {"": retrieval(rank_Q, size), "bm25.": retrieval(lexical_Q, size), "random.": random_figures(size)}
    over = bootstrap_difference(1 / rank_Q, 1 / lexical_Q)
    named = {f"{side}{name}": figures[name] for side, figures in sides.items() for name in plain}
    named |= {"mrr_over_bm25": over.mean, "mrr_over_bm25.low": over.low, "mrr_over_bm25.high": over.high}
    named["alignment"] = alignment(readout_ND[asked.query_Q], readout_ND[asked.target_Q])
    named["uniformity"] = uniformity(readout_ND)
    return {f"neighbours.{name}": value for name, value in named.items()}


def _rows(asked: Questions, rank_Q: np.ndarray, lexical_Q: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "document": asked.document_Q,
            "place": asked.place_Q,
            "query": asked.group_N[asked.query_Q],
            "target": asked.group_N[asked.target_Q],
            "rank_model": rank_Q.astype(np.uint32),
            "rank_bm25": lexical_Q.astype(np.uint32),
        }
    )


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
        path: a CSV, TSV, JSONL or Parquet file, or a folder or glob of them; see `rated.read`.
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
    called = name or rated.name(path)
    found = rated.read(path, rated.Columns(left, right, score))
    texts = list(dict.fromkeys([*found.pairs["left"], *found.pairs["right"]]))
    vector_ND = _finite(model.encode(texts), texts)
    rows = similarity.measured(found.pairs, called, texts, vector_ND)
    parts = [similarity.agreement(rows), similarity.shape(found.pairs, texts, vector_ND)]
    figures = {f"sts.{called}.{key}": value for part in parts for key, value in part.values.items()}
    note = "; ".join(why for part in parts for why in part.missing)
    counts = {"pairs": len(found.pairs), "dropped": found.unscored}
    return Scores(f"sts.{called}", figures, counts, rows, f"sts.{called}: {note}" if note else "", SIMILARITIES)


def check(evaluations: Sequence[Choice]) -> None:
    """
    Find what is wrong with evaluations before anything is trained.

    Raises:
        RecipeError: an unknown part or option, a file that cannot be used, or two evaluations of one name.
    """
    names: dict[str, int] = {}
    for number, choice in enumerate(evaluations):
        options = complete(EVALUATIONS, choice, f"evaluation.{number}").options
        if choice.kind in GIVEN:
            name = _named(options, f"evaluation.{number}")
            if name in names:
                raise RecipeError(
                    f'evaluation.{names[name]} and evaluation.{number} are both called "{name}"; give one of them '
                    "another name"
                )
            names[name] = number
            try:
                rated.read(options["path"], rated.Columns(options["left"], options["right"], options["score"]))
            except SourceError as error:
                raise RecipeError(f"evaluation.{number}: {error}") from None


def _named(options: Mapping[str, Any], where: str) -> str:
    name = options["name"] or rated.name(options["path"])
    if not re.fullmatch(r"[\w-]+", name):
        raise RecipeError(f'{where}.name is "{name}"; should be letters, digits, "_" or "-", as in name = "stsb-dev"')
    return str(name)


def given(evaluations: Sequence[Choice]) -> list[str]:
    """
    Digests of the files that completed evaluations read, for their bytes decide the figures; none for those that read
    held-out sentences alone.
    """
    return [digest(GIVEN[choice.kind](choice.options["path"])) for choice in evaluations if choice.kind in GIVEN]


EVALUATIONS: dict[str, Callable[..., Scores]] = {"neighbours": neighbours, "sts": sts}
GIVEN: dict[str, Callable[[str], str]] = {"sts": rated.digest}  # of those that read files: path to digest
