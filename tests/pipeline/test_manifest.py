import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from ray import cloudpickle

from pipeline.manifest import Manifest, Stage, run
from pipeline.store import Piece, Store, StoreError
from pipeline.tables import HELD_OUT

HERE = Path(__file__).parent
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


def make(store: Store, key: str, item: int) -> Piece:
    """A piece with one row; item 13 fails, and item 99 never ends."""
    if item == 13:
        raise ValueError("thirteen")
    while item == 99:
        print("in the middle", flush=True)
        time.sleep(60)
    frame = pl.DataFrame({"group": [item]}, schema={"group": pl.UInt64})
    return store.write(HELD_OUT, key, frame, started=time.time(), counts={"quarantined": item, "seen": 1})


STAGE = Stage("held_out", 1, make)


def table(store: Store, *items: int, stage: Stage = STAGE) -> Manifest:
    """The table over some shards, each numbered by its item and known by it."""
    return run(store, stage, {item: ((f"input{item}",), item) for item in items})


def test_a_table_lists_its_pieces_by_shard_number(tmp_path):
    store = Store.at(tmp_path)
    made = table(store, 3)
    assert list(made.pieces) == [3]
    assert store.read(made.pieces[3])["group"].to_list() == [3]
    assert not made.cached


def test_a_second_run_makes_nothing(tmp_path):
    store = Store.at(tmp_path)
    first, names = table(store, 3), store.names("")
    second = table(store, 3)
    assert (second.cached, second.new, second.pieces) == (True, 0, first.pieces)
    assert store.names("") == names


def test_a_grown_source_makes_new_shards_only(tmp_path):
    store = Store.at(tmp_path)
    table(store, 3)
    grown = table(store, 3, 4)
    assert (grown.new, list(grown.pieces)) == (1, [3, 4])
    assert grown.row()["shards_same"] == 1


def test_a_source_that_lost_a_shard_makes_nothing(tmp_path):
    store = Store.at(tmp_path)
    table(store, 3)
    table(store, 3, 4)
    assert (table(store, 4).cached, list(table(store, 4).pieces)) == (True, [4])


def test_counts_are_summed_over_pieces(tmp_path):
    store = Store.at(tmp_path)
    table(store, 3)
    made = table(store, 3, 4)
    assert (made.rows, made.count("seen"), made.counts()) == (2, 2, {"quarantined": 7, "seen": 2})
    assert made.row()["quarantined"] == 7


@pytest.mark.parametrize(
    "stage", [Stage("held_out", 2, make), Stage("held_out", 1, make, {"size": 2})], ids=["version", "parameters"]
)
def test_another_version_or_other_parameters_make_other_pieces(tmp_path, stage):
    store = Store.at(tmp_path)
    assert table(store, 3).pieces[3].key != table(store, 3, stage=stage).pieces[3].key


def test_pieces_are_used_by_a_table_that_lost_its_manifest(tmp_path):
    store = Store.at(tmp_path)
    made = table(store, 3)
    store.delete(f"tables/held_out/{made.key}.json")
    assert (table(store, 3).new, table(store, 3).pieces) == (0, made.pieces)


def test_a_table_that_cannot_be_used_as_a_whole_is_asked_again(tmp_path):
    store = Store.at(tmp_path)

    def refuse(made: Manifest) -> None:
        raise ValueError(f"refused {made.rows} rows")

    for _ in range(2):
        with pytest.raises(ValueError, match="refused 1 rows"):
            run(store, STAGE, {3: (("input3",), 3)}, check=refuse)


def test_the_remedy_for_a_damaged_piece_mends_it(tmp_path):
    store = Store.at(tmp_path)
    piece = table(store, 3).pieces[3]
    Path(store.path(piece.file)).write_bytes(b"")
    with pytest.raises(StoreError) as error:
        store.read(table(store, 3).pieces[3])
    assert f"delete held_out/{piece.key}.json and the folder tables/held_out in the store" in str(error.value)
    store.delete(f"held_out/{piece.key}.json")
    for name in store.names("tables/held_out/"):
        store.delete(name)
    mended = table(store, 3).pieces[3]
    assert (store.read(mended)["group"].to_list(), mended.sha256) == ([3], piece.sha256)


@pytest.mark.ray
def test_a_shard_that_fails_fails_the_table_and_leaves_what_is_made(tmp_path, ray_session):
    store = Store.at(tmp_path)
    with pytest.raises(ValueError, match=r"^thirteen$"):
        table(store, 1, 2, 13)
    assert store.names("tables/") == []
    table(store, 1)
    assert table(store, 1, 2).rows == 2


def test_a_run_killed_between_shards_goes_on_where_it_stopped(tmp_path):
    store = Store.at(tmp_path)
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from test_manifest import Store, table\n"
        f"store = Store({store.root!r})\n"
        "for upto in range(1, 4):\n"
        "    table(store, *range(upto))\n"
        "table(store, 0, 1, 2, 99)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "in the middle\n"
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert [piece.endswith(".json") for piece in store.names("held_out/")].count(True) == 3
    assert table(store, 0, 1, 2, 4).new == 1
