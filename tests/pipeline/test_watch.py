"""Measures while a run trains: when, of what, and which weights it ends with."""

import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from runs import flat, job_of, new_run, numbers

from models.folder import load
from models.recipe import Choice, RecipeError, Watch, parse
from models.resolving import resolve
from pipeline.evaluations.scores import Scores
from pipeline.run import Best
from pipeline.store import Store
from pipeline.watch import Watcher, WatchError, better, held_out
from pipeline.watch import followed as followed_figure
from pipeline.weights import _keep, unfollowed

FIGURE = "sts.animals.spearman"
TERM = {"candidates": {"kind": "batch"}, "similarity": {"kind": "dot"}, "objective": {"kind": "softmax"}}
TREE = {"name": "r", "encoder": {"kind": "bag"}, "terms": [TERM]}


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    """Rated pairs, as an evaluation."""
    path = tmp_path_factory.mktemp("rated") / "animals.tsv"
    rows = [(0, "a cat", "the moon"), (1, "a dog sleeps", "rain"), (3, "a red cat", "a cat"), (5, "a dog", "the dog")]
    pl.DataFrame(rows, schema=["score", "sentence1", "sentence2"], orient="row").write_csv(path, separator="\t")
    return Choice(kind="sts", options={"path": str(path)})


def watched(made, animals, **settings):
    """A job that is measured every seven steps or as told."""
    job = job_of(made)
    watch = Watch(**{"steps": 7, "evaluation": (animals,), **settings})
    return type(job)(job.store, job.recipe.model_copy(update={"watch": watch}), job.source, job.vocabulary)


def followed(run):
    """All steps, measured on the way."""
    watch = Watcher(run)
    watch()
    kept = {}
    for state in run:
        watch()
        kept[state.step] = {name: weight.clone() for name, weight in run.method.state_dict().items()}
    return kept


def test_a_run_is_measured_before_its_first_step_every_so_many_and_after_its_last(made, animals):
    run = new_run(watched(made, animals, steps=20))
    followed(run)
    assert [step for step, _ in run.state.watched] == [0, 20, 40, run.state.steps]
    shape = {"alignment", "uniformity", "effective_rank", "random_cosine", "spearman"}
    assert {f"sts.animals.{name}" for name in shape} <= set(run.state.watched[0][1])


def test_watching_changes_neither_losses_nor_weights(made, undisturbed, animals):
    run = new_run(watched(made, animals))
    followed(run)
    assert numbers(run.state).tolist() == numbers(undisturbed.state).tolist()
    assert torch.equal(flat(run.method.state_dict()), flat(undisturbed.method.state_dict()))
    assert run.method.training


def test_the_best_steps_weights_are_kept_whole(made, animals):
    run = new_run(watched(made, animals, best=FIGURE))
    kept = followed(run)
    figures = {step: found[FIGURE] for step, found in run.state.watched if step}
    best = max(figures, key=figures.get)
    assert (run.best.step, run.best.figure) == (best, figures[best])
    assert best < run.state.steps  # else the last weights would do
    assert torch.equal(flat(run.best.weights), flat(kept[best]))


def test_the_lowest_may_be_the_best(made, animals):
    run = new_run(watched(made, animals, best="sts.animals.random_cosine", lowest=True))
    followed(run)
    assert run.best.figure == min(found["sts.animals.random_cosine"] for step, found in run.state.watched if step)


def test_what_a_run_began_with_is_never_its_best(made, animals):
    run = new_run(watched(made, animals, best=FIGURE))
    Watcher(run)()
    assert len(run.state.watched) == 1 and run.best is None


def test_of_two_equals_the_earlier_stays():
    assert not better(Watch(steps=1, best="x"), 1.0, Best(3, 1.0, {}))
    assert not better(Watch(steps=1, best="x", lowest=True), 1.0, Best(3, 1.0, {}))


def test_a_restored_run_remembers_figures_and_best_weights(made, animals, tmp_path):
    first = new_run(job := watched(made, animals, best=FIGURE))
    watch = Watcher(first)
    watch()
    for state in first:
        watch()
        if state.step == 15:
            break
    first.save(tmp_path)
    second = new_run(job)
    second.restore(tmp_path)
    assert second.state.watched == first.state.watched
    assert (second.best.step, second.best.figure) == (first.best.step, first.best.figure)
    assert torch.equal(flat(second.best.weights), flat(first.best.weights))
    followed(second)
    whole = new_run(job)
    followed(whole)
    assert second.state.watched == whole.state.watched and second.best.step == whole.best.step


def test_a_run_in_bf16_rounds_vectors_and_not_scores(made, animals):
    job = watched(made, animals, evaluation=(animals, Choice(kind="neighbours")), steps=100)
    training = job.recipe.training.model_copy(update={"precision": "bf16"})
    job = type(job)(job.store, job.recipe.model_copy(update={"training": training}), job.source, job.vocabulary)
    run = new_run(job)
    watch = Watcher(run)
    watch()
    model = watch._model
    assert run.state.watched[0][1]["neighbours.mrr"] > 0
    left = np.linspace(0, 1, 2 * model.width, dtype=np.float32).reshape(2, -1)
    assert model.score(left, left).dtype == np.float32
    full = replace(model, rounding=nullcontext).encode(["the owl sleeps"])
    assert 0 < np.abs(model.encode(["the owl sleeps"]) - full).max() < 0.05


def test_other_workers_measure_nothing(made, animals):
    run = new_run(watched(made, animals))
    run.world = SimpleNamespace(rank=1)
    Watcher(run)()
    assert not run.state.watched


def test_a_figure_that_no_evaluation_gives_is_refused_before_the_first_step(made, animals):
    run = new_run(watched(made, animals, best="sts.animal.spearman"))
    with pytest.raises(WatchError, match=r'watch.best is "sts.animal.spearman"; figures: .*sts.animals.spearman'):
        Watcher(run)()
    assert run.state.step == 0


def test_held_out_sentences_are_what_neighbours_are_asked_of(made):
    rows = held_out(watched(made, Choice(kind="neighbours")))
    assert len(rows) and rows["held_out"].all()


def test_watching_enters_the_key_of_the_weights_and_not_watching_leaves_it(made, animals):
    plain = job_of(made)
    assert watched(made, animals, steps=None, evaluation=()).key == plain.key
    assert len({plain.key, watched(made, animals).key, watched(made, animals, best=FIGURE).key}) == 3


def test_the_evaluations_of_a_recipe_are_watched_unless_others_are_named():
    tree = TREE | {"evaluation": [{"kind": "neighbours", "most": 7}], "watch": {"steps": 5}}
    assert resolve(parse(tree)).watch.evaluation[0].options["most"] == 7
    named = tree | {"watch": {"steps": 5, "evaluation": [{"kind": "neighbours", "most": 9}]}}
    assert resolve(parse(named)).watch.evaluation[0].options["most"] == 9


def test_a_best_without_measures_is_refused():
    with pytest.raises(RecipeError, match=r"nothing is measured; set watch\.steps"):
        parse(
            {"name": "r", "encoder": {"kind": "bag"}, "terms": [{"objective": {"kind": "mlm"}}], "watch": {"best": "x"}}
        )


def test_a_model_folder_holds_the_best_weights(made, animals, tmp_path):
    run = new_run(job := watched(made, animals, best=FIGURE))
    kept = followed(run)
    run.save(tmp_path)
    store = Store(job.store)
    store.upload(tmp_path, "runs/watched")
    towers = load(store.path(_keep(store, job, "runs/watched", {}))).method.towers.state_dict()
    best = {name.removeprefix("towers."): weight for name, weight in kept[run.best.step].items()}
    assert torch.equal(flat(towers), torch.cat([best[name].flatten() for name in towers]))


def told(**figures):
    return [Scores("sts.animals", {f"sts.animals.{name}": value for name, value in figures.items()})]


@pytest.mark.parametrize("scores", [told(pearson=1.0), told(spearman=math.nan)], ids=["left out", "no number"])
def test_a_figure_that_is_not_defined_now_is_none(scores):
    assert followed_figure(Watch(steps=1, best=FIGURE), scores) is None


def test_a_figure_of_an_evaluation_that_is_not_there_is_refused():
    with pytest.raises(WatchError, match=r'watch\.best is "sts\.boats\.spearman"; figures: sts\.animals\.spearman'):
        followed_figure(Watch(steps=1, best="sts.boats.spearman"), told(spearman=1.0))


def test_a_run_goes_on_where_the_figure_is_not_defined(made, animals):
    run = new_run(watched(made, animals, best="sts.animals.undefined", steps=100))
    followed(run)
    assert run.state.step == run.state.steps and run.best is None


def test_a_figure_that_no_step_gave_is_told():
    [note] = unfollowed(Watch(steps=1, best=FIGURE), None)
    assert note == f'watch.best is "{FIGURE}", which no step gave: the weights are those of the last step'
    assert unfollowed(Watch(steps=1, best=FIGURE), 3) == unfollowed(Watch(), None) == []


def test_only_what_names_a_file_is_made_a_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "label"):
        (tmp_path / name).write_text("")
    options = {"path": "mine", "test": "mine", "vectors": "mine", "name": "mine", "label": "label"}
    tree = TREE | {"watch": {"steps": 5, "evaluation": [{"kind": "probe", **options}]}}
    found = resolve(parse(tree)).watch.evaluation[0].options
    whole = str(tmp_path / "mine")
    assert found == {"path": whole, "test": whole, "vectors": whole, "name": "mine", "label": "label"}
