"""
Texts that people put into classes, from table files, to train a probe on and to try it with.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline import table_files
from pipeline.shard import SourceError
from pipeline.table_files import Row

SCHEMA = {"source": pl.String, "row": pl.UInt64, "text": pl.String, "label": pl.String}


@dataclass(frozen=True)
class Columns:
    """Names of the text's column and of the class's."""

    text: str
    label: str


@dataclass(frozen=True)
class Classed:
    """
    Texts (`source`, `row`, `text`, `label`) to cut into folds, or to train on where there are `test` texts; and how
    many rows had no label.
    """

    texts: pl.DataFrame
    test: pl.DataFrame | None
    unlabelled: int

    @property
    def every(self) -> pl.DataFrame:
        """All texts, those to test with behind the others."""
        return self.texts if self.test is None else pl.concat([self.texts, self.test])


def read(path: str, test: str, columns: Columns, folds: int) -> Classed:
    """
    The texts of all files, in order of their names, and those of `test` where it is given.

    A row without a label was not labelled and is counted, not read. White space in texts and labels is collapsed. A
    label is a text, a whole number or true and false.

    Raises:
        SourceError: no file, no column, a row that cannot be used, one class for all, a class of fewer texts than
            folds, or a test text of a class that none trained on has.
    """
    texts, unlabelled = _read(path, columns)
    _check_classes(path, texts, columns.label, folds)
    if not test:
        return Classed(texts, None, unlabelled)
    tried, more = _read(test, columns)
    _check_test(test, tried, texts, columns.label, more)
    return Classed(texts, tried, unlabelled + more)


def _read(path: str, columns: Columns) -> tuple[pl.DataFrame, int]:
    found, unlabelled = [], 0
    for row in table_files.rows(path, table_files.Columns((columns.text, columns.label), "text and label")):
        if row.blank(columns.label):
            unlabelled += 1
        else:
            found.append((row.source, row.row, row.text(columns.text), _label(row, columns.label)))
    return pl.DataFrame(found, schema=SCHEMA, orient="row"), unlabelled


def _label(row: Row, column: str) -> str:
    value: Any = row.values[column]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise SourceError(
            f"{row.place}: {column} is {value!r}, should be a text or a whole number, the name of a class; mend it, or "
            "leave it empty where the text was not labelled"
        )
    return row.text(column)


def _check_classes(path: str, texts: pl.DataFrame, column: str, folds: int) -> None:
    if texts["label"].n_unique() < 2:
        alike = f" the {column} {texts['label'][0]!r}" if len(texts) else f" a {column}"
        raise SourceError(
            f"{path}: {len(texts)} texts have{alike}, none has another; give texts of two classes or more, or name "
            "another column as label"
        )
    rare = texts.group_by("label", maintain_order=True).agg(pl.col("source", "row").first(), count=pl.len())
    for label, source, row, count in rare.filter(pl.col("count") < folds).rows():
        raise SourceError(
            f"{source}, row {row}: {column} is {label!r}, of which there are {count} texts, should be {folds} or more, "
            "one for each fold; give more, drop them, or set folds lower"
        )


def _check_test(path: str, tried: pl.DataFrame, texts: pl.DataFrame, column: str, unlabelled: int) -> None:
    if not len(tried):
        raise SourceError(f"{path}: no text with a {column}, {unlabelled} without; give texts to test with")
    known = texts["label"].unique(maintain_order=True).to_list()
    for source, row, _, label in tried.filter(~pl.col("label").is_in(known)).rows():
        raise SourceError(
            f"{source}, row {row}: {column} is {label!r}, which no text trained on has; known: "
            f"{', '.join(known[:20])}; mend it or drop the row"
        )
