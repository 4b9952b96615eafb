"""What an evaluation asks of a model, and what it gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from models.tokens_scored import TokenScores
from pipeline import table_files
from pipeline.shard import SourceError
from pipeline.tables import SCORES, Table

HELD_OUT = "held-out"


class Model(Protocol):
    """What an evaluation asks of a model; `score` knows which part of a readout belongs to which tower."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Texts to readout vectors, [N, D] float32."""

    def score(self, left_ND: np.ndarray, right_ND: np.ndarray) -> np.ndarray:
        """Readouts to the model's own scores, [left, right], higher is nearer."""


class WordModel(Protocol):
    """What evaluations of single words ask of a model beside `encode`."""

    tokenizer: Tokenizer

    @property
    def word_counts(self) -> np.ndarray | None:
        """How often each word was predicted in training, the end symbol last; None where no one knows."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """As of every model."""

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Vocabulary numbers of each text's words, none cut off."""

    def score_tokens(self, ids: list[list[int]]) -> TokenScores:
        """How likely each word is after those before it, of texts that are vocabulary numbers."""


@dataclass(frozen=True)
class Scores:
    """
    What an evaluation found.

    `figures` have flat names: `neighbours.mrr` is the model's, `neighbours.bm25.mrr` and `neighbours.random.mrr` are
    baselines, `neighbours.mrr_over_bm25`, `.low` and `.high` the difference with its 95 % interval. `rows` keeps each
    query's ranks, pair's cosine or text's predicted class, as rows of `table`, so that another model can be compared
    one by one. `note` says why there are no figures, or what to beware of.
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


def called(path: str, name: str) -> str:
    """
    What figures are called: as told, or else by the path's last part without suffix, or by held-out sentences.

    Raises:
        SourceError: of the path nothing is left that could be a name.
    """
    found = name or (table_files.name(path) if path else HELD_OUT)
    if not found:
        raise SourceError(f'path is "{path}", which gives figures no name; set name, as in name = "stsb-dev"')
    return found


def encoded(model: Model | WordModel, texts: list[str]) -> np.ndarray:
    """
    Vectors of texts, [N, D].

    Raises:
        ValueError: one that is not finite.
    """
    return finite(model.encode(texts), texts)


def finite(readout_ND: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """The same vectors, of these texts; a ValueError names one that is not finite."""
    finite_N = np.isfinite(readout_ND).all(axis=1)
    if not finite_N.all():
        text = texts[int(np.argmin(finite_N))]
        raise ValueError(f"the vectors of {(~finite_N).sum()} texts are not finite; the first: {text[:60]!r}")
    return readout_ND
