"""One epoch's batches, read in order; starting anywhere costs one row group."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import fs
from torch import Tensor

from models.candidates import Rows
from models.step import Batch
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
        group, place = divmod(number, self._group_batches)
        if self._group is None or self._group[0] != group:
            self._group = (group, self._file.read_row_group(group).combine_chunks())
        return _batch(self._group[1].slice(place * self.rows, self.rows))


def _batch(table: pa.Table) -> Batch:
    flat, length_B = _list(table, "tokens")
    answers, count_B = _list(table, "answers")
    rows = Rows(
        side_B=torch.from_numpy(_values(table, "side").copy()),
        group_B=torch.from_numpy(_values(table, "group").view(np.int64).copy()),
        answers_BP=_padded(torch.from_numpy(answers.astype(np.int64)), torch.from_numpy(count_B)),
    )
    return Batch(torch.from_numpy(flat.astype(np.int64)), torch.from_numpy(length_B), rows)


def _padded(flat: Tensor, count_B: Tensor) -> Tensor:
    most = max(1, int(count_B.max()))
    inside_BP = torch.arange(most) < count_B[:, None]
    answers_BP = torch.full(inside_BP.shape, -1)
    answers_BP[inside_BP] = flat
    return answers_BP


def _values(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    return table.column(name).combine_chunks().to_numpy(zero_copy_only=False)


def _list(table: pa.Table, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A list column's values, flat, and each row's count."""
    column = table.column(name).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    offsets = column.offsets.to_numpy()
    return column.flatten().to_numpy(zero_copy_only=False), np.diff(offsets).astype(np.int64)
