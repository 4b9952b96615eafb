"""Rated pairs as people keep them: in tables of four forms, alone or many, and what may be wrong with them."""

import gzip
import json

import polars as pl
import pytest

from pipeline.rated import Columns, read
from pipeline.shard import SourceError

COLUMNS = Columns("sentence1", "sentence2", "score")
HEADER = "sentence1\tsentence2\tscore"
GOOD = ("an owl\ta bird\t4", "a boat\ta ship\t4.5", "a boat\tan owl\t0")


def table(path, *rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


def refused(path, *words, columns=COLUMNS):
    with pytest.raises(SourceError) as found:
        read(path, columns)
    assert [word for word in words if word not in str(found.value)] == []


def test_rows_come_with_file_row_and_score(tmp_path):
    pairs = read(table(tmp_path / "pairs.tsv", *GOOD), COLUMNS).pairs
    assert pairs.rows()[1] == ("pairs.tsv", 2, "a boat", "a ship", 4.5)


def test_tsv_knows_no_quotes(tmp_path):
    path = table(tmp_path / "pairs.tsv", *GOOD, 'an "owl\t"a" bird\t3')
    assert read(path, COLUMNS).pairs.row(3)[2:4] == ('an "owl', '"a" bird')


def test_csv_is_quoted(tmp_path):
    rows = ['"an owl, and ""more""","a\nbird",1', "a,b,2", "c,d,3"]
    pairs = read(table(tmp_path / "pairs.csv", *rows, header="sentence1,sentence2,score"), COLUMNS).pairs
    assert pairs.row(0)[2:] == ('an owl, and "more"', "a bird", 1.0)
    assert pairs["row"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "tsv.gz"])
def test_other_forms_give_the_same_pairs(tmp_path, form):
    expected = read(table(tmp_path / "pairs.tsv", *GOOD), COLUMNS).pairs.drop("source")
    path = tmp_path / f"pairs.{form}"
    rows = [dict(zip(HEADER.split("\t"), row.split("\t"), strict=True)) for row in GOOD]
    if form == "jsonl":
        path.write_text("\n".join(json.dumps({**row, "score": float(row["score"])}) for row in rows))
    elif form == "parquet":
        pl.DataFrame(rows).with_columns(pl.col("score").cast(pl.Float32)).write_parquet(path)
    else:
        path.write_bytes(gzip.compress((tmp_path / "pairs.tsv").read_bytes()))
    assert read(str(path), COLUMNS).pairs.drop("source").equals(expected)


def test_files_of_a_folder_stand_behind_each_other_by_name(tmp_path):
    for part in ("b", "a"):
        table(tmp_path / "set" / f"{part}.tsv", *GOOD)
    (tmp_path / "set" / "LICENSE.txt").write_text("free")
    expected = ["a.tsv"] * 3 + ["b.tsv"] * 3
    assert read(str(tmp_path / "set"), COLUMNS).pairs["source"].to_list() == expected
    assert read(str(tmp_path / "s*" / "*.tsv"), COLUMNS).pairs["source"].str.tail(5).to_list() == expected


def test_columns_are_those_that_are_named(tmp_path):
    path = table(tmp_path / "pairs.tsv", *(f"x\t{row}" for row in GOOD), header="id\tone\tother\tgold")
    assert read(path, Columns("other", "one", "gold")).pairs["left"].to_list() == ["a bird", "a ship", "an owl"]


def test_a_row_without_a_score_was_not_rated_and_is_counted(tmp_path):
    found = read(table(tmp_path / "pairs.tsv", "a\tb\t", *GOOD, "\tb\t ", "a\tc\t1"), COLUMNS)
    assert found.unscored == 2
    assert found.pairs["row"].to_list() == [2, 3, 4, 6]


def test_null_is_no_score_either(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": "a", "sentence2": "b", "score": score} for score in (1, None, 2, 3)]
    path.write_text("\n".join(map(json.dumps, [*rows, {"sentence1": "a", "sentence2": "b"}])))
    assert read(str(path), COLUMNS).unscored == 2


def test_blank_lines_are_no_rows(tmp_path):
    assert read(table(tmp_path / "pairs.tsv", "", *GOOD, ""), COLUMNS).pairs["row"].to_list() == [1, 2, 3]


def test_a_missing_file_is_refused(tmp_path):
    refused(str(tmp_path / "pairs.tsv"), "pairs.tsv", "no such file", "check the path")


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "pairs.txt").write_text("a\tb\t1\n")
    refused(str(tmp_path / "pairs.txt"), "no table", "known suffixes: .jsonl, .ndjson, .csv, .tsv, .parquet")


def test_a_missing_column_is_refused_with_those_there(tmp_path):
    path = table(tmp_path / "pairs.tsv", *GOOD, header="sentence1\tother\tscore")
    refused(path, "pairs.tsv: no column sentence2", "columns there: sentence1, other, score", "set left, right")


def test_a_missing_column_of_json_lines_is_refused_with_those_there(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "a", "label": 1}\n')
    refused(str(tmp_path / "pairs.jsonl"), "no column sentence2, score", "columns there: sentence1, label")


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    path = table(tmp_path / "pairs.tsv", *(f"{row}\t1" for row in GOOD), header=f"{HEADER}\tscore")
    refused(path, "score is there twice")


@pytest.mark.parametrize("score", ["high", "nan", "inf", "1_0", "3,5", "1e999"])
def test_a_score_that_is_no_number_is_refused_with_its_row(tmp_path, score):
    path = table(tmp_path / "pairs.tsv", *GOOD, f"a\tb\t{score}")
    refused(path, f"pairs.tsv, row 4: score is '{score}', should be a number", "leave it empty")


@pytest.mark.parametrize("score", [True, [1], float("nan"), 10**400])
def test_a_json_score_that_is_no_number_is_refused_with_its_row(tmp_path, score):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n" + json.dumps({"sentence1": "a", "sentence2": "b", "score": score}))
    refused(str(path), "pairs.jsonl, row 2: score is", "should be a number")


def test_an_empty_text_is_refused_with_its_row(tmp_path):
    refused(table(tmp_path / "pairs.tsv", *GOOD, "a\t \t3"), "row 4: sentence2 is empty; fill it in or drop the row")


def test_a_text_that_is_a_number_is_refused_with_its_row(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": 7, "sentence2": "b", "score": 1}')
    refused(str(tmp_path / "pairs.jsonl"), "row 1: sentence1 is int, should be a text")


def test_half_a_surrogate_pair_is_refused_with_its_row(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "\\ud83d", "sentence2": "b", "score": 1}')
    refused(str(tmp_path / "pairs.jsonl"), "row 1: sentence1 holds half of a surrogate pair")


@pytest.mark.parametrize("row", ["a\tb", "a\tb\tc\t1"])
def test_a_row_of_another_width_is_refused(tmp_path, row):
    width = row.count("\t") + 1
    refused(table(tmp_path / "pairs.tsv", *GOOD, row), f"row 4: {width} values, should be 3", "no tab")


def test_a_quote_that_is_never_closed_is_refused(tmp_path):
    path = table(tmp_path / "pairs.csv", "a,b,1", '"c,d,2', "e,f,3", header="sentence1,sentence2,score")
    refused(path, "pairs.csv, row 2: not CSV", "close or double the quote")


def test_a_line_that_is_no_json_object_is_refused(tmp_path):
    for line, words in (("[1]", "a JSON list"), ("{", "not JSON")):
        (tmp_path / "pairs.jsonl").write_text(f"{{}}\n{line}\n")
        refused(str(tmp_path / "pairs.jsonl"), "row 2", words)


def test_text_that_is_no_utf_8_is_refused_with_its_line(tmp_path):
    (tmp_path / "pairs.tsv").write_bytes(f"{HEADER}\na\tb\t1\n".encode() + b"\xff\tb\t1\n")
    refused(str(tmp_path / "pairs.tsv"), "pairs.tsv, line 3: not UTF-8")


def test_broken_parquet_is_refused(tmp_path):
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1, not really")
    refused(str(tmp_path / "pairs.parquet"), "pairs.parquet: broken Parquet")


def test_fewer_than_three_scored_pairs_are_refused(tmp_path):
    refused(table(tmp_path / "pairs.tsv", *GOOD[:2], "a\tb\t"), "2 scored pairs, 1 without a score", "3 or more")


def test_one_score_for_all_is_refused(tmp_path):
    rows = [f"{pair}\t3" for pair in ("a\tb", "c\td", "e\tf")]
    refused(table(tmp_path / "pairs.tsv", *rows), "Spearman undefined: all 3 pairs have the score 3")
