"""Examples: rows that stand together in a batch, such as the two views of a sentence or a text and its paraphrase."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from models.parts import bind, complete
from models.recipe import Choice, Recipe, RecipeError
from pipeline.augment import AUGMENTATIONS, Lexicon, reads_words
from pipeline.pairs import PAIRINGS, VIEWS
from pipeline.store import Store
from pipeline.tables import BATCHES, BOTH, CANDIDATE


@dataclass(frozen=True)
class Examples:
    """
    How examples become rows.

    Args:
        views: rows of an example.
        augment: a completed choice for each view; empty: tokens stay as they are.
        tokenizer: name of the tokenizer in the store; empty where no augmentation reads it.
        most: wrong answers of a question at most, which make examples of unlike sizes; 0: no questions.
    """

    views: int
    augment: tuple[Choice, ...] = ()
    tokenizer: str = ""
    most: int = 0

    def record(self) -> dict[str, Any]:
        """For keys: all that decides rows."""
        choices = [choice.model_dump() for choice in self.augment]
        asked = {"most": self.most} if self.most else {}
        return {"views": self.views, "augment": choices, "tokenizer": self.tokenizer, **asked}

    @property
    def reads_words(self) -> bool:
        """Whether an augmentation has to know where words begin."""
        return any(map(reads_words, self.augment))


def planned(recipe: Recipe) -> Examples | None:
    """
    The examples that a recipe asks for, without a tokenizer; None where its pairs are runs of neighbours.

    Raises:
        RecipeError: unknown pairs or augmentation; not one augmentation or view a view; batches of parts of examples;
            a term that compares views where there are none, or looks farther ahead than a run reaches.
    """
    pairs = complete(PAIRINGS, recipe.pairs, "pairs")
    kind = pairs.kind
    views, given = VIEWS[kind], len(recipe.augment)
    _check_views(recipe, kind, views)
    choices = tuple(complete(AUGMENTATIONS, choice, f"augment.{n}") for n, choice in enumerate(recipe.augment))
    if given and given != views:
        remedy = f"should be {views}, one a view, or left out" if views else "leave it out"
        raise RecipeError(f'augment has {given} entries; an example of pairs.kind "{kind}" has {views} views: {remedy}')
    if views == 0:
        return None
    augmented = () if all(choice.kind == "none" for choice in choices) else choices
    if kind == "qa":
        if augmented:
            raise RecipeError('augment is for examples of a fixed size, not for pairs.kind "qa"; leave it out')
        return Examples(views, most=pairs.options["most"])
    check_rows(recipe.batches.rows, views)
    return Examples(views, augmented)


def _check_views(recipe: Recipe, kind: str, views: int) -> None:
    texts = recipe.corpus.example_texts
    if (kind == "qa") != recipe.corpus.asks:
        given = f'corpus.labels is "{recipe.corpus.labels}"'
        remedy = 'pairs.kind = "qa"' if recipe.corpus.asks else 'corpus.labels = "right" and corpus.label'
        raise RecipeError(f'pairs.kind is "{kind}", {given}: questions and answers need both; set {remedy}')
    if kind in ("pairs", "triples") and texts != views:
        names = ["anchor", "positive", "negative"][:views]
        raise RecipeError(
            f'pairs.kind "{kind}" wants {views} texts a row; corpus.texts and corpus.label give '
            f"{texts or 'running text'}: name {views} columns, as in corpus.texts={names}"
        )
    shown = len(recipe.view)
    if shown > 1 and shown != views:
        right = f"1, for all, or {views}, one a view" if views > 1 else "at most 1"
        raise RecipeError(f'view has {shown} entries; with pairs.kind "{kind}" it should have {right}')
    for number, term in enumerate(recipe.terms):
        _check_ahead(recipe, kind, views, number)
        if term.candidates is None:
            continue
        if term.candidates.kind == "own" and kind != "qa":
            raise RecipeError(
                f'terms.{number}.candidates.kind is "own", but of pairs.kind "{kind}" no text has wrong answers of its '
                'own; use pairs.kind = "qa", or candidates.kind = "batch"'
            )
        if term.candidates.kind == "other-view" and views < 2:
            raise RecipeError(
                f'terms.{number}.candidates.kind is "other-view", but pairs.kind "{kind}" has no second view; use '
                'pairs.kind = "single", "pairs" or "triples", or candidates.kind = "batch"'
            )
        if term.candidates.options.get("hard") and views < 3:
            raise RecipeError(f'terms.{number}.candidates.hard wants pairs.kind = "triples", not "{kind}"')


def _check_ahead(recipe: Recipe, kind: str, views: int, number: int) -> None:
    ahead, run = recipe.terms[number].ahead, min(recipe.batches.run, recipe.batches.rows)
    if ahead and views:
        raise RecipeError(f'terms.{number}.ahead wants runs of sentences, so pairs.kind = "neighbours", not "{kind}"')
    if ahead >= run:
        raise RecipeError(
            f"terms.{number}.ahead is {ahead}, but runs have at most {run} sentences (batches.run); should be below"
        )


def check_rows(rows: int, views: int) -> None:
    """
    A batch holds whole examples.

    Raises:
        RecipeError: it does not.
    """
    if rows % views:
        below = rows - rows % views
        near = f"{below} or {below + views}" if below else str(views)
        raise RecipeError(f"batches.rows is {rows}; should be a multiple of {views}, an example's rows, such as {near}")


def shard_rows(
    store: Store,
    examples: Examples,
    sentences: pl.DataFrame,
    tokens: pl.DataFrame,
    pairs: pl.DataFrame,
    held_out: pl.Series,
    entropy: tuple[int, int, int],
) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """
    A shard's examples, each of which is a run of its own; one with a text that repeats a held-out one is left out.

    Args:
        store: where the tokenizer lies.
        sentences, tokens, pairs: the shard's.
        held_out: groups of held-out texts.
        entropy: seed, epoch and number of the shard, on which alone augmentation depends.
    Returns:
        One row a view, in order: text, tokens, group, view and run; and how many training sentences stand in no
        example, or in one that is left out.
    """
    views, shard = examples.views, entropy[-1]
    member_EV = _members(pairs, len(sentences), views)
    secret_R = sentences["held_out"].to_numpy()
    repeats_R = sentences["group"].is_in(held_out.implode()).to_numpy()
    member_EV = member_EV[~secret_R[member_EV].any(axis=1)]
    keep_E = ~repeats_R[member_EV].any(axis=1)
    counts = {
        "repeats_of_held_out": len(np.unique(member_EV[~keep_E])),
        "in_no_example": int((~secret_R).sum()) - len(np.unique(member_EV)),
    }
    member_EV = member_EV[keep_E]
    row_B = member_EV.ravel()
    rows = pl.DataFrame(
        {
            "text": row_B.astype(np.uint64) + np.uint64(shard << 32),
            "tokens": _augmented(store, examples, tokens["tokens"], member_EV, entropy),
            "group": sentences["group"].gather(row_B),
            "view": np.tile(np.arange(views, dtype=np.uint8), len(member_EV)),
            "run": np.repeat(np.arange(len(member_EV), dtype=np.uint32), views),
        }
    )
    return rows, counts


def _members(pairs: pl.DataFrame, sentences: int, views: int) -> np.ndarray[Any, Any]:
    """Rows of each example's texts, [E, V]."""
    if views == 1:
        return np.arange(sentences)[:, None]
    return pairs.select(("anchor", "positive", "negative")[:views]).to_numpy().astype(np.int64)


def _augmented(
    store: Store, examples: Examples, tokens: pl.Series, member_EV: np.ndarray[Any, Any], entropy: tuple[int, int, int]
) -> pl.Series:
    """Tokens of the examples' rows; each view has a generator of its own."""
    if not examples.augment:
        return tokens.gather(member_EV.ravel())
    lexicon = _lexicon(store, examples.tokenizer) if examples.tokenizer else None
    columns = [
        bind(AUGMENTATIONS, choice)(
            tokens.gather(member_EV[:, view]), np.random.default_rng([*entropy, view + 1]), lexicon
        )
        for view, choice in enumerate(examples.augment)
    ]
    return pl.concat(columns).gather(np.arange(member_EV.size).reshape(member_EV.T.shape).T.ravel())


@lru_cache(maxsize=1)
def _lexicon(store: Store, name: str) -> Lexicon:
    return Lexicon.of(str(store.get(name)))


def answered(rows: pl.DataFrame, size: int, *, views: int) -> pl.DataFrame:
    """
    Rows in batches of `size`: an example's first two rows answer each other, its third is the first one's negative.

    Args:
        rows: whole examples; columns text, tokens, group, view.
        size: a multiple of `views`.
    Returns:
        Table `batches`.
    """
    first = pl.int_range(pl.len()) % size - pl.col("view")  # row number of the example's first row
    at = lambda number: pl.concat_list(number.cast(pl.UInt16))
    nothing = pl.lit([], BATCHES.columns["answers"].type)
    by_view = lambda *lists: pl.coalesce(
        *(pl.when(pl.col("view") == view).then(value) for view, value in enumerate(lists)), nothing
    )
    columns = {"answers": by_view(at(first + 1), at(first)) if views > 1 else nothing}
    if views > 2:
        columns["hard"] = by_view(at(first + 2))
    side = pl.when(pl.col("view") < 2).then(BOTH).otherwise(CANDIDATE).cast(pl.UInt8)
    return BATCHES.check(rows.with_columns(side=side, **columns).drop("run", strict=False))
