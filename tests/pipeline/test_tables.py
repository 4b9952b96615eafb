import polars as pl
import pytest

from pipeline import tables
from pipeline.tables import PAIRS, TOKENS, Column, Table, TableError

EVERY = [value for value in vars(tables).values() if isinstance(value, Table)]
SMALL = Table("small", {"a": Column(tables.U32, ""), "b": Column(tables.STRING, "", optional=True)}, sort=("a",))


def test_check_puts_columns_and_rows_in_the_declared_order():
    frame = pl.DataFrame({"c": [0, 0], "b": ["x", "y"], "a": [2, 1]}, schema_overrides={"a": pl.UInt32})
    assert SMALL.check(frame).to_dict(as_series=False) == {"a": [1, 2], "b": ["y", "x"]}


def test_an_optional_column_may_be_missing():
    assert SMALL.check(pl.DataFrame({"a": [1]}, schema={"a": pl.UInt32})).columns == ["a"]


def test_a_missing_column_is_refused_with_those_there():
    with pytest.raises(TableError, match=r"table small: no column a; got b, c"):
        SMALL.check(pl.DataFrame({"b": [""], "c": [1]}))


def test_a_column_of_another_type_is_refused_with_the_right_one():
    with pytest.raises(TableError, match=r"table small: column a is Int64, should be UInt32"):
        SMALL.check(pl.DataFrame({"a": [1]}))


def test_rows_of_a_table_without_sort_key_keep_their_order():
    frame = pl.DataFrame({"tokens": [[3], [1], [2]]}, schema={"tokens": pl.List(pl.Int32)})
    assert TOKENS.check(frame)["tokens"].to_list() == [[3], [1], [2]]


@pytest.mark.parametrize("table", EVERY, ids=lambda table: table.name)
def test_every_table_sorts_by_columns_that_it_has_and_names_its_units(table):
    assert set(table.sort) <= set(table.columns)
    assert all(column.about for column in table.columns.values())
    assert table.check(table.empty()).is_empty()


def test_the_schema_of_some_columns_is_in_their_order():
    assert list(tables.schema(PAIRS, ["distance", "anchor"]).items()) == [
        ("distance", pl.Int8()),
        ("anchor", tables.U32),
    ]
