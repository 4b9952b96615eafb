import time
from itertools import pairwise

import corpora
import polars as pl
import pytest
from corpora import Document, story
from hypothesis import given
from hypothesis import strategies as st

from pipeline import batches, groups, merged
from pipeline.store import Store
from pipeline.tables import HELD_OUT, TEXTS

DIGESTS = st.integers(0, 2**64 - 1)
SECRET = {
    number: [Document(story(10 * number + d, 4), held_out=d == 0) for d in range(3)] + [Document(story(99, 2))]
    for number in range(4)
}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def pieces(store: Store, *shards: list[int]):
    frames = [pl.DataFrame({"group": digests}, schema=HELD_OUT.empty().schema) for digests in shards]
    return {n: store.write(HELD_OUT, f"part{n}", frame, started=time.time()) for n, frame in enumerate(frames)}


def spread(count: int) -> list[int]:
    """Digests all over 64 bits."""
    return pl.Series(range(count)).hash().to_list()


@pytest.mark.parametrize("most", [10, 64, 1000])
def test_ranges_ascend_and_hold_all_rows_with_their_shard(store, most):
    shards = [spread(300)[n::3] for n in range(3)]
    found = list(merged.ranges(store, pieces(store, *shards), "group", most))
    rows = pl.concat(found)
    assert sorted(rows.rows()) == sorted((digest, n) for n, shard in enumerate(shards) for digest in shard)
    for one, next_ in pairwise(found):
        assert one["group"].max() < next_["group"].min()


def test_no_range_is_much_larger_than_asked(store):
    found = list(merged.ranges(store, pieces(store, *(spread(2000)[n::4] for n in range(4))), "group", 250))
    assert max(map(len, found)) < 2 * 250
    assert len(found) == 8


def test_equal_digests_of_many_shards_come_in_one_range(store):
    common = spread(50)
    found = merged.ranges(store, pieces(store, *([common] * 5)), "group", 20)
    assert all((rows.group_by("group").len()["len"] == 5).all() for rows in found)


def test_ranges_leave_no_scratch_though_they_are_not_read_to_the_end(store, tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("FIRTH_SCRATCH", str(tmp_path / "scratch"))
    found = merged.ranges(store, pieces(store, spread(200)), "group", 20)
    next(found)
    assert list((tmp_path / "scratch").iterdir())
    found.close()
    assert not list((tmp_path / "scratch").iterdir())


def test_nothing_has_no_ranges(store):
    assert list(merged.ranges(store, {}, "group")) == []
    assert list(merged.ranges(store, pieces(store, [], []), "group")) == []


@given(st.lists(DIGESTS, max_size=30), st.lists(DIGESTS, max_size=30))
def test_among_says_which_are_known_whatever_their_order(known, digests):
    digests = digests + known[::2]
    known_u64, digests_u64 = pl.Series(known, dtype=pl.UInt64), pl.Series("group", digests, dtype=pl.UInt64)
    assert merged.among(digests_u64, known_u64).to_list() == [digest in known for digest in digests]


def test_the_largest_digest_is_found_and_what_lies_above_all_known_ones_is_not():
    known = pl.Series([1, 5], dtype=pl.UInt64)
    assert merged.among(pl.Series([2**64 - 1, 5], dtype=pl.UInt64), known).to_list() == [False, True]


# What is merged


def test_held_out_texts_are_those_of_all_shards_each_once(store):
    made = corpora.source(store, SECRET)
    frame = pl.concat([store.read(piece) for piece in made.sentences.values()])
    expected = frame.filter("held_out")["group"].unique().sort()
    assert store.read(made.held_out)["group"].equals(expected)


@pytest.mark.parametrize("most", [3, 4_000_000])
def test_the_held_out_texts_do_not_depend_on_how_many_are_compared_at_once(store, tmp_path, monkeypatch, most):
    expected = corpora.source(store, SECRET).held_out.sha256
    other = Store.at(tmp_path / "other")
    monkeypatch.setattr(merged.ranges, "__defaults__", (most,))
    assert corpora.source(other, SECRET).held_out.sha256 == expected


@pytest.mark.parametrize("most", [3, 4_000_000])
def test_groups_that_share_a_text_are_found_across_shards_and_ranges(store, monkeypatch, most):
    monkeypatch.setattr(merged.ranges, "__defaults__", (most,))
    shards = {
        0: [Document(["One.", "Two."]), Document(["Lone."])],
        1: [Document(["two", "Three."])],
        2: [Document(["Three!"])],
    }
    kin = store.read(groups.kindred(store, corpora.source(store, shards).sentences))
    assert kin.rows() == [(0, 0), (1000, 0), (2000, 0)]


def test_a_text_that_a_document_repeats_in_one_shard_is_no_kin(store):
    made = corpora.source(store, {0: [Document(["One.", "One.", "Two."])], 1: [Document(["Three."])]})
    assert store.read(groups.kindred(store, made.sentences)).is_empty()


def test_one_shard_more_makes_one_small_piece_more(store, monkeypatch):
    made = corpora.source(store, SECRET)
    groups.kindred(store, made.sentences)
    grown = corpora.source(store, {4: [Document(story(50, 4), held_out=True)]})
    sentences = {**made.sentences, **grown.sentences}
    read = []
    monkeypatch.setattr(
        Store, "read", lambda s, piece, *a, _read=Store.read: (read.append(piece.stage), _read(s, piece, *a))[1]
    )
    batches.held_out(store, sentences)
    groups.kindred(store, sentences)
    assert read.count("sentences") == 1  # texts of the new shard; its held-out groups were made above
    assert read.count(TEXTS.name) == 5


def test_a_store_that_has_the_answer_makes_no_small_pieces(store):
    made = corpora.source(store, SECRET)
    for name in store.names("held_out/"):
        if not name.endswith(f"{made.held_out.key}.json"):
            store.delete(name)
    batches.held_out(store, made.sentences)
    assert [name for name in store.names("held_out/") if name.endswith(".json")] == [
        f"held_out/{made.held_out.key}.json"
    ]
