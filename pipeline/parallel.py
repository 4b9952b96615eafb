"""
Tables that lie in a folder as files of equally many lines: each file is a column, called as the file, and a line a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import polars as pl
import pyarrow as pa

from models.recipe import Corpus
from pipeline import files, rows
from pipeline.files import File
from pipeline.shard import SourceError


@dataclass(frozen=True)
class Folder:
    """Columns of a table: the files of one folder, by name. `name` is the first one's, as messages show it."""

    name: str
    columns: dict[str, File]

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        return sum(file.size for file in self.columns.values())


def folders(uri: str, found: Sequence[File], wanted: Sequence[str], settings: str) -> list[Folder]:
    """
    Folders that hold the wanted columns; others, and other files beside them, are passed over.

    Args:
        found: files below the source, sorted by name.
        wanted: names of columns, the one that names the table first.
        settings: what a message asks to set.
    Raises:
        SourceError: no folder has them, one has some of them only, or a file must not be opened.
    """
    by_folder: dict[PurePosixPath, dict[str, File]] = {}
    for file in found:
        path = PurePosixPath(file.relative)
        by_folder.setdefault(path.parent, {})[path.name] = file
    result = []
    for folder, inside in by_folder.items():
        missing = [name for name in wanted if name not in inside]
        if len(missing) == len(set(wanted)):
            continue
        if missing:
            where = uri if str(folder) == "." else folder
            raise SourceError(
                f"{where}: no file {', '.join(missing)}; files there: {', '.join(sorted(inside))}; set {settings}"
            )
        columns = {name: inside[name] for name in dict.fromkeys(wanted)}
        for file in columns.values():
            if file.refused:
                raise SourceError(f"{file.relative}: {file.refused}")
        result.append(Folder(columns[wanted[0]].relative, columns))
    if not result:
        raise SourceError(
            f"{uri}: no folder holds files called {', '.join(dict.fromkeys(wanted))}, as parallel lines ask for; "
            f"set {settings}"
        )
    return result


def lines(uri: str, packed: bytes) -> list[bytes]:
    """Lines of a file's bytes, without their ends; what follows the last end is a line if there is any."""
    found = files.unpack(uri, packed).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not found[-1]:
        found.pop()
    return [line.removesuffix(b"\r") for line in found]


def check_lengths(columns: dict[str, int]) -> None:
    """
    Args:
        columns: lines of each file, by its name.
    Raises:
        SourceError: not equally many.
    """
    first, *others = columns
    for name in others:
        if columns[name] != columns[first]:
            raise SourceError(
                f"{name} has {columns[name]} lines, {first} has {columns[first]}; parallel files have equally many: "
                "mend them"
            )


def raw(source: str, found: dict[str, list[bytes]], corpus: Corpus) -> pl.DataFrame:
    """
    Raw rows of a table.

    Args:
        source: its name.
        found: lines of each column; empty ones are no values.
    """
    columns = {name: pa.array([line or None for line in some], pa.large_binary()) for name, some in found.items()}
    count = len(next(iter(found.values())))
    return rows.from_columns(source, pl.int_range(1, count + 1, eager=True), columns, corpus)
