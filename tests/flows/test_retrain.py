"""The whole road on a made-up corpus: twice, with one setting changed, grown, killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import mlflow
import pytest
from made_up import SMALL, sentences, write_corpus

from flows.retrain import retrain
from models.folder import load

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_session", "prefect_server")]

DATA = ("documents", "sentences", "tokens", "pairs", "batches")
STAGES = ["documents", "sentences", "tokens", "pairs", "negatives", "augmented", "batches"]
STAGES += ["weights", "vectors", "scores", "registered"]
LONG = [*SMALL, "tokenizer.kind=word-level", "training.epochs=60", "training.checkpoint_steps=20"]
GRACE_SECONDS = 90  # Ray's agents look for their dead head for a minute, if they were just starting


def run(corpus, store, *overrides, name="toy"):
    return retrain("quick-thoughts-bag", str(corpus), str(store), [*SMALL, *overrides], name=name)


def stages(result):
    return {stage["name"]: stage for stage in result["stages"]}


def weights_digest(result):
    return hashlib.sha256((Path(result["model_folder"]) / "weights.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("road") / "store"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A corpus that grows when all else has been seen."""
    return write_corpus(tmp_path_factory.mktemp("growing") / "texts")


@pytest.fixture(scope="module")
def first(texts, store):
    return run(texts, store)


@pytest.fixture(scope="module")
def second(first, texts, store):
    return run(texts, store)


@pytest.fixture(scope="module")
def changed(second, texts, store):
    """Another learning rate."""
    return run(texts, store, "training.rate=0.001", name=None)


@pytest.fixture(scope="module")
def grown(changed, texts, store):
    """One document more, and one less."""
    (texts / "sea99.txt").write_text(" ".join(sentences("sea", 8, "new")))
    (texts / "sea00.txt").unlink()
    return run(texts, store, "training.steps=4", name=None)


def test_a_run_names_every_stage_of_the_road_in_order(first):
    assert [stage["name"] for stage in first["stages"]] == STAGES


def test_a_stage_says_what_it_made_and_what_it_took(first):
    fields = {"name", "key", "seconds", "cached", "shards_new", "shards_same", "shards_gone", "rows", "quarantined"}
    assert all(set(stage) == fields for stage in first["stages"])
    made = stages(first)
    assert (made["documents"]["rows"], made["documents"]["shards_new"]) == (40, 40)
    assert made["sentences"]["rows"] == made["tokens"]["rows"] == 40 * 8
    assert made["registered"]["seconds"] > 0


def test_the_first_run_finds_nothing_made(first):
    assert not any(stage["cached"] for stage in first["stages"] if stage["key"])


def test_training_lowers_the_loss(first):
    loss = first["training"]["loss"]
    assert loss[-1] < loss[0] / 1.5


def test_scores_stand_beside_their_baselines(first):
    scores = first["scores"]
    assert scores["neighbours.queries"] > 20
    assert scores["neighbours.mrr"] > scores["neighbours.random.mrr"]
    assert "neighbours.bm25.mrr" in scores


def test_the_model_folder_encodes(first):
    assert load(first["model_folder"]).encode(["the wave and the gull", "iron"]).shape == (2, 16)


def test_the_version_is_registered_as_candidate(first):
    client = mlflow.MlflowClient(first["tracking"], first["tracking"])
    version = client.get_model_version_by_alias("toy", "candidate")
    assert (int(version.version), first["registered"]["version"]) == (1, 1)


def test_the_summary_is_plain_json(first):
    assert json.loads(json.dumps(first)) == first


def test_a_second_run_does_no_work(second):
    assert [stage["name"] for stage in second["stages"] if not stage["cached"]] == []


def test_a_second_run_has_the_same_keys_and_the_same_model(first, second):
    assert [stage["key"] for stage in first["stages"]] == [stage["key"] for stage in second["stages"]]
    assert first["model_folder"] == second["model_folder"]


def test_a_second_run_registers_no_second_version(second):
    client = mlflow.MlflowClient(second["tracking"], second["tracking"])
    assert len(client.search_model_versions("name = 'toy'")) == 1


def test_another_learning_rate_uses_all_data_stages_again(first, changed):
    assert all(stages(changed)[name]["cached"] for name in DATA)
    assert stages(changed)["weights"]["key"] != stages(first)["weights"]["key"]
    assert not stages(changed)["weights"]["cached"]


@pytest.mark.parametrize("name", ["documents", "sentences", "tokens", "pairs"])
def test_one_more_document_makes_a_new_piece_for_its_shard_only(grown, name):
    assert (stages(grown)[name]["shards_new"], stages(grown)[name]["shards_same"]) == (1, 39)


def test_a_shard_that_is_gone_is_counted(first, grown):
    assert [stages(result)["documents"]["shards_gone"] for result in (first, grown)] == [0, 1]


def processes(mark):
    """Every process that has a mark in its environment, whoever its parent is by now: number and command."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def wait_for(condition, seconds):
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def started(corpus, store, mark, *options):
    """The command itself, in training, with a checkpoint behind it."""
    name, _, value = mark.partition("=")
    settings = [part for setting in LONG for part in ("--set", setting)]
    command = [sys.executable, "-m", "flows", "retrain", "quick-thoughts-bag", "--corpus", str(corpus)]
    command += ["--store", str(store), *settings, *options]
    with (store.parent / f"{value}.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, name: value}, stderr=log, stdout=log)
    training = lambda: any(store.glob("progress/*.json")) and any(store.glob("runs/*/step_*"))
    assert wait_for(lambda: training() or process.poll() is not None, 120)
    assert process.poll() is None, (store.parent / f"{value}.log").read_text()
    return process


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    return run(corpus, tmp_path_factory.mktemp("undisturbed") / "store", *LONG, name=None)


@pytest.fixture(scope="module")
def killed(corpus, tmp_path_factory):
    """A store whose run was killed in training; the step of its last checkpoint; what was left of its processes."""
    store, mark = tmp_path_factory.mktemp("killed") / "store", "FIRTH_TEST=killed"
    process = started(corpus, store, mark)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not processes(mark), GRACE_SECONDS)
    left = processes(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    step = min(int(folder.name.removeprefix("step_")) for folder in store.glob("runs/*/step_*"))
    for record in store.glob("progress/*.json"):
        record.unlink()
    return store, step, left


@pytest.fixture(scope="module")
def resumed(killed, corpus):
    """The result of the run after, and the lowest step that it told of."""
    store, seen, done = killed[0], [], threading.Event()

    def watch():
        while not done.wait(0.02):
            for record in store.glob("progress/*.json"):
                seen.append(json.loads(record.read_text() or '{"step": 9999}')["step"])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        result = run(corpus, store, *LONG, name=None)
    finally:
        done.set()
        thread.join()
    return result, min(seen)


def test_a_killed_run_leaves_no_process_behind(killed):
    assert killed[2] == {}


def test_a_killed_run_goes_on_from_its_checkpoint(killed, resumed):
    assert resumed[1] > killed[1]
    assert all(stages(resumed[0])[name]["cached"] for name in DATA)


def test_a_killed_run_ends_with_the_weights_of_an_undisturbed_one(resumed, undisturbed):
    assert resumed[0]["training"]["loss"] == undisturbed["training"]["loss"]
    assert weights_digest(resumed[0]) == weights_digest(undisturbed)


def test_ctrl_c_in_training_ends_with_a_line_and_130_and_leaves_no_process_behind(corpus, tmp_path):
    mark = "FIRTH_TEST=stopped"
    process = started(corpus, tmp_path / "store", mark)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    log = (tmp_path / "stopped.log").read_text()
    assert log.splitlines()[-1] == "firth: stopped; the same command goes on from here"
    assert "Traceback" not in log
    assert wait_for(lambda: not processes(mark), GRACE_SECONDS)
