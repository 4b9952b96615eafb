"""Sources and store in a bucket, against a server on loopback, and one that refuses."""

import json
import time
from pathlib import Path

import bucket
import corpora
import polars as pl
import pytest

from pipeline import files, remote
from pipeline.batches import _Writer
from pipeline.reader import Epoch
from pipeline.shard import SourceError
from pipeline.store import Store, StoreError
from pipeline.tables import HELD_OUT

FEW = 4  # refusals that any library bears


@pytest.fixture(scope="module")
def server():
    with bucket.served() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def faulty(server):
    """A server before the other one, which the variables name."""
    with bucket.Faulty(server) as before, bucket.environment(before.url):
        yield before


@pytest.fixture
def store(faulty, request):
    """A folder of the bucket for each test."""
    faulty.refuse(503, 0)
    return Store.at(f"s3://{bucket.BUCKET}/{request.node.name.replace('[', '-').strip(']')}")


def groups(*numbers):
    return pl.DataFrame({"group": numbers}, schema={"group": pl.UInt64})


def put(store, *numbers):
    return store.write(HELD_OUT, "k", groups(*numbers), started=time.time())


def write_batches(store):
    rows = pl.DataFrame({"answers": [[1], [0]], "side": [0, 0]}, schema_overrides={"side": pl.UInt8})
    with store.part("batches", "k") as part, _Writer(store.place(part.file), 2) as writer:
        writer.write(rows)
        part.rows, part.facts = 2, {"batches": 1, "batch_rows": 2, "group_batches": 1}
    return part.piece


# As in a folder


def test_an_object_is_created_in_a_bucket_only_where_its_name_is_free(store):
    assert store.create("a/one.json", 1)
    assert not store.create("a/one.json", 2)
    assert (store.get("a/one.json"), store.get("a/two.json")) == (1, None)


def test_the_second_writer_of_a_piece_in_a_bucket_takes_the_part_of_the_first(store):
    first, second = put(store, 2, 1), put(store, 2, 1)
    assert first == second
    assert store.names("held_out/") == sorted([first.file, "held_out/k.json"])
    assert store.read(first)["group"].to_list() == [1, 2]
    store.verify(first)


def test_pieces_in_a_bucket_are_scanned_in_their_order(store):
    piece = put(store, 2, 1)
    assert store.scan({7: piece}).collect().rows() == [(1, 7), (2, 7)]


def test_a_folder_goes_to_a_bucket_and_comes_back(store, tmp_path):
    (tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "inner" / "weights").write_bytes(b"123")
    (tmp_path / "model" / "empty").touch()
    store.upload(tmp_path / "model", "weights/k")
    back = store.fetch("weights/k", tmp_path / "back")
    assert {p.relative_to(back).as_posix(): p.read_bytes() for p in back.rglob("*") if p.is_file()} == {
        "inner/weights": b"123",
        "empty": b"",
    }


def test_what_marks_a_folder_in_a_bucket_is_no_object(store, tmp_path):
    system, path = store.place("runs/one")
    system.create_dir(path)
    store.put("runs/one/state.json", 1)
    assert store.names("runs/") == ["runs/one/state.json"]
    assert store.fetch("runs/one", tmp_path).is_dir()


def test_a_removed_folder_of_a_bucket_leaves_nothing_not_even_its_mark(store, server):
    system, path = store.place("runs/one/step")
    system.create_dir(path)
    store.put("runs/one/step/state.json", 1)
    store.put("runs/one-more/state.json", 1)
    store.remove("runs/one")
    store.remove("runs/none")
    prefix = path.removeprefix(f"{bucket.BUCKET}/").removesuffix("runs/one/step")
    left = bucket.client(server).list_objects_v2(Bucket=bucket.BUCKET, Prefix=f"{prefix}runs/one")["Contents"]
    assert [one["Key"].removeprefix(prefix) for one in left] == ["runs/one-more/state.json"]


def test_batches_in_a_bucket_are_read_where_they_lie(store):
    piece = write_batches(store)
    assert Epoch(store, piece)._file.read_row_group(0).num_rows == 2


def test_a_road_in_a_bucket_makes_the_bytes_of_one_in_a_folder(store, server, tmp_path):
    here, made = tmp_path / "stories.jsonl", []
    rows = [{"id": name, "text": " ".join(story)} for name, story in corpora.stories(36).items()]
    here.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    bucket.client(server).upload_file(str(here), bucket.BUCKET, "stories.jsonl")
    for place, texts in ((tmp_path / "store", here), (store.root, f"s3://{bucket.BUCKET}/stories.jsonl")):
        road = corpora.road(place, texts, "corpus.name=one")
        documents = road.documents(road.numbered())
        sentences = road.sentences(documents)
        tokens = road.tokens(sentences, road.vocabulary(sentences))
        source = road.source(sentences, tokens, road.pairs(sentences))
        tables = [documents, sentences, tokens, road.batches(source)]
        made.append([(piece.key, piece.sha256) for table in tables for piece in table.pieces.values()])
    assert made[0] == made[1]


# Refusals

OPERATIONS = {
    "create": lambda store: store.create(f"new/{time.time()}.json", 1),
    "put": lambda store: store.put("small.json", 1),
    "get": lambda store: store.get("small.json"),
    "names": lambda store: store.names("held_out/"),
    "write": lambda store: put(store, 1),
    "batches": write_batches,
    "list a source": lambda store: files.listing(f"s3://{bucket.BUCKET}/texts/"),
    "read a source": lambda store: files.content(store.path("small.json")),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_bucket_that_is_busy_is_asked_again(store, faulty, name, server):
    bucket.client(server).put_object(Bucket=bucket.BUCKET, Key="texts/a.txt", Body=b"a")
    store.put("small.json", 1)
    faulty.refuse(503, FEW)
    OPERATIONS[name](store)
    assert faulty.times == 0


def test_a_piece_in_a_busy_bucket_is_read_after_all(store, faulty):
    piece = put(store, 1)
    faulty.refuse(503, FEW)
    assert store.read(piece)["group"].to_list() == [1]
    assert faulty.times == 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_bucket_that_denies_is_told_at_once_with_the_remedy(store, faulty, name):
    faulty.refuse(403, 1000)
    started = time.monotonic()
    with pytest.raises((StoreError, SourceError), match=r"AWS_SECRET_ACCESS_KEY|that you may read it|your access"):
        OPERATIONS[name](store)
    assert time.monotonic() - started < 10
    assert faulty.seen.total() <= 3  # the request, polars' second try, and the part that is taken back


def test_a_piece_that_may_not_be_read_is_not_called_damaged(store, faulty):
    piece = put(store, 1)
    faulty.refuse(403, 1000)
    with pytest.raises(StoreError, match="AWS_SECRET_ACCESS_KEY") as told:
        store.read(piece)
    assert "delete" not in str(told.value)


def test_a_store_that_denies_is_refused_before_any_work(faulty):
    faulty.refuse(403, 1000)
    with pytest.raises(StoreError, match=r"cannot be written.*AWS_SECRET_ACCESS_KEY"):
        Store.at(f"s3://{bucket.BUCKET}/denied")


def test_a_bucket_that_is_not_there_is_named(faulty):
    faulty.refuse(503, 0)
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/store cannot be written.*check the name of the bucket"):
        Store.at("s3://no-such-bucket/store")


def test_no_key_travels_with_a_file_system(faulty):
    system, path = remote.filesystem(f"s3://{bucket.BUCKET}/a/b")
    assert path == f"{bucket.BUCKET}/a/b"
    assert "something" not in repr(system.__reduce__())


def test_a_file_uri_is_a_local_store(tmp_path):
    store = Store.at(f"file://{tmp_path}/store")
    assert store.local
    assert Path(store.path(put(store, 1).file)).is_file()
