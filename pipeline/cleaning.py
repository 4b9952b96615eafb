"""
Clean-up: what no run has used for some time goes, and what nobody can use.

A registered model keeps its weights and all that they were made of. While a run goes on, only parts that nothing names
go, and only those that are older than any part that is still being written.
"""

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from pipeline import forgetting, records
from pipeline.inventory import Inventory, Thing, look
from pipeline.lease import lease
from pipeline.store import Store
from pipeline.tables import HELD_OUT, NUMBERS, TEXTS

DAY = 86_400.0
GRACE_SECONDS = DAY  # a part may be a day in the making
BESIDE = (HELD_OUT.name, NUMBERS.name, TEXTS.name)  # small pieces that no key names: they stay as long as their shard


@dataclass(frozen=True)
class Cleaned:
    """What went, or would go: objects and bytes by stage; and why not more."""

    objects: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    running: int = 0  # runs that go on, so that only what nothing names went
    forgotten: int = 0  # things that held a forgotten document's text


def clean(
    store: Store,
    registered: Collection[str],
    *,
    keep_days: float = 30.0,
    grace_seconds: float = GRACE_SECONDS,
    dry: bool = False,
) -> Cleaned:
    """
    Remove what nothing uses.

    Args:
        registered: training keys of models that the registry knows.
        keep_days: what a run of the last so many days used stays, and what was made in them.
        grace_seconds: nothing younger goes, but what holds the text of a forgotten document.
        dry: only say.
    """
    with lease(store, records.CLEANING, beat_seconds=records.BEAT_SECONDS, stale_seconds=records.STALE_SECONDS):
        running = len(records.alive(store) - {records.CLEANING})
        inventory, now = look(store), records.clock(store)
        result = Cleaned(running=running)
        old = {name: one for name, one in inventory.unnamed.items() if now - one.modified > grace_seconds}
        for name, entry in old.items():
            _go(store, "nothing names them", name, entry.size, result, dry)
        if running:
            return result
        tainted = inventory.made_of(forgetting.touched(store))
        keep = kept(store, inventory, registered, now - max(keep_days * DAY, grace_seconds))
        gone = [thing for thing in inventory.things if thing.key not in keep]
        lost = [thing for thing in inventory.things if thing.key in tainted and not _is_model(thing, registered)]
        for thing in sorted({id(thing): thing for thing in gone + lost}.values(), key=_order):
            for name in thing.names:
                _go(store, thing.stage, name, 0, result, dry)
            result.bytes[thing.stage] += thing.bytes
            if thing.stage == "runs" and not dry:
                store.remove("/".join(thing.names[0].split("/")[:2]))
        if not dry:
            _forget_runs(store, {thing.key for thing in gone + lost})
        return Cleaned(result.objects, result.bytes, running, len(lost))


def kept(
    store: Store, inventory: Inventory, registered: Collection[str], since: float, *, made: bool = True
) -> set[str]:
    """Keys of what stays: used by a run since then, or needed by a registered model, or `made` since then."""
    used = [key for record in records.kept(store) if record["at"] >= since for key in record["keys"].values()]
    young = [thing.key for thing in inventory.things if made and thing.modified >= since]
    stays = inventory.needed([*used, *young, *registered])
    beside = (thing for thing in inventory.things if thing.stage in BESIDE and thing.uses)
    return stays | {thing.key for thing in beside if set(thing.uses) <= stays}


def _is_model(thing: Thing, registered: Collection[str]) -> bool:
    return thing.stage == "weights" and thing.key in registered


def _order(thing: Thing) -> tuple[int, str, str]:
    """Tables before the pieces that they list: a table never lists what is gone."""
    return (thing.stage != "tables", thing.stage, thing.key)


def _go(store: Store, stage: str, name: str, size: int, result: Cleaned, dry: bool) -> None:
    result.objects[stage] += 1
    result.bytes[stage] += size
    if not dry:
        store.delete(name)


def _forget_runs(store: Store, gone: set[str]) -> None:
    """Records of runs nothing of which is left."""
    for record in records.kept(store):
        if set(record["keys"].values()) <= gone and time.time() - record["at"] > DAY:
            store.delete(record["name"])
