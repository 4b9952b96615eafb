"""Prefect in a home of its own, started once; a made-up corpus; the flow and the command to run on it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from made_up import retrain, write_bad_rows, write_corpus

HOME = tempfile.mkdtemp(prefix="firth-prefect-")
os.environ["PREFECT_HOME"] = HOME  # before Prefect is imported: it looks once
os.environ.pop("PREFECT_API_URL", None)
os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.fixture(scope="session", autouse=True)
def prefect_home():
    """Prefect's folder, gone when all is done."""
    yield HOME
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def prefect_server(prefect_home, request):
    """Address of this process's temporary server; Ray starts beside it, for both take their time."""
    from flows.server import early

    ready = early()
    request.getfixturevalue("ray_session")
    ready()
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):  # ending it takes a second each flow
        yield SubprocessASGIServer().api_url
    SubprocessASGIServer().stop()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Forty documents, and one file with a good row and five bad ones; no test changes them."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus") / "texts")
    write_bad_rows(folder / "bad.jsonl")
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    """The store of `trained`."""
    return tmp_path_factory.mktemp("trained") / "store"


@pytest.fixture(scope="session")
def trained(corpus, store, prefect_server):
    """Exit code and output of the command's first run, which registers a model as `made-up`."""
    return retrain(corpus, store, options=["--register", "made-up", "--json"])
