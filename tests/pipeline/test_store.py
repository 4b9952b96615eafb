import signal
import time
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from processes import WAIT_SECONDS, child, line

from pipeline.store import ROW_GROUP, Piece, Store, StoreError
from pipeline.tables import HELD_OUT


def groups(*numbers: int) -> pl.DataFrame:
    return pl.DataFrame({"group": numbers}, schema={"group": pl.UInt64})


def put(store: Store, key: str, *numbers: int) -> Piece:
    return store.write(HELD_OUT, key, groups(*numbers), started=time.time())


def parts(store: Store) -> list[str]:
    """Files of stage held_out."""
    return [name for name in store.names("held_out/") if name.endswith(".parquet")]


# Small objects


def test_an_object_is_created_only_where_its_name_is_free(tmp_path):
    store = Store.at(tmp_path)
    assert store.create("a/one.json", {"n": 1})
    assert not store.create("a/one.json", {"n": 2})
    assert store.get("a/one.json") == {"n": 1}


def test_put_takes_the_place_of_what_was_there(tmp_path):
    store = Store.at(tmp_path)
    store.put("a/one.json", 1)
    store.put("a/one.json", "ü")
    assert store.get("a/one.json") == "ü"


def test_what_is_not_there_is_none_and_can_be_deleted(tmp_path):
    store = Store.at(tmp_path)
    store.delete("a/one.json")
    assert store.get("a/one.json") is None


def test_names_are_sorted_and_below_their_prefix(tmp_path):
    store = Store.at(tmp_path)
    for name in ("a/2.json", "a/1.json", "ab/0.json"):
        store.put(name, 0)
    assert store.names("a/") == ["a/1.json", "a/2.json"]


def test_a_folder_may_have_any_name(tmp_path):
    store = Store.at(tmp_path / "my corpora #1 %20 é")
    assert store.read(put(store, "k", 2, 1))["group"].to_list() == [1, 2]
    assert store.names("held_out/")[1] == "held_out/k.json"


def test_a_store_that_cannot_be_written_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"store .*/file/below cannot be written: .*; choose a folder .*--store DIR"):
        Store.at(tmp_path / "file" / "below")


def test_a_damaged_manifest_is_refused_with_its_file_and_the_remedy(tmp_path):
    store = Store.at(tmp_path)
    put(store, "k", 1)
    manifest = tmp_path / "held_out" / "k.json"
    manifest.write_bytes(manifest.read_bytes()[:20])
    with pytest.raises(StoreError, match=r"held_out/k\.json: not JSON: .*; delete it, and the next run makes it"):
        store.piece("held_out", "k")


# Pieces


def test_a_piece_is_read_as_it_was_written_and_sorted(tmp_path):
    store = Store.at(tmp_path)
    piece = store.write(HELD_OUT, "k", groups(3, 1, 2), started=time.time(), counts={"dropped": 4}, inputs=("x",))
    assert store.read(piece)["group"].to_list() == [1, 2, 3]
    assert store.piece("held_out", "k") == piece
    assert (piece.rows, piece.counts, piece.inputs) == (3, {"dropped": 4}, ("x",))


def test_equal_frames_in_any_order_give_equal_bytes(tmp_path):
    one = put(Store.at(tmp_path / "one"), "k", *range(1000))
    other = put(Store.at(tmp_path / "other"), "k", *reversed(range(1000)))
    assert one.sha256 == other.sha256


def test_row_groups_are_capped(tmp_path):
    store = Store.at(tmp_path)
    piece = put(store, "k", *range(2 * ROW_GROUP + 1))
    about = pq.ParquetFile(store.path(piece.file)).metadata
    assert [about.row_group(number).num_rows for number in range(about.num_row_groups)] == [ROW_GROUP, ROW_GROUP, 1]


def test_scanned_pieces_come_in_order_with_their_shard(tmp_path):
    store = Store.at(tmp_path)
    pieces = {7: put(store, "a", 5), 3: put(store, "b", 4)}
    assert store.scan(pieces).collect().rows() == [(5, 7), (4, 3)]


def test_a_second_writer_of_a_key_gets_the_first_ones_piece(tmp_path):
    store = Store.at(tmp_path)
    first = put(store, "k", 1)
    assert put(store, "k", 2) == first
    assert parts(store) == [first.file]


def test_a_frame_that_breaks_its_contract_leaves_nothing(tmp_path):
    store = Store.at(tmp_path)
    with pytest.raises(ValueError, match="no column group"):
        store.write(HELD_OUT, "k", pl.DataFrame({"g": [1]}), started=time.time())
    assert store.names("held_out/") == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_part_is_deleted_and_does_not_count(tmp_path, error):
    store = Store.at(tmp_path)
    with pytest.raises((KeyboardInterrupt, OSError)), store.part("held_out", "k") as part:
        Path(store.path(part.file)).write_bytes(b"half")
        raise error
    assert store.names("held_out/") == []


def test_a_part_that_was_never_written_does_not_count(tmp_path):
    store = Store.at(tmp_path)
    with pytest.raises(FileNotFoundError), store.part("held_out", "k"):
        pass
    assert store.piece("held_out", "k") is None


def test_a_writer_killed_while_it_writes_leaves_nothing_that_counts(tmp_path):
    store = Store.at(tmp_path)
    writer = child(
        "with store.part('held_out', 'k') as part:\n"
        "    file = open(store.path(part.file), 'wb', buffering=0)\n"
        "    file.write(b'PAR1')\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n",
        store,
    )
    assert line(writer) == "writing"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert len(parts(store)) == 1
    assert store.piece("held_out", "k") is None
    assert store.read(put(store, "k", 1, 2))["group"].to_list() == [1, 2]


def test_of_two_writers_at_once_one_counts_and_both_read_the_same(tmp_path):
    store = Store.at(tmp_path)
    code = (
        "import polars as pl\n"
        "with store.part('held_out', 'k') as part:\n"
        "    frame = pl.DataFrame({'group': [%d]}, schema={'group': pl.UInt64})\n"
        "    frame.write_parquet(store.path(part.file))\n"
        "    part.rows = 1\n"
        "    print('written', flush=True)\n"
        "    sys.stdin.readline()\n"
        "print(store.read(part.piece)['group'][0], flush=True)\n"
    )
    writers = [child(code % number, store) for number in (1, 2)]
    assert [line(writer) for writer in writers] == ["written", "written"]
    assert len(parts(store)) == 2
    said = [writer.communicate("\n", timeout=WAIT_SECONDS)[0].strip() for writer in writers]
    assert said[0] == said[1]
    piece = store.piece("held_out", "k")
    assert piece is not None
    assert parts(store) == [piece.file]


# Damage


@pytest.mark.parametrize("left", [0, 3, 100, -1])
def test_a_truncated_piece_is_refused_with_its_file_and_the_remedy(tmp_path, left):
    store = Store.at(tmp_path)
    piece = put(store, "k", 1, 2)
    file = Path(store.path(piece.file))
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(StoreError, match=rf"{piece.file}: .*; delete held_out/k\.json and the folder tables/held_out"):
        store.read(piece)


def test_a_missing_piece_is_refused_with_its_file(tmp_path):
    store = Store.at(tmp_path)
    piece = put(store, "k", 1, 2)
    store.delete(piece.file)
    with pytest.raises(StoreError, match=piece.file):
        store.read(piece)
    with pytest.raises(StoreError, match=f"{piece.file}: no such file"):
        store.verify(piece)


def test_a_piece_with_other_rows_than_its_manifest_says_is_refused(tmp_path):
    store = Store.at(tmp_path)
    piece = put(store, "k", 1, 2)
    groups(1, 2, 3).write_parquet(store.path(piece.file))
    with pytest.raises(StoreError, match="3 rows, should be 2"):
        store.read(piece)


def test_verify_finds_a_single_other_bit(tmp_path):
    store = Store.at(tmp_path)
    piece = put(store, "k", *range(1000))
    store.verify(piece)
    file = Path(store.path(piece.file))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreError, match="other bytes than were written"):
        store.verify(piece)


# Folders


def test_an_uploaded_folder_is_fetched_as_it_was(tmp_path):
    store = Store.at(tmp_path / "store")
    (tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "inner" / "weights").write_bytes(b"123")
    store.upload(tmp_path / "model", "weights/k")
    assert (store.fetch("weights/k", tmp_path) / "inner" / "weights").read_bytes() == b"123"


# Row groups


def test_a_part_whose_row_groups_are_larger_than_asked_is_refused_and_leaves_nothing(tmp_path):
    store = Store.at(tmp_path / "store")
    with (
        pytest.raises(StoreError, match=r"a row group of 30 rows, should be at most 20, a multiple of 10"),
        store.part("batches", "key") as part,
    ):
        pl.DataFrame({"text": range(30)}).write_parquet(store.path(part.file), row_group_size=30)
        part.rows, part.group_rows, part.group_multiple = 30, 20, 10
    assert store.piece("batches", "key") is None
    assert store.names("batches/") == []


def test_a_part_whose_row_groups_cut_a_batch_is_refused(tmp_path):
    store = Store.at(tmp_path / "store")
    with pytest.raises(StoreError, match=r"a row group of 15 rows"), store.part("batches", "key") as part:
        pl.DataFrame({"text": range(30)}).write_parquet(store.path(part.file), row_group_size=15)
        part.rows, part.group_rows, part.group_multiple = 30, 20, 10


def test_a_part_with_other_rows_than_it_says_is_refused(tmp_path):
    store = Store.at(tmp_path / "store")
    with pytest.raises(StoreError, match=r"30 rows were written, should be 31"), store.part("batches", "key") as part:
        pl.DataFrame({"text": range(30)}).write_parquet(store.path(part.file))
        part.rows = 31
