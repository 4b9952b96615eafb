"""The frozen model that a recipe may learn from: its vectors of all sentences, made once and kept in the store."""

import hashlib
import json
from pathlib import Path

from models.export import BODY, CONFIG
from models.folder import RECIPE, TOKENIZER, WEIGHTS
from models.recipe import Recipe, RecipeError, digest, parse
from pipeline import embed
from pipeline.cluster import Progress, silent
from pipeline.manifest import Manifest
from pipeline.store import Store


def check(recipe: Recipe) -> None:
    """
    Find out before any work whether a recipe's teacher is a model that has vectors.

    Raises:
        RecipeError: there is no such folder, or its model counts.
    """
    if recipe.teacher is None:
        return
    folder = Path(recipe.teacher.model)
    missing = [name for name in (RECIPE, TOKENIZER) if not (folder / name).is_file()]
    said = None if missing else parse(json.loads((folder / RECIPE).read_text(encoding="utf-8")))
    if said is not None and said.counting:
        raise RecipeError(
            f'teacher.model is "{folder}": recipe {said.name} counts words and has no vectors; give a trained model'
        )
    missing += [] if (folder / WEIGHTS).is_file() else [WEIGHTS]
    if missing:
        raise RecipeError(
            f'teacher.model is "{folder}", which is no model folder: no {", ".join(missing)}; give the folder that '
            "`firth retrain` names"
        )


def key(folder: str) -> str:
    """Digest of all files of a model folder that decide its vectors."""
    names = {RECIPE, TOKENIZER, WEIGHTS, BODY, CONFIG}
    files = sorted(file for file in Path(folder).rglob("*") if file.name in names)
    return digest("teacher", [[str(file.relative_to(folder)), _file_digest(file)] for file in files])


def vectors(store: Store, recipe: Recipe, sentences: Manifest, progress: Progress = silent) -> Manifest | None:
    """Vectors of all sentences by the recipe's teacher, as stage `vectors` makes them; None: it has none."""
    if recipe.teacher is None:
        return None
    folder = recipe.teacher.model
    return embed.vectors(store, key(folder), folder, sentences, progress=progress)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
