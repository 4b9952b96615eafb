"""The whole road on a made-up corpus: twice, with one setting changed, grown, killed."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import mlflow
import pytest
from made_up import SMALL, sentences

from flows.order import check
from flows.retrain import retrain
from models.folder import load

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]

DATA = ("documents", "sentences", "tokens", "pairs", "batches")
STAGES = ["documents", "sentences", "tokens", "pairs", "negatives", "augmented", "batches"]
STAGES += ["weights", "vectors", "scores", "registered"]
LONG = ["training.rate=0.001", "training.epochs=30", "training.checkpoint_steps=12"]
GRACE_SECONDS = 120  # Ray's agents try for a minute to tell their dead head that it is dead


def run(corpus, store, *overrides, name=None):
    return retrain("quick-thoughts-bag", str(corpus), str(store), [*SMALL, *overrides], name=name)


def stages(result):
    return {stage["name"]: stage for stage in result["stages"]}


def weights_digest(result):
    return hashlib.sha256((Path(result["model_folder"]) / "weights.safetensors").read_bytes()).hexdigest()


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


def others(mark):
    """Those of them that are not Ray's agents."""
    return {pid: name for pid, name in processes(mark).items() if "Agent" not in name}


def wait_for(condition, seconds):
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def started(corpus, store, mark, *options):
    """The command itself, in training, with a checkpoint behind it that Ray knows of: the one before the last."""
    name, _, value = mark.partition("=")
    settings = [part for setting in (*SMALL, *LONG) for part in ("--set", setting)]
    command = [sys.executable, "-m", "flows", "retrain", "quick-thoughts-bag", "--corpus", str(corpus)]
    command += ["--store", str(store), *settings, *options]
    with (store.parent / f"{value}.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, name: value}, stderr=log, stdout=log)
    training = lambda: any(store.glob("progress/*.json")) and len([*store.glob("runs/*/step_*")]) > 1
    assert wait_for(lambda: training() or process.poll() is not None, 200)
    assert process.poll() is None, (store.parent / f"{value}.log").read_text()
    return process


@pytest.fixture(scope="module")
def first(trained):
    """What a first run says."""
    return json.loads(trained.stdout)


@pytest.fixture(scope="module")
def copied(first, store, tmp_path_factory):
    """A store with all data that `first` made, for each call."""
    leave = shutil.ignore_patterns("mlflow*", "weights")
    return lambda name: Path(shutil.copytree(store, tmp_path_factory.mktemp(name) / "store", ignore=leave))


@pytest.fixture(scope="module")
def killed(corpus, copied):
    """A store whose run was killed in training; the step of its last checkpoint; its mark."""
    store, mark = copied("killed"), "FIRTH_TEST=killed"
    process = started(corpus, store, mark)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not others(mark), GRACE_SECONDS)
    step = min(int(folder.name.removeprefix("step_")) for folder in store.glob("runs/*/step_*"))
    for record in store.glob("progress/*.json"):
        record.unlink()
    yield store, step, mark
    for pid in processes(mark):
        os.kill(pid, signal.SIGKILL)


# Killed first, and looked for last: the other tests go on while Ray's agents wait.


def test_a_killed_run_takes_training_and_server_with_it(killed):
    assert others(killed[2]) == {}


@pytest.fixture(scope="module")
def second(first, corpus, store):
    return run(corpus, store, name="made-up")


@pytest.fixture(scope="module")
def longer(second, corpus, store):
    """Other settings of the training only; also what a killed run is compared with."""
    return run(corpus, store, *LONG)


@pytest.fixture(scope="module")
def grown(longer, corpus, store):
    """Rows of the stages that lie shard by shard, for one document more and one less."""
    gone, new = corpus / "sea00.txt", corpus / "sea99.txt"
    text = gone.read_text()
    new.write_text(" ".join(sentences("sea", 8, "new")))
    gone.unlink()
    try:
        road = check("quick-thoughts-bag", str(corpus), str(store), SMALL).road
        documents = road.documents(road.numbered())
        cut = road.sentences(documents)
        made = [documents, cut, road.tokens(cut, road.vocabulary(cut)), road.pairs(cut)]
    finally:
        gone.write_text(text)
        new.unlink()
    return {table.name: table.row() for table in made}


def test_a_run_names_every_stage_of_the_road_in_order(first):
    assert [stage["name"] for stage in first["stages"]] == STAGES


def test_a_stage_says_what_it_made_and_what_it_took(first):
    fields = {"name", "key", "seconds", "cached", "shards_new", "shards_same", "shards_gone", "rows", "quarantined"}
    assert all(set(stage) == fields for stage in first["stages"])
    made = stages(first)
    assert (made["documents"]["rows"], made["documents"]["shards_new"]) == (41, 41)
    assert made["sentences"]["rows"] == made["tokens"]["rows"] == 40 * 8 + 1
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
    version = client.get_model_version_by_alias("made-up", "candidate")
    assert (int(version.version), first["registered"]["version"]) == (1, 1)


def test_the_summary_is_plain_json(second):
    assert json.loads(json.dumps(second)) == second


def test_a_second_run_does_no_work(second):
    assert [stage["name"] for stage in second["stages"] if not stage["cached"]] == []


def test_a_second_run_has_the_same_keys_and_the_same_model(first, second):
    assert [stage["key"] for stage in first["stages"]] == [stage["key"] for stage in second["stages"]]
    assert first["model_folder"] == second["model_folder"]


def test_a_second_run_registers_no_second_version(second):
    client = mlflow.MlflowClient(second["tracking"], second["tracking"])
    assert len(client.search_model_versions("name = 'made-up'")) == 1


def test_another_training_uses_all_data_stages_again(first, longer):
    assert all(stages(longer)[name]["cached"] for name in DATA)
    assert stages(longer)["weights"]["key"] != stages(first)["weights"]["key"]
    assert not stages(longer)["weights"]["cached"]


@pytest.mark.parametrize("name", ["documents", "sentences", "tokens", "pairs"])
def test_one_more_document_makes_a_new_piece_for_its_shard_only(grown, name):
    assert (grown[name]["shards_new"], grown[name]["shards_same"]) == (1, 40)


def test_a_shard_that_is_gone_is_counted(first, grown):
    assert [made["documents"]["shards_gone"] for made in (stages(first), grown)] == [0, 1]


@pytest.fixture(scope="module")
def resumed(killed, corpus):
    """The result of the run after, and the lowest step that it told of."""
    store, seen, done = killed[0], [], threading.Event()

    def watch():
        while not done.wait(0.02):
            for record in store.glob("progress/*.json"):
                with suppress(OSError, ValueError):  # just gone, or half written
                    seen.append(json.loads(record.read_text())["step"])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        result = run(corpus, store, *LONG)
    finally:
        done.set()
        thread.join()
    return result, min(seen)


def test_a_killed_run_goes_on_from_its_checkpoint(killed, resumed):
    assert resumed[1] > killed[1]
    assert all(stages(resumed[0])[name]["cached"] for name in DATA)


def test_a_killed_run_ends_with_the_weights_of_an_undisturbed_one(resumed, longer):
    assert resumed[0]["training"]["loss"] == longer["training"]["loss"]
    assert weights_digest(resumed[0]) == weights_digest(longer)


def test_ctrl_c_in_training_ends_with_a_line_and_130_and_leaves_no_process_behind(corpus, copied):
    mark = "FIRTH_TEST=stopped"
    store = copied("stopped")
    process = started(corpus, store, mark)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    log = (store.parent / "stopped.log").read_text()
    assert log.splitlines()[-1] == "firth: stopped; the same command goes on from here"
    assert "Traceback" not in log
    assert wait_for(lambda: not processes(mark), GRACE_SECONDS)


def test_a_killed_run_leaves_no_process_behind(killed):
    assert wait_for(lambda: not processes(killed[2]), GRACE_SECONDS)
