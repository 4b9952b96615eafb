"""
The store: pieces and tables. The only module that writes data to disk.

A *piece* is one stage's Parquet file for one shard, under a key that is the digest of the stage, its version, its
parameters and the pieces that it reads. Object stores cannot rename, so a part is written at once under a name of its
own and does not count until a manifest names it; a manifest is created only where there is none. Of two writers of the
same piece one wins, and both use the winner's part; a writer that was killed leaves a part that nothing names.

A *table* is a manifest that lists pieces; see `manifest`.
"""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import obstore
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError, NotFoundError
from obstore.store import from_url

from models.recipe import digest
from models.trouble import MendableError
from pipeline.tables import Table

ROW_GROUP = 50_000  # rows; batches choose their own, so that whole batches share a group


class StoreError(MendableError, RuntimeError):
    """A store that cannot be used, or whose content is damaged."""


@dataclass(frozen=True)
class Piece:
    """A part that counts: where it lies, what it is made of, and what making it took."""

    stage: str
    key: str
    file: str
    rows: int
    bytes: int
    sha256: str
    seconds: float
    inputs: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From a manifest's JSON."""
        return cls(**{**record, "inputs": tuple(record["inputs"])})


@dataclass(frozen=True)
class Store:
    """A folder or a bucket. `root` is an absolute path or a URI; the object travels to workers as that string."""

    root: str

    @classmethod
    def at(cls, place: str | os.PathLike[str]) -> Self:
        """
        The store at a path or URI; made if absent.

        Raises:
            StoreError: it cannot be written.
        """
        text = os.fspath(place)
        store = cls(text.rstrip("/") if "://" in text else str(Path(text).expanduser().absolute()))
        try:
            store._objects  # noqa: B018  opens it
            probe = f"probe/{uuid.uuid4().hex}"
            obstore.put(store._objects, probe, b"firth")
            obstore.delete(store._objects, probe)
        except Exception as error:
            raise StoreError(
                f"store {text} cannot be written: {_first_line(error)}; choose a folder that you own with --store DIR"
            ) from None
        return store

    @property
    def local(self) -> bool:
        """Whether it lies on a local disk."""
        return "://" not in self.root

    def path(self, name: str) -> str:
        """Path or URI of an object, for polars and pyarrow."""
        return f"{self.root}/{name}"

    @property
    def _objects(self) -> Any:
        return _open(self.root)

    # Small objects.

    def create(self, name: str, value: Any) -> bool:
        """Write JSON under a name that is free; False where it is taken."""
        try:
            obstore.put(self._objects, name, _json(value), mode="create")
        except AlreadyExistsError:
            return False
        return True

    def put(self, name: str, value: Any) -> None:
        """Write JSON, in place of what was there."""
        obstore.put(self._objects, name, _json(value))

    def get(self, name: str) -> Any | None:
        """
        JSON by name; None where there is none.

        Raises:
            StoreError: it is damaged.
        """
        try:
            text = bytes(obstore.get(self._objects, name).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise StoreError(
                f"{self.path(name)}: not JSON: {_first_line(error)}; delete it, and the next run makes it again"
            ) from None

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens where there is none."""
        try:
            obstore.delete(self._objects, name)
        except (NotFoundError, FileNotFoundError):
            return

    def names(self, prefix: str) -> list[str]:
        """Names of all objects below a prefix, sorted."""
        return sorted(entry["path"] for page in obstore.list(self._objects, prefix) for entry in page)

    # Pieces.

    def piece(self, stage: str, key: str) -> Piece | None:
        """The piece of that key, if it was made."""
        record = self.get(f"{stage}/{key}.json")
        return Piece.of(record) if record else None

    def once(self, table: Table, key: str, inputs: tuple[str, ...], make: Callable[[], pl.DataFrame]) -> Piece:
        """The piece of that key: the one that is there, or else what `make` makes."""
        found, started = self.piece(table.name, key), time.time()
        return found or self.write(table, key, make(), started=started, inputs=inputs)

    def write(
        self,
        table: Table,
        key: str,
        frame: pl.DataFrame,
        *,
        started: float,
        inputs: tuple[str, ...] = (),
        counts: Mapping[str, int] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Piece:
        """Write a checked frame as the piece of that key, and commit it."""
        frame = table.check(frame)
        with self.part(table.name, key, inputs=inputs, started=started) as part:
            metadata = {"firth.stage": table.name, "firth.key": key, "firth.inputs": ",".join(inputs)}
            self._parent(part.file)
            frame.write_parquet(
                self.path(part.file),
                compression="zstd",
                compression_level=1,
                row_group_size=ROW_GROUP,
                metadata=metadata,
            )
            part.rows, part.counts, part.facts = len(frame), dict(counts or {}), dict(facts or {})
            part.group_rows = ROW_GROUP
        assert part.piece is not None
        return part.piece

    @contextmanager
    def part(
        self, stage: str, key: str, *, inputs: tuple[str, ...] = (), started: float | None = None
    ) -> "Iterator[Part]":
        """A part to be written by hand at `self.path(part.file)`; committed when the block ends without an error."""
        part = Part(f"{stage}/{key}-{uuid.uuid4().hex[:8]}.parquet")
        self._parent(part.file)
        began = time.time() if started is None else started
        try:
            yield part
            size, sha256 = self._measure(part.file)
            self._check_groups(part, size)
        except BaseException:  # an interrupt too; once a manifest may name the part, nothing here deletes it
            self.delete(part.file)
            raise
        piece = Piece(
            stage=stage,
            key=key,
            file=part.file,
            rows=part.rows,
            bytes=size,
            sha256=sha256,
            seconds=round(time.time() - began, 3),
            inputs=inputs,
            counts=part.counts,
            facts=part.facts,
        )
        if self.create(f"{stage}/{key}.json", asdict(piece)):
            part.piece = piece
        else:  # another writer was first
            self.delete(part.file)
            part.piece = self.piece(stage, key)

    def scan(
        self, pieces: "Mapping[int, Piece] | list[Piece] | tuple[Piece, ...]", columns: list[str] | None = None
    ) -> pl.LazyFrame:
        """All rows of some pieces, in their order; with a mapping, a column `shard` says from which."""
        numbered = list(pieces.items()) if isinstance(pieces, Mapping) else [(None, piece) for piece in pieces]
        frames = []
        for number, piece in numbered:
            frame = pl.scan_parquet(self.path(piece.file))
            frame = frame.select(columns) if columns else frame
            frames.append(frame if number is None else frame.with_columns(shard=pl.lit(number, pl.UInt32)))
        return pl.concat(frames)

    def read(self, piece: Piece, columns: list[str] | None = None) -> pl.DataFrame:
        """
        A piece's rows.

        Raises:
            StoreError: the file is gone or damaged.
        """
        try:
            frame = pl.read_parquet(self.path(piece.file), columns=columns)
        except (Exception, pl.exceptions.PanicException) as error:
            raise StoreError(_damaged(self.path(piece.file), piece, _first_line(error))) from None
        if len(frame) != piece.rows:
            raise StoreError(_damaged(self.path(piece.file), piece, f"{len(frame)} rows, should be {piece.rows}"))
        return frame

    def verify(self, piece: Piece) -> None:
        """
        Compare a piece's bytes with its manifest.

        Raises:
            StoreError: they differ, or the file is gone.
        """
        try:
            found = self._measure(piece.file)
        except (NotFoundError, FileNotFoundError):
            raise StoreError(_damaged(self.path(piece.file), piece, "no such file")) from None
        if found != (piece.bytes, piece.sha256):
            raise StoreError(_damaged(self.path(piece.file), piece, "other bytes than were written"))

    # Folders.

    def upload(self, folder: Path, name: str) -> None:
        """Copy a folder's files; they do not count until a manifest names the folder."""
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            obstore.put(self._objects, f"{name}/{file.relative_to(folder).as_posix()}", file)

    def fetch(self, name: str, into: Path) -> Path:
        """A folder on this machine: the store's own where that is local, else a copy below `into`."""
        if self.local:
            return Path(self.path(name))
        for entry in self.names(f"{name}/"):
            file = into / entry
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(obstore.get(self._objects, entry).bytes()))
        return into / name

    def _parent(self, name: str) -> None:
        if self.local:
            Path(self.path(name)).parent.mkdir(parents=True, exist_ok=True)

    def _check_groups(self, part: "Part", size: int) -> None:
        """
        Refuse a part that says another number of rows than were written, or whose row groups are not as asked: a group
        is what a reader holds in memory, and libraries have passed over the size that they were given.
        """
        length = int.from_bytes(bytes(obstore.get_range(self._objects, part.file, start=size - 8, length=4)), "little")
        start = max(0, size - 8 - length)
        footer = pq.read_metadata(pa.BufferReader(obstore.get_range(self._objects, part.file, start=start, end=size)))
        found = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        if sum(found) != part.rows:
            raise StoreError(f"{self.path(part.file)}: {sum(found)} rows were written, should be {part.rows}")
        most, multiple = part.group_rows, part.group_multiple
        odd = [rows for rows in found if (most and rows > most) or rows % multiple]
        if odd:
            whole = f", a multiple of {multiple}" if multiple > 1 else ""
            raise StoreError(
                f"{self.path(part.file)}: a row group of {odd[0]} rows, should be at most {most}{whole}; use the "
                "versions of polars and pyarrow that constraints.txt names"
            )

    def _measure(self, name: str) -> tuple[int, str]:
        state, size = hashlib.sha256(), 0
        for chunk in obstore.get(self._objects, name).stream(min_chunk_size=1 << 22):
            state.update(chunk)
            size += len(chunk)
        return size, state.hexdigest()


@dataclass
class Part:
    """A part while it is written; `piece` is there once it counts."""

    file: str
    rows: int = 0
    group_rows: int = 0  # of a row group at most; 0: as it comes
    group_multiple: int = 1  # of which a row group's rows are a multiple
    counts: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    piece: Piece | None = None


def piece_key(stage: str, version: int, parameters: Any, inputs: tuple[str, ...]) -> str:
    """The key of a piece: what makes it what it is, and nothing else."""
    return digest(stage, version, parameters, list(inputs))


_opened: dict[str, Any] = {}


def _open(root: str) -> Any:
    if root not in _opened:
        if "://" not in root:
            Path(root).mkdir(parents=True, exist_ok=True)
        _opened[root] = from_url(root if "://" in root else Path(root).as_uri())
    return _opened[root]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _damaged(path: str, piece: Piece, cause: str) -> str:
    """A table's manifest names its pieces, so it has to go too; making it again only reads."""
    gone = f"{piece.stage}/{piece.key}.json and the folder tables/{piece.stage}"
    return f"{path}: {cause}; delete {gone} in the store, and the next run makes them again"
