"""Clean-up, and what it must leave: on real stores of small pieces."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from pipeline import cleaning, inventory, records
from pipeline.lease import lease
from pipeline.manifest import Manifest
from pipeline.store import Store
from pipeline.tables import HELD_OUT

YEAR = 365 * cleaning.DAY


@pytest.fixture
def store(tmp_path):
    return Store.at(tmp_path / "store")


def put(store, key, inputs=(), stage="held_out"):
    frame = pl.DataFrame({"group": [1, 2, 3]}, schema={"group": pl.UInt64})
    return store.write(replace(HELD_OUT, name=stage), key, frame, started=time.time(), inputs=inputs)


def table(store, key, *pieces):
    Manifest("held_out", key, dict(enumerate(pieces))).commit(store)


def model(store, key, sentences, batches=""):
    store.put(f"weights/{key}-1a2b/lineage.json", {"sentences": sentences, "batches": batches})
    store.put(f"weights/{key}.json", {"folder": f"weights/{key}-1a2b", "training": {}})


def age(store, seconds=YEAR, *names):
    """All objects, or some, as if they were written so long ago."""
    for name in names or store.names(""):
        then = time.time() - seconds
        os.utime(Path(store.path(name)), (then, then))


def left(store):
    return {name for name in store.names("") if not name.startswith(("leases/", "probe/"))}


def test_a_part_that_no_manifest_names_goes_when_it_is_old(store):
    kept = put(store, "k")
    Path(store.path("held_out/k-old.parquet")).write_bytes(b"half")
    Path(store.path("held_out/k-new.parquet")).write_bytes(b"half")
    age(store, YEAR, "held_out/k-old.parquet")
    cleaning.clean(store, ())
    assert left(store) == {"held_out/k.json", kept.file, "held_out/k-new.parquet"}


def test_what_no_run_and_no_model_uses_goes_when_it_is_old(store):
    table(store, "t", put(store, "old", ("older",)), put(store, "older"))
    age(store)
    new = put(store, "new")
    cleaning.clean(store, ())
    assert left(store) == {"held_out/new.json", new.file}


def test_a_dry_run_says_the_same_and_removes_nothing(store):
    table(store, "t", put(store, "old"))
    age(store)
    before = left(store)
    said = cleaning.clean(store, (), dry=True)
    assert left(store) == before
    done = cleaning.clean(store, ())
    assert (said.objects, said.bytes) == (done.objects, done.bytes)
    assert (said.objects["held_out"], said.objects["tables"], left(store)) == (2, 1, set())
    assert done.bytes.total() > 0


def test_what_a_recent_run_used_stays_with_all_that_it_was_made_of(store):
    put(store, "first")
    table(store, "t", put(store, "second", ("7:first",)))
    put(store, "other")
    age(store)
    records.keep(store, "texts", "a-recipe", {"held_out": "t"})
    before = left(store)
    cleaning.clean(store, ())
    assert before - left(store) == {name for name in before if "/other" in name}


def test_a_small_piece_stays_as_long_as_the_shard_that_it_was_made_of(store):
    table(store, "t", put(store, "shard", stage="sentences"))
    put(store, "lost", stage="sentences")
    small, other = put(store, "small", ("shard",)), put(store, "other", ("lost",))
    age(store)
    records.keep(store, "texts", "a-recipe", {"sentences": "t"})
    cleaning.clean(store, ())
    assert small.file in left(store) and other.file not in left(store)


def test_what_only_a_run_long_ago_used_goes(store):
    put(store, "k")
    records.keep(store, "texts", "a-recipe", {"held_out": "k"})
    name = store.names("records/")[0]
    store.put(name, {**store.get(name), "at": time.time() - YEAR})
    age(store)
    cleaning.clean(store, ())
    assert left(store) == set()


def test_a_registered_model_keeps_its_folder_and_its_data(store):
    put(store, "seen")
    put(store, "plan-0000", ("0:seen",), "batches")
    put(store, "other")
    model(store, "registered", ["seen"], "plan")
    model(store, "unknown", ["other"])
    age(store)
    before = left(store)
    cleaning.clean(store, {"registered"})
    assert before - left(store) == {name for name in before if "other" in name or "unknown" in name}


def test_something_young_keeps_what_it_was_made_of(store):
    put(store, "old")
    age(store)
    put(store, "young", ("old",))
    before = left(store)
    cleaning.clean(store, ())
    assert left(store) == before


def test_checkpoints_that_nobody_went_on_with_go(store):
    store.put("runs/recipe-abc/step_00000001/state.json", 1)
    age(store)
    cleaning.clean(store, ())
    assert left(store) == set()
    assert not Path(store.path("runs/recipe-abc")).exists()


def test_while_a_run_goes_on_only_what_nothing_names_goes(store):
    put(store, "old")
    Path(store.path("held_out/k-old.parquet")).write_bytes(b"half")
    age(store)
    with records.using(store):
        done = cleaning.clean(store, ())
    assert (done.running, len(store.names("held_out/"))) == (1, 2)
    cleaning.clean(store, ())
    assert store.names("held_out/") == []


def test_a_training_lease_counts_as_a_run(store):
    put(store, "old")
    age(store)
    with lease(store, "training-key"):
        cleaning.clean(store, ())
    assert len(store.names("held_out/")) == 2


def test_a_run_whose_process_is_dead_or_silent_holds_nothing(store):
    with lease(store, "x") as held:
        owner = held.owner.replace(f":{os.getpid()}:", f":{2**22 + 1}:")
    store.put("leases/dead/000000.json", {"owner": owner, "beats": 1, "free": False})
    store.put("leases/silent/000000.json", {"owner": "elsewhere:1:a", "beats": 1, "free": False})
    store.put("leases/far/000000.json", {"owner": "elsewhere:2:a", "beats": 1, "free": False})
    age(store, 2 * records.STALE_SECONDS, "leases/silent/000000.json")
    assert records.alive(store) == {"far"}


def test_a_run_waits_for_a_clean_up(store):
    order = []

    def run():
        with records.using(store):
            order.append("run")

    with lease(store, records.CLEANING):
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(3 * records.WAIT_SECONDS)
        order.append("cleaned")
    thread.join()
    assert order == ["cleaned", "run"]


def test_a_run_leaves_no_lease_behind(store):
    with records.using(store):
        assert len(store.names("leases/")) == 1
    assert store.names("leases/") == []


def test_the_same_run_again_is_one_record(store):
    for _ in range(2):
        records.keep(store, "texts", "a-recipe", {"held_out": "k"}, ["docs", "1"])
    assert [record["model"] for record in records.kept(store)] == [["docs", "1"]]


def test_the_inventory_counts_rows_and_bytes(store):
    piece = put(store, "k")
    table(store, "t", piece)
    things = {thing.stage: thing for thing in inventory.look(store).things}
    assert (things["held_out"].rows, things["tables"].uses) == (3, ("k",))
    assert things["held_out"].bytes == piece.bytes + Path(store.path("held_out/k.json")).stat().st_size
