"""A model by folder or by registered name."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.folder import RECIPE, load
from models.model import Model
from models.trouble import FolderError
from pipeline import settings  # noqa: F401
from pipeline.cluster import scratch


@contextmanager
def folder_of(name: str, store: str, tracking: str | None) -> Iterator[Path]:
    """
    The folder of a model: the path itself, or a copy, for the block's time, of what is registered under the name
    (aliases `champion`, then `candidate`). A folder that holds no recipe and has no slash in its name is a folder by
    chance, as `docs` often is.

    Raises:
        FolderError: neither a folder, nor is there a registry.
        RegistryError: nothing registered under the name.
    """
    if (Path(name) / RECIPE).is_file() or (Path(name).is_dir() and os.sep in name):
        yield Path(name)
        return
    from pipeline import register

    uri = register.tracking(store if "://" in store else str(Path(store).expanduser().absolute()), tracking)
    if uri.startswith(register.SQLITE) and not Path(uri.removeprefix(register.SQLITE)).is_file():
        raise FolderError(
            f'no model "{name}": it is no folder, and no registry is at {uri}; give a model folder, or with --store '
            "the place where it was registered"
        )
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        yield register.fetch(uri, name, Path(place))


def opened(name: str, store: str, tracking: str | None) -> Model:
    """The model itself."""
    with folder_of(name, store, tracking) as folder:
        return load(folder)
