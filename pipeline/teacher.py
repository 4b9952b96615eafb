"""Frozen models that a recipe learns from or is guided by: vectors of all sentences, made once and kept."""

from models.recipe import Recipe
from pipeline import embed, frozen
from pipeline.cluster import Progress, silent
from pipeline.manifest import Manifest
from pipeline.store import Store


def check(recipe: Recipe) -> None:
    """
    Find out before any work whether a recipe's teacher and guide are models that have vectors.

    Raises:
        RecipeError: there is no such folder, or its model counts.
    """
    for where, named in (("teacher.model", recipe.teacher), ("guide.model", recipe.guide)):
        if named:
            frozen.encoding(where, named.model)


def vectors(store: Store, folder: str, sentences: Manifest, progress: Progress = silent) -> Manifest:
    """Vectors of all sentences by the model in a folder, as stage `vectors` makes them."""
    return embed.vectors(store, frozen.key(folder), folder, sentences, progress=progress)
