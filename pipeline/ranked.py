"""
Questions and their judged answers, from table files or held-out documents, put in order by a model, by words alone and
by mean word vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import bm25s
import numpy as np
import polars as pl

from pipeline import table_files
from pipeline.corpus import group
from pipeline.judged import RIGHT
from pipeline.metrics import bootstrap_difference
from pipeline.neighbours import words
from pipeline.probe import Words, word_means
from pipeline.ranking import NoPositive, average_precision, chance, counted, ordered, ranking
from pipeline.shard import SourceError
from pipeline.table_files import Row
from pipeline.tables import RANKINGS

SCHEMA = {"source": pl.String, "row": pl.UInt64, "question": pl.String, "answer": pl.String, "label": pl.UInt8}
COUNTS = ("questions", "none_right", "all_right")
SIDES = {"model": "", "bm25": "bm25.", "vectors": "vectors."}  # columns of table `rankings`, and their figures


@dataclass(frozen=True)
class Columns:
    """Names of the columns of question, answer and label; how a file is read, see `table_files.Columns`."""

    question: str
    answer: str
    label: str
    header: tuple[str, ...] = ()
    parallel: bool = False

    def wanted(self) -> table_files.Columns:
        """As table files take them."""
        names = (self.question, self.answer, self.label)
        return table_files.Columns(names, "question, answer and label", self.header, self.parallel)


@dataclass(frozen=True)
class Judged:
    """
    Answers in order of the file: `source`, `row`, `question` (text), `answer`, `label`, `number` (of the question).

    `unlabelled` rows were left out.
    """

    answers: pl.DataFrame
    unlabelled: int = 0

    @property
    def texts(self) -> list[str]:
        """Questions and answers, each text once."""
        return list(dict.fromkeys([*self.answers["question"], *self.answers["answer"]]))


def read(path: str, columns: Columns) -> Judged:
    """
    The answers of all files, in order of their names; the rows of a question are those of its text.

    A row without a label was not judged and is counted, not read. White space in texts is collapsed.

    Raises:
        SourceError: no file, no column, no row, or a row that cannot be used.
    """
    found, unlabelled = [], 0
    for row in table_files.rows(path, columns.wanted()):
        if row.blank(columns.label):
            unlabelled += 1
        else:
            texts = row.text(columns.question), row.text(columns.answer)
            found.append((row.source, row.row, *texts, _label(row, columns.label)))
    if not found:
        raise SourceError(f"{path}: no answer with a {columns.label}, {unlabelled} without; give judged answers")
    frame = pl.DataFrame(found, schema=SCHEMA, orient="row")
    return Judged(_numbered(frame, frame["question"]), unlabelled)


def held_out(sentences: pl.DataFrame, most: int) -> Judged:
    """
    The answers of held-out documents; questions of one text in two documents are two.

    Args:
        sentences: of any number of shards, with `label`; without it there are no questions.
        most: texts to stop at; documents come by their digest, and a question is whole or left out.
    """
    if "label" not in sentences.columns:
        return Judged(_numbered(pl.DataFrame(schema=SCHEMA), pl.Series([], dtype=pl.String)))
    rows = sentences.select("document", "place", "label", "text").sort("document", "place").with_row_index("row")
    rows = rows.with_columns(begin=pl.col("label").is_null().cum_sum())
    rows = rows.filter(pl.col("row").max().over("begin") < most)
    questions = rows.filter(pl.col("label").is_null()).select("begin", question="text")
    answers = rows.filter(pl.col("label").is_not_null()).join(questions, on="begin", how="inner", maintain_order="left")
    frame = answers.select(
        pl.col("row").cast(pl.UInt64), "question", "label", "begin", source=pl.lit(""), answer="text"
    )
    return Judged(_numbered(frame.select(list(SCHEMA)), frame["begin"]))


def _numbered(frame: pl.DataFrame, question: pl.Series) -> pl.DataFrame:
    number = question.rank("dense") - 1 if len(frame) else pl.Series([], dtype=pl.UInt32)
    return frame.with_columns(number=number.cast(pl.UInt32))


def _label(row: Row, column: str) -> int:
    value: Any = row.values[column]
    known = RIGHT.get(value.strip()) if isinstance(value, str) else value if value in (0, 1) else None
    if known is None:
        raise SourceError(
            f"{row.place}: {column} is {value!r}, should be 1 for a right answer or 0 for a wrong one; mend it, or "
            "leave it empty where the answer was not judged"
        )
    return int(known)


def scored(
    found: Judged,
    evaluation: str,
    vector_ND: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    vectors: Words | None,
) -> pl.DataFrame:
    """
    Table `rankings`: each answer with what the sides give it.

    Args:
        vector_ND: the model's vectors of `found.texts`.
        score: the model's own, questions by answers, [q, D] and [n, D] to [q, n].
        vectors: mean word vectors of `found.texts`.
    """
    answers = found.answers
    place = {text: at for at, text in enumerate(found.texts)}
    asked_N, answer_N = (np.array([place[text] for text in answers[side]]) for side in ("question", "answer"))
    frame = answers.select(
        pl.lit(evaluation).alias("evaluation"),
        "source",
        "row",
        pl.col("number").alias("question"),
        group(answers["question"]).alias("query"),
        group(answers["answer"]).alias("target"),
        "label",
        pl.Series("model", _own(vector_ND, asked_N, answer_N, score), dtype=pl.Float64),
        pl.Series("bm25", lexical(answers), dtype=pl.Float64),
        pl.Series("vectors", _cosines(vectors, asked_N, answer_N), dtype=pl.Float64),
    )
    return RANKINGS.check(frame)


def _own(
    vector_ND: np.ndarray,
    asked_N: np.ndarray,
    answer_N: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Scores of the model, question by question."""
    result_N = np.empty(len(asked_N))
    for rows_n in _by_question(asked_N):
        score_1n = score(vector_ND[asked_N[rows_n[:1]]], vector_ND[answer_N[rows_n]])
        if score_1n.shape != (1, len(rows_n)):
            raise ValueError(f"score gave shape {score_1n.shape}; should be one number a pair, {(1, len(rows_n))}")
        result_N[rows_n] = score_1n[0]
    return result_N


def _by_question(question_N: np.ndarray) -> Sequence[np.ndarray]:
    """Rows of each question."""
    order_N = np.argsort(question_N, kind="stable")
    return np.split(order_N, np.flatnonzero(np.diff(question_N[order_N])) + 1) if len(order_N) else []


def lexical(answers: pl.DataFrame) -> np.ndarray:
    """
    BM25 of each answer for its question, in the form of `neighbours.bm25_ranks`; words are rare or not by all answers.

    Source:
        Robertson and Zaragoza 2009, with k1 = 1.2 and b = 0.75.
    """
    texts = list(dict.fromkeys(answers["answer"]))
    place = {text: at for at, text in enumerate(texts)}
    answer_N = np.array([place[text] for text in answers["answer"]])
    index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    index.index([words(text) or [""] for text in texts], show_progress=False)
    result_N = np.zeros(len(answers))
    for rows_n in _by_question(answers["number"].to_numpy()):
        known = [word for word in words(answers["question"][int(rows_n[0])]) if word in index.vocab_dict]
        if known:
            result_N[rows_n] = index.get_scores(known)[answer_N[rows_n]]
    return result_N


def _cosines(vectors: Words | None, asked_N: np.ndarray, answer_N: np.ndarray) -> list[None] | np.ndarray:
    if vectors is None:
        return [None] * len(asked_N)
    unit_ND = vectors.mean_ND / np.linalg.norm(vectors.mean_ND, axis=1, keepdims=True).clip(min=1e-12)
    return np.einsum("nd,nd->n", unit_ND[asked_N], unit_ND[answer_N])


def figures(rankings: pl.DataFrame, no_positive: NoPositive, ks: Sequence[int]) -> dict[str, float]:
    """
    Measures of the model, of the baselines and of chance, and how the model differs from these, with its 95 % interval
    over questions: all from table `rankings`. Empty where no question counts.
    """
    label_N, question_N = rankings["label"].to_numpy(), rankings["question"].to_numpy()
    found: dict[str, float] = {}
    precise = {}
    for side, prefix in SIDES.items():
        if rankings[side].null_count():
            continue
        score_N = rankings[side].to_numpy()
        lists = ordered(score_N, label_N, question_N)
        keep_Q = counted(lists, no_positive)
        if not keep_Q.any():
            return {}
        precise[side] = average_precision(lists)[keep_Q]
        measured = ranking(score_N, label_N, question_N, no_positive=no_positive, ks=ks)
        found |= {f"{prefix}{name}": value for name, value in measured.items() if name not in COUNTS}
    found |= {f"random.{name}": value for name, value in chance(label_N, question_N, no_positive=no_positive).items()}
    for side in [side for side in precise if side != "model"]:
        over = bootstrap_difference(precise["model"], precise[side])
        ends = {"": over.mean, ".low": over.low, ".high": over.high}
        found |= {f"map_over_{side}{end}": value for end, value in ends.items()}
    return found


def norms(found: Judged, vector_ND: np.ndarray) -> dict[str, float]:
    """Mean length of the vectors of `found.texts` that are questions, and of those that are answers."""
    length_N = np.linalg.norm(vector_ND.astype(np.float64), axis=1)
    place = {text: at for at, text in enumerate(found.texts)}
    once = lambda side: found.answers[side].unique(maintain_order=True)
    mean = lambda side: float(length_N[[place[text] for text in once(side)]].mean())
    return {f"{side}_norm": mean(side) for side in ("question", "answer")}


def counts(found: Judged, no_positive: NoPositive) -> dict[str, int]:
    """Questions that count, those without a right or without a wrong answer, answers, and rows without a label."""
    label_N, question_N = found.answers["label"].to_numpy(), found.answers["number"].to_numpy()
    measured = ranking(np.zeros(len(label_N)), label_N, question_N, no_positive=no_positive) if len(label_N) else {}
    own = {name: int(measured.get(name, 0)) for name in COUNTS}
    return own | {"answers": len(label_N), "dropped": found.unlabelled}


def means(path: str, found: Judged) -> Words | None:
    """Mean word vectors of the texts; None: no path."""
    return word_means(path, found.texts) if path else None
