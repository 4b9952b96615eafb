"""Finished models that a recipe names, to learn from or to write: whether they are whole, and what tells them apart."""

import json
from pathlib import Path

from models.export import BODY, CONFIG
from models.folder import RECIPE, TOKENIZER, WEIGHTS
from models.recipe import Recipe, RecipeError, digest, file_digest, parse


def said(where: str, folder: str) -> Recipe:
    """
    The recipe of a model folder; its weights are not read.

    Args:
        where: place in the recipe that names it, for messages: `teacher.model`.
    Raises:
        RecipeError: it is no model folder.
    """
    place = Path(folder)
    missing = [name for name in (RECIPE, TOKENIZER) if not (place / name).is_file()]
    recipe = None if missing else parse(json.loads((place / RECIPE).read_text(encoding="utf-8")))
    if not (recipe and recipe.counting) and not (place / WEIGHTS).is_file():
        missing.append(WEIGHTS)
    if missing or recipe is None:
        raise RecipeError(
            f'{where} is "{folder}", which is no model folder: no {", ".join(missing)}; give the folder that '
            "`firth retrain` names"
        )
    return recipe


def encoding(where: str, folder: str) -> None:
    """
    Find out whether a model folder's model has vectors; arguments as for `said`.

    Raises:
        RecipeError: it is no model folder, or its model counts.
    """
    recipe = said(where, folder)
    if recipe.counting:
        raise RecipeError(
            f'{where} is "{folder}": recipe {recipe.name} counts words and has no vectors; give a trained model'
        )


def key(folder: str) -> str:
    """Digest of all files of a model folder that decide what it says."""
    names = {RECIPE, TOKENIZER, WEIGHTS, BODY, CONFIG}
    files = sorted(file for file in Path(folder).rglob("*") if file.name in names)
    return digest("teacher", [[str(file.relative_to(folder)), file_digest(file)] for file in files])
