"""One epoch's batches, read in order; starting anywhere costs one row group."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import fs
from torch import Tensor

from models.batch import Batch
from models.candidates import Rows
from pipeline.store import Piece, Store


class Epoch:
    """The batches of a piece of table `batches`; whole batches lie in one row group."""

    def __init__(self, store: Store, piece: Piece) -> None:
        filesystem, path = (
            fs.FileSystem.from_uri(store.path(piece.file)) if not store.local else (None, store.path(piece.file))
        )
        self._file = pq.ParquetFile(path, filesystem=filesystem, memory_map=store.local)
        self.batches = int(piece.facts["batches"])
        self.rows = int(piece.facts["batch_rows"])
        self._group_batches = int(piece.facts["group_batches"])
        self._group: tuple[int, pa.Table] | None = None

    def __getitem__(self, number: int) -> Batch:
        """Batch `number`, from 0."""
        return _batch(self._table(number))

    def texts(self, number: int) -> np.ndarray[Any, Any]:
        """Which texts stand in batch `number`, [B]; a filler has the number 0."""
        return _values(self._table(number), "text")

    def _table(self, number: int) -> pa.Table:
        group, place = divmod(number, self._group_batches)
        if self._group is None or self._group[0] != group:
            self._group = (group, self._file.read_row_group(group).combine_chunks())
        return self._group[1].slice(place * self.rows, self.rows)


def _batch(table: pa.Table) -> Batch:
    rows = Rows(
        side_B=torch.from_numpy(_values(table, "side").copy()),
        group_B=torch.from_numpy(_values(table, "group").view(np.int64).copy()),
        answers_BP=_row_numbers(table, "answers"),
        view_B=torch.from_numpy(_values(table, "view").copy()) if "view" in table.column_names else None,
        hard_BH=_row_numbers(table, "hard") if "hard" in table.column_names else None,
        document_B=_whole(table, "document"),
        place_B=_whole(table, "place"),
        teacher_BE=_vectors(table, "teacher"),
        guide_BE=_vectors(table, "guide"),
    )
    targets = _flat(table, "target") if "target" in table.column_names else ()
    return Batch(*_flat(table, "tokens"), rows, *targets)


def _flat(table: pa.Table, name: str) -> tuple[Tensor, Tensor]:
    """A column of lists of numbers one behind the other, and how many each row has."""
    flat, length_B = _list(table, name)
    return torch.from_numpy(flat.astype(np.int64)), torch.from_numpy(length_B)


def _vectors(table: pa.Table, name: str) -> Tensor | None:
    """A column of vectors as [B, E], zeros where a row, a filler, has none; None where there is no such column."""
    if name not in table.column_names:
        return None
    flat, width_B = _list(table, name)
    inside_BE = torch.arange(int(width_B.max())) < torch.from_numpy(width_B)[:, None]
    vector_BE = torch.zeros(inside_BE.shape)
    vector_BE[inside_BE] = torch.from_numpy(flat.astype(np.float32))
    return vector_BE


def _row_numbers(table: pa.Table, name: str) -> Tensor:
    """A column of lists of row numbers as [B, P]; -1 fills, and there is one column at least."""
    flat, count_B = _list(table, name)
    inside_BP = torch.arange(max(1, int(count_B.max()))) < torch.from_numpy(count_B)[:, None]
    number_BP = torch.full(inside_BP.shape, -1)
    number_BP[inside_BP] = torch.from_numpy(flat.astype(np.int64))
    return number_BP


def _whole(table: pa.Table, name: str) -> Tensor | None:
    """A column of whole numbers as int64, large ones by their bits; None where there is none."""
    return torch.from_numpy(_values(table, name).astype(np.int64)) if name in table.column_names else None


def _values(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    return table.column(name).combine_chunks().to_numpy(zero_copy_only=False)


def _list(table: pa.Table, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A list column's values, flat, and each row's count."""
    column = table.column(name).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    offsets = column.offsets.to_numpy()
    return column.flatten().to_numpy(zero_copy_only=False), np.diff(offsets).astype(np.int64)
