"""The frozen model that a recipe may learn from: its vectors of all sentences, made once and kept in the store."""

from models.recipe import Recipe, RecipeError
from pipeline import embed, frozen
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
    folder = recipe.teacher.model
    said = frozen.said("teacher.model", folder)
    if said.counting:
        raise RecipeError(
            f'teacher.model is "{folder}": recipe {said.name} counts words and has no vectors; give a trained model'
        )


def vectors(store: Store, folder: str, sentences: Manifest, progress: Progress = silent) -> Manifest:
    """Vectors of all sentences by the model in a folder, as stage `vectors` makes them."""
    return embed.vectors(store, frozen.key(folder), folder, sentences, progress=progress)
