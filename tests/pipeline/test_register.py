"""The registry, on a real sqlite file and a real MLflow server; the model is a tiny real one."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from models.folder import load, save
from models.method import Method
from models.recipe import parse
from models.resolving import resolve
from pipeline import register as registry
from pipeline.register import RegistryError, check, fetch, flat, plain, register, tracking

import mlflow  # isort: skip  after the settings that silence it

WORDS = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}
TEXTS = ["the cat", "sat", "a dog"]
RECIPE = {
    "name": "tiny",
    "encoder": {"kind": "bag", "width": 5},
    "terms": [{"candidates": "batch", "similarity": "dot", "objective": "softmax"}],
}
LOSS = [(step, 7.0 - step / 1000) for step in range(2500)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder of five numbers a text."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("model") / "folder"
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    save(place, Method(resolve(parse(RECIPE)), len(WORDS)), tokenizer.to_str(), {"weights": "k1"}, "# tiny\n")
    return place


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A registry on sqlite, laid out once: that takes a second."""
    return tracking(str(tmp_path_factory.mktemp("store")), None)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def put(uri, folder, name, key, scores=None):
    scores = scores or {"neighbours.mrr": 0.25, "neighbours.hit@10": 0.5}
    tags = {"firth.weights": key, "firth.corpus": "pydoc"}
    return register(
        uri, folder=folder, name=name, parameters=RECIPE, scores=scores, loss=LOSS, tags=tags, bound={"1": LOSS}
    )


def client(uri):
    return mlflow.MlflowClient(uri, uri)


def versions(uri, name):
    return [int(found.version) for found in client(uri).search_model_versions(f"name = '{name}'")]


@pytest.fixture(scope="module")
def first(local, folder):
    """A model that is registered."""
    return put(local, folder, "first", "k1")


def test_the_default_registry_is_a_file_in_the_store(tmp_path):
    assert tracking(str(tmp_path), None) == f"sqlite:///{tmp_path}/mlflow.db"
    assert tracking(tmp_path.as_uri(), None) == f"sqlite:///{tmp_path}/mlflow.db"


def test_an_address_goes_before_the_environment_and_that_before_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://b:1")
    assert tracking(str(tmp_path), "http://a:1") == "http://a:1"
    assert tracking(str(tmp_path), None) == "http://b:1"


def test_a_store_in_a_bucket_asks_for_an_address():
    with pytest.raises(RegistryError, match=r"s3://bucket/store is no local folder.*name a tracking URI"):
        tracking("s3://bucket/store", None)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://127.0.0.1:9", "does not answer at 127.0.0.1:9"),
        ("http://no-such-host.invalid:5000", "does not answer at no-such-host.invalid:5000"),
        ("postgresql+psycopg2://me:pw@127.0.0.1:9/mlflow", "does not answer at 127.0.0.1:9"),
        ("gopher://127.0.0.1:9", "does not answer"),
        ("nonsense:thing", "nonsense:thing"),
        ("./mlruns", "plain folder"),
        ("file:///tmp/mlruns", "plain folder"),
        ("sqlite:////dev/null/mlflow.db", "name a file in a folder that can be written"),
    ],
)
def test_a_wrong_address_is_refused_within_seconds(uri, reason):
    start = time.monotonic()
    with pytest.raises(RegistryError, match=reason):
        check(uri)
    assert time.monotonic() - start < 10


def test_a_server_that_is_not_mlflow_is_refused_once_its_time_is_over(monkeypatch):
    monkeypatch.setattr(registry, "SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        start = time.monotonic()
        with pytest.raises(RegistryError, match=r"127\.0\.0\.1"):
            check(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert 1 <= time.monotonic() - start < 10


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "mlflow.db"
    path.write_text("not a database, and long enough to be taken for one " * 20)
    with pytest.raises(RegistryError, match="file is not a database"):
        check(f"sqlite:///{path}")


def test_a_registry_that_is_not_there_yet_is_no_fault_and_not_laid_out_for_asking(tmp_path):
    check(tracking(str(tmp_path / "new"), None))
    assert not (tmp_path / "new" / "mlflow.db").exists()


def test_the_environment_is_left_as_it_was(first, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mine:1")
    check(first.tracking)
    assert os.environ["MLFLOW_TRACKING_URI"] == mlflow.get_tracking_uri() == "http://mine:1"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mine:2")
    assert mlflow.get_tracking_uri() == "http://mine:2"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_losses_stand_in_the_run_step_by_step(first):
    history = client(first.tracking).get_metric_history(first.run_id, "loss")
    assert sorted((entry.step, entry.value) for entry in history) == LOSS


def test_bounds_stand_in_the_run_step_by_step(first):
    history = client(first.tracking).get_metric_history(first.run_id, "bound.1")
    assert sorted((entry.step, entry.value) for entry in history) == LOSS


def test_scores_stand_under_names_that_mlflow_takes(first):
    metrics = client(first.tracking).get_run(first.run_id).data.metrics
    assert (metrics["neighbours.mrr"], metrics["neighbours.hit_at_10"]) == (0.25, 0.5)


def test_the_recipe_stands_flat_among_the_parameters(first):
    parameters = client(first.tracking).get_run(first.run_id).data.params
    assert parameters == {
        "name": "tiny",
        "encoder.kind": "bag",
        "encoder.width": "5",
        "terms.0.candidates": "batch",
        "terms.0.similarity": "dot",
        "terms.0.objective": "softmax",
    }


def test_run_and_version_say_where_they_come_from(first):
    run = client(first.tracking).get_run(first.run_id)
    version = client(first.tracking).get_model_version("first", "1")
    assert (run.data.tags["firth.corpus"], version.tags["firth.weights"]) == ("pydoc", "k1")


def test_a_registered_model_is_the_candidate(first):
    assert (first.name, first.version, first.uri, first.alias) == ("first", 1, "models:/first/1", "candidate")
    assert client(first.tracking).get_model_version_by_alias("first", "candidate").version == 1


def test_artifacts_lie_beside_the_database_and_not_in_the_current_folder(first):
    place = Path(first.tracking.removeprefix("sqlite:///")).parent / "mlflow-artifacts"
    assert list(place.rglob("weights.safetensors"))


def test_the_same_weights_make_no_second_version(first, folder):
    again = put(first.tracking, folder, "first", "k1")
    assert again == first
    assert versions(first.tracking, "first") == [1]


def test_scores_that_changed_are_logged_again(local, folder):
    put(local, folder, None, "k4", {"neighbours.mrr": 0.25})
    again = put(local, folder, None, "k4", {"neighbours.mrr": 0.5})
    history = client(local).get_metric_history(again.run_id, "neighbours.mrr")
    assert [entry.value for entry in history] == [0.25, 0.5]


def test_other_weights_make_the_next_version_and_take_the_alias(local, folder):
    put(local, folder, "second", "k1")
    assert put(local, folder, "second", "k2").version == 2
    assert client(local).get_model_version_by_alias("second", "candidate").version == 2


def test_a_run_that_was_killed_does_not_count(local, folder):
    number = client(local).get_experiment_by_name("firth")
    number = number.experiment_id if number else client(local).create_experiment("firth")
    killed = client(local).create_run(number, tags={"firth.weights": "k5"}).info.run_id
    assert put(local, folder, None, "k5").run_id != killed


def test_without_a_name_a_model_is_logged_and_not_registered(local, folder):
    logged = put(local, folder, None, "k3")
    assert (logged.name, logged.version, logged.alias) == (None, None, None)
    assert logged.uri.startswith("models:/m-")


def test_a_model_that_was_logged_can_be_registered_later_without_a_second_run(local, folder):
    assert put(local, folder, None, "k6").run_id == put(local, folder, "later", "k6").run_id


def test_a_folder_that_cannot_be_logged_leaves_a_failed_run(local, tmp_path):
    with pytest.raises(ValueError, match="no model folder"):
        put(local, tmp_path, "never", "k7")
    [run] = client(local).search_runs(
        [client(local).get_experiment_by_name("firth").experiment_id], "tags.`firth.weights` = 'k7'"
    )
    assert (run.info.status, versions(local, "never")) == ("FAILED", [])


LOADING = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", repr(finder))]
sys.path = [entry for entry in sys.path if entry not in ("", {root!r})]
import mlflow, numpy as np, pandas as pd
mlflow.set_tracking_uri({tracking!r})
model = mlflow.pyfunc.load_model({uri!r})
texts = {texts!r}
found = [model.predict(given) for given in (texts, pd.Series(texts), pd.DataFrame({{"text": texts}}))]
assert all(vectors.dtype == np.float32 and np.array_equal(vectors, found[0]) for vectors in found)
assert "artifacts" in sys.modules["models"].__file__, sys.modules["models"].__file__
assert not {{"pipeline", "flows"}} & set(sys.modules)
np.save({out!r}, found[0])
print(model.metadata.signature)
"""


def test_a_registered_model_loads_where_firth_is_not_installed(first, folder, tmp_path):
    out, root = tmp_path / "found.npy", str(Path(__file__).parents[2])
    script = LOADING.format(root=root, tracking=first.tracking, uri=first.uri, texts=TEXTS, out=str(out))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(out), load(folder).encode(TEXTS))
    assert "Tensor('float32', (-1, 5))" in done.stdout


def test_what_a_registered_model_needs_is_pinned_and_short(first, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", first.tracking)
    path = mlflow.artifacts.download_artifacts(f"{first.uri}/requirements.txt", dst_path=str(tmp_path))
    lines = Path(path).read_text().split()
    assert sorted(line.partition("==")[0] for line in lines) == [
        "mlflow",
        "numpy",
        "pydantic",
        "safetensors",
        "tokenizers",
        "torch",
    ]
    assert not any("+" in line for line in lines)  # a local build's name is known to no package index


@pytest.mark.parametrize("name", ["first", "first@candidate", "first/1"])
def test_a_registered_folder_comes_back_whole(first, folder, tmp_path, name):
    back = fetch(first.tracking, name, tmp_path)
    assert {path.name: path.read_bytes() for path in back.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_the_champion_goes_before_the_candidate(local, folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "README.md").write_text("# the second\n")
    put(local, folder, "both", "k1")
    put(local, other, "both", "k8")
    assert (fetch(local, "both", tmp_path / "a") / "README.md").read_text() == "# the second\n"
    client(local).set_registered_model_alias("both", "champion", "1")
    assert (fetch(local, "both", tmp_path / "b") / "README.md").read_text() == "# tiny\n"


@pytest.mark.parametrize("name", ["frist", "first@no-such-alias", "first/9"])
def test_an_unknown_name_is_answered_with_the_known_ones(first, tmp_path, name):
    with pytest.raises(RegistryError, match=r"no registered model .*known: .*first"):
        fetch(first.tracking, name, tmp_path)


def test_empty_and_plain_lists_stay_whole_when_a_recipe_is_laid_flat():
    assert flat({"a": {"b": [1, "x"], "c": {}}, "d": None}) == {"a.b": '[1, "x"]', "a.c": "{}", "d": "null"}


def test_strange_characters_leave_a_metrics_name():
    assert plain("neighbours.hit@10 (é)") == "neighbours.hit_at_10 _é_"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real MLflow server on a free port of the loopback."""
    place = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{place}/server.db", "--artifacts-destination", str(place / "kept")]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, start_new_session=True)
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail((place / "log").read_text())
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@pytest.mark.launch
def test_a_server_keeps_what_is_registered(server, folder, tmp_path):
    check(server)
    done = put(server, folder, "remote", "k1")
    assert (versions(server, "remote"), done.uri) == ([1], "models:/remote/1")
    assert (fetch(server, "remote", tmp_path) / "README.md").read_text() == "# tiny\n"
