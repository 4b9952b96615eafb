import numpy as np
import polars as pl
import pytest
import torch
from corpora import Document, source, story

from models.recipe import Batches
from pipeline.batches import epoch
from pipeline.reader import Epoch
from pipeline.store import Piece, Store
from pipeline.tables import BATCHES


@pytest.fixture
def made(tmp_path) -> tuple[Store, Piece]:
    """20 batches of 1000 rows, in four row groups; the last batch has fillers."""
    store = Store.at(tmp_path)
    documents = [Document(story(number, 65)) for number in range(300)]
    return store, epoch(store, Batches(rows=1000, run=10), 0, 0, source(store, {0: documents}))


def test_each_batch_is_read_as_it_stands_in_the_table(made):
    store, piece = made
    opened, table = Epoch(store, piece), store.read(piece)
    assert (opened.batches, opened.rows) == (20, 1000)
    for number in range(20):
        rows, batch = table.slice(1000 * number, 1000), opened[number]
        assert batch.flat_ids.tolist() == rows["tokens"].explode().to_list()
        assert batch.length_B.tolist() == rows["tokens"].list.len().to_list()
        assert batch.rows.side_B.tolist() == rows["side"].to_list()
        assert [[a for a in row if a >= 0] for row in batch.rows.answers_BP.tolist()] == rows["answers"].to_list()


def test_a_batch_is_the_same_wherever_reading_starts(made):
    store, piece = made
    straight = Epoch(store, piece)
    for number in range(13):
        wanted = straight[number]
    found = Epoch(store, piece)[12]
    assert torch.equal(found.flat_ids, wanted.flat_ids)
    assert torch.equal(found.rows.answers_BP, wanted.rows.answers_BP)


def test_reading_backwards_is_reading_too(made):
    store, piece = made
    opened = Epoch(store, piece)
    last, first = opened[19], opened[0]
    assert torch.equal(first.flat_ids, Epoch(store, piece)[0].flat_ids)
    assert last.rows.side_B.tolist().count(3) == 500


def test_types_are_those_that_a_step_asks_for(made):
    batch = Epoch(*made)[0]
    assert (batch.flat_ids.dtype, batch.length_B.dtype) == (torch.int64, torch.int64)
    assert batch.rows.side_B.dtype == torch.uint8
    assert (batch.rows.group_B.dtype, batch.rows.answers_BP.dtype) == (torch.int64, torch.int64)


def test_large_groups_stay_apart(made):
    store, piece = made
    table, batch = store.read(piece).head(1000), Epoch(store, piece)[0]
    assert table["group"].max() >= 2**63
    assert np.array_equal(batch.rows.group_B.numpy().view(np.uint64), table["group"].to_numpy())


def test_a_batch_without_an_answer_has_a_column_of_fills(tmp_path):
    store = Store.at(tmp_path)
    documents = [Document(story(0, 2)), *(Document(story(number, 1)) for number in range(1, 41))]
    piece = epoch(store, Batches(rows=6, run=1000), 0, 0, source(store, {0: documents}))
    opened = Epoch(store, piece)
    shapes = {tuple(opened[number].rows.answers_BP.shape) for number in range(opened.batches)}
    assert shapes == {(6, 1)}
    assert sum(int((opened[number].rows.answers_BP >= 0).sum()) for number in range(opened.batches)) == 2


def test_a_reader_holds_one_row_group(made):
    opened = Epoch(*made)
    for number in (0, 19, 7):
        opened[number]
        assert opened._group is not None
        assert isinstance(opened._group[1].num_rows, int)
        assert opened._group[1].num_rows <= 6000


def test_tokens_are_numbers_of_the_vocabulary_without_padding(made):
    store, piece = made
    assert store.read(piece).schema["tokens"] == pl.List(pl.Int32)
    assert int(Epoch(store, piece)[0].length_B.min()) == 1


def with_columns(store: Store, **columns: list[list[float]]) -> Epoch:
    """One batch of three rows, the last a filler, with optional columns."""
    rows = {"text": [0, 1, 2], "tokens": [[4, 5], [6], [0]], "side": [0, 0, 3], "group": [0, 1, 2]}
    rows |= {"answers": [[1], [0], []], **columns}
    types = {name: column.type for name, column in BATCHES.columns.items() if name in rows}
    facts = {"batches": 1, "batch_rows": 3, "group_batches": 1}
    return Epoch(store, store.write(BATCHES, "0" * 16, pl.DataFrame(rows, schema=types), started=0.0, facts=facts))


def test_targets_are_read_one_behind_the_other(tmp_path):
    batch = with_columns(Store.at(tmp_path), target=[[6], [4, 5], []])[0]
    assert batch.target_ids.tolist() == [6, 4, 5] and batch.target_length_B.tolist() == [1, 2, 0]
    assert batch.targets(torch.tensor([2, 1]), torch.device("cpu"))[0].tolist() == [[0, 0], [4, 5]]


def test_a_filler_has_zeros_for_a_teacher(tmp_path):
    batch = with_columns(Store.at(tmp_path), teacher=[[0.5, -1.0], [2.0, 0.25], []])[0]
    assert batch.rows.teacher_BE.tolist() == [[0.5, -1.0], [2.0, 0.25], [0.0, 0.0]]
    assert batch.rows.teacher_BE.dtype == torch.float32


def test_without_those_columns_nothing_is_told_or_taught(made):
    batch = Epoch(*made)[0]
    assert batch.target_ids is None and batch.target_length_B is None and batch.rows.teacher_BE is None
