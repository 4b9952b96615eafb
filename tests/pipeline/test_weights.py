"""The `weights` stage: one run a key, and what it leaves."""

import time
from pathlib import Path

import pytest
from runs import job_of, new_run

from models.folder import load
from pipeline.run import TrainingError
from pipeline.weights import _keep, weights


@pytest.mark.ray
def test_of_two_that_want_the_same_weights_one_trains(one):
    assert not one.first.cached and one.second.cached
    assert (one.second.folder, one.second.training) == (one.first.folder, one.first.training)


@pytest.mark.ray
def test_weights_that_are_there_are_not_trained_again(one, made):
    started = time.time()
    again = weights(made.store, one.job, {}, workers=2)
    assert again.cached and again.folder == one.first.folder and time.time() - started < 1


@pytest.mark.ray
def test_the_model_folder_holds_the_trained_weights(one, made, undisturbed):
    trained = load(made.store.path(one.first.folder)).method.state_dict()
    expected = undisturbed.method.state_dict()
    assert max((trained[name] - expected[name]).abs().max().item() for name in expected) < 1e-4


@pytest.mark.ray
def test_the_model_folder_says_what_it_was_made_of(one, made):
    model = load(made.store.path(one.first.folder))
    assert model.lineage == {"corpus": "stories", "weights": one.job.key} and model.recipe == one.job.recipe
    assert "trained by Firth on stories" in Path(made.store.path(one.first.folder), "README.md").read_text()


@pytest.mark.ray
def test_what_only_the_run_needed_is_gone(one, made):
    """All but the first epoch's batches, which an unchanged corpus finds made."""
    assert made.store.names(f"{one.job.run}/") == []
    assert one.epochs_left == [0]


@pytest.mark.ray
def test_a_run_measures_itself(one):
    training = one.first.training
    assert training["rows_per_second"] > 0 and 0 < training["peak_share"] < 1 and training["taken_up"] == []


@pytest.mark.ray
def test_a_stages_row_counts_what_training_read(one):
    row = one.first.row()
    assert row["rows"] == one.first.training["steps"] * 8 and row["shards_new"] == 1 and one.second.row()["cached"]


def test_a_run_in_which_no_weight_moved_is_an_error(made, tmp_path):
    """A learning rate that rounding swallows, for one: the model would be the one it began with."""
    job = job_of(made, seed=9)
    name = "runs/still/step_00000000"
    folder = Path(made.store.path(name))
    folder.mkdir(parents=True)
    new_run(job).save(folder)
    with pytest.raises(TrainingError, match=r"ended with the weights it began with; look at training.rate"):
        _keep(made.store, job, name, {})
