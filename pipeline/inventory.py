"""What is in a store, and what needs what: pieces, tables, weights and checkpoints, each by its key."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from pipeline.store import Entry, Store

READERS = 16  # manifests that are read at once, for a bucket answers late
OTHER = (  # what is no piece, no table and no weights; small, or somebody else's
    *("vocabulary", "tokenizers", "corpora", "sources", "leases", "progress", "probe"),
    *("rarities", "searched"),
    *("records", "forgotten", "mlflow.db", "mlflow-artifacts"),
)


@dataclass
class Thing:
    """Something that can be made again: a piece, a table, a model folder, or a run's checkpoints."""

    stage: str
    key: str
    names: list[str]  # objects, in the order in which they may go: what names others first
    modified: float  # when the newest of them was written
    bytes: int = 0
    rows: int = 0
    uses: tuple[str, ...] = ()  # keys that it was made of, or lists


@dataclass(frozen=True)
class Inventory:
    """All things of a store, and the parts that nothing names."""

    things: list[Thing]
    unnamed: dict[str, Entry]
    by_key: dict[str, list[Thing]] = field(repr=False, default_factory=dict)

    def needed(self, keys: Iterable[str]) -> set[str]:
        """Some keys, and all that these were made of."""
        found: set[str] = set()
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += [use for thing in self.by_key.get(key, ()) for use in thing.uses]
        return found

    def made_of(self, keys: Iterable[str]) -> set[str]:
        """Some keys, and all that was made of these."""
        users: dict[str, list[str]] = defaultdict(list)
        for key, things in self.by_key.items():
            for use in {use for thing in things for use in thing.uses}:
                users[use].append(key)
        found: set[str] = set()
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += users.get(key, ())
        return found


def look(store: Store) -> Inventory:
    """Read what is there."""
    entries = {name: entry for name, entry in store.entries("").items() if name.split("/")[0] not in OTHER}
    tables = _read(store, [name for name in entries if name.startswith("tables/")])
    known = {(p["stage"], p["key"]): p for table in tables.values() for p in table.get("pieces", {}).values()}
    manifests = [name for name in entries if _is_manifest(name)]
    unread = [name for name in manifests if (_stage(name), _key(name)) not in known]
    pieces = {name: known[_stage(name), _key(name)] for name in manifests if name not in set(unread)}
    pieces |= _read(store, unread)
    weights = _read(store, [name for name in entries if _is_weights(name)])
    lineages = _read(store, [f"{record['folder']}/lineage.json" for record in weights.values()])
    things = [_table(name, table, entries) for name, table in tables.items()]
    things += [_piece(name, piece, entries) for name, piece in pieces.items()]
    things += [_weights(name, record, lineages, entries) for name, record in weights.items()]
    things += _runs(entries)
    taken = {name for thing in things for name in thing.names}
    by_key: dict[str, list[Thing]] = defaultdict(list)
    for thing in things:
        by_key[thing.key].append(thing)
        if thing.stage == "batches":  # a plan is named by lineages, its epochs by their pieces
            by_key[thing.key.rpartition("-")[0]].append(Thing("plan", "", [], 0.0, uses=(thing.key,)))
    return Inventory(things, {n: e for n, e in entries.items() if n not in taken}, dict(by_key))


def _read(store: Store, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """JSON of some objects; those that are gone by now are left out."""
    wanted = list(names)
    with ThreadPoolExecutor(READERS) as pool:
        return {name: record for name, record in zip(wanted, pool.map(store.get, wanted), strict=True) if record}


def _is_manifest(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) == 2 and parts[0] not in ("weights", "tables", "runs") and name.endswith(".json")


def _is_weights(name: str) -> bool:
    return PurePosixPath(name).parent == PurePosixPath("weights") and name.endswith(".json")


def _stage(name: str) -> str:
    return name.split("/")[0]


def _key(name: str) -> str:
    return PurePosixPath(name).stem


def _size(names: list[str], entries: Mapping[str, Entry]) -> tuple[int, float]:
    found = [entries[name] for name in names if name in entries]
    return sum(entry.size for entry in found), max((entry.modified for entry in found), default=0.0)


def _table(name: str, table: Mapping[str, Any], entries: Mapping[str, Entry]) -> Thing:
    size, modified = _size([name], entries)
    uses = tuple(piece["key"] for piece in table["pieces"].values())
    return Thing("tables", _key(name), [name], modified, size, uses=uses)


def _piece(name: str, piece: Mapping[str, Any], entries: Mapping[str, Entry]) -> Thing:
    names = [name, piece["file"]]
    size, modified = _size(names, entries)
    uses = tuple(key for one in piece["inputs"] for key in one.split(":"))
    return Thing(_stage(name), _key(name), names, modified, size, piece["rows"], uses)


def _weights(
    name: str, record: Mapping[str, Any], lineages: Mapping[str, Mapping[str, Any]], entries: Mapping[str, Entry]
) -> Thing:
    folder = record["folder"]
    names = [name, *(inner for inner in entries if inner.startswith(f"{folder}/"))]
    size, modified = _size(names, entries)
    lineage = lineages.get(f"{folder}/lineage.json", {})
    uses = (*lineage.get("sentences", ()), *([lineage["batches"]] if lineage.get("batches") else ()))
    return Thing("weights", _key(name), names, modified, size, uses=uses)


def _runs(entries: Mapping[str, Entry]) -> list[Thing]:
    """Checkpoints of each training key."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name in entries:
        parts = PurePosixPath(name).parts
        if parts[0] == "runs" and len(parts) > 2:
            folders[parts[1]].append(name)
    found = []
    for folder, names in folders.items():
        size, modified = _size(names, entries)
        found.append(Thing("runs", folder.rpartition("-")[2], sorted(names), modified, size))
    return found
