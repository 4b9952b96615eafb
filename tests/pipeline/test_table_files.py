"""Files with columns: rows by name, the files' digest, and what figures are named after."""

import json
import re

import polars as pl
import pytest

from pipeline.shard import SourceError
from pipeline.table_files import Columns, digest, name, rows

HEADER = "sentence1\tsentence2\tscore"
GOOD = ("an owl\ta bird\t4", "a boat\ta ship\t4.5", "a boat\tan owl\t0")
TEXT = Columns(("text",), "text")


def table(path, *rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


def test_only_wanted_columns_have_to_be_there(tmp_path):
    [row] = rows(table(tmp_path / "a.tsv", "7\tan owl", header="number\ttext"), TEXT)
    assert (row.place, row.text("text")) == ("a.tsv, row 1", "an owl")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_value_that_is_not_there_is_blank(tmp_path, form):
    path, values = tmp_path / f"a.{form}", ["an owl", None, " "]
    if form == "jsonl":
        path.write_text("\n".join([*(json.dumps({"text": value}) for value in values), "{}"]))
    else:
        pl.DataFrame({"text": [*values, None]}).write_parquet(path)
    assert [row.blank("text") for row in rows(str(path), TEXT)] == [False, True, True, True]


def test_a_missing_column_names_the_options_to_set(tmp_path):
    with pytest.raises(SourceError, match=r"a.tsv: no column text; columns there: words; set text, and give"):
        list(rows(table(tmp_path / "a.tsv", "an owl", header="words"), TEXT))


def test_a_digest_is_that_of_names_and_bytes(tmp_path):
    path = table(tmp_path / "set" / "pairs.tsv", *GOOD)
    before = digest(str(tmp_path / "set"))
    assert digest(str(tmp_path / "set")) == before and re.fullmatch("[0-9a-f]{64}", before)
    table(tmp_path / "set" / "pairs.tsv", *GOOD[:2], "a boat\tan owl\t1")
    assert digest(str(tmp_path / "set")) != before
    table(tmp_path / "set" / "pairs.tsv", *GOOD)
    assert digest(path) == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data/stsb-dev.tsv", "stsb-dev"),
        ("stsb.dev.TSV.gz", "stsb-dev"),
        ("sets/sts14/", "sts14"),
        ("sets/sts14/*.tsv", "sts14"),
        ("v1.5", "v1-5"),
        (".", ""),
    ],
)
def test_figures_are_named_after_the_path(path, expected):
    assert name(path) == expected


def test_files_that_stand_in_another_order_have_another_digest(tmp_path):
    for place, names in (("one", "ab"), ("two", "ba")):
        table(tmp_path / place / f"{names[0]}.tsv", *GOOD)
        table(tmp_path / place / f"{names[1]}.tsv", *GOOD[:2])
    assert digest(str(tmp_path / "one")) != digest(str(tmp_path / "two"))


def test_a_file_by_another_name_has_another_digest(tmp_path):
    paths = [table(tmp_path / f"{name}.tsv", *GOOD) for name in ("one", "two")]
    assert digest(paths[0]) != digest(paths[1])
