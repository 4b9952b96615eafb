"""What was asked for, checked before any work."""

from pipeline import settings  # noqa: F401  before MLflow

# isort: split
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from models.export import BODY
from models.folder import WEIGHTS
from models.pretrained import LEARNED, MissingModelError, check_weights, local
from models.recipe import Recipe, RecipeError, digest, file_digest, load
from models.resolving import resolve
from pipeline import evaluate, examples, leaving, mine, paraphrases, register, teacher, word_vectors
from pipeline.road import Road
from pipeline.store import Store, StoreError


@dataclass(frozen=True)
class Order:
    """A run that can begin."""

    road: Road
    workers: int
    gpu: bool
    name: str | None
    tracking: str


def check(
    recipe: str,
    corpus: str,
    store: str = ".firth",
    overrides: list[str] | None = None,
    workers: int = 1,
    gpu: bool = False,
    name: str | None = None,
    tracking: str | None = None,
) -> Order:
    """
    Find all that can be known to be wrong without reading the corpus; arguments as for `retrain`.

    Raises:
        MendableError: of the part that is wrong, with the remedy.
    """
    plan = planned(recipe, overrides or [])
    _check_workers(workers, gpu)
    _check_apart(corpus, store)
    place = Store.at(store)
    uri = register.tracking(place.root, tracking)
    register.check(uri)
    return Order(Road(place, plan, corpus), workers, gpu, name, uri)


def described(recipe: str, overrides: list[str]) -> Recipe:
    """
    A recipe with every option filled in; what it starts from need not be here.

    Raises:
        RecipeError: as `planned`.
    """
    read = load(recipe, overrides)
    try:
        plan = resolve(read)
    except MissingModelError:
        plan = resolve(read, look=False)
    examples.planned(plan)
    return plan


def planned(recipe: str, overrides: list[str]) -> Recipe:
    """
    A recipe with every part and option known, each value tried.

    Raises:
        RecipeError: what the recipe asks for does not exist; the known names are listed. Or a file to evaluate on
            cannot be used, or the teacher, the guide, or the model that writes paraphrases.
        WordVectorsError: a table of word vectors is not there.
    """
    plan = resolve(load(recipe, overrides))
    examples.planned(plan)
    evaluate.check(plan.evaluation)
    evaluate.check(plan.watch.evaluation, "watch.evaluation")
    evaluate.fits(plan)
    leaving.check(plan)
    word_vectors.check(plan)
    teacher.check(plan)
    mine.check(plan)
    paraphrases.check(plan)
    given_digest(plan)
    return plan


def given_digest(recipe: Recipe) -> str:
    """
    Digest of the files that the recipe names, for their content decides what is trained: the weights that a run starts
    from, ready word tables, and what decides which of its weights it ends with. Empty where there are none.
    """
    start = recipe.training.start
    if start != "fresh" and not (Path(start) / WEIGHTS).is_file():
        raise RecipeError(f'training.start is "{start}"; `fresh`, or a model folder that holds {WEIGHTS}')
    # A transformer's weights lie beside it, or in a folder for each tower.
    files = [] if start == "fresh" else sorted({Path(start) / WEIGHTS, *Path(start).rglob(BODY)})
    files += [path for table in word_vectors.named(recipe) for path in word_vectors.paths(table)]
    for tower in recipe.encoder.towers:
        path = str(recipe.encoder.tower(tower).get("path", ""))
        if path:
            check_weights(folder := local(path))
            files += sorted(file for file in folder.iterdir() if file.name in LEARNED)
    found = [file_digest(file) for file in files]
    found += evaluate.given([evaluate.completed(choice) for choice in recipe.watch.evaluation])
    return digest(found) if found else ""


def _check_apart(corpus: str, store: str) -> None:
    """A store among the texts would be read as text on the next run; hidden folders are not read."""
    if "://" in corpus or "://" in store or not Path(corpus).is_dir():
        return
    inner, outer = Path(store).expanduser().resolve(), Path(corpus).resolve()
    if inner.is_relative_to(outer) and not any(part.startswith(".") for part in inner.relative_to(outer).parts):
        raise StoreError(
            f"store {store} lies in the corpus {corpus}, where its files would be read as text; choose a folder "
            "outside of it, or one whose name begins with a dot, as in --store .firth"
        )


def _check_workers(workers: int, gpu: bool) -> None:
    if workers < 1:
        raise RecipeError(f"workers is {workers}; at least 1")
    here = torch.cuda.device_count()
    if gpu and not os.environ.get("RAY_ADDRESS") and here < workers:
        raise RecipeError(
            f"{workers} worker(s) want a GPU each, this machine has {here}; leave --gpu out, take fewer workers, or "
            "set RAY_ADDRESS to a cluster that has them"
        )
