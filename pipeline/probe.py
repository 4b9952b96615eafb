"""
Probes: how well do a model's frozen vectors tell classes apart, by logistic regression on them?

Beside the model stand the same regression on counts of words and, where a file of word vectors is given, on their mean.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from pipeline.classes import Classed
from pipeline.corpus import group
from pipeline.metrics import bootstrap_difference
from pipeline.neighbours import WORD
from pipeline.tables import PREDICTIONS
from pipeline.word_vectors import WordVectorsError
from pipeline.word_vectors import paths as vector_paths
from pipeline.word_vectors import read as read_vectors

STRENGTHS = (0.25, 1.0, 4.0, 16.0, 64.0)  # C; for a text of usual length the variance of scores before any was seen
INNER = 3  # folds of a training part that choose the strength, where it is one of several
STEPS = 1000  # of the solver at most; 300 were enough for strength 64 on all that was tried
# Of the gradient. With scikit-learn's own 1e-4 a warm start ends before its first step and all strong ones look alike;
# 1e-6 says the same of 99 texts in 100 or more, for 1.7 times the seconds. Measured on one fold of 10,662 movie
# reviews, of which ten folds with 2,400 numbers a text took 78 s on one core (November 2026).
TOLERANCE = 1e-5
SEED = 0

Features: TypeAlias = np.ndarray | sparse.csr_matrix  # [N, D]


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to try; the strength is chosen by `inner` folds of the former."""

    train_N: np.ndarray
    tried_N: np.ndarray
    inner: int


@dataclass(frozen=True)
class Words:
    """Mean word vectors of texts [N, D], and how many of their words have a vector."""

    mean_ND: np.ndarray
    known: int
    words: int

    @property
    def scarce(self) -> str:
        """A warning where most words have no vector."""
        lost = self.words - self.known
        return f"{lost:,} of {self.words:,} words have no word vector" if 2 * lost > self.words else ""


def splits(found: Classed, folds: int) -> list[Split]:
    """
    Each fold against the others, or the test part against the training part, behind which it stands.

    Folds hold equal shares of each class, and are the same each time.
    """
    size = len(found.texts)
    if found.test is not None:
        return [Split(np.arange(size), size + np.arange(len(found.test)), folds)]
    return [Split(train, tried, INNER) for train, tried in _stratified(found.texts["label"].to_numpy(), folds)]


def _stratified(label_N: np.ndarray, folds: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(np.zeros((len(label_N), 1)), label_N))


def said(feature_ND: Features, label_N: np.ndarray, split: Split) -> np.ndarray:
    """
    Classes that a regression gives to the rows that are tried, trained with the strength that is right most often in
    the inner folds; of equally good ones the least.

        minimise over w and b:   C * sum over n of - log softmax(w x_n + b)[label n] + |w|^2 / 2

    with x scaled by one number for all features, so that the mean squared distance of training rows from their mean is
    1: strengths mean the same for vectors of any length and width, and the geometry stays. Centring changes nothing
    but the solver's pace, for b is free; counts stay sparse without it.

    Args:
        feature_ND: float, a row for each text.
        label_N: the class of each text; those of rows that are tried are not looked at.
    Source:
        protocol of Conneau and Kiela 2018 (SentEval); scaling, strengths and the number of inner folds are ours.
    """
    known_ND, asked_ND = _scaled(feature_ND[split.train_N], feature_ND[split.tried_N])
    known_N = label_N[split.train_N]
    return _regression(_strength(known_ND, known_N, split.inner)).fit(known_ND, known_N).predict(asked_ND)


def _strength(feature_ND: Features, label_N: np.ndarray, folds: int) -> float:
    """The one that is right most often; of equally good ones the least."""
    right = sum(_right(feature_ND, label_N, *rows) for rows in _stratified(label_N, folds))
    return STRENGTHS[int(np.argmax(right))]


def _regression(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=STEPS, tol=TOLERANCE, warm_start=True)


def _right(feature_ND: Features, label_N: np.ndarray, train_N: np.ndarray, tried_N: np.ndarray) -> np.ndarray:
    """How many of the tried rows each strength gets right; each begins where the weaker one ended."""
    model, right = _regression(STRENGTHS[0]), []
    for strength in STRENGTHS:
        model.set_params(C=strength).fit(feature_ND[train_N], label_N[train_N])
        right.append(int((model.predict(feature_ND[tried_N]) == label_N[tried_N]).sum()))
    return np.array(right)


def _scaled(known_ND: Features, asked_ND: Features) -> tuple[Features, Features]:
    """Both sides by the spread of the known one; rows that are all alike stay."""
    if isinstance(known_ND, sparse.csr_matrix):
        middle_D = np.asarray(known_ND.mean(axis=0))
        spread = float(known_ND.multiply(known_ND).sum() / known_ND.shape[0] - np.square(middle_D).sum())
    else:
        middle_D = known_ND.mean(axis=0)
        known_ND, asked_ND = known_ND - middle_D, asked_ND - middle_D
        spread = float(np.square(known_ND).sum(axis=1).mean())
    scale = spread**-0.5 if spread > 0 else 1.0
    return known_ND * scale, asked_ND * scale


def bag(texts: list[str]) -> sparse.csr_matrix:
    """How often each word, in lower case, stands in each text, [N, V]; a column of zeros where there is no word."""
    return _counts([WORD.findall(text.lower()) for text in texts])[0]


def _counts(words_N: list[list[str]]) -> tuple[sparse.csr_matrix, dict[str, int]]:
    number: dict[str, int] = {}
    columns = [number.setdefault(word, len(number)) for words in words_N for word in words]
    ends = np.cumsum([0, *map(len, words_N)])
    shape = (len(words_N), max(1, len(number)))
    counts = sparse.csr_matrix((np.ones(len(columns)), np.array(columns, np.int32), ends.astype(np.int32)), shape)
    counts.sum_duplicates()
    return counts, number


def word_means(path: str, texts: list[str]) -> Words:
    """
    The mean of the vectors of each text's words, as they are written or else in lower case; zeros for a text of which
    no word has one.

    Raises:
        WordVectorsError: no file, a line that is not a word and its numbers, or no word of the texts in it.
    """
    try:
        vector_paths(path)
    except WordVectorsError as error:
        raise WordVectorsError(f"{path}: {error}") from None
    words_N = [WORD.findall(text) for text in texts]
    every = dict.fromkeys(word for words in words_N for word in words)
    wanted = {word: at for at, word in enumerate(dict.fromkeys([*every, *(word.lower() for word in every)]))}
    if not wanted:
        raise WordVectorsError(f"{path}: the texts hold no word; leave vectors out")
    table_VD = read_vectors(path, wanted).double().numpy()
    there = (table_VD != 0).any(axis=1).tolist()
    form = {word: word if there[wanted[word]] else word.lower() for word in every}
    known_N = [[form[word] for word in words if there[wanted[form[word]]]] for words in words_N]
    counts, number = _counts(known_N)
    own_VD = table_VD[[wanted[word] for word in number]] if number else np.zeros((1, table_VD.shape[1]))
    length_N = np.array([max(1, len(words)) for words in known_N])
    return Words(counts @ own_VD / length_N[:, None], sum(map(len, known_N)), sum(map(len, words_N)))


def kept(
    found: Classed, evaluation: str, split: list[Split], model: np.ndarray, bag: np.ndarray, words: np.ndarray | None
) -> pl.DataFrame:
    """
    Table `predictions`: of each text that was tried, its class and what each side says.

    Args:
        evaluation: its name.
        model, bag, words: what the sides say of the tried rows, split after split.
    """
    tried = found.every[np.concatenate([part.tried_N for part in split])]
    fold = np.concatenate([np.full(len(part.tried_N), at) for at, part in enumerate(split)])
    largest = found.texts["label"].value_counts().sort("count", "label", descending=[True, False])["label"][0]
    frame = tried.select(
        pl.lit(evaluation).alias("evaluation"),
        pl.col("source", "row"),
        group(tried["text"]).alias("text"),
        pl.col("label"),
        pl.Series("fold", fold, dtype=pl.UInt32),
        pl.Series("model", model, dtype=pl.String),
        pl.Series("bag", bag, dtype=pl.String),
        pl.Series("words", [None] * len(tried) if words is None else words, dtype=pl.String),
        pl.lit(largest).alias("most_common"),
    )
    return PREDICTIONS.check(frame)


def agreement(predictions: pl.DataFrame) -> dict[str, float]:
    """
    How often each side is right, times 100, all from table `predictions` alone.

    `accuracy` is the model's, `bag.accuracy` and `words.accuracy` those of counts and of mean word vectors,
    `most_common` that of always saying the class that most texts trained on have; `accuracy_over_bag` and
    `accuracy_over_words` are differences, with their 95 % interval over texts.
    """
    sides = [side for side in ("model", "bag", "words", "most_common") if not predictions[side].null_count()]
    right = {side: 100.0 * (predictions[side] == predictions["label"]).to_numpy() for side in sides}
    names = {"model": "accuracy", "bag": "bag.accuracy", "words": "words.accuracy", "most_common": "most_common"}
    figures = {names[side]: float(right_N.mean()) for side, right_N in right.items()}
    for side in [side for side in ("bag", "words") if side in right]:
        over = bootstrap_difference(right["model"], right[side])
        ends = {"": over.mean, ".low": over.low, ".high": over.high}
        figures |= {f"accuracy_over_{side}{end}": value for end, value in ends.items()}
    return figures
