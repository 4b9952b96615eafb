"""Status, clean-up and forgetting by the command, on a store that runs use meanwhile."""

import json
import shutil
import threading
from pathlib import Path

import polars as pl
import pytest
from made_up import SMALL, firth, retrain

from flows.retrain import retrain as flow
from pipeline import cleaning, records
from pipeline.store import Store

pytestmark = [pytest.mark.long, pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]

FORGOTTEN = "sea04.txt"


@pytest.fixture(scope="module")
def texts(corpus, tmp_path_factory):
    """The corpus, to be changed."""
    return Path(shutil.copytree(corpus, tmp_path_factory.mktemp("kept") / "texts"))


@pytest.fixture(scope="module")
def beside(texts):
    """A run beside which clean-ups went on without a pause, each as greedy as can be; its store and result."""
    store, done, cleaned = Store.at(texts.parent / "store"), threading.Event(), []

    def clean():
        while not done.is_set():
            cleaned.append(cleaning.clean(store, (), keep_days=0, grace_seconds=3600))
            done.wait(1)

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        result = flow("quick-thoughts-bag", str(texts), store.root, SMALL, name="kept")
    finally:
        done.set()
        thread.join()
    return store, result, cleaned


@pytest.fixture(scope="module")
def status(beside):
    """What the store holds after the first run."""
    said = firth("data", "status", "--store", beside[0].root, "--json")
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)


@pytest.fixture(scope="module")
def again(status, beside, texts):
    """A clean-up that spares nothing for its age, and the run after it."""
    store = beside[0]
    for name in store.names("records/"):
        store.delete(name)
    said = firth("store", "clean", "--store", store.root, "--keep-days", 0, "--grace-hours", 0, "--json")
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout), flow("quick-thoughts-bag", str(texts), store.root, SMALL, name="kept")


@pytest.fixture(scope="module")
def forgotten(again, beside, texts):
    """What forgetting says; then a run and a clean-up."""
    place = ("--store", beside[0].root, "--json")
    said = firth("data", "forget", FORGOTTEN, "--corpus", texts, *place)
    assert said.exit_code == 0, said.output
    after = retrain(texts, beside[0].root, options=["--json"])
    assert after.exit_code == 0, after.output
    cleaned = firth("store", "clean", *place)
    assert cleaned.exit_code == 0, cleaned.output
    return json.loads(said.stdout), json.loads(after.stdout), json.loads(cleaned.stdout)


def test_a_clean_up_beside_a_run_takes_nothing_that_it_needs(beside):
    store, result, cleaned = beside
    assert any(each.running for each in cleaned)
    assert Path(result["model_folder"]).is_dir()
    for piece in (store.get(name) for name in store.names("sentences/") if name.endswith(".json")):
        assert Path(store.path(piece["file"])).is_file()


def test_status_counts_pieces_and_rows_and_names_runs_and_models(status, beside):
    rows = {stage["name"]: stage["rows"] for stage in beside[1]["stages"]}
    assert status["stages"]["sentences"]["rows"] == rows["sentences"]
    assert status["stages"]["sentences"]["pieces"] == 41
    assert [(run["recipe"], run["model"]) for run in status["runs"]] == [("quick-thoughts-bag", ["kept", "1"])]
    assert list(status["models"]) == ["kept version 1, candidate"]
    assert sum(stage["unused_bytes"] for stage in status["stages"].values()) == 0
    assert status["running"] == 0


def test_what_a_registered_model_was_made_of_is_still_there_after_a_clean_up(again, beside):
    cleaned, second = again
    stages = {stage["name"]: stage for stage in second["stages"]}
    assert second["model_folder"] == beside[1]["model_folder"]
    assert all(stages[name]["cached"] for name in ("weights", "batches"))
    assert all(stages[name]["shards_new"] == 0 for name in ("documents", "sentences", "tokens"))
    assert cleaned["objects"]["vectors"] > 0


def test_a_run_after_a_clean_up_comes_to_the_same_scores(again, beside):
    assert again[1]["scores"] == beside[1]["scores"]


def test_forgetting_names_the_registered_model_that_saw_the_text(forgotten):
    assert forgotten[0]["models"] == ["kept version 1, candidate"]


def test_after_the_next_run_and_a_clean_up_the_text_is_in_no_object_of_the_store(forgotten, beside, texts):
    _, after, cleaned = forgotten
    first = (texts / FORGOTTEN).read_text().split(".")[0]
    found = []
    for file in Path(beside[0].root).rglob("*"):
        text = file.read_bytes().decode(errors="replace") if file.is_file() else ""
        if file.suffix == ".parquet":
            text += json.dumps([row for row in pl.read_parquet(file).to_dicts()], default=str)
        named = FORGOTTEN in text and file.parent.name != "sources"  # the file is there still, and known by its name
        if first in text or named:
            found.append(file)
    assert found == []
    assert cleaned["forgotten"] > 0
    assert {stage["name"]: stage["shards_new"] for stage in after["stages"]}["documents"] == 1


def test_a_clean_up_stops_where_the_registry_does_not_answer(beside):
    said = firth("store", "clean", "--store", beside[0].root, "--tracking", "http://127.0.0.1:9", "--keep-days", 0)
    assert said.exit_code == 2
    assert "does not answer" in said.stderr
    assert records.alive(beside[0]) == set()


def test_status_and_clean_up_have_a_line_for_people(beside):
    assert "sentences" in firth("data", "status", "--store", beside[0].root).stdout
    assert firth("store", "clean", "--dry-run", "--store", beside[0].root).exit_code == 0
