"""The `scores` stage: evaluations kept query by query, pair by pair and text by text."""

import time

import numpy as np
import pytest
from runs import job_of

from models.folder import load, save
from models.recipe import Choice, RecipeError
from pipeline.embed import matrix, vectors
from pipeline.evaluate import EVALUATIONS
from pipeline.manifest import Manifest
from pipeline.probe import agreement as judged
from pipeline.run import build
from pipeline.scoring import EVERY, SCORES_VERSION, SPARE, held_out, outcome, sample
from pipeline.store import Piece, piece_key
from pipeline.sts import agreement

NEIGHBOURS = (Choice(kind="neighbours"),)


@pytest.fixture(scope="module")
def model(made, tmp_path_factory):
    """A model folder, and the vectors of the held-out sentences."""
    path = tmp_path_factory.mktemp("scoring") / "model"
    save(path, build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    return str(path), vectors(made.store, "scoring", str(path), made.sentences, EVERY)


def score(made, model, evaluations=NEIGHBOURS, weights="scoring"):
    return outcome(made.store, evaluations, model[0], made.sentences, model[1], weights)


def test_scores_are_what_the_evaluation_says(made, model):
    rows, matrix_ND = held_out(made.store, made.sentences, model[1])
    expected = EVALUATIONS["neighbours"](load(model[0]), rows, matrix_ND).flat()
    assert score(made, model).figures == pytest.approx(expected, nan_ok=True)


def test_a_second_call_only_reads(made, model):
    first = score(made, model)
    piece = made.store.piece("scores", first.key)
    started = time.time()
    second = score(made, ("no/such/folder", model[1]))
    assert second.cached and time.time() - started < 1 and made.store.piece("scores", first.key) == piece
    assert (second.figures, second.queries, second.notes) == (first.figures, first.queries, first.notes)


def test_each_querys_rank_is_kept(made, model):
    found = score(made, model)
    assert found.queries == len(made.store.read(made.store.piece("scores", found.key))) > 0
    assert found.row()["rows"] == found.queries


def test_other_options_are_other_scores(made, model):
    fewer = (Choice(kind="neighbours", options={"most": 10}),)
    assert score(made, model, fewer).key != score(made, model).key


def test_defaults_written_out_are_the_same_scores(made, model):
    default = EVALUATIONS["neighbours"].__kwdefaults__
    assert score(made, model, (Choice(kind="neighbours", options=dict(default)),)).key == score(made, model).key


def test_an_unknown_evaluation_lists_the_known_ones(made, model):
    with pytest.raises(RecipeError, match=r'evaluation.kind is "neighbour"; known: .*neighbours'):
        score(made, model, (Choice(kind="neighbour"),))


def test_held_out_sentences_stand_beside_their_vectors(made, model):
    rows, matrix_ND = held_out(made.store, made.sentences, model[1])
    whole = made.store.read(next(iter(made.sentences.pieces.values()))).filter("held_out")
    assert rows.equals(whole)
    assert np.array_equal(matrix_ND, matrix(made.store.read(next(iter(model[1].pieces.values())))["vector"]))


def test_without_vectors_there_are_no_rows(made):
    rows, matrix_ND = held_out(made.store, made.sentences, Manifest("vectors", "", {}))
    assert len(rows) == len(matrix_ND) == 0


def counted(count):
    """A piece that counts so many held-out sentences."""
    return [Piece("sentences", "k", "f", rows=count, bytes=0, sha256="", seconds=0, counts={"held_out": count})]


def test_all_documents_are_looked_at_while_they_are_few():
    assert sample(counted(SPARE * 500), (Choice(kind="neighbours", options={"most": 500}),)) == EVERY


def test_a_share_of_documents_is_looked_at_when_they_are_many():
    upto = sample(counted(SPARE * 5000), (Choice(kind="neighbours", options={"most": 500}),))
    assert upto / EVERY == pytest.approx(0.1)


def test_the_evaluation_that_wants_most_decides():
    many = [Choice(kind="neighbours", options={"most": most}) for most in (10, 500)]
    assert sample(counted(SPARE * 5000), many) == sample(counted(SPARE * 5000), many[1:])


# Rated pairs.


def rate(path, score="1"):
    """Rated pairs of trees, whose names the model knows."""
    rows = ["The oak.\tThe elm.\t4", "Ash and yew.\tYew and ash.\t5", f"Fir.\tPine and alder and rowan.\t{score}"]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows, "Fir.\tOak.\t"]))
    return Choice(kind="sts", options={"path": str(path)})


@pytest.fixture
def trees(tmp_path):
    return rate(tmp_path / "trees.tsv")


def test_cosines_of_rated_pairs_are_kept_under_the_key_of_the_scores(made, model, trees):
    found = score(made, model, (*NEIGHBOURS, trees))
    rows = made.store.read(made.store.piece("similarities", found.key))
    again = {f"sts.trees.{name}": value for name, value in agreement(rows).values.items()}
    assert again["sts.trees.spearman"] == found.figures["sts.trees.spearman"]
    assert found.queries == score(made, model).queries + 3


def test_rated_pairs_alone_need_no_held_out_sentence(made, model, trees):
    found = outcome(made.store, (trees,), model[0], made.sentences, Manifest("vectors", "", {}), "scoring")
    assert (found.figures["sts.trees.pairs"], found.figures["sts.trees.dropped"], found.row()["rows"]) == (3, 1, 3)


def test_other_bytes_in_the_file_are_other_scores(made, model, tmp_path):
    before, same = (score(made, model, (rate(tmp_path / "trees.tsv"),)) for _ in range(2))
    assert same.cached and (same.key, same.figures) == (before.key, before.figures)
    assert score(made, model, (rate(tmp_path / "trees.tsv", score="2"),)).key != before.key


def test_other_weights_are_other_scores_although_no_vector_changed(made, model, trees):
    assert score(made, model, (trees,), weights="others").key != score(made, model, (trees,)).key


def test_the_key_of_neighbours_is_of_choices_and_vectors_alone(made, model):
    choice = {"kind": "neighbours", "most": 20_000, "texts": 0}
    assert score(made, model).key == piece_key("scores", SCORES_VERSION, [choice], (model[1].key,))
    assert score(made, model, weights="others").key == score(made, model).key


def test_no_document_is_embedded_for_rated_pairs_alone(trees):
    assert sample(counted(5000), (trees,)) == 0
    assert sample(counted(SPARE * 500), (trees, Choice(kind="neighbours", options={"most": 500}))) == EVERY


def test_vectors_of_no_document_can_be_made_and_read(made, model, trees):
    none = vectors(made.store, "scoring", model[0], made.sentences, 0)
    assert none.rows == 0
    found = outcome(made.store, (trees,), model[0], made.sentences, none, "scoring")
    assert found.figures == pytest.approx(score(made, model, (trees,)).figures)


# Texts with classes.


@pytest.fixture
def kinds(tmp_path):
    rows = [
        f"{text}\t{kind}" for kind, words in (("one", "oak elm ash yew"), ("two", "fir pine")) for text in words.split()
    ]
    (tmp_path / "kinds.tsv").write_text("\n".join(["text\tlabel", *rows * 2]) + "\n")
    return Choice(kind="probe", options={"path": str(tmp_path / "kinds.tsv"), "folds": 4})


def test_predicted_classes_are_kept_under_the_key_of_the_scores(made, model, kinds, trees):
    found = score(made, model, (*NEIGHBOURS, kinds, trees))
    rows = made.store.read(made.store.piece("predictions", found.key))
    again = {f"probe.kinds.{name}": value for name, value in judged(rows).items()}
    assert again.items() <= found.figures.items() and found.figures["probe.kinds.texts"] == 12
    assert found.queries == score(made, model).queries + 12 + 3
    assert found.row()["rows"] == score(made, model, (*NEIGHBOURS, kinds, trees)).queries


def test_tables_that_no_evaluation_fills_are_not_written(made, model, kinds, trees):
    keys = {choice.kind: score(made, model, (choice,)).key for choice in (kinds, trees)}
    assert made.store.piece("similarities", keys["probe"]) is made.store.piece("predictions", keys["sts"]) is None
