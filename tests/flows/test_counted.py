"""A recipe that counts on the whole road: the command, a second run, what is served and what is refused."""

import json

import mlflow
import numpy as np
import pytest
from made_up import firth, sentences

from models.folder import load
from pipeline.perplexity import figures
from pipeline.vocabulary import unknown

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]

TEXTS = sentences("sea", 30, "held") + sentences("forge", 30, "held")


@pytest.fixture(scope="module")
def asked(corpus, tmp_path_factory):
    """Arguments of a run that is measured on held-out sentences and on a file."""
    place = tmp_path_factory.mktemp("counted")
    (place / "more.txt").write_text("\n".join(TEXTS))
    evaluation = f"evaluation=[{{kind='perplexity'}},{{kind='perplexity',path='{place / 'more.txt'}'}}]"
    settings = ("--set", "corpus.held_out=0.2", "--set", evaluation, "--register", "counted")
    return ("retrain", "ngram", "--corpus", corpus, "--store", place / "store", *settings)


@pytest.fixture(scope="module")
def first(asked):
    result = firth(*asked, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def again(first, asked):
    """The page that a second run prints."""
    result = firth(*asked)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_counting_takes_the_place_of_batches_and_of_training(first):
    stages = [stage["name"] for stage in first["stages"] if stage["rows"]]
    assert stages == ["documents", "sentences", "tokens", "counts", "vectors", "registered"]
    assert (first["training"]["steps"], first["training"]["loss"]) == (0, [])
    assert first["training"]["ngrams"] > 100


def test_words_in_context_are_told_better_than_alone(first):
    scores = first["scores"]
    assert 1 < scores["perplexity.held-out.normalised"] < scores["perplexity.held-out.unigram.normalised"] / 2
    assert scores["perplexity.held-out.log_z_mean"] == scores["perplexity.held-out.log_z_spread"] == 0


def test_the_folder_gives_the_figures_again(first):
    model = load(first["model_folder"])
    ids = model.tokens(TEXTS)
    found = figures(model.score_tokens(ids), ids, unknown(model.tokenizer), model.word_counts).values
    kept = {key: first["scores"][f"perplexity.more.{key}"] for key in found}
    assert kept == pytest.approx(found)


def test_all_words_and_ends_of_training_are_counted(first):
    counted = first["training"]["predicted"]
    assert counted == load(first["model_folder"]).word_counts.sum()
    held_out = first["scores"]["perplexity.held-out.tokens"]
    assert counted + held_out == first["read"]["tokens"] + first["read"]["sentences"]


def test_a_second_run_counts_nothing(again):
    assert "9 of 9 stages were there already" in again
    assert "different n-grams of 3 words among" in again
    assert "firth encode" not in again


def test_it_is_served_as_probabilities_of_texts(first):
    mlflow.set_tracking_uri(first["tracking"])
    try:
        served = mlflow.pyfunc.load_model(first["registered"]["uri"])
    finally:
        mlflow.set_tracking_uri(None)
    model = load(first["model_folder"])
    assert np.allclose(served.predict(TEXTS[:3]), model.token_scores(TEXTS[:3]).of_texts(3))


@pytest.mark.parametrize("command", [("encode",), ("search",)])
def test_vectors_are_refused_with_what_it_can_do(first, corpus, command):
    rest = ("iron", "--corpus", corpus) if command == ("search",) else ()
    result = firth(*command, first["model_folder"], *rest, "--store", first["store"], text="iron\n")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("firth: recipe ngram counts words and has no vectors; it tells")


def test_an_order_below_one_is_refused_before_any_work(asked):
    result = firth(*asked, "--set", "encoder.order=0")
    assert result.exit_code == 2
    assert "encoder.order is 0; at least 1" in result.stderr
