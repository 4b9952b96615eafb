"""Counting n-grams: shard by shard and merged, the same as all at once."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from corpora import Document, road, source, stories, write
from hypothesis import given
from hypothesis import strategies as st

from models.counts_file import COUNT, columns, read
from pipeline import ngrams
from pipeline.batches import BatchesError
from pipeline.ngrams import counted, counts, merge, merged
from pipeline.store import Store

VOCABULARY = 40
TEXTS = ["oak", "elm ash", "yew fir pine", "oak elm ash", "rowan", "larch maple", "cedar oak elm"]


def shards(count, texts=TEXTS):
    """So many shards of two documents each, the first of which is the same in all."""
    return {
        number: [
            Document(texts),
            Document([f"{text} {'x' * (1 + at % 5)}" for at, text in enumerate(texts[number % 3 :])]),
        ]
        for number in range(count)
    }


def plain(store, made, order, words=VOCABULARY):
    """Counts of all training texts by a dictionary; the corpora here hold nothing out."""
    found = Counter()
    for piece in made.tokens.values():
        for text in store.read(piece)["tokens"].to_list():
            padded = [*[words + 1] * (order - 1), *text, words]
            for at in range(order - 1, len(padded)):
                found[(*reversed(padded[at - order + 1 : at]), padded[at])] += 1
    return found


def as_dictionary(file, order):
    gram_GO, count_G = read(file, order, VOCABULARY)
    return {tuple(gram): count for gram, count in zip(gram_GO.tolist(), count_G.tolist(), strict=True)}


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.ray
def test_pieces_merged_are_what_a_dictionary_counts(tmp_path, order, ray_session):
    store = Store.at(tmp_path / "store")
    corpus = source(store, shards(5))
    made = counts(store, corpus, order, VOCABULARY)
    size = merge(store, made, order, 1000, tmp_path / "counts.parquet")
    expected = plain(store, corpus, order)
    assert as_dictionary(tmp_path / "counts.parquet", order) == expected
    assert size == len(expected)
    assert made.count("predicted") == sum(expected.values())


@pytest.mark.ray
def test_a_grown_corpus_counts_as_one_from_scratch(tmp_path, ray_session):
    files = []
    for name, steps in (("grown", (2, 4)), ("scratch", (4,))):
        store = Store.at(tmp_path / name)
        for step in steps:
            made = counts(store, source(store, shards(step)), 3, VOCABULARY)
        merge(store, made, 3, 1000, tmp_path / f"{name}.parquet")
        files.append((tmp_path / f"{name}.parquet").read_bytes())
    assert files[0] == files[1]


def test_the_same_shards_are_not_counted_again(tmp_path):
    store = Store.at(tmp_path / "store")
    first, second = (counts(store, source(store, shards(1)), 3, VOCABULARY) for _ in range(2))
    assert (first.new, second.new, second.cached) == (1, 0, True)


@pytest.mark.ray
def test_many_pieces_are_merged_a_few_at_a_time(tmp_path, ray_session):
    store = Store.at(tmp_path / "store")
    made = counts(store, source(store, shards(7)), 2, VOCABULARY)
    sizes = [merge(store, made, 2, rows, tmp_path / f"{rows}.parquet") for rows in (2000, 1_000_000)]
    assert sizes[0] == sizes[1]
    assert as_dictionary(tmp_path / "2000.parquet", 2) == as_dictionary(tmp_path / "1000000.parquet", 2)


@given(
    tables=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), min_size=1, max_size=4),
    rows=st.integers(1, 5),
)
def test_merging_adds_up_what_is_equal_and_keeps_the_order(tables, rows):
    names = columns(2)[:-1]
    schema = dict.fromkeys(names, pl.UInt32)
    frames = [
        pl.DataFrame(table, schema=schema, orient="row")
        .group_by(names)
        .agg(pl.len().cast(pl.UInt64).alias(COUNT))
        .sort(names)
        for table in tables
    ]
    parts = list(merged([iter(list(frame.iter_slices(rows))) for frame in frames], names))
    found = pl.concat(parts) if parts else frames[0].clear()
    expected = Counter(gram for table in tables for gram in table)
    assert [row[:2] for row in found.rows()] == sorted(expected)
    assert {row[:2]: row[2] for row in found.rows()} == expected
    assert max(map(len, parts), default=0) <= rows * len(tables)


def test_held_out_texts_and_their_repeats_are_not_counted(tmp_path):
    store = Store.at(tmp_path / "store")
    texts = {0: [Document(["oak", "elm ash"], held_out=True), Document(["elm ash", "yew fir pine", "oak"])]}
    made = counts(store, source(store, texts), 1, VOCABULARY)
    assert made.count("repeats_of_held_out") == 2
    assert made.count("texts") == 1
    merge(store, made, 1, 1000, tmp_path / "counts.parquet")
    assert as_dictionary(tmp_path / "counts.parquet", 1) == {(len("yew fir pine"),): 1, (VOCABULARY,): 1}


def test_a_corpus_that_is_all_held_out_is_refused(tmp_path):
    store = Store.at(tmp_path / "store")
    with pytest.raises(BatchesError, match="no training sentence to count: give more text"):
        counts(store, source(store, {0: [Document(["oak"], held_out=True)]}), 2, VOCABULARY)


@pytest.mark.ray
def test_words_of_the_road_are_counted(tmp_path, ray_session):
    """Each sentence of trees has its words and one end."""
    made = road(
        tmp_path / "store", write(tmp_path / "texts", stories(3)), "corpus.held_out=0", "tokenizer.kind=word-level"
    )
    sentences = made.sentences(made.documents(made.numbered()))
    words = made.vocabulary(sentences)
    tokens = made.tokens(sentences, words)
    found = counts(made.store, made.source(sentences, tokens, made.pairs(sentences)), 3, words.size)
    assert found.count("predicted") == tokens.count("tokens") + sentences.rows


def test_the_table_says_what_its_columns_are():
    frame = counted(pl.Series([[1, 2], [2]], dtype=pl.List(pl.Int32)), 3, 9)
    assert ngrams.table(3).check(frame).columns == ["back_1", "back_2", "word", "count"]
    assert np.array_equal(frame["count"], [1, 1, 1, 1, 1])


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=9, max_size=30))
def test_more_tables_than_are_merged_at_once_add_up_too(tables):
    frames = [counted(pl.Series([[word] for word in table], dtype=pl.List(pl.Int32)), 1, 9) for table in tables]
    parts = list(merged([iter([frame]) if len(frame) else iter([]) for frame in frames], ["word"]))
    expected = Counter(word for table in tables for word in table) + Counter({9: sum(map(len, tables))})
    assert [row for part in parts for row in part.rows()] == sorted(expected.items())
