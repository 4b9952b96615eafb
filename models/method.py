"""A method: encoders, and terms that compare their vectors. Built from a recipe; knows neither files nor workers."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from models.candidates import CANDIDATES, Rows, scores
from models.lookup import Bag, Encoder, Words
from models.objectives import OBJECTIVES
from models.parts import bind, complete
from models.recipe import Choice, Recipe, RecipeError, Term
from models.recurrent import GRU
from models.similarity import SIMILARITIES

ENCODERS: dict[str, type[Encoder]] = {"bag": Bag, "gru": GRU}


def resolve(recipe: Recipe) -> Recipe:
    """
    The same recipe with every option of every part filled in, so that it says all that decides the result.

    Raises:
        RecipeError: an unknown part or option, the known ones are named; a value that a part refuses.
    """
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
    resolved = recipe.model_copy(update={"encoder": whole, "terms": terms, "readout": readout})
    _try(resolved)
    return resolved


def _try(recipe: Recipe) -> None:
    """Build the method once without memory for its numbers, so that a wrong value shows before any work."""
    towers = recipe.encoder.towers
    named = {str(recipe.encoder.tower(tower).get("table", "")) for tower in towers}.difference(towers, [""])
    try:
        with torch.device("meta"):
            method = Method(recipe, 2, {name: torch.zeros(2, 1) for name in named}, torch.zeros(2))
            for term in method.summands:
                term.similarity(torch.zeros(1, 1), torch.zeros(1, 1))
    except RecipeError:
        raise
    except (ValueError, RuntimeError) as error:
        raise RecipeError(f"recipe {recipe.name}: {error}") from None


def _resolve_term(term: Term, where: str, towers: tuple[str, ...]) -> Term:
    anchor = term.anchor or towers[0]
    return term.model_copy(
        update={
            "anchor": anchor,
            "candidate": term.candidate or anchor,
            "candidates": complete(CANDIDATES, term.candidates, f"{where}.candidates"),
            "similarity": complete(SIMILARITIES, term.similarity, f"{where}.similarity"),
            "objective": complete(OBJECTIVES, term.objective, f"{where}.objective"),
        }
    )


@dataclass(frozen=True)
class Summand:
    """A term of the loss, its parts bound to their options."""

    anchor: str
    candidate: str
    candidates: Callable[..., Any]
    similarity: Callable[..., Tensor]
    objective: Callable[..., tuple[Tensor, Tensor]]
    weight: float
    mean: bool

    def __call__(self, rows: Rows, anchor_A: Tensor, vectors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """
        Sum and count of this term over some anchors.

        Args:
            anchor_A: row numbers of the anchors, [A].
            vectors: each tower's vectors of the whole batch, [B, D].
        """
        pool = self.candidates(rows, anchor_A, vectors[self.candidate])
        score_AC = scores(pool, vectors[self.anchor][anchor_A], self.similarity)
        return self.objective(score_AC, pool.answer_AP)


class Method(nn.Module):
    """
    Encoders by tower, and the terms of the loss.

    Args:
        recipe: resolved.
        vocabulary: entries of the tokenizer.
        tables: ready word vectors by the name that `table` has in the recipe, each [V, word width].
        frequency: each word's share of the corpus, [V], for encoders that start from it.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocabulary: int,
        tables: Mapping[str, Tensor] | None = None,
        frequency: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.towers = nn.ModuleDict(_towers(recipe, vocabulary, tables or {}, frequency))
        for name in recipe.encoder.towers:
            # A lane's gradient has its words' rows only; the step makes one dense sum.
            self.tower(name).words.sparse = True
        self.summands = tuple(_summand(term) for term in recipe.terms)
        self.used = tuple(dict.fromkeys(name for term in self.summands for name in (term.anchor, term.candidate)))

    def tower(self, name: str) -> Encoder:
        """A tower's encoder."""
        return cast(Encoder, self.towers[name])

    def encode(self, tower: str, ids_LT: Tensor, length_L: Tensor, shared: Tensor | None = None) -> Tensor:
        """One tower's vectors, [L, D]; `shared` is the step's dropout mask where the encoder takes one."""
        return cast(Tensor, self.tower(tower)(ids_LT, length_L, shared))

    def loss(self, rows: Rows, anchor_A: Tensor, vectors: Mapping[str, Tensor], count: int) -> Tensor:
        """
        This worker's part of the batch's loss, []: the parts of all workers sum to it.

        Each mean term's sum is divided by the count over the whole batch: lanes hold unequal numbers of anchors, and a
        mean of their means would be another loss.
        """
        total = next(iter(vectors.values())).new_zeros(())
        if len(anchor_A) == 0:
            return total
        for term in self.summands:
            amount, _ = term(rows, anchor_A, vectors)
            total = total + term.weight * amount / (count if term.mean else 1)
        return total

    @torch.no_grad()
    def readout(self, ids_LT: Tensor, length_L: Tensor) -> Tensor:
        """What a text's vector is after training, [L, D]: the towers of the readout, one behind the other."""
        vectors = [self.encode(name, ids_LT, length_L) for name in self.recipe.readout.towers]
        if self.recipe.readout.normalise:
            vectors = [nn.functional.normalize(vector_LD, dim=1) for vector_LD in vectors]
        return torch.cat(vectors, dim=1)

    def widths(self) -> list[tuple[str, int]]:
        """Tower and width of each stretch of the readout."""
        return [(name, self.tower(name).width) for name in self.recipe.readout.towers]

    @torch.no_grad()
    def score(self, left_MD: Tensor, right_ND: Tensor) -> Tensor:
        """
        How well right texts answer left ones in the geometry that was trained, [M, N]; larger is better.

        Args:
            left_MD, right_ND: readouts; a term compares its own towers' stretches, and the terms add by weight.
        """
        start, stretch = 0, {}
        for name, width in self.widths():
            stretch[name] = slice(start, start + width)
            start += width
        total = torch.zeros(len(left_MD), len(right_ND))
        for term in self.summands:
            if term.anchor not in stretch or term.candidate not in stretch:
                continue  # a tower that is thrown away after training
            total += term.weight * term.similarity(
                left_MD[:, stretch[term.anchor]], right_ND[:, stretch[term.candidate]]
            )
        return total


def _summand(term: Term) -> Summand:
    return Summand(
        anchor=term.anchor,
        candidate=term.candidate,
        candidates=bind(CANDIDATES, term.candidates),
        similarity=bind(SIMILARITIES, term.similarity),
        objective=bind(OBJECTIVES, term.objective),
        weight=term.weight,
        mean=term.reduce == "mean",
    )


def _towers(
    recipe: Recipe, vocabulary: int, tables: Mapping[str, Tensor], frequency: Tensor | None
) -> dict[str, Encoder]:
    towers: dict[str, Encoder] = {}
    encoder = ENCODERS[recipe.encoder.kind]
    wanted = inspect.signature(encoder).parameters
    for name in recipe.encoder.towers:
        options = recipe.encoder.tower(name)
        table = str(options.get("table", ""))
        words = towers[table].words if table in towers else None
        if table and words is None:
            if table not in tables:
                raise RecipeError(
                    f'encoder.{name}.table is "{table}": neither a tower before it nor a table that was read'
                )
            words = Words(vocabulary, tables[table].shape[1], frozen=bool(options["frozen"]), weight=tables[table])
        given = {k: v for k, v in {"words": words, "frequency": frequency}.items() if k in wanted}
        towers[name] = encoder(vocabulary, **options, **given)
    return towers
