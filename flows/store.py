"""House-keeping of the store."""

from typing import Any

from pipeline import cleaning, register
from pipeline.store import Store


def clean(
    store: str, tracking: str | None = None, keep_days: float = 30.0, grace_hours: float = 24.0, dry: bool = False
) -> dict[str, Any]:
    """
    Remove what nothing uses.

    Raises:
        RegistryError: MLflow does not answer, so nobody knows what registered models need; nothing is removed.
    """
    place = Store.at(store)
    known = register.registered(register.tracking(place.root, tracking))
    done = cleaning.clean(place, known, keep_days=keep_days, grace_seconds=grace_hours * 3600, dry=dry)
    return {
        "store": place.root,
        "dry_run": dry,
        "objects": dict(sorted(done.objects.items())),
        "bytes": dict(sorted(done.bytes.items())),
        "running": done.running,
        "forgotten": done.forgotten,
    }


def told(found: dict[str, Any]) -> str:
    """The same for people."""
    verb = "would go" if found["dry_run"] else "removed"
    lines = [
        f"{verb}: {stage}: {n:,} objects, {found['bytes'][stage]:,} bytes" for stage, n in found["objects"].items()
    ]
    lines += [] if lines else [f"nothing {'would go' if found['dry_run'] else 'to remove'} in {found['store']}"]
    if found["running"]:
        lines.append(f"{found['running']} run(s) go on: only what nothing names goes; clean again when they are done")
    if found["forgotten"]:
        lines.append(f"{found['forgotten']} of these held text of forgotten documents")
    return "\n".join(lines)
