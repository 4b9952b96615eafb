"""
Training runs: in this process, on Ray, killed and gone on with.

One small corpus; dropout on.
"""

import math
import os
import pickle
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from runs import EPOCH, STEPS, difference, finish, flat, job_of, new_run, numbers

from models.folder import load
from models.recipe import digest, parse
from models.resolving import resolve
from pipeline import batches as making
from pipeline.run import CHECKPOINTS, NO_RESULT, STATE, WEIGHTS_VERSION, TrainingError, build, steps
from pipeline.train import fit, precise
from pipeline.weights import weights

# In this process.


def test_a_run_is_all_batches_of_all_epochs(made, undisturbed):
    run = undisturbed
    batches = made.store.piece("batches", making.epoch_key(run.job.plan, 0)).facts["batches"]
    assert run.state.step == run.state.steps == 3 * batches == STEPS
    assert [step for step, _ in run.state.losses] == list(range(STEPS)) and run.state.rows == STEPS * 8


def test_bounds_of_softmax_terms_are_logged_with_the_losses(undisturbed):
    """8 rows, the own one and repeats of answers left out: at most 7 candidates, and two answers share a target."""
    (number, told), losses = *undisturbed.state.bounds.items(), undisturbed.state.losses
    assert number == 0 and [step for step, _ in told] == [step for step, _ in losses]
    assert all(0 < bound + loss <= math.log(7) + 1e-5 for (_, bound), (_, loss) in zip(told, losses, strict=True))
    assert sum(bound for _, bound in told[-20:]) > sum(bound for _, bound in told[:20])


def test_every_weight_moved(made, undisturbed):
    before, after = build(undisturbed.job).state_dict(), undisturbed.method.state_dict()
    assert not [name for name in before if torch.equal(before[name], after[name])]


def test_steps_may_end_a_run_within_an_epoch(made):
    run = finish(new_run(job_of(made, steps=20)))
    assert run.state.step == 20


@pytest.mark.parametrize(("settings", "expected"), [({}, 30), ({"steps": 7}, 7), ({"steps": 99}, 30)])
def test_steps_never_exceed_the_epochs(made, settings, expected):
    assert steps(job_of(made, **settings).recipe.training, 10) == expected


def test_each_epoch_is_opened_once_in_order(made):
    opened = []
    finish(new_run(job_of(made), opened))
    assert opened == [0, 1, 2]


def test_counting_operations_disturbs_nothing(made, undisturbed):
    run = new_run(job_of(made))
    run.count_operations()
    assert numbers(finish(run).state).tolist() == numbers(undisturbed.state).tolist()
    assert torch.equal(flat(run.method.state_dict()), flat(undisturbed.method.state_dict()))
    assert run.state.operations > 0


@pytest.mark.parametrize("step", [1, EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH, STEPS - 1])
def test_a_run_goes_on_from_any_step_to_the_bit(made, undisturbed, tmp_path, step):
    """At the ends of epochs no batch is skipped and none is read twice."""
    first = new_run(job_of(made))
    next(state for state in first if state.step == step)
    first.save(tmp_path)
    second = new_run(job_of(made))
    second.restore(tmp_path)
    assert second.state.taken_up == [step]
    finish(second)
    assert second.state.losses == undisturbed.state.losses and second.state.bounds == undisturbed.state.bounds
    assert torch.equal(flat(second.method.state_dict()), flat(undisturbed.method.state_dict()))


def test_a_run_that_was_done_takes_no_step(made, undisturbed, tmp_path):
    undisturbed.save(tmp_path)
    run = new_run(job_of(made))
    run.restore(tmp_path)
    assert list(run) == []


def test_a_checkpoint_of_another_key_is_refused(made, undisturbed, tmp_path):
    undisturbed.save(tmp_path)
    with pytest.raises(TrainingError, match=f"is of training {undisturbed.job.key}, this one is"):
        new_run(job_of(made, rate=0.1)).restore(tmp_path)


def test_a_checkpoint_holds_nothing_that_is_executed(undisturbed, tmp_path):
    undisturbed.save(tmp_path)
    assert set(torch.load(tmp_path / STATE, weights_only=True)) == {"weights", "optimizer", "state", "best", "key"}


def test_weights_that_are_no_numbers_are_no_checkpoint(made):
    run = new_run(job_of(made))
    next(iter(run))
    with torch.no_grad():
        run.method.tower("f").gru.weight_hh_l0[0, 0] = torch.inf
    with pytest.raises(FloatingPointError, match=r"step 1: towers.f.gru.weight_hh_l0 holds .* lower training.rate"):
        run.check()


@pytest.mark.parametrize(("settings", "expected"), [({"checkpoint_steps": 7}, 7), ({}, 1_000_000)])
def test_checkpoints_lie_apart_as_the_recipe_says_or_by_time(made, settings, expected):
    run = new_run(job_of(made, **settings))
    run.state.step, run.state.seconds = 10, 1e-4  # a hundred thousand steps a second
    assert run.checkpoint_steps() == pytest.approx(expected, rel=1e-5)


def test_a_long_run_has_ten_checkpoints(made):
    run = new_run(job_of(made))
    run.state.step, run.state.seconds, run.state.steps = 10, 600.0, 5000
    assert run.checkpoint_steps() == 5000 // CHECKPOINTS


def test_auto_precision_is_resolved_before_the_key(made):
    recipe = made.recipe.model_copy(update={"training": made.recipe.training.model_copy(update={"precision": "auto"})})
    assert precise(recipe, gpu=False).training.precision in ("bf16", "fp32")
    assert precise(made.recipe, gpu=False) == made.recipe


@pytest.mark.parametrize(
    "settings",
    [{"cached": True}, {"log_steps": 5}, {"checkpoint_steps": 5}, {"start": "other/path"}, {"decay": "all"}],
    ids=str,
)
def test_what_changes_no_weight_changes_no_key(made, settings):
    assert job_of(made, **settings).key == job_of(made).key


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": 0.1},
        {"seed": 1},
        {"precision": "fp64"},
        {"epochs": 2},
        {"steps": 9},
        {"clip": None},
        {"decay": "matrices"},
    ],
    ids=str,
)
def test_what_changes_a_weight_changes_the_key(made, settings):
    assert job_of(made, **settings).key != job_of(made).key


def test_a_setting_that_came_later_stands_in_no_key_where_it_changes_nothing(made):
    """So weights of an earlier release are not trained again."""
    recipe, earlier = made.recipe, made.recipe.training.model_dump(exclude={"decay", *NO_RESULT})
    what = recipe.model_dump(include={"encoder", "view", "readout"}) | {"training": earlier}
    what["terms"] = [term.model_dump(exclude={"ahead"}) for term in recipe.terms]
    job = job_of(made)
    lanes, key = recipe.batches.lane_rows, job.vocabulary.digest
    assert job.key == digest("weights", WEIGHTS_VERSION, what, lanes, job.plan, key, job.given)


def of_points(made, riemannian, **training):
    """A short run over projected words that are trained."""
    tree = made.recipe.model_dump(mode="json")
    tree["encoder"] = {"kind": "projection", "width": 6, "word_width": 5, "frozen": False, "towers": ["f", "g"]}
    tree["encoder"] |= {"riemannian": riemannian, "initial": 1.0}
    tree["training"] |= {"optimizer": "sgd", "rate": 9.0, "steps": 3, **training}
    return new_run(replace(job_of(made), recipe=resolve(parse(tree))))


def test_a_run_keeps_a_table_of_points_in_the_ball(made):
    """Words start on the edge, where the factor makes steps 10,000 times shorter; at this rate many would leave it."""
    run = of_points(made, "table", rate=1000.0)
    before = run.method.tower("f").words.weight.clone()
    after = finish(run).method.tower("f").words.weight
    assert after.norm(dim=1).max().item() == pytest.approx(0.99, abs=1e-6) and not torch.equal(before, after)


def test_a_run_changes_gradients_before_they_are_clipped(made):
    """A step is as long as its gradient: .01 by the clip, of which scaling later would leave about a quarter."""
    run = of_points(made, "reference", steps=1, rate=1.0, clip=0.01, clip_by="global")
    before = flat(run.method.state_dict()).clone()
    assert (flat(finish(run).method.state_dict()) - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_a_start_stands_in_the_key_by_its_weights_and_not_by_its_path(made):
    assert replace(job_of(made, start="a/path"), given="digest").key == replace(job_of(made), given="digest").key
    assert replace(job_of(made), given="digest").key != job_of(made).key


@pytest.mark.parametrize("part", ["encoder", "batches", "vocabulary"])
def test_encoder_batches_and_vocabulary_stand_in_the_key(made, part):
    tree, job = made.recipe.model_dump(mode="json"), job_of(made)
    if part == "vocabulary":
        changed = replace(job, vocabulary=replace(made.vocabulary, counts=tuple(n + 1 for n in made.vocabulary.counts)))
    else:
        tree[part] |= {"encoder": {"width": 7}, "batches": {"lane_rows": 4}}[part]
        changed = replace(job, recipe=resolve(parse(tree)))
    assert changed.key != job.key


def test_the_recipes_name_stands_in_no_key(made):
    job = job_of(made)
    assert replace(job, recipe=job.recipe.model_copy(update={"name": "other"})).key == job.key


# On Ray.


@pytest.mark.ray
def test_a_run_on_ray_is_that_in_this_process(one, undisturbed):
    assert one.first.training["steps"] == STEPS and one.first.training["logged_steps"] == list(range(STEPS))
    assert difference(numbers(undisturbed.state), torch.tensor(one.first.training["loss"]).double()) < 1e-4
    told = torch.tensor(one.first.training["bound"]["0"], dtype=torch.float64)
    assert torch.allclose(told, torch.tensor(undisturbed.state.bounds[0], dtype=torch.float64), atol=1e-4)


@pytest.fixture(scope="module")
def killed(made, ray_session):
    """
    A run on two workers, one of which was killed, and the same in this process.

    In float64, so that two workers must agree with one to the last digits but a few; 20 epochs to have time.
    """
    job, killed = job_of(made, precision="fp64", epochs=20, checkpoint_steps=20), []

    def kill():
        wait_for(made.store, f"{job.run}/step_00000060/")  # Ray knows of the one before the last, at least
        workers = [child for child in psutil.Process().children(recursive=True) if "RayTrainWorker" in name_of(child)]
        workers[-1].kill()
        killed.append(workers[-1].pid)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    trained, expected = fit(job, 2, False), finish(new_run(job))
    assert killed
    return SimpleNamespace(trained=trained, expected=expected)


@pytest.mark.ray
def test_two_workers_take_the_steps_of_one(killed):
    assert difference(numbers(killed.expected.state), numbers(killed.trained.state)) < 1e-12


@pytest.mark.ray
def test_a_run_whose_worker_was_killed_ends_as_if_nothing_had_happened(made, killed):
    state, expected = killed.trained.state, killed.expected
    assert 20 <= state.taken_up[0] < 20 * EPOCH
    assert [step for step, _ in state.losses] == list(range(20 * EPOCH))
    saved = torch.load(Path(made.store.path(killed.trained.checkpoint)) / STATE, weights_only=True)["weights"]
    assert difference(flat(expected.method.state_dict()), flat(saved)) < 1e-9


def name_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_for(store, prefix, seconds=200):
    end = time.time() + seconds
    while not store.names(prefix):
        assert time.time() < end, f"no {prefix} after {seconds} s"
        time.sleep(0.02)


DRIVER = """
import pickle, sys
from pathlib import Path
from pipeline.cluster import session
from pipeline.store import Store
from pipeline.weights import weights

job = pickle.loads(Path(sys.argv[1]).read_bytes())
with session():
    weights(Store(job.store), job, {})
"""


@pytest.fixture(scope="module")
def resumed(made, ray_session, tmp_path_factory):
    """A run whose whole driver was killed, asked for again, on two workers now."""
    job = job_of(made, epochs=10, checkpoint_steps=6, seed=3)
    order = tmp_path_factory.mktemp("driver") / "job"
    order.write_bytes(pickle.dumps(job))
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(order)], env=os.environ) as driver:
        wait_for(made.store, f"{job.run}/step_00000036/")
        family = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
    for process in psutil.wait_procs(family, timeout=1)[1]:
        process.kill()
    return SimpleNamespace(job=job, result=weights(made.store, job, {}, workers=2))


@pytest.mark.ray
def test_a_run_whose_driver_was_killed_is_gone_on_with(resumed):
    assert not resumed.result.cached and 6 <= resumed.result.training["taken_up"][0] < 10 * EPOCH


@pytest.mark.ray
def test_a_run_that_was_gone_on_with_ends_as_if_nothing_had_happened(resumed, made):
    expected = finish(new_run(resumed.job))
    losses = torch.tensor(resumed.result.training["loss"], dtype=torch.float64)
    assert difference(numbers(expected.state), losses) < 1e-4
    trained = load(made.store.path(resumed.result.folder)).method.state_dict()
    assert (flat(expected.method.state_dict()) - flat(trained)).abs().max() < 1e-4


# From another model.


@pytest.mark.ray
def test_a_run_starts_from_a_folders_weights(one, made):
    folder = made.store.path(one.first.folder)
    begun, trained = build(job_of(made, start=folder)).state_dict(), load(folder).method.state_dict()
    assert all(torch.equal(begun[name], trained[name]) for name in trained)


@pytest.mark.ray
def test_a_model_with_other_words_is_no_start(one, made):
    job = job_of(made, start=made.store.path(one.first.folder))
    other = replace(made.vocabulary, tokenizer=made.vocabulary.tokenizer.replace("rowan", "poplar"))
    with pytest.raises(TrainingError, match=r"numbers words differently .* --set tokenizer.kind=saved"):
        build(replace(job, vocabulary=other))


@pytest.mark.ray
def test_a_model_of_another_shape_is_no_start(one, made):
    job = job_of(made, start=made.store.path(one.first.folder))
    tree = job.recipe.model_dump(mode="json")
    tree["encoder"]["width"] = 7
    with pytest.raises(TrainingError, match=r"whose encoder is not the recipe's: .*size mismatch"):
        build(replace(job, recipe=resolve(parse(tree))))


@pytest.mark.ray
def test_numbers_that_overflow_end_the_run_at_once(made, ray_session):
    """Not after three more tries that would end the same."""
    job, tree = job_of(made), made.recipe.model_dump(mode="json")
    tree["terms"][0]["similarity"]["temperature"] = 1e-44  # below what float32 can say
    job = replace(job, recipe=resolve(parse(tree)))
    with pytest.raises(TrainingError, match=r"step 0: the loss is .*; try training.precision=fp32 or a lower training"):
        fit(job, 2, False)
    assert made.store.names(f"{job.run}/step_00000001") == []
