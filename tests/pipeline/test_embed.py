"""Vectors of sentences, shard by shard."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from runs import job_of

from models.folder import load, save
from pipeline.embed import listed, matrix, opened, vectors
from pipeline.run import build


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A model folder outside the store."""
    path = tmp_path_factory.mktemp("embed") / "model"
    save(path, build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    return str(path)


def read(made, table):
    return made.store.read(next(iter(table.pieces.values())))


def sentences(made):
    return made.store.read(next(iter(made.sentences.pieces.values())))


def test_vectors_are_those_that_the_model_encodes(made, folder):
    rows = read(made, vectors(made.store, "w", folder, made.sentences))
    assert rows["row"].to_list() == list(range(made.sentences.rows))
    assert np.abs(matrix(rows["vector"]) - load(folder).encode(sentences(made)["text"].to_list())).max() < 1e-6


def test_a_second_call_finds_them_made(made, folder):
    first = vectors(made.store, "again", folder, made.sentences)
    second = vectors(made.store, "again", folder, made.sentences)
    assert second.cached and second.key == first.key


def test_other_weights_are_other_vectors(made, folder):
    keys = {vectors(made.store, weights, folder, made.sentences).key for weights in ("one", "two")}
    assert len(keys) == 2


def test_the_largest_digest_takes_all_held_out_sentences_and_no_other(made, folder):
    rows = read(made, vectors(made.store, "w", folder, made.sentences, 2**64 - 1))
    expected = sentences(made).with_row_index("row").filter("held_out")["row"].to_list()
    assert rows["row"].to_list() == expected and 0 < len(expected) < made.sentences.rows


def test_a_smaller_digest_takes_documents_up_to_it(made, folder):
    held_out = sentences(made).filter("held_out")
    upto = held_out["document"].unique().sort()[1]
    rows = read(made, vectors(made.store, "w", folder, made.sentences, upto))
    assert len(rows) == (held_out["document"] <= upto).sum() < len(held_out)


def test_no_document_up_to_the_digest_gives_an_empty_table(made, folder):
    table = vectors(made.store, "w", folder, made.sentences, 0)
    assert table.rows == 0 and read(made, table).schema["vector"] == pl.List(pl.Float32)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_matrix_survives_being_a_column(count):
    vectors_ND = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    column = listed(vectors_ND)
    assert column.dtype == pl.List(pl.Float32) and column.len() == count
    assert np.array_equal(matrix(column).reshape(count, 4), vectors_ND)


def test_a_folder_in_the_store_is_opened_by_name(made):
    save(Path(made.store.path("weights/there")), build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    assert opened(made.store.root, "weights/there").width == 24


def test_a_model_that_counts_has_vectors_of_no_width_though_its_counts_are_not_read(made, tmp_path):
    (tmp_path / "recipe.json").write_text('{"name": "r", "encoder": {"kind": "ngram"}}')
    (tmp_path / "counts.parquet").write_text("not read")
    rows = read(made, vectors(made.store, "counted", str(tmp_path), made.sentences))
    assert matrix(rows["vector"]).shape == (made.sentences.rows, 0)


def test_a_model_in_the_store_counts_by_its_recipe_too(made):
    made.store.put("weights/counted/recipe.json", {"name": "r", "encoder": {"kind": "ngram"}})
    rows = read(made, vectors(made.store, "stored", "weights/counted", made.sentences))
    assert matrix(rows["vector"]).shape == (made.sentences.rows, 0)
