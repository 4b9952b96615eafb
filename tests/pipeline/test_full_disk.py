"""A store on a disk that is full: the cause is told, and nothing that was written by half is ever read."""

import json
import resource
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import corpora
import polars as pl
import pytest
from runs import finish, job_of, new_run

from pipeline.batches import _Writer
from pipeline.road import Road
from pipeline.run import TrainingError
from pipeline.store import Store, StoreError
from pipeline.tables import HELD_OUT
from pipeline.weights import weights

FULL = "the disk is full: make room, and the same command goes on from here"


@pytest.fixture
def disk(tmp_path):
    """A disk of one megabyte; called with a size, it grows."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting takes root")
    try:
        grow = lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)
        yield place, grow
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def small_files():
    """No file may be longer than 100 kilobytes, which fails as a full disk does, and takes no root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def wide(rows):
    """Digests that no compression makes smaller."""
    numbers = pl.Series("group", range(rows), dtype=pl.UInt64).hash(1)
    return numbers.to_frame()


def write(store):
    store.write(HELD_OUT, "k", wide(300_000), started=time.time())


def write_batches(store):
    rows = wide(300_000).with_columns(answers=pl.lit([1]), side=pl.lit(0, pl.UInt8))
    with store.part("batches", "k") as part, _Writer(store.place(part.file), 3000) as writer:
        writer.write(rows)


def put(store):
    store.put("small.json", "x" * 2_000_000)


def create(store):
    store.create("small.json", "x" * 2_000_000)


def upload(store):
    folder = Path(store.root).parent / "model"
    store.upload(corpora.write(folder, {"large": ["word " * 500_000]}), "weights/k")


@pytest.mark.parametrize("operation", [write, write_batches, put, create, upload])
def test_a_full_disk_is_told_and_leaves_nothing_that_counts(disk, operation):
    store = Store.at(disk[0])
    with pytest.raises(StoreError, match=FULL):
        operation(store)
    assert [name for name in store.names("") if name.endswith((".json", ".parquet"))] == []


@pytest.mark.parametrize("operation", [write, write_batches, put, create])
def test_a_file_that_may_grow_no_further_is_told_as_a_full_disk(tmp_path, small_files, operation):
    store = Store.at(tmp_path / "store")
    with pytest.raises(StoreError, match=FULL):
        operation(store)
    assert store.names("") == []


def walk(road: Road):
    documents = road.documents(road.numbered())
    sentences = road.sentences(documents)
    tokens = road.tokens(sentences, road.vocabulary(sentences))
    source = road.source(sentences, tokens, road.pairs(sentences))
    return [documents, sentences, tokens, road.batches(source)]


def test_a_run_that_a_full_disk_stopped_goes_on_when_there_is_room(disk, tmp_path):
    corpus = tmp_path / "stories.jsonl"
    stories = corpora.stories(4000)
    corpus.write_text("\n".join(json.dumps({"id": n, "text": " ".join(s)}) for n, s in stories.items()))
    with pytest.raises(StoreError, match=FULL):
        walk(corpora.road(disk[0], corpus))
    disk[1]("100m")
    after, undisturbed = walk(corpora.road(disk[0], corpus)), walk(corpora.road(tmp_path / "store", corpus))
    digests = lambda tables: [piece.sha256 for table in tables for piece in table.pieces.values()]
    assert digests(after) == digests(undisturbed)


@pytest.mark.ray
def test_training_that_finds_no_room_for_a_checkpoint_ends_with_the_cause(disk, made, ray_session):
    disk[1]("50m")
    store = Store.at(shutil.copytree(made.store.root, disk[0] / "store"))
    free = shutil.disk_usage(disk[0]).free
    (disk[0] / "others").write_bytes(bytes(free - 8 * 4096))  # room for a lease and for words, not for a checkpoint
    with pytest.raises(TrainingError, match=FULL):
        weights(store, replace(job_of(made, seed=7), store=store.root), {})
    (disk[0] / "others").unlink()
    job = replace(job_of(made, seed=7), store=store.root)
    assert weights(store, job, {}).training["loss"] == [loss for _, loss in finish(new_run(job)).state.losses]
