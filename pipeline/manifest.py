"""A table: a small manifest that lists pieces, made from shards by one function, only where a piece is missing."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Self

from models.recipe import digest
from pipeline.cluster import Progress, map_shards, silent
from pipeline.store import Piece, Store, piece_key


@dataclass(frozen=True)
class Manifest:
    """The pieces of one table by shard number, and what making them took."""

    name: str
    key: str
    pieces: Mapping[int, Piece]
    seconds: float = 0.0
    cached: bool = False
    new: int = 0
    gone: int = 0

    @property
    def rows(self) -> int:
        """Rows of all pieces."""
        return sum(piece.rows for piece in self.pieces.values())

    def count(self, name: str) -> int:
        """Sum over pieces of one of their counts."""
        return sum(piece.counts.get(name, 0) for piece in self.pieces.values())

    def counts(self) -> Counter[str]:
        """All counts, summed over pieces."""
        total: Counter[str] = Counter()
        for piece in self.pieces.values():
            total.update(piece.counts)
        return total

    def row(self) -> dict[str, Any]:
        """The stage as `--json` shows it."""
        return {
            "name": self.name,
            "key": self.key,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "shards_new": self.new,
            "shards_same": len(self.pieces) - self.new,
            "shards_gone": self.gone,
            "rows": self.rows,
            "quarantined": self.count("quarantined"),
        }

    @classmethod
    def open(cls, store: Store, name: str, key: str) -> Self | None:
        """A table that was committed."""
        record = store.get(f"tables/{name}/{key}.json")
        if record is None:
            return None
        pieces = {int(number): Piece.of(piece) for number, piece in record["pieces"].items()}
        return cls(name, key, dict(sorted(pieces.items())), cached=True)

    def commit(self, store: Store) -> None:
        """Name the pieces; what no manifest names does not count."""
        pieces = {str(number): asdict(piece) for number, piece in self.pieces.items()}
        store.create(f"tables/{self.name}/{self.key}.json", {"pieces": pieces})


@dataclass(frozen=True)
class Job:
    """One missing piece: its key and what it is made of."""

    key: str
    item: Any


@dataclass(frozen=True)
class Stage:
    """A stage over shards: `make(store, key, item)` writes the piece of that key from one shard's item."""

    name: str
    version: int
    make: Callable[[Store, str, Any], Piece]
    parameters: Any = field(default_factory=dict)


def run(
    store: Store,
    stage: Stage,
    items: Mapping[int, tuple[tuple[str, ...], Any]],
    progress: Progress = silent,
    check: Callable[[Manifest], None] | None = None,
    alone: int = 1,
    *,
    lasting: bool = True,
) -> Manifest:
    """
    The table of a stage: pieces that exist are used, the others made.

    Args:
        items: for each shard number the keys of the pieces it reads, and what `make` is given.
        check: raises where the whole cannot be used although its pieces can; then no table is committed, so that the
            next run asks again.
        alone: missing pieces that are made in this process, if there are no more; tasks cost more than a small one.
        lasting: whether the table is committed; one that is asked for only where the corpus has changed need not be.
    """
    started = time.time()
    keys = {
        number: piece_key(stage.name, stage.version, stage.parameters, inputs) for number, (inputs, _) in items.items()
    }
    key = digest(stage.name, sorted(keys.items()))
    found = Manifest.open(store, stage.name, key)
    if found:
        return Manifest(stage.name, key, found.pieces, time.time() - started, cached=True)
    pieces = {number: store.piece(stage.name, keys[number]) for number in items}
    missing = [number for number, piece in pieces.items() if piece is None]
    made = map_shards(partial(_make, store, stage.make), _jobs(items, keys, missing), progress, alone)
    whole = {**pieces, **dict(zip(missing, made, strict=True))}
    sound = {number: piece for number, piece in sorted(whole.items()) if piece is not None}
    table = Manifest(stage.name, key, sound, time.time() - started, cached=not missing, new=len(missing))
    if check:
        check(table)
    if lasting:
        table.commit(store)
    return table


def one_piece(store: Store, name: str, make: Callable[[], Piece | None]) -> Manifest | None:
    """A table of one piece for all shards, with what making it took; None where there is none."""
    started, before = time.time(), set(store.names(f"{name}/"))
    piece = make()
    if piece is None:
        return None
    cached = f"{name}/{piece.key}.json" in before
    return Manifest(name, piece.key, {0: piece}, time.time() - started, cached=cached, new=int(not cached))


def _jobs(
    items: Mapping[int, tuple[tuple[str, ...], Any]], keys: Mapping[int, str], missing: Sequence[int]
) -> list[Job]:
    return [Job(keys[number], items[number][1]) for number in missing]


def _make(store: Store, make: Callable[[Store, str, Any], Piece], job: Job) -> Piece:
    return make(store, job.key, job.item)
