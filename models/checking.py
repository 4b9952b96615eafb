"""What parts of a recipe do not go together, found before any work."""

from pathlib import Path

import torch

from models.candidates import Rows
from models.guiding import GUIDED, guides
from models.lane import compares
from models.method import Method
from models.recipe import Readout, Recipe, RecipeError
from models.views import CUTS

PACKED_POOLINGS = ("first", "mean")  # of the text in a row with its answer


def check(recipe: Recipe) -> None:
    """
    Find settings that contradict each other.

    Args:
        recipe: with every option filled in.
    Raises:
        RecipeError: the first that is wrong.
    """
    _check_views(recipe)
    _check_counting(recipe)
    _check_descent(recipe)
    _check_ahead(recipe)
    _check_generation(recipe)
    _check_teacher(recipe)
    _check_guide(recipe)


def check_values(recipe: Recipe, base: Path | None) -> None:
    """
    Build the method once without memory for its numbers, so that a wrong value shows before any work.

    Args:
        base: folder of saved encoders.
    Raises:
        RecipeError: a value that a part refuses.
    """
    towers = recipe.encoder.towers
    named = {str(recipe.encoder.tower(tower).get("table", "")) for tower in towers}.difference(towers, [""])
    try:
        with torch.device("meta"):
            method = Method(recipe, 2, {name: torch.zeros(2, 1) for name in named}, torch.zeros(2), base=base)
            for term in method.summands:
                widths = method.anchor_width(term), method.tower(term.candidate).width
                term.similarity(*(torch.zeros(1, width) for width in widths))
        with torch.device("cpu"):
            _try_options(recipe, method)
    except RecipeError:
        raise
    except (ValueError, RuntimeError) as error:
        raise RecipeError(f"recipe {recipe.name}: {error}") from None


def _try_options(recipe: Recipe, method: Method) -> None:
    """Call what looks at its options only when it is called."""
    nothing, one_B = torch.zeros(0, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    rows = Rows(torch.zeros(1, dtype=torch.uint8), one_B, -one_B[:, None], document_B=one_B, place_B=one_B)
    for summand in method.summands:
        summand.candidates(rows, nothing, torch.zeros(1, 1))
        summand.objective(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int64))
    for view in recipe.view:
        if view.kind in CUTS:
            CUTS[view.kind](one_B, 1, 1, **view.options)


def _check_counting(recipe: Recipe) -> None:
    """What only training or vectors know says nothing to counts."""
    wrong = [name for name in ("view", "augment") if getattr(recipe, name)]
    wrong += ["training.start"] if recipe.training.start != "fresh" else []
    wrong += ["watch"] if recipe.watch.steps else []
    wrong += ["encoder.towers"] if len(recipe.encoder.towers) > 1 else []
    wrong += ["readout"] if recipe.readout != Readout(towers=recipe.encoder.towers) else []
    if recipe.counting and wrong:
        raise RecipeError(f"{wrong[0]} is set, but encoder.kind = {recipe.encoder.kind} counts: leave it out")


def _check_views(recipe: Recipe) -> None:
    if recipe.encoder.kind == "transformer":
        return
    told = [name for name, default in vars(Readout()).items() if getattr(recipe.readout, name) != default]
    wrong = [f"readout.{name}" for name in told if name in ("pooling", "head", "denoise")]
    wrong += ["view"] if any(view.kind != "none" for view in recipe.view) else []
    if wrong:
        raise RecipeError(f"{wrong[0]} is for encoder.kind = transformer; this encoder is {recipe.encoder.kind}")


def _check_descent(recipe: Recipe) -> None:
    points = [name for name in recipe.encoder.towers if recipe.encoder.tower(name).get("riemannian") == "table"]
    if points and recipe.training.optimizer != "sgd":
        raise RecipeError(
            f'encoder.{points[0]}.riemannian is "table" but training.optimizer is "{recipe.training.optimizer}", which '
            'divides the gradient by its own size and so undoes the factor; use "sgd"'
        )
    released = [name for name in recipe.encoder.towers if recipe.encoder.tower(name).get("riemannian") == "reference"]
    if released and recipe.training.lazy:
        raise RecipeError(
            f'encoder.{released[0]}.riemannian is "reference" but training.optimizer is "{recipe.training.optimizer}", '
            f"and it scales whole gradients; use {recipe.training.optimizer.removeprefix('lazy-')}"
        )


def _check_ahead(recipe: Recipe) -> None:
    """Terms that look ahead, and the context that they look from, need each other."""
    if recipe.context and not any(term.ahead for term in recipe.terms):
        raise RecipeError(f'context.kind is "{recipe.context.kind}", but no term has `ahead`; give one, or no context')
    for number, term in enumerate(recipe.terms):
        kind = term.candidates.kind if term.candidates else "none"
        if kind == "ahead" and not term.ahead:
            raise RecipeError(f'terms.{number}.candidates.kind is "ahead", but terms.{number}.ahead is 0; 1 or more')
        if term.ahead and kind not in ("ahead", "batch"):
            raise RecipeError(
                f'terms.{number}.ahead is {term.ahead}, but its candidates.kind is "{kind}"; should be ahead or batch'
            )


def _check_generation(recipe: Recipe) -> None:
    """A row of a term that generates is a text and its answer, which not every encoder and view knows."""
    compared = {name for term in recipe.terms if compares(term) for name in (term.anchor, term.candidate)}
    seen: set[str] = set()
    for number, term in enumerate(recipe.terms):
        if not term.generates:
            continue
        where = f'terms.{number}.objective.kind is "generation"'
        if recipe.encoder.kind != "transformer":
            raise RecipeError(f"{where}, which wants encoder.kind = transformer, not {recipe.encoder.kind}")
        for at, view in enumerate(recipe.view):
            if view.kind != "none":
                raise RecipeError(f'{where}, of a text as it is, but view.{at}.kind is "{view.kind}"; leave view out')
        pooling = recipe.encoder.tower(term.anchor)["pooling"]
        if pooling not in PACKED_POOLINGS:
            raise RecipeError(f'{where}, but encoder.pooling is "{pooling}"; should be {" or ".join(PACKED_POOLINGS)}')
        if compared and term.anchor not in compared:
            raise RecipeError(
                f'{where}, of tower "{term.anchor}", which no term compares: one pass does both; set '
                f"terms.{number}.anchor to one of {', '.join(sorted(compared))}"
            )
        if term.anchor in seen:
            raise RecipeError(f'{where}, of tower "{term.anchor}" a second time; leave one out, or change its weight')
        seen.add(term.anchor)


def _check_teacher(recipe: Recipe) -> None:
    """A teacher and the term that learns from it need each other."""
    for number, term in enumerate(recipe.terms):
        candidates = term.candidates.kind if term.candidates else "none"
        if (term.objective.kind == "gram") != (candidates == "all"):
            raise RecipeError(
                f'terms.{number}.objective.kind is "{term.objective.kind}" and its candidates.kind "{candidates}"; '
                'objective "gram" and candidates "all" go with each other alone'
            )
        if term.objective.kind == "gram" and not recipe.teacher:
            raise RecipeError(
                f'terms.{number}.objective.kind is "gram", but there is no teacher; name the folder of a model, as in '
                "teacher.model=FOLDER"
            )
    if recipe.teacher and not any(term.objective.kind == "gram" for term in recipe.terms):
        raise RecipeError(
            f'teacher.model is "{recipe.teacher.model}", but no term learns from it; give one objective = '
            '{ kind = "gram" } with candidates = { kind = "all" }, or leave teacher out'
        )


def _check_guide(recipe: Recipe) -> None:
    """A guide has to find candidates that it can tell something of."""
    if recipe.guide and not any(map(guides, recipe.terms)):
        raise RecipeError(
            f'guide.model is "{recipe.guide.model}", but no term has candidates that it can judge: texts, so '
            f"candidates.kind {', '.join(GUIDED[:-1])} or {GUIDED[-1]}, and no `ahead`; leave guide out"
        )
