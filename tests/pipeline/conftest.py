"""A small corpus with dropout on, and what was trained on it, made once for all tests."""

import json
import threading
import time
from types import SimpleNamespace

import corpora
import pytest
from runs import SMALL, finish, job_of, new_run

from models.resolving import resolve
from pipeline import batches as making
from pipeline.weights import weights


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A corpus of one file, so of one shard, and what a job needs of it."""
    folder = tmp_path_factory.mktemp("train")
    stories = [{"id": name, "text": " ".join(story)} for name, story in corpora.stories(36).items()]
    (folder / "stories.jsonl").write_text("\n".join(map(json.dumps, stories)), encoding="utf-8")
    road = corpora.road(folder / "store", folder / "stories.jsonl", *SMALL)
    sentences = road.sentences(road.documents(road.numbered()))
    vocabulary = road.vocabulary(sentences)
    source = road.source(sentences, road.tokens(sentences, vocabulary), road.pairs(sentences))
    return SimpleNamespace(
        store=road.store, recipe=resolve(road.recipe), sentences=sentences, source=source, vocabulary=vocabulary
    )


@pytest.fixture(scope="session")
def undisturbed(made):
    """A run in this process from the first step to the last."""
    return finish(new_run(job_of(made)))


@pytest.fixture(scope="session")
def one(made, ray_session):
    """Weights that one worker trained, while a second run asked for the same."""
    job, waited = job_of(made), []

    def ask():
        while not made.store.names(f"leases/{job.key}/"):
            time.sleep(0.01)
        waited.append(weights(made.store, job, {}))

    second = threading.Thread(target=ask)
    second.start()
    first = weights(made.store, job, {"corpus": "stories"})
    left = [n for n in range(3) if made.store.piece("batches", making.epoch_key(job.plan, n))]
    second.join()
    return SimpleNamespace(job=job, first=first, second=waited[0], epochs_left=left)
