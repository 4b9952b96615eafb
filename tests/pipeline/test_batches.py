import random
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from corpora import Document, source, story
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from models import candidates
from models.recipe import Batches
from pipeline import batches
from pipeline.batches import BatchesError, Source, epoch
from pipeline.reader import Epoch
from pipeline.runs import answered, shard_runs
from pipeline.store import Store
from pipeline.tables import BOTH, FILLER

SMALL = Batches(rows=8, run=4, bucket_rows=20)
SHARDS = {number: [Document(story(10 * number + d, 7)) for d in range(6)] for number in (0, 1, 2)}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def rows(store: Store, made: Source, settings: Batches = SMALL, seed: int = 0, number: int = 0) -> pl.DataFrame:
    """An epoch's rows with their batch, and for each the shard and row of its text."""
    frame = store.read(epoch(store, settings, seed, number, made)).with_row_index("at")
    return frame.with_columns(
        batch=pl.col("at") // settings.rows, shard=pl.col("text") // 2**32, row=pl.col("text") % 2**32
    )


def real(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("side") != FILLER)


def texts(store: Store, made: Source) -> dict[int, dict[str, object]]:
    """Number of a text, and its row in table sentences."""
    return {
        (shard << 32) + row: record
        for shard, piece in made.sentences.items()
        for row, record in enumerate(store.read(piece).iter_rows(named=True))
    }


def slow_answers(frame: pl.DataFrame, known: dict[int, dict[str, object]], reach: int) -> list[list[int]]:
    """For each row the rows of its batch whose sentence stands at most `reach` places away in the same document."""
    answers = []
    for text, side, batch in frame.select("text", "side", "batch").iter_rows():
        inside = frame.filter(pl.col("batch") == batch).select("text", "side").rows()
        answers.append(
            [
                at
                for at, (other, kind) in enumerate(inside)
                if FILLER not in (side, kind) and near(known[text], known[other], reach)
            ]
        )
    return answers


def near(one: dict[str, object], other: dict[str, object], reach: int) -> bool:
    return one["document"] == other["document"] and 0 < abs(int(one["place"]) - int(other["place"])) <= reach


# What an epoch holds


def test_every_training_sentence_stands_in_an_epoch_once(store):
    made = source(store, SHARDS)
    assert sorted(real(rows(store, made))["text"].to_list()) == sorted(texts(store, made))


def test_all_batches_have_equal_rows_and_only_the_last_has_fillers(store):
    frame = rows(store, source(store, SHARDS))
    assert len(frame) == 128  # 126 sentences in batches of 8
    assert frame.filter(pl.col("side") == FILLER)["at"].to_list() == [126, 127]
    assert frame.filter(pl.col("side") == FILLER).select("tokens", "answers").rows() == [([0], []), ([0], [])]
    assert set(real(frame)["side"]) == {BOTH}


def test_a_corpus_of_whole_batches_has_no_filler(store):
    frame = rows(store, source(store, {0: [Document(story(0, 24))]}))
    assert len(frame) == len(real(frame)) == 24


def test_fillers_are_in_no_pool_and_no_count(store):
    made = source(store, SHARDS)
    piece = epoch(store, SMALL, 0, 0, made)
    last = Epoch(store, piece)[15].rows
    pool = candidates.batch(last, last.anchors(), torch.zeros(8, 2))
    assert not {6, 7} & set(last.anchors().tolist())
    assert pool.shift_AC is not None
    assert pool.shift_AC[:, 6:].isneginf().all()
    assert piece.counts["fillers"] == 2
    assert piece.counts["anchors"] == sum(len(Epoch(store, piece)[n].rows.anchors()) for n in range(16))


@pytest.mark.parametrize("reach", [1, 2])
def test_the_answers_of_a_row_are_its_neighbours_in_the_batch(store, reach):
    made = source(store, SHARDS, context_size=reach)
    frame = rows(store, made)
    assert frame["answers"].to_list() == slow_answers(frame, texts(store, made), reach)


def test_tokens_and_group_of_a_row_are_those_of_its_sentence(store):
    made = source(store, SHARDS)
    known = texts(store, made)
    for text, tokens, group in real(rows(store, made)).select("text", "tokens", "group").iter_rows():
        assert (tokens, group) == ([len(str(known[text]["text"]))], known[text]["group"])


def test_held_out_documents_and_what_repeats_them_leave_training(store):
    kept = ["Oak elm ash.", "Fir yew oak.", "Elm pine elm.", "Larch.", "Alder oak.", "Ash ash.", "Elm.", "Yew."]
    secret = Document(["Birch rowan.", "Cedar cedar!"], held_out=True)
    made = source(store, {0: [Document([*kept, "birch  ROWAN"])], 1: [secret, Document(["Cedar cedar.", *kept])]})
    frame = rows(store, made)
    known = texts(store, made)
    seen = {str(known[text]["text"]) for text in real(frame)["text"]}
    assert seen == set(kept)
    assert epoch(store, SMALL, 0, 0, made).counts["repeats_of_held_out"] == 2


# Order


def test_runs_are_at_most_so_long_and_stop_at_gaps_and_document_borders():
    frame_rows = [(7, place) for place in (0, 1, 2, 3, 4, 6, 7)] + [(8, 8), (8, 9)]
    frame = pl.DataFrame(frame_rows, schema={"document": pl.UInt64, "place": pl.UInt32}, orient="row")
    frame = frame.with_columns(held_out=False, group=pl.int_range(pl.len(), dtype=pl.UInt64))
    tokens = pl.DataFrame({"tokens": [[n] for n in range(9)]}, schema={"tokens": pl.List(pl.Int32)})
    pairs = pl.DataFrame({"anchor": [0], "positive": [1]}, schema={"anchor": pl.UInt32, "positive": pl.UInt32})
    cuts = set()
    for seed in range(30):
        found = shard_runs(frame, tokens, pairs, pl.Series([], dtype=pl.UInt64), 3, 3, np.random.default_rng(seed))
        runs = found.group_by("run", maintain_order=True).agg("text")["text"].to_list()
        runs = [[text - (3 << 32) for text in run] for run in runs]
        assert runs[-1] in ([7, 8], [8])
        cuts.add(tuple(map(len, runs[:3])))
        assert all(len(run) <= 3 for run in runs)
        assert not any({4, 5} <= set(run) or {6, 7} <= set(run) for run in runs)
    assert {(3, 2, 2), (2, 3, 2)} <= cuts  # where the first cut falls is drawn
    assert found["positives"].to_list()[:2] == [[(3 << 32) + 1], []]


def test_neighbours_of_a_run_stay_side_by_side(store):
    whole = Batches(rows=8, run=1000, bucket_rows=20)
    made = source(store, {0: [Document(story(d, 3)) for d in range(40)]})
    order = real(rows(store, made, whole))["text"].to_list()
    together = sum(second == first + 1 for first, second in pairwise(order))
    assert together >= 40 * 2 - 4  # a document is cut with odds of 2 in 1000


def test_each_epoch_has_an_order_of_its_own_and_a_seed_gives_the_same_again(store, tmp_path):
    made = source(store, SHARDS)
    first, second = (rows(store, made, number=number)["text"].to_list() for number in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)
    other = Store.at(tmp_path / "other")
    again = source(other, SHARDS)
    assert rows(other, again, number=1)["text"].to_list() == second
    assert rows(other, again, seed=1)["text"].to_list() != first


def test_small_buckets_mix_shards(store):
    made = source(store, SHARDS)
    mixed = rows(store, made).group_by("batch").agg(pl.col("shard").n_unique())["shard"]
    assert mixed.mean() > 1.5


def test_a_sentence_of_the_first_shard_may_stand_anywhere(store):
    made = source(store, SHARDS)
    places = [real(rows(store, made, number=n)).filter(pl.col("shard") == 0)["at"].mean() for n in range(25)]
    assert sum(places) / len(places) == pytest.approx(63, abs=6)  # of 126; a shard's mean spreads about 8
    assert max(places) - min(places) > 10


def orders(store: Store, epochs: int) -> np.ndarray:
    """Where each of 24 runs of 3 shards stands in 4 buckets behind each other, [epochs, 24], shards in order."""
    made = source(store, {shard: [Document([f"Tree {shard} {d}."]) for d in range(8)] for shard in range(3)})
    found = []
    for number in range(epochs):
        buckets = batches._scattered(
            store, SMALL.model_copy(update={"bucket_rows": 7}), 0, number, made, {"repeats_of_held_out": 0}, []
        )
        text = pl.concat(buckets)["text"].to_numpy()
        found.append(np.argsort((text >> 32) * 8 + text % 2**32))
    return np.stack(found)


def test_the_order_is_a_true_shuffle_of_the_whole_corpus_though_only_a_bucket_is_in_memory(store):
    place_ER = orders(store, 400)
    times_RP = np.stack([np.bincount(place_R, minlength=24) for place_R in place_ER.T])
    assert chisquare(times_RP.ravel(), ddof=2 * 24 - 2).pvalue > 0.001  # any run anywhere
    before_RR = (place_ER[:, :, None] < place_ER[:, None, :]).mean(0)[np.triu_indices(24, 1)]
    assert np.abs(before_RR - 0.5).max() < 4.5 * (0.25 / 400) ** 0.5  # any run before any other
    beside = (place_ER[:, 1:] - place_ER[:, :-1] == 1).mean()
    assert beside == pytest.approx(1 / 24, abs=4 * (1 / 24 / (400 * 23)) ** 0.5)  # no run drawn to what it stood beside
    moved = np.corrcoef(place_ER[:-1].ravel(), place_ER[1:].ravel())[0, 1]
    assert abs(moved) < 4 / (399 * 24) ** 0.5  # an epoch says nothing about the next


def test_the_order_in_which_shards_are_named_changes_nothing(store, tmp_path):
    made = source(store, SHARDS)
    other = Store.at(tmp_path / "other")
    again = source(other, dict(reversed(SHARDS.items())))
    turned = Source(again.sentences, dict(sorted(again.tokens.items())), again.pairs, again.held_out)
    one, two = epoch(store, SMALL, 0, 0, made), epoch(other, SMALL, 0, 0, turned)
    assert (one.key, one.sha256) == (two.key, two.sha256)


def test_a_second_run_makes_nothing(store):
    made = source(store, SHARDS)
    first = epoch(store, SMALL, 0, 0, made)
    assert epoch(store, SMALL, 0, 0, made) == first


# Memory and files


def test_no_more_rows_are_loaded_at_once_than_a_bucket_has(store, tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("FIRTH_SCRATCH", str(tmp_path / "scratch"))
    made = source(store, {number: [Document(story(d, 5)) for d in range(12)] for number in range(10)})
    settings = Batches(rows=8, run=4, bucket_rows=60)
    sizes = []
    for bucket in batches._scattered(store, settings, 0, 0, made, {"repeats_of_held_out": 0}, []):
        sizes.append(len(bucket))
        (folder,) = (tmp_path / "scratch").iterdir()
        assert len(list(folder.iterdir())) <= 10  # a file a bucket, however many shards
    assert sum(sizes) == 600
    assert len(sizes) == 10
    assert max(sizes) < 2 * 60
    assert not list((tmp_path / "scratch").iterdir())


def test_a_failure_leaves_neither_scratch_nor_piece(store, tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("FIRTH_SCRATCH", str(tmp_path / "scratch"))
    made = source(store, SHARDS)
    Path(store.path(made.tokens[2].file)).write_bytes(b"")
    with pytest.raises(RuntimeError, match="shard2"):
        epoch(store, SMALL, 0, 0, made)
    assert not list((tmp_path / "scratch").iterdir())
    assert store.names("batches/") == []


def test_row_groups_hold_whole_batches(store):
    made = source(store, {0: [Document(story(d, 500)) for d in range(26)]})
    piece = epoch(store, Batches(rows=400, run=10), 0, 0, made)
    about = pq.ParquetFile(store.path(piece.file)).metadata
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [6000, 6000, 1200]
    assert piece.facts == {"batches": 33, "batch_rows": 400, "group_batches": 15}


def test_a_batch_larger_than_a_row_group_is_a_row_group(store):
    made = source(store, {0: [Document(story(d, 500)) for d in range(26)]})
    piece = epoch(store, Batches(rows=6500, run=10), 0, 0, made)
    about = pq.ParquetFile(store.path(piece.file)).metadata
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [6500, 6500]


# Corpora that give no batch, and edges


@pytest.mark.parametrize(
    ("sentences", "remedy"),
    [
        (5, r"5 training sentences, a batch has 8 rows: set batches\.rows to at most 5, or give more text"),
        (1, r"1 training sentences, a batch has 8 rows: give more text"),
        (0, r"0 training sentences, a batch has 8 rows: give more text"),
    ],
)
def test_fewer_sentences_than_a_batch_has_rows_are_refused_with_the_remedy(store, sentences, remedy):
    documents = [Document(story(0, sentences)), Document(["Secret."], held_out=True)]
    with pytest.raises(BatchesError, match=remedy):
        epoch(store, SMALL, 0, 0, source(store, {0: documents}))
    assert store.names("batches/") == []


def test_a_corpus_without_a_sentence_is_refused(store):
    with pytest.raises(BatchesError, match="0 training sentences"):
        epoch(store, SMALL, 0, 0, source(store, {0: []}))


def test_a_corpus_without_neighbours_is_refused_with_the_remedy(store):
    with pytest.raises(BatchesError, match=r"no training sentence has a right answer.*documents of several sentences"):
        epoch(store, SMALL, 0, 0, source(store, {0: [Document(story(d, 1)) for d in range(20)]}))


def test_shards_without_a_training_sentence_cost_nothing(store):
    secret = Document(["Secret one.", "Secret two."], held_out=True)
    made = source(store, {0: [], 1: [secret], 2: [Document(story(d, 4)) for d in range(4)]})
    assert set(real(rows(store, made))["shard"]) == {2}


def test_every_epoch_has_equally_many_batches_though_the_rest_may_have_no_answer(store):
    made = source(store, {0: [Document(story(0, 8)), Document(story(1, 1))]})
    pieces = [epoch(store, SMALL, 0, number, made) for number in range(10)]
    assert {piece.rows for piece in pieces} == {16}
    assert len({piece.counts["anchors"] for piece in pieces}) > 1


def test_answers_of_no_rows_are_no_rows():
    schema = {"text": pl.UInt64, "tokens": pl.List(pl.Int32), "group": pl.UInt64, "positives": pl.List(pl.UInt64)}
    assert answered(pl.DataFrame(schema=schema), 8).is_empty()


DOCUMENTS = st.lists(
    st.builds(
        Document, st.lists(st.sampled_from(["Oak.", "Elm oak.", "Ash yew.", "Fir.", None]), max_size=6), st.booleans()
    ),
    max_size=5,
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(DOCUMENTS, min_size=1, max_size=3),
    st.integers(2, 6),
    st.integers(2, 5),
    st.integers(1, 12),
    st.integers(1, 2),
)
def test_any_corpus_gives_each_sentence_once_with_its_neighbours(
    shards: list[Sequence[Document]], size, run, bucket, reach
):
    with tempfile.TemporaryDirectory() as place:
        store = Store.at(place)
        made = source(store, dict(enumerate(shards)), context_size=reach)
        known = texts(store, made)
        secret = {record["group"] for record in known.values() if record["held_out"]}
        wanted = sorted(text for text, record in known.items() if record["group"] not in secret)
        try:
            frame = rows(store, made, Batches(rows=size, run=run, bucket_rows=bucket))
        except BatchesError as error:
            assert len(wanted) < size or "no training sentence has a right answer" in str(error)
            return
        assert sorted(real(frame)["text"].to_list()) == wanted
        assert frame["answers"].to_list() == slow_answers(frame, known, reach)


# Negatives


def test_no_row_is_ever_a_negative_of_its_group_or_of_its_answers_groups(store):
    draw = random.Random(0)
    repeats = ["Oak elm.", "Ash!", "ash", "Fir, yew.", "Pine.", "fir, yew", "Larch oak."]
    made = source(store, {n: [Document(draw.choices(repeats, k=9)) for _ in range(8)] for n in range(3)})
    piece = epoch(store, Batches(rows=16, run=5, bucket_rows=50), 0, 0, made)
    opened, checked = Epoch(store, piece), 0
    for number in range(opened.batches):
        found = opened[number].rows
        anchors, group = found.anchors(), found.group_B.tolist()
        pool = candidates.batch(found, anchors, torch.zeros(16, 2))
        assert pool.shift_AC is not None
        for anchor, shift in zip(anchors.tolist(), pool.shift_AC.tolist(), strict=True):
            answers = [at for at in found.answers_BP[anchor].tolist() if at >= 0]
            alike = {group[at] for at in [anchor, *answers]}
            for column in range(16):
                if group[column] in alike and column not in answers:
                    assert shift[column] == -np.inf
                    checked += 1
    assert checked > 1000
