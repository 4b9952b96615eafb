"""What a store holds, who uses it, and what it should forget."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pipeline import cleaning, forgetting, inventory, records, register
from pipeline.store import Store


def state(store: str, tracking: str | None = None) -> dict[str, Any]:
    """
    Stages with their pieces, rows and bytes; runs; what nothing uses.

    Raises:
        RegistryError: MLflow does not answer, so nobody knows which models are registered.
    """
    place = Store.at(store)
    known = register.registered(register.tracking(place.root, tracking))
    there = inventory.look(place)
    used = cleaning.kept(place, there, known, since=float("-inf"), made=False)
    stages: dict[str, dict[str, int]] = defaultdict(lambda: {"pieces": 0, "rows": 0, "bytes": 0, "unused_bytes": 0})
    for thing in there.things:
        row = stages[thing.stage]
        row["pieces"] += 1
        row["rows"] += thing.rows
        row["bytes"] += thing.bytes
        row["unused_bytes"] += 0 if thing.key in used else thing.bytes
    runs = [{k: run[k] for k in ("at", "recipe", "corpus", "keys", "model")} for run in records.kept(place)]
    touched = forgetting.touched(place)
    return {
        "store": place.root,
        "stages": dict(sorted(stages.items())),
        "unnamed": {"objects": len(there.unnamed), "bytes": sum(one.size for one in there.unnamed.values())},
        "runs": [{**run, "bytes": _bytes(there, run["keys"].values())} for run in runs],
        "models": {name: key for key, names in sorted(known.items()) for name in names},
        "running": len(records.alive(place)),
        "forgotten_but_there": sum(thing.key in touched for thing in there.things if thing.stage == "documents"),
    }


def _bytes(there: inventory.Inventory, keys: Any) -> int:
    needed = there.needed(keys)
    return sum(thing.bytes for thing in there.things if thing.key in needed)


def shown(state: dict[str, Any]) -> str:
    """The state for people."""
    lines = [f"store   {state['store']}", "", f"{'stage':14}{'pieces':>9}{'rows':>14}{'bytes':>16}{'of no run':>16}"]
    lines += [
        f"{name:14}{row['pieces']:>9,}{row['rows']:>14,}{row['bytes']:>16,}{row['unused_bytes']:>16,}"
        for name, row in state["stages"].items()
    ]
    unnamed = state["unnamed"]
    lines += [f"{'(no manifest)':14}{unnamed['objects']:>9,}{'':14}{unnamed['bytes']:>16,}{unnamed['bytes']:>16,}", ""]
    for run in state["runs"]:
        when = datetime.fromtimestamp(run["at"], UTC).strftime("%Y-%m-%d %H:%M")
        model = f", {' version '.join(run['model'])}" if run["model"] else ""
        lines.append(f"run {when} UTC  {run['recipe']} on {run['corpus']}: {run['bytes']:,} bytes{model}")
    lines += [f"registered  {name}: weights {key}" for name, key in state["models"].items()]
    if state["running"]:
        lines.append(f"{state['running']} run(s) go on now")
    if state["forgotten_but_there"]:
        lines.append("forgotten text is still there: run `firth retrain`, then `firth store clean`")
    return "\n".join(lines)


def forget(documents: Sequence[str], corpus: str, store: str, tracking: str | None = None) -> dict[str, Any]:
    """
    Remember that documents are forgotten, and name the registered models that saw them.

    Raises:
        ForgetError: no such corpus or document.
        RegistryError: MLflow does not answer.
    """
    place = Store.at(store)
    known = register.registered(register.tracking(place.root, tracking))
    forgetting.forget(place, corpus, documents)
    there = inventory.look(place)
    made = there.made_of(forgetting.touched(place))
    things = [thing for thing in there.things if thing.key in made]
    return {
        "documents": list(documents),
        "things": len(things),
        "models": sorted(name for key, names in known.items() if key in made for name in names),
    }


def told(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"forgotten: {', '.join(found['documents'])}"]
    lines.append(f"{found['things']} pieces, tables and models in the store were made of it: run `firth retrain`, then")
    lines.append("`firth store clean`, and none but registered models are left")
    lines += [f"registered model that saw it: {name}" for name in found["models"]]
    return "\n".join(lines)
