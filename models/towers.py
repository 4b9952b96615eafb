"""The encoders of a recipe by tower, and what reads the runs of their vectors."""

import inspect
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer as WordPieces
from torch import Tensor

from models.lookup import Bag, Encoder, Words
from models.ngram import Ngram
from models.projection import Projection
from models.recipe import Recipe, RecipeError
from models.recurrent import GRU
from models.scorers import SCORERS
from models.sequence import CONTEXTS, Recurrent
from models.transformer import Around, Transformer


def encoders(
    recipe: Recipe,
    vocabulary: int,
    tables: Mapping[str, Tensor],
    frequency: Tensor | None,
    tokenizer: WordPieces | None,
    base: Path | None,
) -> dict[str, Encoder]:
    """
    A new encoder for each tower, or the one that it starts from; arguments as those of `models.method.Method`.

    Raises:
        RecipeError: a table that is not there, or an encoder that cannot tell masked words.
    """
    towers: dict[str, Encoder] = {}
    encoder = ENCODERS[recipe.encoder.kind]
    wanted = inspect.signature(encoder).parameters
    masked = {term.anchor for term in recipe.terms if term.candidates is None}
    packed = {term.anchor for term in recipe.terms if term.generates}
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
        saved = base / name if base and len(recipe.encoder.towers) > 1 else base
        around = Around(tokenizer, recipe.view, recipe.readout, name in masked, saved, name in packed)
        given = {"words": words, "frequency": frequency, "around": around}
        towers[name] = encoder(vocabulary, **options, **{k: v for k, v in given.items() if k in wanted})
    if masked and recipe.encoder.kind != "transformer":
        raise RecipeError(f"a term that tells masked words needs encoder.kind = transformer, not {recipe.encoder.kind}")
    return towers


def contexts(recipe: Recipe, towers: Mapping[str, Encoder]) -> dict[str, Recurrent]:
    """A context network for each tower whose vectors look ahead."""
    if not recipe.context:
        return {}
    part, options = CONTEXTS[recipe.context.kind], recipe.context.options
    ahead = dict.fromkeys(term.anchor for term in recipe.terms if term.ahead)
    return {name: part(towers[name].width, **options) for name in ahead}


ENCODERS: dict[str, type[Encoder]] = {
    "bag": Bag,
    "gru": GRU,
    "ngram": Ngram,
    "projection": Projection,
    "transformer": Transformer,
    **SCORERS,
}
