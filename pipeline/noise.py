"""
The noises of denoising models, on the tokens of a row: words hidden, left out, put into another order.

Each noise is two functions: one that draws what it happens to, and one that makes it so. A mask word that one noise has
put there is special to the next: it is neither hidden nor left out again, but moves with the words around it. Other
special words never change, and stand where they stood among the words.
"""

from typing import Annotated, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline.lexicon import Lexicon
from pipeline.ragged import (
    Flags,
    Keys,
    Ragged,
    Whole,
    even,
    keys,
    members,
    numbered,
    offsets,
    part,
    ranks,
    spread,
    within,
)

KEPT, HIDDEN, CHANGED = 0, 1, 2  # fates of a word
SHARE_HIDDEN, SHARE_KEPT = 0.8, 0.1  # of the chosen words; the rest are changed
ROUNDING = 1e-9  # so that .07 of 100 is 7 and not 8

Rate = Annotated[float, Field(ge=0, le=1)]


def noise(
    tokens: pl.Series,
    draw: np.random.Generator,
    lexicon: Lexicon | None,
    *,
    chance: Rate = 0.5,
    whole_words: Rate = 0.15,
    masking: Rate = 0.0,
    deletion: Rate = 0.0,
    infilling: Rate = 0.0,
    mean_span: Annotated[float, Field(ge=0.5)] = 3.0,
    permutation: Rate = 0.0,
    rotation: Rate = 0.0,
) -> pl.Series:
    """
    Some rows with some of their words hidden, left out or moved; each noise is off at a rate of 0.

    In this order: sentences permuted, spans filled in, words hidden whole, tokens hidden, tokens left out, the row
    rotated. A rate of tokens is a budget of ceil(rate n) of the row's n words as the noise finds them, exactly.

    Args:
        tokens: list[i32], vocabulary numbers of a row.
        draw: one number a row is taken.
        lexicon: special words, words that go on, full stops, the mask word.
        chance: share of rows that have any noise, 0 to 1.
        whole_words: chance of a word to be chosen: of chosen ones 80 % are hidden, 10 % stay, and in 10 % each token
            becomes any other; all tokens of a word share its fate.
        masking: share of tokens hidden, each by itself.
        deletion: share of tokens left out; one at least stays.
        infilling: share of tokens hidden in spans; one mask word stands for a span, whose length may be 0.
        mean_span: mean length of a span, tokens; lengths are drawn by Poisson, the last is cut to the budget.
        permutation: chance of a row to have its sentences, which end behind full stops, put into another order.
        rotation: chance of a row to begin at any of its tokens, what stood before it following the end.
    Returns:
        As many rows.
    Source:
        Lewis et al. 2020 (BART), section 2.2, budgets and spans as in the authors' code; `whole_words`: Su 2021
        (RoFormer-Sim), the authors' code, after Devlin et al. 2019, section 3.1.
    """
    assert lexicon is not None
    key_R = keys(draw, len(tokens))
    at_N = np.flatnonzero(even(part(key_R, 0)) < chance)
    rows, key_N = Ragged.of(tokens.gather(at_N)), key_R[at_N]
    if permutation:
        rows = permuted(rows, lexicon, sentence_order(rows, lexicon, part(key_N, 1), permutation))
    if infilling:
        rows = infilled(rows, lexicon, *spans(rows, lexicon, part(key_N, 2), infilling, mean_span))
    if whole_words:
        rows = reworded(rows, lexicon, *fates(rows, lexicon, part(key_N, 3), whole_words))
    if masking:
        rows = masked(rows, lexicon, chosen(rows, lexicon, part(key_N, 4), masking))
    if deletion:
        rows = rows.only(~chosen(rows, lexicon, part(key_N, 5), deletion, leave=1))
    if rotation:
        rows = rotated(rows, lexicon, starts(rows, lexicon, part(key_N, 6), rotation))
    place_R = np.arange(len(tokens))
    place_R[at_N] = len(tokens) + np.arange(len(at_N))
    return pl.concat([tokens, rows.series().alias(tokens.name)]).gather(place_R)


def wants_mask(options: dict[str, float]) -> bool:
    """Whether a noise of these rates hides words."""
    return any(options[name] for name in ("whole_words", "masking", "infilling"))


def budget(rate: float, count_R: Whole) -> Whole:
    """Tokens that a noise of a rate falls on, of rows of so many: ceil(rate n)."""
    return np.ceil(rate * count_R - ROUNDING).astype(np.int64)


def chosen(rows: Ragged, lexicon: Lexicon, key_R: Keys, rate: float, leave: int = 0) -> Flags:
    """Tokens that a noise falls on: as many words as its budget is, drawn without replacement; `leave` tokens stay."""
    word_T = ~lexicon.special_V[rows.flat_T]
    count_R = rows.counted(word_T)
    most_R = np.minimum(budget(rate, count_R), np.maximum(rows.lengths - leave, 0))
    chosen_T = np.zeros(len(word_T), dtype=np.bool_)
    chosen_T[word_T] = ranks(key_R, count_R) < np.repeat(most_R, count_R)
    return chosen_T


def masked(rows: Ragged, lexicon: Lexicon, chosen_T: Flags) -> Ragged:
    """Rows with chosen tokens hidden."""
    return rows.put(chosen_T, np.full(int(chosen_T.sum()), lexicon.mask, dtype=np.int32))


def fates(rows: Ragged, lexicon: Lexicon, key_R: Keys, rate: float) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """What becomes of each token, the same for all of a word, and the word that it is changed to if it is."""
    special_T = lexicon.special_V[rows.flat_T]
    behind_T = np.concatenate([[False], special_T[:-1]])
    start_U, count_R = rows.units(special_T | behind_T | ~lexicon.continues_V[rows.flat_T])
    is_chosen_U = even(members(part(key_R, 0), count_R)) < rate
    kind_U = even(members(part(key_R, 1), count_R))
    fate_U = np.where(kind_U < SHARE_HIDDEN, HIDDEN, np.where(kind_U < SHARE_HIDDEN + SHARE_KEPT, KEPT, CHANGED))
    fate_U = np.where(is_chosen_U, fate_U, KEPT).astype(np.int8)
    fate_T = np.repeat(fate_U, np.diff(np.append(start_U, len(rows.flat_T))))
    other_T = (even(members(part(key_R, 2), rows.lengths)) * len(lexicon.word_W)).astype(np.int64)
    return np.where(special_T, KEPT, fate_T).astype(np.int8), lexicon.word_W[other_T].astype(np.int32)


def reworded(rows: Ragged, lexicon: Lexicon, fate_T: NDArray[np.int8], other_T: NDArray[np.int32]) -> Ragged:
    """Rows with each token hidden, kept or changed to another."""
    flat_T = np.where(fate_T == HIDDEN, np.int32(lexicon.mask), rows.flat_T)
    return Ragged(np.where(fate_T == CHANGED, other_T, flat_T), rows.offset_R)


def spans(rows: Ragged, lexicon: Lexicon, key_R: Keys, rate: float, mean: float) -> tuple[Whole, Whole, Whole]:
    """
    Row, start and length of each span that a mask word will stand for, in order; they hold the budget exactly.

    Lengths are drawn until the budget is met. Spans and the words that none of them holds then stand in an order that
    is drawn evenly, so that starts are all different; two spans may touch, and are two.

    Returns:
        Starts count the words of their row, special ones left out; a span of length 0 stands before its start.
    """
    count_R = rows.counted(~lexicon.special_V[rows.flat_T])
    budget_R = budget(rate, count_R)
    row_S, length_S = span_lengths(part(key_R, 0), budget_R, mean)
    spans_R = np.bincount(row_S, minlength=len(count_R)).astype(np.int64)
    unit_R = spans_R + count_R - budget_R
    rank_U = ranks(part(key_R, 1), unit_R)
    is_span_U = rank_U < np.repeat(spans_R, unit_R)
    length_U = np.ones(len(rank_U), dtype=np.int64)  # a word that no span holds
    first_S = np.repeat(np.cumsum(spans_R) - spans_R, unit_R)
    length_U[is_span_U] = length_S[(first_S + rank_U)[is_span_U]]
    start_U = np.cumsum(length_U) - length_U - np.repeat(np.cumsum(count_R) - count_R, unit_R)
    return np.repeat(np.arange(len(count_R)), spans_R), start_U[is_span_U], length_U[is_span_U]


def span_lengths(key_R: Keys, budget_R: Whole, mean: float) -> tuple[Whole, Whole]:
    """Row and length of spans, drawn by Poisson for each row until they hold its budget, the last cut to fit."""
    drawn_R, left_R = np.zeros_like(budget_R), budget_R.copy()
    found: list[tuple[Whole, Whole, Whole]] = []
    while (short_R := np.flatnonzero(left_R)).size:
        times_R = (left_R[short_R] / mean).astype(np.int64) + 2
        row_S, number_S = np.repeat(short_R, times_R), within(times_R) + np.repeat(drawn_R[short_R], times_R)
        length_S = poisson(even(numbered(key_R[row_S], number_S)), mean)
        upto_S = np.cumsum(length_S)
        first_S = np.repeat(offsets(times_R)[:-1], times_R)
        before_S = upto_S - length_S - (upto_S - length_S)[first_S]
        left_S = left_R[row_S] - before_S
        used_S = left_S > 0
        length_S = np.minimum(length_S, left_S)[used_S]
        found.append((row_S[used_S], number_S[used_S], length_S))
        drawn_R[short_R] += times_R
        left_R -= np.bincount(row_S[used_S], length_S, minlength=len(left_R)).astype(np.int64)
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    row_S, number_S, length_S = (np.concatenate(column) for column in zip(*found, strict=True))
    order_S = np.lexsort((number_S, row_S))
    return row_S[order_S], length_S[order_S]


def poisson(even_M: NDArray[np.float64], mean: float) -> Whole:
    """Whole numbers by Poisson's law, each from an even share: how many of P(0), P(0) + P(1), ... it has passed."""
    most = int(mean + 12 * np.sqrt(mean) + 40)  # beyond lies less than 1e-16
    step = np.log(mean) - np.log(np.arange(1, most))
    below = np.cumsum(np.exp(np.concatenate([[-mean], -mean + np.cumsum(step)])))
    return np.searchsorted(below, even_M, side="right").astype(np.int64)


def infilled(rows: Ragged, lexicon: Lexicon, row_S: Whole, start_S: Whole, length_S: Whole) -> Ragged:
    """
    Rows with one mask word for each span; special words within a span stay behind it.

    Args:
        row_S, start_S, length_S: in order, as `spans` gives them.
    """
    word_T = ~lexicon.special_V[rows.flat_T]
    place_W = np.flatnonzero(word_T)
    first_R = offsets(rows.counted(word_T))
    start_W = first_R[row_S] + start_S
    kept_T = np.ones(len(rows.flat_T), dtype=np.bool_)
    kept_T[place_W[spread(start_W, length_S)]] = False
    # A span of length 0 at a row's end stands behind the row's last word: the next number may be another row's.
    is_end_S = start_W == first_R[row_S + 1]
    at_S = place_W[start_W - is_end_S] + is_end_S
    before_T = np.concatenate([[0], np.cumsum(kept_T)])
    flat = np.insert(rows.flat_T[kept_T], before_T[at_S], np.int32(lexicon.mask))
    spans_R = np.bincount(row_S, minlength=len(rows.lengths)).astype(np.int64)
    return Ragged(flat, offsets(rows.counted(kept_T) + spans_R))


def _moving(rows: Ragged, lexicon: Lexicon) -> Flags:
    """Tokens that change their places: words and mask words."""
    return ~lexicon.special_V[rows.flat_T] | (rows.flat_T == lexicon.mask)


def _sentences(rows: Ragged, lexicon: Lexicon) -> tuple[Whole, Whole]:
    """Where sentences start, and how many a row has; several full stops are one, and a rest without one is one too."""
    stop_T = lexicon.stops_V[rows.flat_T]
    return rows.units(np.concatenate([[False], stop_T[:-1]]) & ~stop_T)


def sentence_order(rows: Ragged, lexicon: Lexicon, key_R: Keys, chance: float) -> Whole:
    """For each sentence its new place in its row, from 0."""
    _, count_R = _sentences(rows.only(_moving(rows, lexicon)), lexicon)
    is_moved_U = np.repeat(even(part(key_R, 0)) < chance, count_R)
    return np.where(is_moved_U, ranks(part(key_R, 1), count_R), within(count_R))


def permuted(rows: Ragged, lexicon: Lexicon, rank_U: Whole) -> Ragged:
    """Rows with their sentences in another order, each in its place `rank_U`."""
    moving_T = _moving(rows, lexicon)
    words = rows.only(moving_T)
    start_U, count_R = _sentences(words, lexicon)
    length_U = np.diff(np.append(start_U, len(words.flat_T)))
    order_U = np.empty(len(rank_U), dtype=np.int64)
    order_U[np.repeat(np.cumsum(count_R) - count_R, count_R) + rank_U] = np.arange(len(rank_U))
    return rows.put(moving_T, words.flat_T[spread(start_U[order_U], length_U[order_U])])


def starts(rows: Ragged, lexicon: Lexicon, key_R: Keys, chance: float) -> Whole:
    """For each row the number of the token that it will begin with, drawn evenly; 0 leaves it as it is."""
    count_R = rows.counted(_moving(rows, lexicon))
    start_R = (even(part(key_R, 1)) * count_R).astype(np.int64)
    return cast(Whole, np.where(even(part(key_R, 0)) < chance, start_R, 0))


def rotated(rows: Ragged, lexicon: Lexicon, start_R: Whole) -> Ragged:
    """Rows that begin with their token `start_R`; what stood before it follows the end."""
    moving_T = _moving(rows, lexicon)
    words = rows.only(moving_T)
    count_R = words.lengths
    turned_M = (within(count_R) + np.repeat(start_R, count_R)) % np.repeat(count_R, count_R)
    return rows.put(moving_T, words.flat_T[np.repeat(words.offset_R[:-1], count_R) + turned_M])
