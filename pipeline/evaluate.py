"""
Evaluations: a model and held-out sentences to figures, each beside its baselines.

To add one, write a function that returns `Scores` and name it in `EVALUATIONS`; where it reads files that the recipe
names, say in `GIVEN` how they are read and known.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np
import polars as pl
from pydantic import Field
from tokenizers import Tokenizer

from models.parts import complete
from models.recipe import Choice, Recipe, RecipeError, digest
from models.tokens_scored import PREDICTING, TokenScores
from models.trouble import MendableError
from pipeline import classes, ranked, rated, table_files, word_vectors
from pipeline import perplexity as predicting
from pipeline import probe as probing
from pipeline import sts as similarity
from pipeline.metrics import alignment, bootstrap_difference, uniformity
from pipeline.neighbours import Questions, bm25_ranks, model_ranks, questions, random_figures, retrieval
from pipeline.ranking import NoPositive
from pipeline.shard import SourceError
from pipeline.tables import PREDICTIONS, RANKINGS, SCORES, SIMILARITIES, Table


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

    def token_scores(self, texts: list[str]) -> TokenScores:
        """How likely each word is after those before it."""


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


def neighbours(
    model: Model, sentences: pl.DataFrame, vectors: np.ndarray | None = None, *, most: int = 20_000, texts: int = 0
) -> Scores:
    """
    Retrieval of the next sentence, against BM25 and chance; alignment and uniformity of the readout.

    Args:
        sentences: held-out sentences, columns as in `tables.SENTENCES`.
        vectors: their readouts, row for row; None: the texts that are needed are encoded.
        most: candidates at most, see `neighbours.questions`.
        texts: texts of an example, of which the first asks for the second; 0: running text.
    Raises:
        ValueError: vectors of another number than sentences, or a vector that is not finite.
    """
    asked = questions(sentences, most=most, texts=texts)
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
    called = name or table_files.name(path)
    found = rated.read(path, rated.Columns(left, right, score))
    texts = list(dict.fromkeys([*found.pairs["left"], *found.pairs["right"]]))
    vector_ND = _finite(model.encode(texts), texts)
    rows = similarity.measured(found.pairs, called, texts, vector_ND)
    parts = [similarity.agreement(rows), similarity.shape(found.pairs, texts, vector_ND)]
    figures = {f"sts.{called}.{key}": value for part in parts for key, value in part.values.items()}
    note = "; ".join(why for part in parts for why in part.missing)
    counts = {"pairs": len(found.pairs), "dropped": found.unscored}
    return Scores(f"sts.{called}", figures, counts, rows, f"sts.{called}: {note}" if note else "", SIMILARITIES)


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
    called = name or table_files.name(path)
    found = classes.read(path, test, classes.Columns(text, label), folds)
    texts, label_N = found.every["text"].to_list(), found.every["label"].to_numpy()
    split = probing.splits(found, folds)
    words = probing.word_means(vectors, texts) if vectors else None
    said = lambda feature_ND: np.concatenate([probing.said(feature_ND, label_N, part) for part in split])
    own = said(_encoded(model, texts))
    rows = probing.kept(found, called, split, own, said(probing.bag(texts)), said(words.mean_ND) if words else None)
    figures = {f"probe.{called}.{key}": value for key, value in probing.agreement(rows).items()}
    counts = {"texts": len(rows), "classes": len(set(label_N)), "dropped": found.unlabelled}
    counts |= {"trained": len(found.texts)} if test else {}
    note = f"probe.{called}: {words.scarce}" if words and words.scarce else ""
    return Scores(f"probe.{called}", figures, counts, rows, note, PREDICTIONS)


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
    called = f"words.{name or table_files.name(path)}"
    found = rated.read(path, rated.Columns(left, right, score))
    pairs = found.pairs.filter(pl.Series(predicting.known_pairs(model.tokenizer, found.pairs), dtype=pl.Boolean))
    once = list(dict.fromkeys([*pairs["left"], *pairs["right"]]))
    unknown = len(found.pairs) - len(pairs)
    counts = {"pairs": len(pairs), "unknown": unknown, "dropped": found.unscored}
    notes = [f"{unknown} of {len(found.pairs)} pairs have a word that the vocabulary lacks"] * (unknown > len(pairs))
    if not once:
        return Scores(called, {}, counts, note=f"{called}: {notes[0]}")
    rows = similarity.measured(pairs, called, once, _finite(model.encode(once), once))
    figures = similarity.correlation(rows)
    notes += figures.missing
    flat = {f"{called}.{key}": value for key, value in figures.values.items()}
    return Scores(called, flat, counts, rows, f"{called}: {'; '.join(notes)}" if notes else "", SIMILARITIES)


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
    called = f"perplexity.{name or (table_files.name(path) if path else predicting.HELD_OUT)}"
    held_out = sentences.sort("document", "place").head(most)["text"].to_list() if not path else []
    texts = predicting.read(path, text) if path else held_out
    if not texts:
        return Scores(called, note=f"{called}: no held-out sentence; raise corpus.held_out, or name a file as path")
    found = predicting.figures(model.token_scores(texts), model.tokenizer, texts, model.word_counts)
    flat = {f"{called}.{key}": value for key, value in found.values.items()}
    note = f"{called}: {'; '.join(found.notes)}" if found.notes else ""
    return Scores(called, flat, {**found.counts, "texts": len(texts)}, note=note)


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
    called = f"ranking.{name or table_files.name(path) or ranked.HELD_OUT}"
    how = ranked.Columns(question, answer, label, columns, parallel)
    found = ranked.read(path, how) if path else ranked.held_out(sentences, most)
    counts = ranked.counts(found, no_positive)
    if not counts["questions"]:
        note = f"{called}: none of {counts['none_right'] + counts['all_right']} questions counts"
        remedy = "give answers of both kinds" if path else "raise corpus.held_out, or give answers of both kinds"
        return Scores(called, counts=counts, note=f"{note}; {remedy}", table=RANKINGS)
    words = ranked.means(vectors, found)
    vector_ND = _finite(model.encode(found.texts), found.texts)
    rows = ranked.scored(found, called.partition(".")[2], vector_ND, model.score, words)
    figures = ranked.figures(rows, no_positive, ks) | ranked.norms(found, vector_ND)
    note = f"{called}: {words.scarce}" if words and words.scarce else ""
    return Scores(called, {f"{called}.{key}": value for key, value in figures.items()}, counts, rows, note, RANKINGS)


def _encoded(model: Model, texts: list[str]) -> np.ndarray:
    """A vector for each text; one that repeats is encoded once."""
    place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    once = list(place)
    return _finite(model.encode(once), once)[[place[text] for text in texts]]


def completed(choice: Choice, where: str = "evaluation") -> Choice:
    """An evaluation with every option filled in; a RecipeError names what is unknown."""
    return complete(EVALUATIONS, choice, where)


def check(evaluations: Sequence[Choice], where: str = "evaluation") -> None:
    """
    Find what is wrong with evaluations before anything is trained.

    Raises:
        RecipeError: an unknown part or option, a file that cannot be used, or two evaluations of one name.
    """
    names: dict[tuple[str, str], int] = {}
    for number, choice in enumerate(evaluations):
        options = completed(choice, f"{where}.{number}").options
        if choice.kind in GIVEN:
            name = _named(options, f"{where}.{number}")
            if (first := names.setdefault((choice.kind, name), number)) != number:
                raise RecipeError(
                    f'{where}.{first} and {where}.{number} are both called "{name}"; give one of them another name'
                )
            try:
                GIVEN[choice.kind].read(options)
            except MendableError as error:
                raise RecipeError(f"{where}.{number}: {error}") from None


def fits(recipe: Recipe) -> None:
    """
    Find before anything is trained what the model will not be able to do.

    Raises:
        RecipeError: an evaluation of vectors where there are none, or of predicted words where none are.
    """
    kind = recipe.encoder.kind
    named = [(f"evaluation.{number}", choice) for number, choice in enumerate(recipe.evaluation)]
    named += [(f"watch.evaluation.{number}", choice) for number, choice in enumerate(recipe.watch.evaluation)]
    for place, choice in named:
        where = f'{place}.kind is "{choice.kind}", but encoder.kind = {kind}'
        if choice.kind == "perplexity" and kind not in PREDICTING:
            raise RecipeError(f"{where} predicts no words; kinds that do: {', '.join(sorted(PREDICTING))}")
        if choice.kind != "perplexity" and recipe.counting:
            raise RecipeError(f"{where} has no vectors; what it can be asked: perplexity")


def _named(options: Mapping[str, Any], where: str) -> str:
    name = options["name"] or table_files.name(options["path"]) or ranked.HELD_OUT
    if not re.fullmatch(r"[\w-]+", name):
        raise RecipeError(f'{where}.name is "{name}"; should be letters, digits, "_" or "-", as in name = "stsb-dev"')
    return str(name)


def given(evaluations: Sequence[Choice]) -> list[str]:
    """
    Digests of the files that completed evaluations read, for their bytes decide the figures; none for those that read
    held-out sentences alone.
    """
    return [digest(*GIVEN[choice.kind].digests(choice.options)) for choice in evaluations if choice.kind in GIVEN]


@dataclass(frozen=True)
class Given:
    """Files that an evaluation's options name: `read` raises what is wrong with them, `digests` are of their bytes."""

    read: Callable[[Mapping[str, Any]], object]
    digests: Callable[[Mapping[str, Any]], list[str]]


def _read_pairs(options: Mapping[str, Any]) -> None:
    rated.read(options["path"], rated.Columns(options["left"], options["right"], options["score"]))


def _read_texts(options: Mapping[str, Any]) -> None:
    if options["path"]:
        predicting.read(options["path"], options["text"])


def _read_classes(options: Mapping[str, Any]) -> None:
    columns = classes.Columns(options["text"], options["label"])
    found = classes.read(options["path"], options["test"], columns, options["folds"])
    if options["vectors"]:
        probing.word_means(options["vectors"], found.every["text"].to_list())


def _class_digests(options: Mapping[str, Any]) -> list[str]:
    tables = [table_files.digest(path) if path else "" for path in (options["path"], options["test"])]
    return [*tables, *_vector_digests(options)]


def _vector_digests(options: Mapping[str, Any]) -> list[str]:
    found = []
    for path in word_vectors.paths(options["vectors"]) if options["vectors"] else []:
        with path.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return found


def _answer_columns(options: Mapping[str, Any]) -> ranked.Columns:
    return ranked.Columns(*(options[name] for name in ("question", "answer", "label", "columns", "parallel")))


def _read_answers(options: Mapping[str, Any]) -> None:
    if options["path"]:
        found = ranked.read(options["path"], _answer_columns(options))
        if not ranked.counts(found, options["no_positive"])["questions"]:
            raise SourceError(
                f"{options['path']}: no question counts: each has only right or only wrong answers; give answers of "
                "both kinds"
            )
        ranked.means(options["vectors"], found)
    elif options["vectors"]:
        word_vectors.paths(options["vectors"])


def _answer_digests(options: Mapping[str, Any]) -> list[str]:
    path = options["path"]
    tables = [table_files.digest(path, _answer_columns(options).wanted())] if path else [""]
    return [*tables, *_vector_digests(options)]


EVALUATIONS: dict[str, Callable[..., Scores]] = {
    "neighbours": neighbours,
    "sts": sts,
    "probe": probe,
    "words": words,
    "perplexity": perplexity,
    "ranking": ranking,
}
GIVEN: dict[str, Given] = {
    "sts": Given(_read_pairs, lambda options: [table_files.digest(options["path"])]),
    "probe": Given(_read_classes, _class_digests),
    "words": Given(_read_pairs, lambda options: [table_files.digest(options["path"])]),
    "perplexity": Given(_read_texts, lambda options: predicting.digests(options["path"])),
    "ranking": Given(_read_answers, _answer_digests),
}
