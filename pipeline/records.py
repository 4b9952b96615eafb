"""
Who uses a store: what each run used, kept for clean-up to read, and which runs go on now.

A run holds a lease of its own from its first table to its record, and waits while a clean-up takes things away; a
clean-up that sees such a lease takes only what nothing can need. So neither pulls anything from under the other.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from models.recipe import digest
from pipeline.lease import is_gone, lease
from pipeline.store import Store

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # without a beat, by the store's own clock
CLEANING = "cleaning"
WAIT_SECONDS = 0.5


def keep(store: Store, corpus: str, recipe: str, keys: Mapping[str, str], model: Sequence[str] = ()) -> None:
    """
    Say what a run used; the same run again only says when.

    Args:
        keys: by stage; of weights it is the training key.
        model: name and version that were registered.
    """
    what = {"corpus": corpus, "recipe": recipe, "keys": dict(keys), "model": list(model)}
    store.put(f"records/{digest(what)}.json", {**what, "at": time.time()})


def kept(store: Store) -> list[dict[str, Any]]:
    """All records with their name, the newest first."""
    found = [(name, store.get(name)) for name in store.names("records/")]
    return sorted(({**record, "name": name} for name, record in found if record), key=lambda record: -record["at"])


@contextmanager
def using(store: Store) -> Iterator[None]:
    """Hold the store while the block runs: no clean-up takes away what it may use. Waits for one that goes on."""
    key = f"using-{uuid.uuid4().hex[:12]}"
    try:
        with lease(store, key, beat_seconds=BEAT_SECONDS, stale_seconds=STALE_SECONDS):
            while CLEANING in alive(store):
                time.sleep(WAIT_SECONDS)
            yield
    finally:
        store.delete(f"leases/{key}/000000.json")


def alive(store: Store) -> set[str]:
    """Keys whose leases are held by someone whose heart beats."""
    last: dict[str, str] = {}
    entries = store.entries("leases/")
    for name in sorted(entries):
        last[name.split("/")[1]] = name
    now, found = None, set()
    for key, name in last.items():
        record = store.get(name)
        if record is None or record["free"] or is_gone(record["owner"]):
            continue
        now = clock(store) if now is None else now
        if now - entries[name].modified <= STALE_SECONDS:
            found.add(key)
    return found


def clock(store: Store) -> float:
    """What time it is for the store, in seconds since 1970: that of an object just written."""
    name = f"probe/{uuid.uuid4().hex}"
    store.put(name, 0)
    written = store.entries("probe/")[name].modified
    store.delete(name)
    return written
