"""Runs of one document go to batches of their own where that can be had, and all that a batch says of its runs."""

from collections import Counter

import polars as pl
import pytest
from corpora import Document, source, story
from hypothesis import given, settings
from hypothesis import strategies as st

from models.recipe import Batches, RecipeError, load
from pipeline import batches
from pipeline.apart import apart, beside, longest
from pipeline.batches import BatchesError, epoch
from pipeline.examples import planned
from pipeline.manifest import Manifest
from pipeline.reader import Epoch
from pipeline.road import Road
from pipeline.store import Store
from pipeline.tables import FILLER

SMALL = Batches(rows=8, run=4, bucket_rows=1000)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def lying(*runs):
    """Rows of runs, each a document, its first place and how many rows."""
    rows = [(document, place + n, 0) for document, place, size in runs for n in range(size)]
    return pl.DataFrame(rows, schema={"document": pl.UInt64, "place": pl.UInt32, "side": pl.UInt8}, orient="row")


def names(frame):
    return [f"{document}{place}" for document, place, _ in frame.iter_rows()]


def ordered(store, shards, ahead=1):
    made = source(store, shards)
    return batches.Source(made.sentences, made.tokens, made.pairs, made.held_out, None, ahead)


def slow_beside(frame, size):
    """Runs beside another of their document, batch by batch and row by row."""
    found = 0
    for start in range(0, len(frame), size):
        seen, before = Counter(), None
        for document, place, side in frame.slice(start, size).select("document", "place", "side").iter_rows():
            if side != FILLER and before != (document, place - 1):
                seen[document] += 1
            before = (document, place)
        found += sum(count - 1 for count in seen.values())
    return found


def test_a_second_run_of_a_document_waits_for_the_next_batch():
    frame = lying((1, 0, 2), (1, 4, 2), (2, 0, 2), (3, 0, 2))
    assert names(apart(frame, 4)) == ["10", "11", "20", "21", "14", "15", "30", "31"]


def test_runs_that_are_apart_already_keep_their_order():
    frame = lying((1, 0, 2), (2, 0, 2), (3, 0, 1), (1, 4, 3))
    assert apart(frame, 4).equals(frame)


def test_what_is_left_of_a_run_keeps_its_document_out_of_the_next_batch():
    frame = lying((1, 0, 3), (2, 0, 3), (2, 9, 2), (3, 0, 2))
    assert names(apart(frame, 4)) == ["10", "11", "12", "20", "21", "22", "30", "31", "29", "210"]


def test_a_run_longer_than_two_batches_goes_on():
    assert names(apart(lying((1, 0, 9), (1, 20, 1), (2, 0, 1)), 4))[-2:] == ["20", "120"]


def test_of_one_document_alone_runs_stand_as_they_come():
    frame = lying((1, 8, 2), (1, 0, 2), (1, 4, 2))
    assert apart(frame, 4).equals(frame)
    assert beside(apart(frame, 4), 4) == 1


def test_no_rows_are_no_rows():
    assert apart(lying(), 4).is_empty()


RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=25)


@settings(deadline=None, database=None)
@given(RUNS, st.integers(2, 9))
def test_order_loses_no_row_and_breaks_no_run(runs, size):
    frame = lying(*((document, 10 * number, rows) for number, (document, rows) in enumerate(runs)))
    found = apart(frame, size)
    assert sorted(names(found)) == sorted(names(frame))
    assert longest(found, 1000) == longest(frame, 1000)
    assert beside(found, size) == slow_beside(found, size)


@settings(deadline=None, database=None)
@given(st.integers(2, 5), st.integers(3, 8), st.integers(2, 4))
def test_equal_documents_never_meet_themselves(run, documents, times):
    """As many documents as fill a batch, and one more for the run that reaches over its end."""
    runs = [(document, 10 * turn, run) for document in range(documents) for turn in range(times)]
    assert beside(apart(lying(*runs), run * (documents - 1)), run * (documents - 1)) <= times


def test_an_epoch_of_an_ordered_recipe_keeps_runs_apart_and_says_where_rows_stand(store):
    made = ordered(store, {n: [Document(story(10 * n + d, 12)) for d in range(8)] for n in (0, 1)})
    piece = epoch(store, SMALL, 0, 0, made)
    frame = store.read(piece)
    assert slow_beside(frame, 8) == piece.counts["beside_their_document"] == 0
    known = pl.concat([store.read(made.sentences[n], ["document", "place"]) for n in (0, 1)])
    assert frame.select("document", "place").sort("document", "place").equals(known.sort("document", "place"))


def test_neighbours_stay_answers_of_each_other(store):
    made = ordered(store, {0: [Document(story(d, 12)) for d in range(8)]})
    frame = store.read(epoch(store, SMALL, 0, 0, made)).with_row_index("at")
    for document, place, at, answers in frame.select("document", "place", "at", "answers").iter_rows():
        near = frame.filter(
            (pl.col("at") // 8 == at // 8)
            & (pl.col("document") == document)
            & ((pl.col("place").cast(pl.Int64) - place).abs() == 1)
        )
        assert (near["at"] % 8).to_list() == answers


def test_one_document_alone_trains_too_and_its_runs_are_counted(store):
    made = ordered(store, {0: [Document(story(0, 40))]})
    piece = epoch(store, SMALL, 0, 0, made)
    assert piece.counts["beside_their_document"] == slow_beside(store.read(piece), 8) > 0
    rows = Epoch(store, piece)[0].rows
    table = store.read(piece).head(8)
    follows = (table["place"].cast(pl.Int64).diff() == 1).to_list()[1:]
    assert (rows.runs().run_B.diff() == 0).tolist() == follows


def test_small_buckets_keep_runs_apart_too(store):
    made = ordered(store, {n: [Document(story(10 * n + d, 9)) for d in range(6)] for n in (0, 1, 2)})
    piece = epoch(store, Batches(rows=8, run=4, bucket_rows=30), 0, 0, made)
    frame = store.read(piece)
    assert piece.counts["beside_their_document"] == slow_beside(frame, 8)
    assert len(frame.filter(pl.col("side") != FILLER)["text"].unique()) == 3 * 54


def test_the_order_is_the_same_each_time(store, tmp_path):
    shards = {n: [Document(story(10 * n + d, 12)) for d in range(5)] for n in (0, 1)}
    other = Store.at(tmp_path / "other")
    one, two = (epoch(place, SMALL, 3, 1, ordered(place, shards)) for place in (store, other))
    assert (one.key, one.sha256) == (two.key, two.sha256)


def test_recipes_without_order_keep_columns_and_key(store):
    shards = {0: [Document(story(d, 12)) for d in range(5)]}
    plain, inorder = source(store, shards), ordered(store, shards)
    assert batches.plan_key(SMALL, 0, plain) == batches.plan_key(
        SMALL, 0, batches.Source(plain.sentences, plain.tokens, plain.pairs, plain.held_out)
    )
    assert batches.plan_key(SMALL, 0, plain) != batches.plan_key(SMALL, 0, inorder)
    frame = store.read(epoch(store, SMALL, 0, 0, plain))
    assert frame.columns == ["text", "tokens", "side", "group", "answers"]
    assert Epoch(store, epoch(store, SMALL, 0, 0, plain))[0].rows.place_B is None


def test_a_batch_is_read_with_its_places(store):
    made = ordered(store, {0: [Document(story(d, 7)) for d in range(6)]})
    piece = epoch(store, SMALL, 0, 0, made)
    table, opened = store.read(piece), Epoch(store, piece)
    for number in range(opened.batches):
        rows, wanted = opened[number].rows, table.slice(8 * number, 8)
        assert rows.place_B.tolist() == wanted["place"].to_list()
        assert [at % 2**64 for at in rows.document_B.tolist()] == wanted["document"].to_list()


def test_documents_that_are_too_short_to_look_ahead_are_refused_with_the_remedy(store):
    made = ordered(store, {0: [Document(story(d, 3)) for d in range(9)]}, ahead=3)
    for _ in range(2):  # also where the batches are there already
        with pytest.raises(BatchesError, match=r"looks 3 sentences ahead, but the longest run in a batch has 3; give"):
            epoch(store, SMALL, 0, 0, made)


def test_the_first_batch_of_the_recipe_answers_each_step(store):
    made = ordered(store, {0: [Document(story(d, 12)) for d in range(9)]}, ahead=3)
    rows = Epoch(store, epoch(store, Batches(rows=32, run=8), 0, 0, made))[0].rows
    numbers = [len(rows.ahead(k).anchors()) for k in (1, 2, 3)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] > 0


@pytest.mark.parametrize(("name", "ahead"), [("cpc", 3), ("quick-thoughts", 0)])
def test_the_road_of_a_recipe_knows_how_far_it_looks(store, name, ahead):
    made = source(store, {0: [Document(story(0, 9))]})
    tables = [Manifest("", "", pieces) for pieces in (made.sentences, made.tokens, made.pairs)]
    assert Road(store, load(name), "texts").source(*tables).ahead == ahead


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("batches.run=3", r"terms.2.ahead is 3, but runs have at most 3 sentences \(batches.run\); should be below"),
        ("batches.rows=3", r"terms.2.ahead is 3, but runs have at most 3 sentences"),
        ("pairs={kind='single'}", r'terms.0.ahead wants runs of sentences, so pairs.kind = "neighbours", not "single"'),
    ],
)
def test_what_can_never_look_so_far_is_named_before_any_work(override, message):
    with pytest.raises(RecipeError, match=message):
        planned(load("cpc", [override]))
