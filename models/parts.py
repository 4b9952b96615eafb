"""Parts by name: a part is a plain function or a module class, and its keyword-only parameters are its options."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from models.recipe import Choice, RecipeError

INTERNAL = frozenset(
    {"words", "frequency", "around", "memory", "widths"}
)  # handed over by the builder, no option of a recipe


def options(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a part: its keyword-only parameters, by name."""
    parameters = inspect.signature(part).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in INTERNAL}


def complete(parts: Mapping[str, Callable[..., Any]], choice: Choice, where: str) -> Choice:
    """
    The same choice with every option filled in and checked.

    Args:
        parts: the known parts by name.
        where: place in the recipe, for messages: `terms.0.similarity`.
    Raises:
        RecipeError: an unknown part or option (the known ones are named), or a value of another type.
    """
    if choice.kind not in parts:
        raise RecipeError(f'{where}.kind is "{choice.kind}"; known: {", ".join(sorted(parts))}')
    known = options(parts[choice.kind])
    for name in choice.options:
        if name not in known:
            raise RecipeError(
                f'{where} has no option "{name}"; options of {choice.kind}: {", ".join(sorted(known)) or "none"}'
            )
    values = {}
    for name, parameter in known.items():
        if name not in choice.options and parameter.default is parameter.empty:
            raise RecipeError(f"{where} needs the option {name}")
        values[name] = _typed(choice.options.get(name, parameter.default), parameter, f"{where}.{name}")
    return Choice(kind=choice.kind, options=values)


def bind(parts: Mapping[str, Callable[..., Any]], choice: Choice) -> Callable[..., Any]:
    """The chosen part with its options in place."""
    return partial(parts[choice.kind], **choice.options)


def _typed(value: Any, parameter: inspect.Parameter, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{where} is {value}; should be a number")
    try:
        return TypeAdapter(parameter.annotation).validate_python(value)
    except ValidationError as error:
        raise RecipeError(f"{where} is {value!r}: {error.errors()[0]['msg']}") from None
