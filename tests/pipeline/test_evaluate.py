"""Evaluations on a small real model that hashes words."""

import zlib

import numpy as np
import polars as pl
import pytest

from pipeline.evaluate import EVALUATIONS
from pipeline.evaluations.neighbours import neighbours
from pipeline.neighbours import words

SUBJECTS = ("the river", "the baker", "an old clock", "my sister", "the harbour", "a grey owl", "the teacher", "winter")
HABITS = ("sleeps early", "sings to nobody", "waits for news", "keeps the door shut", "dreams of bread", "counts stars")


class Hashing:
    """A text is the sum of its words' random directions; the readout holds one side for anchors, one for answers."""

    def encode(self, texts):
        return np.stack([self._text(text) for text in texts])

    def score(self, left_ND, right_ND):
        return left_ND[:, :256] @ right_ND[:, 256:].T

    def _text(self, text):
        total = np.zeros(256, np.float32)
        for word in words(text):
            total += np.random.default_rng(zlib.crc32(word.encode())).normal(size=256)
        return np.concatenate([total, total]) / 16


class Broken(Hashing):
    """Says nothing about one text."""

    def _text(self, text):
        return super()._text(text) * (np.nan if "baker" in text else 1)


@pytest.fixture
def sentences():
    """A document for each subject, which stands in all its sentences."""
    rows = [
        {"document": d, "place": p, "group": 100 * d + p, "text": f"{subject} {habit}"}
        for d, subject in enumerate(SUBJECTS)
        for p, habit in enumerate(HABITS)
    ]
    schema = {"document": pl.UInt64, "place": pl.UInt32, "group": pl.UInt64, "text": pl.String}
    return pl.DataFrame(rows, schema=schema)


def test_a_model_that_knows_words_is_better_than_chance(sentences):
    figures = neighbours(Hashing(), sentences).figures
    assert figures["neighbours.mrr"] > 2 * figures["neighbours.random.mrr"]


def test_the_three_scorers_stand_side_by_side_with_the_interval(sentences):
    figures = neighbours(Hashing(), sentences).figures
    plain = {f"neighbours.{side}{name}" for side in ("", "bm25.", "random.") for name in ("mrr", "hit@1", "hit@10")}
    over = {f"neighbours.mrr_over_bm25{end}" for end in ("", ".low", ".high")}
    assert set(figures) == plain | over | {"neighbours.alignment", "neighbours.uniformity"}


def test_figures_can_be_worked_out_again_from_the_rows(sentences):
    scores = neighbours(Hashing(), sentences)
    model, lexical = (1 / scores.rows[column] for column in ("rank_model", "rank_bm25"))
    assert model.mean() == pytest.approx(scores.figures["neighbours.mrr"])
    assert (model - lexical).mean() == pytest.approx(scores.figures["neighbours.mrr_over_bm25"])


def test_a_row_names_its_query_and_its_target(sentences):
    row = neighbours(Hashing(), sentences).rows.row(0, named=True)
    assert (row["document"], row["place"], row["query"], row["target"]) == (0, 0, 0, 1)


def test_vectors_that_are_given_are_used_row_for_row(sentences):
    shuffled = sentences.sample(fraction=1, shuffle=True, seed=3)
    vectors = Hashing().encode(shuffled["text"].to_list())
    assert neighbours(Hashing(), shuffled, vectors).figures == neighbours(Hashing(), sentences).figures


def test_vectors_of_another_number_are_refused(sentences):
    with pytest.raises(ValueError, match="47 vectors for 48 sentences"):
        neighbours(Hashing(), sentences, np.zeros((47, 512), np.float32))


def test_a_vector_that_is_not_finite_is_refused_with_its_text(sentences):
    with pytest.raises(ValueError, match="6 texts are not finite; the first: 'the baker sleeps early'"):
        neighbours(Broken(), sentences)


def test_counts_stand_beside_the_figures(sentences):
    scores = neighbours(Hashing(), sentences)
    assert scores.counts == {"queries": 40, "candidates": 47, "same_text": 0, "repeated": 0}
    assert scores.flat()["neighbours.queries"] == 40


def test_documents_of_one_sentence_give_a_note_and_no_figures(sentences):
    scores = neighbours(Hashing(), sentences.filter(pl.col("place") == 0))
    assert scores.figures == {}
    assert "none of 8 held-out sentences" in scores.note


def test_no_sentences_give_a_note_and_no_figures(sentences):
    assert "none of 0 held-out sentences" in neighbours(Hashing(), sentences.clear()).note


def test_evaluations_are_found_by_name():
    assert EVALUATIONS["neighbours"] is neighbours
