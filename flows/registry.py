"""A model by folder or by registered name."""

import tempfile
from pathlib import Path

from models.folder import Model, load
from pipeline import settings  # noqa: F401
from pipeline.cluster import scratch


def folder_of(name: str, store: str, tracking: str | None) -> Path:
    """
    The folder of a model: the path itself, or what is registered under the name, aliases `champion`, then `candidate`.

    Raises:
        ValueError: neither a folder nor a registered name.
    """
    if Path(name).is_dir():
        return Path(name)
    from pipeline import register

    return register.fetch(register.tracking(store, tracking), name, Path(tempfile.mkdtemp(dir=scratch())))


def opened(name: str, store: str, tracking: str | None) -> Model:
    """The model itself."""
    return load(folder_of(name, store, tracking))
