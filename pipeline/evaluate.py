"""
Evaluations by name: a model and held-out sentences to figures, each beside its baselines.

To add one, write a function that returns `Scores` in a file of `pipeline.evaluations` and name it in `EVALUATIONS`;
where it reads files that the recipe names, say in `GIVEN` how they are read and known, and which texts are in them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.parts import complete
from models.recipe import Choice, Recipe, RecipeError, digest
from models.tokens_scored import PREDICTING
from models.trouble import MendableError
from pipeline.evaluations import neighbours, perplexity, probe, ranking, sts, words
from pipeline.evaluations.scores import Scores, called


def completed(choice: Choice, where: str = "evaluation") -> Choice:
    """An evaluation with every option filled in; a RecipeError names what is unknown."""
    return complete(EVALUATIONS, choice, where)


def check(evaluations: Sequence[Choice], where: str = "evaluation") -> None:
    """
    Find what is wrong with evaluations before anything is trained.

    Raises:
        RecipeError: an unknown part or option, a file that cannot be used, or two evaluations of one name.
    """
    names: dict[tuple[str, str], int] = {}
    for number, choice in enumerate(evaluations):
        options = completed(choice, f"{where}.{number}").options
        name = _named(options, f"{where}.{number}") if choice.kind in GIVEN else ""
        if (first := names.setdefault((choice.kind, name), number)) != number:
            both = f"{where}.{first} and {where}.{number} are both"
            if not name:
                raise RecipeError(f"{both} {choice.kind}, whose figures have one name; take one of them out")
            raise RecipeError(f'{both} called "{name}"; give one of them another name')
        if choice.kind in GIVEN:
            try:
                GIVEN[choice.kind].read(options)
            except MendableError as error:
                raise RecipeError(f"{where}.{number}: {error}") from None


def fits(recipe: Recipe) -> None:
    """
    Find before anything is trained what the model will not be able to do.

    Raises:
        RecipeError: an evaluation of vectors where there are none, of predicted words where none are, or
            of held-out questions where the corpus has none.
    """
    kind = recipe.encoder.kind
    named = [(f"evaluation.{number}", choice) for number, choice in enumerate(recipe.evaluation)]
    named += [(f"watch.evaluation.{number}", choice) for number, choice in enumerate(recipe.watch.evaluation)]
    for place, choice in named:
        where = f'{place}.kind is "{choice.kind}", but encoder.kind = {kind}'
        if choice.kind == "perplexity" and kind not in PREDICTING:
            raise RecipeError(f"{where} predicts no words; kinds that do: {', '.join(sorted(PREDICTING))}")
        if choice.kind != "perplexity" and recipe.counting:
            raise RecipeError(f"{where} has no vectors; what it can be asked: perplexity")
        if choice.kind == "ranking" and not choice.options.get("path") and not recipe.corpus.asks:
            raise RecipeError(
                f'{place}.kind is "ranking" without a path, but the corpus has no questions: corpus.labels is '
                f'"{recipe.corpus.labels}"; give {place}.path, or a corpus with corpus.labels = "right"'
            )


def _named(options: Mapping[str, Any], where: str) -> str:
    try:
        name = called(options["path"], options["name"])
    except MendableError as error:
        raise RecipeError(f"{where}: {error}") from None
    if not re.fullmatch(r"[\w-]+", name):
        raise RecipeError(f'{where}.name is "{name}"; should be letters, digits, "_" or "-", as in name = "stsb-dev"')
    return name


def given(evaluations: Sequence[Choice]) -> list[str]:
    """
    Digests of the files that completed evaluations read, for their bytes decide the figures; none for those that read
    held-out sentences alone.
    """
    return [digest(*GIVEN[choice.kind].digests(choice.options)) for choice in evaluations if choice.kind in GIVEN]


@dataclass(frozen=True)
class Given:
    """
    Files that an evaluation's options name: `read` raises what is wrong with them, `digests` are of their bytes,
    `texts` are what nobody who is measured by them should have been trained on.
    """

    read: Callable[[Mapping[str, Any]], object]
    digests: Callable[[Mapping[str, Any]], list[str]]
    texts: Callable[[Mapping[str, Any]], list[str]]


EVALUATIONS: dict[str, Callable[..., Scores]] = {
    "neighbours": neighbours.neighbours,
    "sts": sts.sts,
    "probe": probe.probe,
    "words": words.words,
    "perplexity": perplexity.perplexity,
    "ranking": ranking.ranking,
}
GIVEN: dict[str, Given] = {
    "sts": Given(sts.read, sts.digests, sts.texts),
    "probe": Given(probe.read, probe.digests, probe.texts),
    "words": Given(sts.read, sts.digests, lambda options: []),  # words that are to be learned tell nothing of pairs
    "perplexity": Given(perplexity.read, perplexity.digests, perplexity.texts),
    "ranking": Given(ranking.read, ranking.digests, ranking.texts),
}
