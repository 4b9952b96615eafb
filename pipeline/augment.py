"""
What is done to the tokens of a view, anew every epoch.

A part takes a column of tokens (without special ones), a generator and what it may know of the vocabulary, and returns
a column of as many rows. A row takes one number from the generator and makes all it needs of that, so what happens to
it depends on its place in the column and on no other row.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import Field

from models.recipe import Choice
from pipeline.lexicon import Lexicon
from pipeline.noise import noise
from pipeline.ragged import Flags, Keys, Ragged, Whole, even, keys, mixed, offsets, ranks, spread

MOST_REPEATS = 10  # bound of the released rule
SPECIAL = 2  # [CLS] and [SEP], which its length counts


def none(tokens: pl.Series, draw: np.random.Generator, lexicon: Lexicon | None) -> pl.Series:
    """The tokens as they are."""
    return tokens


def repeat(
    tokens: pl.Series,
    draw: np.random.Generator,
    lexicon: Lexicon | None,
    *,
    rate: Annotated[float, Field(ge=0, le=1)] = 0.32,
    rule: Literal["released", "paper"] = "released",
    unit: Literal["subword", "word"] = "subword",
) -> pl.Series:
    """
    Double some units of each row in place: k of them, drawn without replacement.

    With N units, `paper` draws k evenly from 0 .. max(2, int(rate N)), at most N. `released` draws from
    0 .. min(10, int(rate N)) - 1 and counts [CLS] and [SEP], which are never doubled, in an N of sub-words.

    Args:
        tokens: list[i32], vocabulary numbers of a row.
        draw: one number a row is taken.
        lexicon: for unit "word".
        rate: share of a row, 0 to 1.
        rule: the paper's, or that of the authors' code.
        unit: a token, or a token and those that go on with its word.
    Returns:
        The same rows, some longer.
    Source:
        Wu et al. 2022 (ESimCSE), section 3.1; the authors' code.
    """
    rows = Ragged.of(tokens)
    start_U, count_R = _units(rows, lexicon if unit == "word" else None)
    special = SPECIAL if rule == "released" and unit == "subword" else 0
    key_R = keys(draw, len(count_R))
    times_R = np.minimum(_times(key_R, count_R + special, rate, rule), count_R)
    chosen_U = ranks(key_R, count_R) < np.repeat(times_R, count_R)
    return _doubled(rows, start_U, count_R, chosen_U).series()


def paraphrase(
    tokens: pl.Series,
    draw: np.random.Generator,
    lexicon: Lexicon | None,
    row_R: Whole,
    others: pl.DataFrame,
    *,
    model: str,
    count: Annotated[int, Field(ge=1, le=255)] = 5,
    top_k: Annotated[int, Field(ge=0)] = 5,
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0,
    longest: Annotated[int, Field(ge=1)] = 32,
) -> pl.Series:
    """
    Each row in other words: one of those that a model wrote once (stage `augmented`); where it wrote none, as it is.

    Args:
        tokens, draw: as above.
        row_R: row of each text in its shard's sentences.
        others: the shard's table `augmented`.
        model: folder of a model that writes.
        count: how many are kept of each text, at most.
        top_k, top_p, longest: how they are drawn; see `models.decoding.Drawing`.
    Source:
        Su 2020 (SimBERT): similar texts that a model writes.
    """
    of_P = others["text"].to_numpy() & np.uint64(0xFFFFFFFF)
    first_R = np.searchsorted(of_P, row_R.astype(np.uint64))
    count_R = np.searchsorted(of_P, row_R.astype(np.uint64), side="right") - first_R
    which_R = (keys(draw, len(row_R)) % np.maximum(count_R, 1).astype(np.uint64)).astype(np.int64)
    own_R = len(others) + np.arange(len(row_R))
    return pl.concat([others["tokens"].rename("tokens"), tokens]).gather(
        np.where(count_R > 0, first_R + which_R, own_R)
    )


PARAPHRASE = "paraphrase"
AUGMENTATIONS: dict[str, Callable[..., pl.Series]] = {
    "none": none,
    "repeat": repeat,
    "noise": noise,
    PARAPHRASE: paraphrase,
}


def reads_words(choice: Choice) -> bool:
    """Whether a completed choice needs a lexicon."""
    return choice.kind == "noise" or choice.options.get("unit") == "word"


def _units(rows: Ragged, words: Lexicon | None) -> tuple[Whole, Whole]:
    """Where each unit starts, and how many a row has."""
    if words is None:
        return np.arange(len(rows.flat_T)), rows.lengths
    return rows.units(~words.continues_V[rows.flat_T])


def _times(key_R: Keys, length_R: Whole, rate: float, rule: str) -> Whole:
    """How many units to double."""
    share_R = (rate * length_R).astype(np.int64)
    most_R = np.maximum(2, share_R) if rule == "paper" else np.maximum(np.minimum(MOST_REPEATS, share_R) - 1, 0)
    return (even(mixed(key_R)) * (most_R + 1)).astype(np.int64)


def _doubled(rows: Ragged, start_U: Whole, count_R: Whole, chosen_U: Flags) -> Ragged:
    """Each row with its chosen units twice."""
    length_U = np.diff(np.append(start_U, len(rows.flat_T)))
    more_U = np.concatenate([[0], np.cumsum(chosen_U * length_U)])
    more_R = more_U[offsets(count_R)]  # tokens that came before a row's end
    unit_C = np.repeat(np.arange(len(start_U)), 1 + chosen_U)
    place_C = unit_C if len(start_U) == len(rows.flat_T) else spread(start_U[unit_C], length_U[unit_C])
    return Ragged(rows.flat_T[place_C], rows.offset_R + more_R)
