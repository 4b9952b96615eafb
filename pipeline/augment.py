"""
What is done to the tokens of a view, anew every epoch.

A part takes a column of tokens (without special ones), a generator and what it may know of the vocabulary, and returns
a column of as many rows. A row takes one number from the generator and makes all it needs of that, so what happens to
it depends on its place in the column and on no other row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from tokenizers import Tokenizer

from models.pieces import going_on
from models.recipe import Choice

MOST_REPEATS = 10  # bound of the released rule
SPECIAL = 2  # [CLS] and [SEP], which its length counts

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lexicon:
    """What parts may know of the vocabulary: for each entry whether it goes on with the word before it."""

    continues_V: NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: str) -> "Lexicon":
        """From a tokenizer's JSON; where no prefix marks what goes on, every entry is a word."""
        opened = Tokenizer.from_str(tokenizer)
        continues_V = np.zeros(1 + max(opened.get_vocab().values()), dtype=np.bool_)
        continues_V[going_on(opened)] = True
        return cls(continues_V)


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
    flat_T, offset_R = _flat(tokens)
    start_U, count_R = _units(flat_T, offset_R, lexicon if unit == "word" else None)
    special = SPECIAL if rule == "released" and unit == "subword" else 0
    key_R = draw.integers(0, 1 << 64, size=len(count_R), dtype=np.uint64)
    times_R = np.minimum(_times(key_R, count_R + special, rate, rule), count_R)
    chosen_U = _chosen(key_R, count_R, times_R)
    return _doubled(flat_T, offset_R, start_U, count_R, chosen_U)


AUGMENTATIONS: dict[str, Callable[..., pl.Series]] = {"none": none, "repeat": repeat}


def reads_words(choice: Choice) -> bool:
    """Whether a completed choice needs a lexicon."""
    return choice.options.get("unit") == "word"


def _flat(tokens: pl.Series) -> tuple[NDArray[np.int32], Whole]:
    """All tokens one behind the other, and where each row starts and the last one ends."""
    offset_R = np.concatenate([[0], np.cumsum(tokens.list.len().to_numpy(), dtype=np.int64)])
    return tokens.explode(empty_as_null=False).to_numpy(), offset_R


def _units(flat_T: NDArray[np.int32], offset_R: Whole, words: Lexicon | None) -> tuple[Whole, Whole]:
    """Where each unit starts, and how many a row has."""
    if words is None:
        return np.arange(len(flat_T)), np.diff(offset_R)
    first_T = ~words.continues_V[flat_T]
    first_T[offset_R[:-1][np.diff(offset_R) > 0]] = True
    start_U = np.flatnonzero(first_T)
    return start_U, np.diff(np.searchsorted(start_U, offset_R))


def _times(key_R: NDArray[np.uint64], length_R: Whole, rate: float, rule: str) -> Whole:
    """How many units to double."""
    share_R = (rate * length_R).astype(np.int64)
    most_R = np.maximum(2, share_R) if rule == "paper" else np.maximum(np.minimum(MOST_REPEATS, share_R) - 1, 0)
    even_R = (_mixed(key_R) >> np.uint64(11)) * 2.0**-53  # in [0, 1)
    return (even_R * (most_R + 1)).astype(np.int64)


def _chosen(key_R: NDArray[np.uint64], count_R: Whole, times_R: Whole) -> NDArray[np.bool_]:
    """Which units are doubled: those of a row whose own numbers are the smallest."""
    start_R = np.cumsum(count_R) - count_R
    row_U = np.repeat(np.arange(len(count_R), dtype=np.uint64), count_R)
    place_U = np.arange(len(row_U)) - np.repeat(start_R, count_R)
    step_U = (place_U + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    even_U = _mixed(np.repeat(key_R, count_R) + step_U) >> np.uint64(32)
    order_U = np.argsort((row_U << np.uint64(32)) | even_U, kind="stable")
    chosen_U = np.empty(len(row_U), dtype=np.bool_)
    chosen_U[order_U] = place_U < np.repeat(times_R, count_R)  # sorting leaves each row where it is
    return chosen_U


def _mixed(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers without a trace of order: the finisher of SplitMix64 (Steele, Lea and Flood 2014)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def _doubled(
    flat_T: NDArray[np.int32], offset_R: Whole, start_U: Whole, count_R: Whole, chosen_U: NDArray[np.bool_]
) -> pl.Series:
    """Each row with its chosen units twice."""
    length_U = np.diff(np.append(start_U, len(flat_T)))
    more_U = np.concatenate([[0], np.cumsum(chosen_U * length_U)])
    more_R = more_U[np.concatenate([[0], np.cumsum(count_R)])]  # tokens that came before a row's end
    unit_C = np.repeat(np.arange(len(start_U)), 1 + chosen_U)
    if len(start_U) == len(flat_T):
        values = flat_T[unit_C]
    else:
        length_C = length_U[unit_C]
        shift_C = start_U[unit_C] - (np.cumsum(length_C) - length_C)
        values = flat_T[np.arange(length_C.sum()) + np.repeat(shift_C, length_C)]
    rows: Any = pa.LargeListArray.from_arrays(offset_R + more_R, values)
    return pl.Series("tokens", rows, dtype=pl.List(pl.Int32))
