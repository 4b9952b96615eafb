from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers import Tokenizer, models, pre_tokenizers

from models.parts import complete
from models.recipe import Choice, RecipeError
from pipeline import noise as noises
from pipeline.augment import AUGMENTATIONS, reads_words
from pipeline.lexicon import Lexicon
from pipeline.noise import CHANGED, HIDDEN, KEPT, noise
from pipeline.ragged import Ragged, even, keys

FIRST, LAST, MASK, STOP, UNKNOWN = 0, 1, 2, 3, 4
LETTERS = {name: 10 + at for at, name in enumerate("abcdefgh")} | {".": STOP, "M": MASK, "[": FIRST, "]": LAST}
NAMES = {number: name for name, number in LETTERS.items()}
SIZE, ONGOING = 300, 200  # entries from 200 on go on with the word before
PLACES = np.arange(SIZE)
LEXICON = Lexicon(
    continues_V=PLACES >= ONGOING,
    special_V=PLACES <= MASK,
    stops_V=PLACES == STOP,
    word_W=np.arange(STOP, SIZE)[np.arange(STOP, SIZE) != UNKNOWN],
    mask=MASK,
)
OFF = dict.fromkeys(["whole_words", "masking", "deletion", "infilling", "permutation", "rotation"], 0.0)
RATES = ["whole_words", "masking", "deletion", "infilling", "permutation", "rotation"]
ROWS = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=12), max_size=6)


def ragged(*rows: list[int]) -> Ragged:
    return Ragged.of(pl.Series("tokens", rows, dtype=pl.List(pl.Int32)))


def written(*texts: str) -> Ragged:
    return ragged(*([LETTERS[name] for name in text.split()] for text in texts))


def read(rows: Ragged) -> list[str]:
    return [" ".join(NAMES[number] for number in row) for row in rows.series().to_list()]


def flags(rows: Ragged, *places: int) -> np.ndarray:
    return np.isin(np.arange(len(rows.flat_T)), places)


def noised(rows: list[list[int]], seed: int = 0, **rates) -> list[list[int]]:
    column = pl.Series("tokens", rows, dtype=pl.List(pl.Int32))
    options = {"chance": 1.0, **OFF, **rates}
    return noise(column, np.random.default_rng(seed), LEXICON, **options).to_list()


def words(count: int, first: int = 10) -> list[int]:
    return list(range(first, first + count))


# Each noise in given places


def test_masked_places_hold_the_mask_word_and_the_length_stays():
    rows = written("a b c d e f g h")
    assert read(noises.masked(rows, LEXICON, flags(rows, 1, 4))) == ["a M c d M f g h"]


def test_deleted_places_are_gone():
    rows = written("a b c d e f g h")
    assert read(rows.only(~flags(rows, 1, 4))) == ["a c d f g h"]


def filled(rows: Ragged, *spans: tuple[int, int, int]) -> list[str]:
    row_S, start_S, length_S = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    return read(noises.infilled(rows, LEXICON, row_S, start_S, length_S))


def test_a_span_becomes_one_mask_word_and_one_of_length_0_is_put_in():
    assert filled(written("a b c d e f g h"), (0, 1, 3), (0, 5, 0)) == ["a M e M f g h"]


def test_spans_that_touch_are_two_and_others_may_stand_at_either_end():
    rows = written("a b", "c d e f", "g h")
    spans = [(0, 0, 0), (0, 2, 0), (1, 0, 1), (1, 1, 3), (2, 2, 0)]
    assert filled(rows, *spans) == ["M a b M", "M M", "g h M"]


def test_special_words_around_and_in_a_span_stay():
    assert filled(written("[ a b ]"), (0, 0, 2)) == ["[ M ]"]
    assert filled(written("[ a b ]"), (0, 2, 0)) == ["[ a b M ]"]
    assert filled(written("a M b c"), (0, 0, 2)) == ["M M c"]


def test_a_row_is_rotated_to_begin_with_a_token():
    rows = written("a b c d e f g h", "a b c", "")
    assert read(noises.rotated(rows, LEXICON, np.array([3, 0, 0]))) == ["d e f g h a b c", "a b c", ""]


def test_special_words_stand_still_while_a_row_turns_and_mask_words_move():
    assert read(noises.rotated(written("[ a M b ]"), LEXICON, np.array([1]))) == ["[ M b a ]"]


def ordered(text: str, *order: int) -> list[str]:
    return read(noises.permuted(written(text), LEXICON, np.argsort(order)))


def test_sentences_stand_in_another_order():
    assert ordered("a b . c . d e .", 2, 0, 1) == ["d e . a b . c ."]


def test_a_rest_without_a_full_stop_is_a_sentence_and_several_full_stops_are_one():
    assert ordered("a . . . b c . d", 2, 1, 0) == ["d b c . a . . ."]


def test_special_words_stand_still_while_sentences_move():
    assert ordered("[ a . b c . ]", 1, 0) == ["[ b c . a . ]"]


def test_all_tokens_of_a_word_share_its_fate():
    rows = ragged([10, 200, 201, 11, FIRST, 12, 202, 13])
    for seed in range(60):
        fate_T, other_T = noises.fates(rows, LEXICON, np.array([seed], dtype=np.uint64), 0.7)
        assert len(set(fate_T[:3])) == len(set(fate_T[5:7])) == 1
        assert fate_T[4] == KEPT
        assert len(set(other_T)) > 1  # every token becomes another of its own


def test_a_hidden_word_is_all_mask_words_and_a_changed_one_is_others():
    rows = ragged([10, 200, 11, 12])
    fate_T = np.array([HIDDEN, HIDDEN, CHANGED, KEPT], dtype=np.int8)
    found = noises.reworded(rows, LEXICON, fate_T, np.array([20, 21, 22, 23], dtype=np.int32))
    assert found.series().to_list() == [[MASK, MASK, 22, 12]]


# How much


@pytest.mark.parametrize("rate", [0.07, 0.15, 0.3, 0.5, 1.0])
def test_budgets_are_the_rate_of_the_words_rounded_up(rate):
    lengths = np.arange(101)
    right = [-(-round(rate * 100) * n // 100) for n in lengths.tolist()]
    assert noises.budget(rate, lengths).tolist() == right


@settings(deadline=None)
@given(ROWS, st.floats(0.01, 1), st.integers(0, 2**32))
def test_as_many_words_are_masked_as_the_budget_has_and_no_special_one(rows, rate, seed):
    for row, found in zip(rows, noised(rows, seed, masking=rate), strict=True):
        count = sum(number > MASK for number in row)
        assert len(found) == len(row)
        changed = [one for one, other in zip(row, found, strict=True) if one != other]
        assert len(changed) == noises.budget(rate, np.array(count))
        assert found.count(MASK) == row.count(MASK) + len(changed)
        assert all(number > MASK for number in changed)


@settings(deadline=None)
@given(ROWS, st.floats(0.01, 1), st.integers(0, 2**32))
def test_as_many_words_are_deleted_as_the_budget_has_but_for_the_last_token(rows, rate, seed):
    for row, found in zip(rows, noised(rows, seed, deletion=rate), strict=True):
        count = sum(number > MASK for number in row)
        assert len(row) - len(found) == min(int(noises.budget(rate, np.array(count))), max(0, len(row) - 1))
        assert [number for number in found if number <= MASK] == [number for number in row if number <= MASK]
        rest = iter(row)
        assert all(number in rest for number in found)  # in their order


@settings(deadline=None)
@given(ROWS, st.floats(0.01, 1), st.floats(0.5, 5), st.integers(0, 2**32))
def test_spans_hide_as_many_words_as_the_budget_has(rows, rate, mean, seed):
    plain = [[number for number in row if number != MASK] for row in rows]
    for row, found in zip(plain, noised(plain, seed, infilling=rate, mean_span=mean), strict=True):
        rest = [number for number in found if number != MASK]
        special = [number for number in row if number < MASK]
        count = len(row) - len(special)
        assert len(row) - len(rest) == noises.budget(rate, np.array(count))
        assert [number for number in found if number < MASK] == special
        assert bool(found.count(MASK)) == bool(count)


@settings(deadline=None)
@given(ROWS, st.sampled_from(["permutation", "rotation"]), st.integers(0, 2**32))
def test_what_moves_words_leaves_them_as_they_are_and_special_ones_in_their_places(rows, name, seed):
    for row, found in zip(rows, noised(rows, seed, **{name: 1.0}), strict=True):
        assert Counter(found) == Counter(row)
        fixed = lambda some: [(at, number) for at, number in enumerate(some) if number < MASK]
        assert fixed(found) == fixed(row)


@settings(deadline=None)
@given(ROWS, st.integers(0, 2**32))
def test_special_words_outlive_all_noises_at_once(rows, seed):
    found = noised(rows, seed, **dict.fromkeys(RATES, 0.5))
    for row, now in zip(rows, found, strict=True):
        assert [number for number in now if number < MASK] == [number for number in row if number < MASK]
        assert now or not row


def test_mask_words_of_one_noise_are_left_alone_by_the_next():
    rows = [words(20)] * 200
    for found in noised(rows, infilling=0.5, mean_span=1.0, masking=1.0):
        assert set(found) == {MASK}
    for found in noised(rows, masking=0.5, deletion=0.2):
        assert (found.count(MASK), len(found)) == (10, 18)  # 10 hidden, then 2 of the other 10 left out


def test_sentences_are_permuted_before_spans_hide_full_stops():
    found = noised([[10, STOP, 11, STOP]] * 400, permutation=1.0, masking=0.5)
    assert any(row[:1] == [11] and STOP not in row for row in found)


# How often


def test_chosen_words_are_hidden_kept_and_changed_as_8_to_1_to_1():
    found = np.array(noised([words(20)] * 4000, whole_words=0.5)).ravel()
    right = np.tile(words(20), 4000)
    hidden, changed = int((found == MASK).sum()), int(((found != right) & (found != MASK)).sum())
    total = len(right)
    share = 0.1 * (1 - 1 / len(LEXICON.word_W))  # a word may be changed to itself
    assert (
        chisquare([hidden, changed, total - hidden - changed], np.array([0.4, 0.5 * share, 0.6 - 0.5 * share]) * total)[
            1
        ]
        > 0.001
    )


def test_changed_words_are_any_known_ones_evenly_and_never_special():
    rows = ragged(*[words(20)] * 5000)
    _, other_T = noises.fates(rows, LEXICON, keys(np.random.default_rng(1), 5000), 0.5)
    found = Counter(other_T.tolist())
    assert set(found) == set(LEXICON.word_W.tolist())
    assert chisquare(list(found.values())).pvalue > 0.001


def test_span_lengths_follow_poisson_s_law():
    draw = np.random.default_rng(0)
    lengths = noises.poisson(even(keys(draw, 50_000)), 3.0)
    right = [0.049787, 0.149361, 0.224042, 0.224042, 0.168031]
    found = [int((lengths == k).sum()) for k in range(5)]
    found.append(len(lengths) - sum(found))
    assert chisquare(found, np.array([*right, 1 - sum(right)]) * len(lengths)).pvalue > 0.001


def test_spans_in_rows_follow_poisson_s_law_but_for_the_last_that_is_cut():
    row_S, length_S = noises.span_lengths(keys(np.random.default_rng(2), 3000), np.full(3000, 60), 3.0)
    whole_S = row_S == np.append(row_S[1:], -1)  # not the last of a row
    first_S = (np.arange(len(row_S)) - np.searchsorted(row_S, row_S)) < 10  # which are whole, whatever they are
    lengths = length_S[whole_S & first_S]
    found = np.bincount(np.minimum(lengths, 9), minlength=10)
    law = np.array([np.exp(-3) * 3.0**k / np.prod(np.arange(1.0, k + 1)) for k in range(9)])
    assert chisquare(found, np.append(law, 1 - law.sum()) * len(lengths)).pvalue > 0.001


@pytest.mark.parametrize("mean", [0.5, 1.0, 3.5, 50.0])
def test_span_lengths_have_the_mean_and_the_variance_that_was_asked_for(mean):
    lengths = noises.poisson(even(keys(np.random.default_rng(3), 40_000)), mean)
    assert lengths.mean() == pytest.approx(mean, rel=0.05)
    assert lengths.var() == pytest.approx(mean, rel=0.05)


def test_every_word_is_masked_equally_often():
    found = np.array(noised([words(7)] * 20_000, masking=0.3))
    assert chisquare((found == MASK).sum(axis=0)).pvalue > 0.001


def test_spans_of_one_length_start_at_every_place_equally_often():
    rows = ragged(*[words(10)] * 20_000)
    row_S, start_S, length_S = noises.spans(rows, LEXICON, keys(np.random.default_rng(4), 20_000), 0.3, 3.0)
    is_alone = np.bincount(row_S, minlength=20_000)[row_S] == 1
    assert set(length_S[is_alone]) == {3}
    assert chisquare(np.bincount(start_S[is_alone], minlength=8)).pvalue > 0.001


def test_where_the_cut_span_stands_does_not_depend_on_that_it_was_drawn_last():
    rows = ragged(*[words(10)] * 30_000)
    row_S, _, length_S = noises.spans(rows, LEXICON, keys(np.random.default_rng(5), 30_000), 0.3, 1.5)
    two = np.bincount(row_S, minlength=30_000)[row_S] == 2
    pairs = Counter(map(tuple, length_S[two].reshape(-1, 2).tolist()))
    for one, other in ((1, 2), (0, 3)):
        assert chisquare([pairs[one, other], pairs[other, one]]).pvalue > 0.001


def test_every_order_of_three_sentences_is_equally_likely():
    found = Counter(map(tuple, noised([[10, STOP, 11, STOP, 12, STOP]] * 12_000, permutation=1.0)))
    assert len(found) == 6
    assert chisquare(list(found.values())).pvalue > 0.001


def test_every_token_is_equally_often_the_first_of_a_turned_row():
    found = Counter(row[0] for row in noised([words(9)] * 18_000, rotation=1.0))
    assert len(found) == 9
    assert chisquare(list(found.values())).pvalue > 0.001


@pytest.mark.parametrize(("rates", "share"), [({"rotation": 0.25}, 0.25 * 0.9), ({"permutation": 0.4}, 0.4 * 0.5)])
def test_rows_are_moved_as_often_as_the_chance_says(rates, share):
    rows = [words(10)] * 20_000 if "rotation" in rates else [[10, STOP, 11, STOP]] * 20_000
    moved = sum(found != row for found, row in zip(noised(rows, **rates), rows, strict=True))
    assert moved / len(rows) == pytest.approx(share, abs=0.015)


def test_as_many_rows_are_noised_as_the_chance_says_and_the_others_are_as_they_were():
    rows = [words(10)] * 20_000
    found = noised(rows, chance=0.5, masking=0.1)
    assert sum(row.count(MASK) == 1 for row in found) / len(rows) == pytest.approx(0.5, abs=0.015)
    assert sum(row == rows[0] for row in found) / len(rows) == pytest.approx(0.5, abs=0.015)


# Where draws come from


ALL = {"chance": 0.7, **dict.fromkeys(RATES, 0.4)}


def test_what_happens_to_a_row_depends_on_no_other_row():
    row, seen = [10, 11, STOP, 12, 200, 13, STOP, *words(12, 30)], set()
    for seed in range(20):
        one = noised([words(9), row, words(3)], seed, **ALL)[1]
        other = noised([[FIRST, STOP], row], seed, **ALL)[1]
        assert one == other
        seen.add(tuple(one))
    assert len(seen) > 10


def test_rows_of_a_column_are_drawn_each_for_itself():
    assert len({tuple(row) for row in noised([words(30)] * 50, **{**ALL, "chance": 1.0})}) > 45


def test_the_same_generator_gives_the_same_rows_and_another_gives_others():
    rows = [words(30)] * 8
    assert noised(rows, 1, **ALL) == noised(rows, 1, **ALL)
    assert noised(rows, 1, **ALL) != noised(rows, 2, **ALL)


def test_a_noise_that_is_put_in_front_leaves_the_draws_of_the_next_alone():
    rows = [words(12)] * 300
    alone = noised(rows, deletion=0.3)
    turned = noised(rows, deletion=0.3, rotation=1.0)
    assert [sorted(row) for row in turned] == [sorted(row) for row in alone]


@pytest.mark.parametrize("rates", [{name: 1.0} for name in RATES] + [dict.fromkeys(RATES, 1.0), {}])
def test_empty_columns_and_rows_stay_empty(rates):
    assert noised([], **rates) == []
    found = noised([[], words(4), []], **rates)
    assert found[0] == found[2] == []
    assert found[1]


def test_a_part_of_a_column_is_read_from_its_own_start():
    column = pl.Series("tokens", [[7, 8, 9], words(30), [4, 5]], dtype=pl.List(pl.Int32)).slice(1, 1)
    found = noise(column, np.random.default_rng(0), LEXICON, **{**OFF, **ALL})
    assert found.to_list() == noised([words(30)], **ALL)
    assert found.dtype == pl.List(pl.Int32)


# The lexicon, and options


def test_a_vocabulary_says_which_words_are_special_close_a_sentence_or_may_stand_for_others():
    vocabulary = {"<unk>": 0, "[PAD]": 1, "[MASK]": 2, "oak": 3, ".": 4, "\u3002": 5, "##s": 7, ".\u201d": 8, "3.5": 9}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>", "[PAD]", "[MASK]"])
    found = Lexicon.of(tokenizer.to_str())
    assert np.flatnonzero(found.special_V).tolist() == [1, 2]
    assert np.flatnonzero(found.stops_V).tolist() == [4, 5, 8]
    assert found.word_W.tolist() == [3, 4, 5, 7, 8, 9]
    assert found.mask == 2


def test_a_full_stop_is_known_in_a_vocabulary_of_bytes():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    written = dict.fromkeys([*letters, "\u0120.", "\u00e3\u0122\u0124"])  # the last is the Chinese full stop
    tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(written)}, merges=[]))
    from tokenizers import decoders

    tokenizer.decoder = decoders.ByteLevel()
    words = tokenizer.get_vocab()
    right = sorted(words[word] for word in (".", "\u0120.", "\u00e3\u0122\u0124"))
    assert np.flatnonzero(Lexicon.of(tokenizer.to_str()).stops_V).tolist() == right


def test_a_vocabulary_without_a_mask_word_has_none():
    found = Lexicon.of(Tokenizer(models.WordLevel(vocab={"a": 0, "b": 1}, unk_token="a")).to_str())
    assert found.mask == -1
    assert not found.special_V.any()


def test_noise_alone_is_that_of_the_released_code():
    choice = complete(AUGMENTATIONS, Choice(kind="noise"), "augment.0")
    assert choice.options == {**OFF, "chance": 0.5, "whole_words": 0.15, "mean_span": 3.0}
    assert reads_words(choice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masking": 1.5}, r"augment\.0\.masking is 1\.5: .*less than or equal to 1"),
        ({"chance": -0.1}, r"augment\.0\.chance is -0\.1: .*greater than or equal to 0"),
        ({"mean_span": 0}, r"augment\.0\.mean_span is 0: .*greater than or equal to 0\.5"),
        ({"shuffle": 1}, r'augment\.0 has no option "shuffle"; options of noise: chance, deletion, infilling'),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_can(options, message):
    with pytest.raises(RecipeError, match=message):
        complete(AUGMENTATIONS, Choice(kind="noise", options=options), "augment.0")
