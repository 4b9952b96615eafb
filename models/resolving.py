"""A recipe with every option filled in: all that decides a result, in one place."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.candidates import CANDIDATES
from models.checking import check, check_values
from models.generation import generation
from models.masked import LANE_OBJECTIVES
from models.noise import WORD_CANDIDATES, WORD_OBJECTIVES
from models.objectives import OBJECTIVES
from models.parts import complete
from models.recipe import GENERATION, Choice, Recipe, RecipeError, Term, Tokenizer, Watch
from models.sequence import CONTEXTS
from models.similarity import SIMILARITIES
from models.towers import ENCODERS
from models.views import VIEWS

ALONE: Mapping[str, Callable[..., Any]] = {**LANE_OBJECTIVES, GENERATION: generation}  # without candidates
FILES = ("path", "test", "vectors")  # options of evaluations that name files; others may be called as one is


def resolve(recipe: Recipe, base: Path | None = None, look: bool = True) -> Recipe:
    """
    The same recipe with every option of every part filled in, so that it says all that decides the result.

    Args:
        base: folder of saved encoders; what the recipe starts from need not be there any more.
        look: build the method once, so that wrong values show; needs the model that the recipe starts from.
    Raises:
        RecipeError: an unknown part or option, the known ones are named; a value that a part refuses.
    """
    recipe = _absolute(recipe)
    encoder = recipe.encoder
    own = {}
    for name in encoder.towers:
        choice = Choice(kind=encoder.kind, options=encoder.tower(name))
        own[name] = complete(ENCODERS, choice, f"encoder.{name}" if name in encoder.own else "encoder").options
    shared = {k: v for k, v in own[encoder.towers[0]].items() if all(own[name][k] == v for name in encoder.towers)}
    apart = {name: {k: v for k, v in own[name].items() if k not in shared} for name in encoder.towers}
    whole = encoder.model_copy(update={"options": shared, "own": {k: v for k, v in apart.items() if v}})
    terms = tuple(_resolve_term(term, f"terms.{number}", encoder.towers) for number, term in enumerate(recipe.terms))
    readout = recipe.readout.model_copy(update={"towers": recipe.readout.towers or encoder.towers[:1]})
    views = tuple(complete(VIEWS, view, f"view.{number}") for number, view in enumerate(recipe.view))
    parts = {"encoder": whole, "terms": terms, "readout": readout, "view": views, "tokenizer": _tokenizer(recipe)}
    parts["context"] = recipe.context and complete(CONTEXTS, recipe.context, "context")
    resolved = recipe.model_copy(update=parts)
    check(resolved)
    if look:
        check_values(resolved, base)
    return resolved


def _absolute(recipe: Recipe) -> Recipe:
    """Files and folders by their whole path: workers stand elsewhere. What is no path here stays as it is."""
    whole = lambda value: str(Path(value).resolve()) if value and Path(value).exists() else value
    encoder, training, teacher, guide = recipe.encoder, recipe.training, recipe.teacher, recipe.guide
    is_file = lambda key, value: key in ("path", "table") and value not in encoder.towers  # a table may be a tower's
    put = lambda options: {k: whole(v) if is_file(k, v) else v for k, v in options.items()}
    model_of = lambda options: {k: whole(v) if k == "model" else v for k, v in options.items()}
    own = {name: put(options) for name, options in encoder.own.items()}
    return recipe.model_copy(
        update={
            "encoder": encoder.model_copy(update={"options": put(encoder.options), "own": own}),
            "tokenizer": recipe.tokenizer.model_copy(update={"path": whole(recipe.tokenizer.path)}),
            "training": training.model_copy(update={"start": whole(training.start)}),
            "augment": tuple(Choice(kind=one.kind, options=model_of(one.options)) for one in recipe.augment),
            "teacher": teacher and teacher.model_copy(update={"model": whole(teacher.model)}),
            "guide": guide and guide.model_copy(update={"model": whole(guide.model)}),
            "evaluation": (measured := tuple(_of_examples(choice, recipe) for choice in recipe.evaluation)),
            "watch": _watched(recipe.watch, measured, whole),
        }
    )


def _watched(watch: Watch, measured: tuple[Choice, ...], whole: Callable[[str], str]) -> Watch:
    """What is measured on the way, by files that a worker finds wherever it stands."""
    if not watch.steps:
        return watch
    put = lambda options: {k: whole(v) if k in FILES else v for k, v in options.items()}
    chosen = [Choice(kind=choice.kind, options=put(choice.options)) for choice in watch.evaluation or measured]
    return watch.model_copy(update={"evaluation": tuple(chosen)})


def _of_examples(choice: Choice, recipe: Recipe) -> Choice:
    """Of labelled texts only the first asks, and only for the second; questions have answers to put in order."""
    texts = recipe.corpus.example_texts
    if choice.kind == "neighbours" and recipe.corpus.asks:
        return Choice(kind="ranking", options={k: v for k, v in choice.options.items() if k != "texts"})
    if choice.kind != "neighbours" or not texts:
        return choice
    return Choice(kind=choice.kind, options={"texts": texts, **choice.options})


def _tokenizer(recipe: Recipe) -> Tokenizer:
    """The encoder's own tokenizer by its path, or a new one where the encoder is new; or the words of its table."""
    kind, first = recipe.tokenizer.kind, recipe.encoder.tower(recipe.encoder.towers[0])
    if recipe.tokenizer.leave_out and kind not in ("word-level", "table"):
        raise RecipeError(f'tokenizer.leave_out is for kinds word-level and table; tokenizer.kind is "{kind}"')
    if kind == "table":
        if not first.get("table"):
            raise RecipeError('tokenizer.kind is "table", but the first tower has no table; name one in encoder.table')
        return recipe.tokenizer.model_copy(update={"path": str(first["table"])})
    if kind != "encoder":
        return recipe.tokenizer
    path = str(first.get("path", ""))
    ready = {"kind": "saved", "path": path} if path else {"kind": "wordpiece", "path": ""}
    return recipe.tokenizer.model_copy(update=ready)


def _resolve_term(term: Term, where: str, towers: tuple[str, ...]) -> Term:
    anchor = term.anchor or towers[0]
    named = {"anchor": anchor, "candidate": term.candidate or anchor}
    if term.candidates is None and term.similarity is None:
        return term.model_copy(update={**named, "objective": complete(ALONE, term.objective, f"{where}.objective")})
    if term.candidates is None or term.similarity is None:
        missing = "similarity" if term.similarity is None else "candidates"
        raise RecipeError(f"{where} has no {missing}; a term has candidates and a similarity, or neither")
    words = term.candidates.kind in WORD_CANDIDATES
    if words and term.similarity.kind != "dot":
        raise RecipeError(f'{where}.similarity.kind is "{term.similarity.kind}"; words are scored by "dot"')
    candidates: Mapping[str, Callable[..., Any]] = {**CANDIDATES, **WORD_CANDIDATES}
    objectives: Mapping[str, Callable[..., Any]] = WORD_OBJECTIVES if words else OBJECTIVES
    return term.model_copy(
        update={
            **named,
            "candidates": complete(candidates, term.candidates, f"{where}.candidates"),
            "similarity": complete(SIMILARITIES, term.similarity, f"{where}.similarity"),
            "objective": complete(objectives, term.objective, f"{where}.objective"),
        }
    )
