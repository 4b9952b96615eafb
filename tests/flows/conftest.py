"""Prefect in a home of its own, started once; a made-up corpus; the flow and the command to run on it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from made_up import write_corpus

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
def prefect_server(prefect_home):
    """The temporary server of this process."""
    from flows.server import early

    early()()
    yield
    from prefect.server.api.server import SubprocessASGIServer

    SubprocessASGIServer().stop()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Forty documents; no test changes them."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "texts")
