"""Examples: rows that stand together in a batch, such as the two views of a sentence or a text and its paraphrase."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from models.parts import bind, complete
from models.recipe import Choice, Recipe, RecipeError
from pipeline import groups, targets
from pipeline.augment import AUGMENTATIONS, PARAPHRASE, reads_words
from pipeline.lexicon import MASKS, Lexicon
from pipeline.merged import among
from pipeline.mined import beside, having
from pipeline.noise import wants_mask
from pipeline.pairs import PAIRINGS, VIEWS
from pipeline.store import Store
from pipeline.tables import BATCHES, BOTH, CANDIDATE, FILLER

DIFFERING = ("pairs", "groups")  # kinds of pairs whose two texts do not say the same
DRAWS_GROUPS = 1 << 16  # not 0, which ends a seed without a trace, and above any view


@dataclass(frozen=True)
class Examples:
    """
    How examples become rows.

    Args:
        views: rows of an example.
        augment: a completed choice for each view; empty: tokens stay as they are.
        tokenizer: name of the tokenizer in the store; empty where no augmentation reads it.
        most: wrong answers of a question at most, which make examples of unlike sizes.
        kind: `pairs` or `groups`, whose two texts have to differ; empty: any other.
        room: most tokens of a row and what it is to generate; 0: nothing is generated.
        bare: whether examples are questions without wrong answers of their own.
        mined: hard negatives that are mined for an anchor at most; 0: nobody mines.
        whole: an example with fewer of them is left out.
    """

    views: int
    augment: tuple[Choice, ...] = ()
    tokenizer: str = ""
    most: int = 0
    kind: str = ""
    room: int = 0
    bare: bool = False
    mined: int = 0
    whole: bool = False

    @property
    def asks(self) -> bool:
        """Whether examples are questions with their answers."""
        return self.bare or self.most > 0

    @property
    def size(self) -> int:
        """Rows of an example that has all its hard negatives; of questions there is no one size."""
        return self.views + self.mined

    def record(self) -> dict[str, Any]:
        """For keys: all that decides rows."""
        whole = [choice.model_dump() for choice in self.augment]
        choices = [
            {k: v for k, v in one.items() if k != "model"} for one in whole
        ]  # what it wrote has a key of its own
        names = ("most", "kind", "room", "bare", "mined", "whole")
        asked = {name: value for name in names if (value := getattr(self, name))}
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
    if given not in (0, 1, views) or (given and not views):
        remedy = f"should be 1, for all, or {views}, one a view, or left out" if views else "leave it out"
        raise RecipeError(f'augment has {given} entries; an example of pairs.kind "{kind}" has {views} views: {remedy}')
    _check_words(recipe, choices)
    if views == 0:
        return None
    choices = choices * views if given == 1 else choices
    augmented = () if all(choice.kind == "none" for choice in choices) else choices
    if kind == "qa":
        if augmented:
            raise RecipeError('augment is for examples of a fixed size, not for pairs.kind "qa"; leave it out')
        most = pairs.options["most"]
        return Examples(views, most=most, bare=not most, **_mined(recipe))
    made_of = Examples(views, augmented, kind=kind if kind in DIFFERING else "", **_mined(recipe))
    check_rows(recipe.batches.rows, made_of.size)
    return made_of


def _mined(recipe: Recipe) -> dict[str, Any]:
    """What examples have to know of mined negatives."""
    rules = recipe.negatives
    return {"mined": rules.count, "whole": rules.short == "drop"} if rules else {}


def completed(recipe: Recipe, tokenizer: Callable[[], tuple[str, str]]) -> Examples | None:
    """
    The same, ready to become rows.

    Args:
        tokenizer: gives the tokenizer's name in the store, and its JSON; called where an augmentation reads it.
    Raises:
        RecipeError: as `planned`; the vocabulary has no word to hide others behind; an encoder's folder is not there.
    """
    made_of = planned(recipe)
    if made_of is None:
        return None
    if made_of.reads_words:
        name, text = tokenizer()
        _check_mask(made_of.augment, Lexicon.of(text).mask >= 0, f'"{recipe.tokenizer.path or recipe.tokenizer.kind}"')
        made_of = replace(made_of, tokenizer=name)
    return replace(made_of, room=targets.room(recipe)) if recipe.generates else made_of


def _check_words(recipe: Recipe, choices: Sequence[Choice]) -> None:
    """Vocabularies of words alone are known before they are made."""
    _check_mask(choices, recipe.tokenizer.kind not in ("word-level", "table"), f'kind "{recipe.tokenizer.kind}"')


def _check_mask(choices: Sequence[Choice], has_mask: bool, which: str) -> None:
    hiding = [n for n, choice in enumerate(choices) if choice.kind == "noise" and wants_mask(choice.options)]
    if hiding and not has_mask:
        raise RecipeError(
            f"augment.{hiding[0]} hides words, but the tokenizer, {which}, has no {' or '.join(MASKS)}; use one that "
            "has, as tokenizer.kind=wordpiece makes it, or set whole_words, masking and infilling to 0"
        )


def _check_views(recipe: Recipe, kind: str, views: int) -> None:
    texts = recipe.corpus.example_texts
    if (kind == "qa") != recipe.corpus.asks:
        given = f'corpus.labels is "{recipe.corpus.labels}"'
        remedy = 'pairs.kind = "qa"' if recipe.corpus.asks else 'corpus.labels = "right" and corpus.label'
        raise RecipeError(f'pairs.kind is "{kind}", {given}: questions and answers need both; set {remedy}')
    if kind in ("pairs", "triples") and texts != views:
        if recipe.corpus.grouped:
            raise RecipeError(
                f'pairs.kind "{kind}" wants {views} texts a row; corpus.texts names one column, of groups: set '
                'pairs.kind = "groups"'
            )
        names = ["anchor", "positive", "negative"][:views]
        raise RecipeError(
            f'pairs.kind "{kind}" wants {views} texts a row; corpus.texts and corpus.label give '
            f"{texts or 'running text'}: name {views} columns, as in corpus.texts={names}"
        )
    if kind == "groups" and (texts or recipe.corpus.asks):
        raise RecipeError(
            f'pairs.kind "groups" wants one text a row; corpus.texts names {len(recipe.corpus.texts)} columns: name '
            "one, and that of the group in corpus.document"
        )
    shown = len(recipe.view)
    if shown > 1 and shown != views:
        right = f"1, for all, or {views}, one a view" if views > 1 else "at most 1"
        raise RecipeError(f'view has {shown} entries; with pairs.kind "{kind}" it should have {right}')
    if recipe.generates and (views < 2 or kind == "qa"):
        raise RecipeError(
            f'a term generates a row\'s answer, of which pairs.kind "{kind}" has not one; use pairs.kind = "pairs", '
            '"groups", "single" or "triples"'
        )
    for number, term in enumerate(recipe.terms):
        _check_ahead(recipe, kind, views, number)
        if term.candidates is None:
            continue
        if term.candidates.kind == "own" and kind != "qa" and not recipe.negatives:
            raise RecipeError(
                f'terms.{number}.candidates.kind is "own", but of pairs.kind "{kind}" no text has wrong answers of its '
                'own; use pairs.kind = "qa", candidates.kind = "batch", or mine them with [negatives]'
            )
        if term.candidates.kind == "other-view" and views < 2:
            raise RecipeError(
                f'terms.{number}.candidates.kind is "other-view", but pairs.kind "{kind}" has no second view; use '
                'pairs.kind = "single", "pairs" or "triples", or candidates.kind = "batch"'
            )
        if term.candidates.options.get("hard") and views < 3 and not recipe.negatives:
            raise RecipeError(
                f'terms.{number}.candidates.hard wants pairs.kind = "triples", not "{kind}", or mined [negatives]'
            )
    reads = [t.candidates for t in recipe.terms if t.candidates and t.candidates.kind in ("batch", "own", "other-view")]
    if recipe.negatives and not any(one.kind != "other-view" or one.options.get("hard") for one in reads):
        raise RecipeError(
            "negatives are mined, but no term has them among its candidates; give one candidates.hard = true, or "
            'candidates.kind = "batch" or "own"'
        )


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
    kin: pl.DataFrame | None = None,
    others: pl.DataFrame | None = None,
    mined: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """
    A shard's examples, each of which is a run of its own; one with a text that repeats a held-out one is left out.

    So is a pair whose two texts say the same. Of a group only the member that repeats a held-out text is.

    Args:
        store: where the tokenizer lies.
        sentences, tokens, pairs: the shard's.
        held_out: groups of held-out texts.
        entropy: seed, epoch and number of the shard, on which alone augmentation and what is drawn of groups depend.
        kin: table `kin`, where documents are groups.
        others: table `augmented`, where an augmentation reads it.
        mined: the anchors' mined negatives, as `mined.rows` gives them; they stand behind an example's views.
    Returns:
        One row a view, in order: text, tokens, group, view and run, perhaps target, found and is_filler; and how many
        training sentences stand in no example, or in one that is left out; how many pairs, groups and targets were left
        out or cut.
    """
    views, shard = examples.views, entropy[-1]
    member_EV, counts = _members(examples, sentences, pairs, held_out, entropy)
    if mined is not None and examples.whole:
        member_EV, counts["negatives_too_few"] = having(member_EV, mined, examples.mined)
    row_B = member_EV.ravel()
    made = _augmented(store, examples, tokens["tokens"], member_EV, entropy, others)
    more: dict[str, pl.Series] = {}
    if examples.room:
        told = tokens["tokens"].gather(member_EV[:, [1, 0]].ravel())
        more["target"], counts["targets_cut"] = _targets(made, told, views, examples.room)
    group = sentences["group"] if kin is None else groups.numbers(sentences, kin)
    rows = pl.DataFrame(
        {
            "text": row_B.astype(np.uint64) + np.uint64(shard << 32),
            "tokens": made,
            "group": group.gather(row_B),
            "view": np.tile(np.arange(views, dtype=np.uint8), len(member_EV)),
            "run": np.repeat(np.arange(len(member_EV), dtype=np.uint32), views),
            **more,
        }
    )
    if mined is None:
        return rows, counts
    rows, counts["negatives_missing"] = beside(rows, member_EV[:, 0], mined, views, examples.mined)
    return rows, counts


def _members(
    examples: Examples, sentences: pl.DataFrame, pairs: pl.DataFrame, held_out: pl.Series, entropy: tuple[int, int, int]
) -> tuple[np.ndarray[Any, Any], dict[str, int]]:
    """Rows of each training example's texts, [E, V], and why others are left out."""
    secret_R = sentences["held_out"].to_numpy()
    repeats_R = among(sentences["group"], held_out).to_numpy()
    if examples.kind == "groups":
        draw = np.random.default_rng([*entropy, DRAWS_GROUPS])
        barred = {"repeats_of_held_out": int((repeats_R & ~secret_R).sum())}
        return groups.drawn(pairs, secret_R | repeats_R, draw), barred | groups.counts(sentences, pairs)
    member_EV = _listed(pairs, len(sentences), examples.views)
    member_EV = member_EV[~secret_R[member_EV].any(axis=1)]
    keep_E = ~repeats_R[member_EV].any(axis=1)
    counts = {
        "repeats_of_held_out": len(np.unique(member_EV[~keep_E])),
        "in_no_example": int((~secret_R).sum()) - len(np.unique(member_EV)),
    }
    if examples.kind == "pairs":
        group_EV = sentences["group"].to_numpy()[member_EV]
        equal_E = group_EV[:, 0] == group_EV[:, 1]
        counts["equal_pairs"] = int((equal_E & keep_E).sum())
        keep_E &= ~equal_E
    return member_EV[keep_E], counts


def _listed(pairs: pl.DataFrame, sentences: int, views: int) -> np.ndarray[Any, Any]:
    """Rows of each example's texts, [E, V]."""
    if views == 1:
        return np.arange(sentences)[:, None]
    return pairs.select(("anchor", "positive", "negative")[:views]).to_numpy().astype(np.int64)


def _targets(made: pl.Series, told: pl.Series, views: int, room: int) -> tuple[pl.Series, int]:
    """What each row generates: the first two rows of an example each other's text, a third one nothing."""
    at_B = np.flatnonzero(np.arange(len(made)) % views < 2)
    held, times = targets.cut(made.gather(at_B), told, room)
    place_B = np.full(len(made), len(held))
    place_B[at_B] = np.arange(len(held))
    nothing = pl.Series("target", [[]], dtype=held.dtype)
    return pl.concat([held.alias("target"), nothing]).gather(place_B), times


def _augmented(
    store: Store,
    examples: Examples,
    tokens: pl.Series,
    member_EV: np.ndarray[Any, Any],
    entropy: tuple[int, int, int],
    others: pl.DataFrame | None,
) -> pl.Series:
    """Tokens of the examples' rows; each view has a generator of its own."""
    if not examples.augment:
        return tokens.gather(member_EV.ravel())
    lexicon = _lexicon(store, examples.tokenizer) if examples.tokenizer else None
    columns = [
        bind(AUGMENTATIONS, choice)(
            tokens.gather(member_EV[:, view]),
            np.random.default_rng([*entropy, view + 1]),
            lexicon,
            *((member_EV[:, view], others) if choice.kind == PARAPHRASE else ()),
        )
        for view, choice in enumerate(examples.augment)
    ]
    return pl.concat(columns).gather(np.arange(member_EV.size).reshape(member_EV.T.shape).T.ravel())


@lru_cache(maxsize=1)
def _lexicon(store: Store, name: str) -> Lexicon:
    return Lexicon.of(str(store.get(name)))


def answered(rows: pl.DataFrame, size: int, *, views: int, mined: bool = False) -> pl.DataFrame:
    """
    Rows in batches of `size`: an example's first two rows answer each other, its third is the first one's negative.

    Args:
        rows: whole examples; columns text, tokens, group, view.
        size: a multiple of an example's rows.
        mined: whether mined negatives follow; these are the first row's too, as many as `found` says.
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
    if mined:
        own = pl.int_ranges(first + 2, first + views + pl.col("found"), dtype=pl.UInt16)
        columns["hard"] = pl.when(pl.col("view") == 0).then(own).otherwise(nothing)
    elif views > 2:
        columns["hard"] = by_view(at(first + 2))
    side = pl.when(pl.col("view") < 2).then(BOTH).otherwise(CANDIDATE)
    side = (pl.when("is_filler").then(FILLER).otherwise(side) if mined else side).cast(pl.UInt8)
    return BATCHES.check(rows.with_columns(side=side, **columns).drop("run", "found", "is_filler", strict=False))
