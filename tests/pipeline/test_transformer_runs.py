"""Runs of the SimCSE family over small corpora, in this process: examples, queues, a base to start from."""

import json
from types import SimpleNamespace

import corpora
import pytest
import torch
from runs import finish, flat, new_run, numbers

from models.folder import load as open_model
from models.recipe import load
from models.resolving import resolve
from pipeline.road import Road
from pipeline.run import Job, TrainingError, build, check_words
from pipeline.store import Store
from pipeline.weights import card, save

TINY = (
    "encoder.path=",
    "encoder.layers=1",
    "encoder.width=16",
    "encoder.heads=2",
    "encoder.positions=40",
    "tokenizer.size=60",
    "tokenizer.most_tokens=12",
    "batches.lane_rows=8",
    "training.epochs=2",
    "training.log_steps=1",
    "training.precision=fp32",
    "training.rate=0.001",
    "training.warmup=0",
)


def job_of(folder, corpus, name, *overrides):
    """A job as the flow makes it."""
    road = Road(Store.at(folder / "store"), resolve(load(name, [*TINY, *overrides])), str(corpus))
    sentences = road.sentences(road.documents(road.numbered()))
    vocabulary = road.vocabulary(sentences)
    source = road.source(sentences, road.tokens(sentences, vocabulary), road.pairs(sentences))
    return Job(road.store.root, road.recipe, source, vocabulary)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with running text and with triples."""
    folder = tmp_path_factory.mktemp("family")
    stories = [{"id": name, "text": " ".join(story)} for name, story in corpora.stories(12).items()]
    (folder / "stories.jsonl").write_text("\n".join(map(json.dumps, stories)), encoding="utf-8")
    story = corpora.story(1, 90)
    triples = [dict(zip(("anchor", "positive", "negative"), story[n : n + 3], strict=True)) for n in range(0, 90, 3)]
    (folder / "triples.jsonl").write_text("\n".join(map(json.dumps, triples)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def esimcse(place):
    settings = ("batches.rows=16", "terms.0.candidates.queue=12", "encoder.dropout=0.1")
    job = job_of(place, place / "stories.jsonl", "esimcse", *settings)
    return SimpleNamespace(job=job, whole=finish(new_run(job)))


def test_counting_operations_leaves_the_queue_as_it_was(esimcse):
    run = new_run(esimcse.job)
    run.count_operations()
    assert int(run.method.queue(0).filled) == 0
    assert torch.equal(numbers(finish(run).state), numbers(esimcse.whole.state))


@pytest.mark.parametrize("step", [1, 4])
def test_a_run_with_a_queue_goes_on_from_any_step_to_the_bit(esimcse, tmp_path, step):
    first = new_run(esimcse.job)
    for state in first:
        if state.step == step:
            break
    first.save(tmp_path)
    second = new_run(esimcse.job)
    second.restore(tmp_path)
    assert int(second.method.queue(0).filled) == min(12, 8 * step)
    assert torch.equal(flat(finish(second).method.state_dict()), flat(esimcse.whole.method.state_dict()))


def test_a_model_folder_has_no_queue(esimcse, tmp_path):
    save(tmp_path, esimcse.whole.method, esimcse.job.vocabulary.tokenizer, {}, card(esimcse.job, {}))
    model = open_model(tmp_path)
    assert not any(name.startswith("queues") for name, _ in model.method.named_buffers() if "slow" not in name)
    assert model.encode(["Oak elm ash."]).shape == (1, 16)


def test_triples_go_from_a_file_to_a_loss_that_falls(place):
    job = job_of(place, place / "triples.jsonl", "simcse-sup", "batches.rows=24", "training.epochs=40")
    losses = numbers(finish(new_run(job)).state)
    assert losses[-5:].mean() < losses[:5].mean() - 0.2


@pytest.fixture(scope="module")
def base(place, tmp_path_factory):
    """A model folder of a little BERT."""
    job = job_of(place, place / "stories.jsonl", "mlm", "batches.rows=16", "training.epochs=3")
    method, folder = finish(new_run(job)).method, tmp_path_factory.mktemp("base")
    save(folder, method, job.vocabulary.tokenizer, {}, card(job, {}))
    return SimpleNamespace(folder=folder, method=method, words=job.vocabulary.words())


def test_a_recipe_starts_from_a_base_of_ones_own_with_its_words(place, base):
    overrides = ("batches.rows=16", f"encoder.path={base.folder}")
    job = job_of(place, place / "stories.jsonl", "simcse-unsup", *overrides)
    assert job.vocabulary.words() == base.words
    started = build(job).tower("f").body.state_dict()
    trained = base.method.tower("f").body.state_dict()
    assert all(torch.equal(started[name], trained[name]) for name in started)


def test_the_masked_word_head_comes_along(place, base):
    job = job_of(place, place / "stories.jsonl", "consert-mlm", "batches.rows=16", f"encoder.path={base.folder}")
    before = base.method.tower("f").whole.state_dict()
    after = build(job).tower("f").whole.state_dict()
    assert {"cls.predictions.transform.dense.weight", "cls.predictions.bias"} <= after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("promptbert", ("tokenizer.kind=word-level",), r"the tokenizer has no \[CLS\]"),
        ("mlm", ("tokenizer.kind=word-level",), r"the tokenizer has no \[CLS\]"),
        ("mlm", ("tokenizer.most_tokens=39",), r"most_tokens is 39; the encoder has room for 38"),
    ],
)
def test_words_that_do_not_fit_are_refused_before_any_training(place, name, overrides, message):
    job = job_of(place, place / "stories.jsonl", name, "batches.rows=16", *overrides)
    with pytest.raises(TrainingError, match=message):
        check_words(job.recipe, job.vocabulary)
