"""Texts with classes as people keep them in tables, and what may be wrong with them."""

import json

import polars as pl
import pytest

from pipeline.classes import Columns, read
from pipeline.shard import SourceError

COLUMNS = Columns("text", "label")
BIRDS, BOATS = [("an owl", "bird"), ("a wren", "bird"), ("a rook", "bird")], [("a punt", "boat"), ("a brig", "boat")]


def table(path, rows, header="text\tlabel"):
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


def refused(path, *words, test="", folds=2, columns=COLUMNS):
    with pytest.raises(SourceError) as found:
        read(path, test, columns, folds)
    assert [word for word in words if word not in str(found.value)] == []


def test_rows_come_with_file_row_and_class(tmp_path):
    found = read(table(tmp_path / "a.tsv", [*BIRDS, ("a  brig ", " boat "), *BOATS]), "", COLUMNS, 2)
    assert found.texts.row(3) == ("a.tsv", 4, "a brig", "boat")
    assert found.test is None and found.every.equals(found.texts)


def test_a_test_part_stands_behind_the_texts_to_train_on(tmp_path):
    found = read(table(tmp_path / "a.tsv", BIRDS + BOATS), table(tmp_path / "b.tsv", BOATS[:1]), COLUMNS, 2)
    assert found.test.rows() == [("b.tsv", 1, "a punt", "boat")]
    assert found.every["source"].to_list() == ["a.tsv"] * 5 + ["b.tsv"]


def test_rows_without_a_label_are_counted_in_both_parts(tmp_path):
    path = table(tmp_path / "a.tsv", [("", ""), *BIRDS, *BOATS])
    found = read(path, table(tmp_path / "b.tsv", [("a punt", " "), *BOATS]), COLUMNS, 2)
    assert (found.unlabelled, len(found.every)) == (2, 7)
    assert found.texts["row"].to_list() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(("labels", "names"), [((0, 1), ("0", "1")), ((False, True), ("false", "true"))])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_whole_numbers_and_truth_are_classes_too(tmp_path, form, labels, names):
    path = tmp_path / f"a.{form}"
    rows = [{"text": f"owl {at}", "label": label} for at, label in enumerate(labels * 2)]
    if form == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pl.DataFrame(rows).write_parquet(path)
    assert read(str(path), "", COLUMNS, 2).texts["label"].to_list() == list(names * 2)


def test_a_label_that_is_no_whole_number_is_refused_with_its_row(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "an owl", "label": "x"}\n{"text": "an owl", "label": 0.5}')
    refused(str(tmp_path / "a.jsonl"), "a.jsonl, row 2: label is 0.5, should be a text or a whole number", "mend it")


def test_a_missing_file_is_refused(tmp_path):
    refused(str(tmp_path / "a.tsv"), "a.tsv: no such file", "check the path")
    refused(table(tmp_path / "a.tsv", BIRDS + BOATS), "b.tsv: no such file", test=str(tmp_path / "b.tsv"))


def test_a_missing_column_is_refused_with_those_there(tmp_path):
    path = table(tmp_path / "a.tsv", BIRDS + BOATS, header="text\tclass")
    refused(path, "a.tsv: no column label; columns there: text, class; set text and label")
    assert len(read(path, "", Columns("text", "class"), 2).texts) == 5


def test_an_empty_text_is_refused_with_its_row(tmp_path):
    refused(table(tmp_path / "a.tsv", [*BIRDS, (" ", "boat")]), "a.tsv, row 4: text is empty; fill it in or drop the")


def test_one_class_for_all_is_refused(tmp_path):
    refused(table(tmp_path / "a.tsv", BIRDS), "3 texts have the label 'bird', none has another; give texts of two")


def test_a_file_without_a_labelled_text_is_refused(tmp_path):
    refused(table(tmp_path / "a.tsv", [("an owl", "")]), "a.tsv: 0 texts have a label")


def test_a_class_of_fewer_texts_than_folds_is_refused_with_its_first_row(tmp_path):
    path = table(tmp_path / "a.tsv", BIRDS + BOATS)
    refused(path, "a.tsv, row 4: label is 'boat', of which there are 2 texts, should be 3 or more", folds=3)
    assert read(path, "", COLUMNS, 2).texts["label"].n_unique() == 2


def test_a_class_that_only_the_test_part_has_is_refused_with_its_row(tmp_path):
    path, test = table(tmp_path / "a.tsv", BIRDS + BOATS), table(tmp_path / "b.tsv", [*BOATS, ("a mule", "beast")])
    refused(path, "b.tsv, row 3: label is 'beast', which no text trained on has; known: bird, boat", test=test)


def test_a_test_part_without_a_labelled_text_is_refused(tmp_path):
    path, test = table(tmp_path / "a.tsv", BIRDS + BOATS), table(tmp_path / "b.tsv", [("a punt", "")])
    refused(path, "b.tsv: no text with a label, 1 without; give texts to test with", test=test)


def test_a_class_may_be_missing_from_the_test_part(tmp_path):
    path = table(tmp_path / "a.tsv", BIRDS + BOATS)
    assert len(read(path, table(tmp_path / "b.tsv", BOATS), COLUMNS, 2).test) == 2
