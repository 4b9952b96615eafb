"""Texts in other words, written once by a model of one's own and kept in the store: stage `augmented`."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from models.decoding import Drawing
from models.parts import complete
from models.recipe import Choice, Recipe, RecipeError, digest
from models.rewriting import reworded
from pipeline import frozen, vocabulary
from pipeline.augment import AUGMENTATIONS, PARAPHRASE
from pipeline.cluster import Progress, silent
from pipeline.embed import opened
from pipeline.manifest import Manifest, Stage, run
from pipeline.store import Piece, Store
from pipeline.tables import AUGMENTED

AUGMENTED_VERSION = 1


@dataclass(frozen=True)
class Texts:
    """What a worker writes: one shard's texts in other words, by which model, as numbers of which vocabulary."""

    number: int
    sentences: Piece
    folder: str
    options: dict[str, Any]
    tokenizer: str
    most_tokens: int


def wanted(recipe: Recipe) -> Choice | None:
    """
    The recipe's augmentation by paraphrases; None: it has none.

    Raises:
        RecipeError: two that differ.
    """
    named = [(n, choice) for n, choice in enumerate(recipe.augment) if choice.kind == PARAPHRASE]
    found = [complete(AUGMENTATIONS, choice, f"augment.{n}") for n, choice in named]
    if any(choice != found[0] for choice in found):
        raise RecipeError("augment has two entries of kind paraphrase that differ; all views should have the same one")
    return found[0] if found else None


def check(recipe: Recipe) -> None:
    """
    Find out before any work whether the model that should write can.

    Raises:
        RecipeError: there is no such folder, or its model was not trained to write.
    """
    choice = wanted(recipe)
    if choice is None:
        return
    folder = choice.options["model"]
    said = frozen.said("augment: model", folder)
    if not said.generates:
        raise RecipeError(
            f'augment: model is "{folder}" of recipe {said.name}, which writes nothing: none of its terms generates; '
            "give one that does, as `firth retrain simbert` makes it"
        )


def paraphrases(
    store: Store, recipe: Recipe, sentences: Manifest, tokenizer: tuple[str, str], progress: Progress = silent
) -> Manifest:
    """
    Table `augmented` of all training sentences, for a recipe one of whose augmentations reads it.

    Args:
        tokenizer: name of the recipe's tokenizer in the store, where it lies already, and its JSON.
    """
    choice = wanted(recipe)
    assert choice
    (name, text), most = tokenizer, recipe.tokenizer.most_tokens
    folder = str(Path(choice.options["model"]).resolve())
    options = {key: value for key, value in choice.options.items() if key != "model"}
    stage = Stage("augmented", AUGMENTED_VERSION, make_augmented, [options, digest(text), most])
    weights = frozen.key(folder)
    items = {
        number: ((piece.key, weights, str(number)), Texts(number, piece, folder, options, name, most))
        for number, piece in sentences.pieces.items()
    }
    return run(store, stage, items, progress)


def make_augmented(store: Store, key: str, item: Texts) -> Piece:
    """Worker's part of stage `augmented`: one shard."""
    started, options = time.time(), dict(item.options)
    rows = store.read(item.sentences, ["text", "group", "held_out"]).with_row_index("row").filter(~pl.col("held_out"))
    drawing = Drawing(options["top_k"], options["top_p"], options["longest"])
    texts, seeds = rows["text"].to_list(), rows["group"].to_list()  # texts that say the same are said the same way
    found = reworded(opened(store.root, item.folder), texts, seeds, options["count"], drawing) if texts else []
    said = [other for one in found for other in one.texts]
    size_R = np.array([len(one.texts) for one in found], dtype=np.int64)
    place_P = np.arange(len(said)) - np.repeat(np.cumsum(size_R) - size_R, size_R)
    row_P = np.repeat(rows["row"].to_numpy().astype(np.uint64), size_R)
    pieces = vocabulary.open_tokenizer(str(store.get(item.tokenizer)), item.most_tokens)
    tokens = vocabulary.tokens(pl.DataFrame({"text": pl.Series(said, dtype=pl.String)}), pieces)["tokens"]
    frame = pl.DataFrame(
        {"text": row_P + np.uint64(item.number << 32), "view": place_P.astype(np.uint8), "tokens": tokens}
    )
    counts = {"texts": len(texts), "without": int((size_R == 0).sum())}
    return store.write(AUGMENTED, key, frame, started=started, inputs=(item.sentences.key,), counts=counts)
