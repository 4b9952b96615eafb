from collections import Counter
from itertools import chain

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers import Tokenizer, models

from models.parts import complete
from models.recipe import Choice, RecipeError
from pipeline.augment import AUGMENTATIONS, none, reads_words, repeat
from pipeline.lexicon import Lexicon

NEVER = np.zeros(200, dtype=bool)
WORDS = Lexicon(np.arange(200) >= 100, NEVER, NEVER, np.arange(200), -1)  # entries from 100 on go on with a word


def column(*rows: list[int]) -> pl.Series:
    return pl.Series("tokens", rows, dtype=pl.List(pl.Int32))


def counted(length: int, rows: int) -> pl.Series:
    """Rows 0, 1, 2, ..."""
    return column(*[list(range(length))] * rows)


def repeated(tokens: pl.Series, seed: int = 0, lexicon: Lexicon | None = None, **options) -> list[list[int]]:
    return repeat(tokens, np.random.default_rng(seed), lexicon, **options).to_list()


def times(length: int, rows: int = 3000, **options) -> list[int]:
    """How many tokens of rows of a length are doubled."""
    return [len(row) - length for row in repeated(counted(length, rows), **options)]


def once(row: list[int]) -> list[int]:
    """One copy of each pair of equal neighbours."""
    return [token for at, token in enumerate(row) if at == 0 or row[at - 1] != token]


def words(row: list[int]) -> list[tuple[int, ...]]:
    found: list[list[int]] = []
    for token in row:
        if token < 100 or not found:
            found.append([])
        found[-1].append(token)
    return [tuple(word) for word in found]


# Sub-words


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40), max_size=6),
    st.floats(0, 1),
    st.sampled_from(["released", "paper"]),
    st.integers(0, 2**32),
)
def test_with_one_copy_of_each_pair_removed_the_row_is_the_original_in_its_order(lengths, rate, rule, seed):
    rows = [list(range(length)) for length in lengths]
    found = repeated(column(*rows), seed, rate=rate, rule=rule)
    assert [once(row) for row in found] == rows
    assert all(max(Counter(row).values(), default=0) <= 2 for row in found)


@pytest.mark.parametrize(("length", "most"), [(4, 2), (7, 2), (10, 3), (20, 6), (32, 10)])
def test_the_paper_doubles_at_most_a_third_and_at_least_two_may_be(length, most):
    assert set(times(length, rule="paper")) == set(range(most + 1))


@pytest.mark.parametrize(
    ("length", "most"),
    [(1, 0), (2, 0), (5, 1), (8, 2), (14, 4), (30, 9), (60, 9)],  # int(.32 (length + 2)) is 0 1 2 3 5 10 19
)
def test_the_released_rule_counts_special_tokens_and_stays_below_ten(length, most):
    assert set(times(length)) == set(range(most + 1))


def test_a_row_of_one_token_is_doubled_once_at_most():
    found = Counter(times(1, rule="paper"))
    assert set(found) == {0, 1}
    assert found[1] / found.total() == pytest.approx(2 / 3, abs=0.03)  # of the draws 0, 1 and 2


def test_all_may_be_doubled_where_the_rate_is_one():
    assert max(times(3, rate=1.0, rule="paper")) == max(times(3, rate=1.0)) == 3


def test_a_rate_of_nothing_doubles_nothing_by_the_released_rule():
    assert set(times(20, rate=0.0)) == {0}


@pytest.mark.parametrize(("rule", "kinds"), [("paper", 11), ("released", 10)])
def test_every_number_of_repeats_is_equally_likely(rule, kinds):
    found = Counter(times(32 if rule == "paper" else 30, rows=20_000, rule=rule))
    assert len(found) == kinds
    assert chisquare(list(found.values())).pvalue > 0.001


def test_every_place_is_equally_likely_and_so_is_every_pair_of_places():
    twice = [row for row in repeated(counted(6, 30_000), rule="paper") if len(row) == 8]
    pairs = Counter(tuple(token for token in range(6) if row.count(token) == 2) for row in twice)
    assert len(pairs) == 15
    assert chisquare(list(pairs.values())).pvalue > 0.001


def test_what_happens_to_a_row_depends_on_no_other_row():
    one, other = column(list(range(9)), list(range(30))), column(list(range(4)), list(range(30)))
    assert [repeated(one, seed)[1] for seed in range(20)] == [repeated(other, seed)[1] for seed in range(20)]


def test_rows_of_a_column_are_drawn_each_for_itself():
    assert len({tuple(row) for row in repeated(counted(30, 50))}) > 30


def test_the_same_generator_gives_the_same_rows_and_another_gives_others():
    assert repeated(counted(30, 5), 1) == repeated(counted(30, 5), 1)
    assert repeated(counted(30, 5), 1) != repeated(counted(30, 5), 2)


def test_a_part_of_a_column_is_read_from_its_own_start():
    whole = column([7, 8, 9], list(range(30)), [4, 5])
    assert repeated(whole.slice(1, 1)) == repeated(column(list(range(30))))


@pytest.mark.parametrize("unit", ["subword", "word"])
def test_empty_columns_and_rows_stay_empty(unit):
    assert repeat(column(), np.random.default_rng(0), WORDS, unit=unit).dtype == pl.List(pl.Int32)
    found = repeated(column([], list(range(12)), []), 3, WORDS, unit=unit, rule="paper")
    assert found[0] == found[2] == []
    assert once(found[1]) == list(range(12))


# Words


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.just(100)), max_size=12), max_size=5),
    st.sampled_from(["released", "paper"]),
    st.integers(0, 2**32),
)
def test_a_word_is_doubled_whole(shapes, rule, seed):
    rows = [
        list(chain.from_iterable([number, *range(100, 100 + more)] for number, (more, _) in enumerate(shape)))
        for shape in shapes
    ]
    found = repeated(column(*rows), seed, WORDS, unit="word", rule=rule)
    assert [list(chain.from_iterable(once(words(row)))) for row in found] == rows


def test_the_copy_of_a_word_stands_behind_the_word():
    rows = repeated(column(*[[1, 101, 102, 2]] * 50), 0, WORDS, unit="word", rule="paper")
    assert {tuple(row) for row in rows} == {
        (1, 101, 102, 2),
        (1, 101, 102, 1, 101, 102, 2),
        (1, 101, 102, 2, 2),
        (1, 101, 102, 1, 101, 102, 2, 2),
    }


def test_the_length_of_a_row_of_words_counts_neither_special_tokens_nor_sub_words():
    row = list(chain.from_iterable([number, 100, 101] for number in range(8)))  # 8 words, 24 tokens: int(.32 x 8) = 2
    rows = repeated(column(*[row] * 500), 0, WORDS, unit="word")
    assert {len(found) - 24 for found in rows} == {0, 3}


def test_a_row_that_begins_within_a_word_begins_a_word():
    rows = repeated(column(*[[5], [101, 1]] * 200), 0, WORDS, unit="word", rule="paper")
    assert {tuple(row) for row in rows[1::2]} == {(101, 1), (101, 101, 1), (101, 1, 1), (101, 101, 1, 1)}


# The lexicon, and options


def test_entries_with_the_continuing_prefix_go_on_with_a_word():
    words = {"[UNK]": 0, "play": 1, "##ing": 2, "##er": 4, "of": 3}
    tokenizer = Tokenizer(models.WordPiece(vocab=words, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[MASK]"])
    assert Lexicon.of(tokenizer.to_str()).continues_V.tolist() == [False, False, True, False, True, False]


def test_without_a_prefix_every_entry_is_a_word():
    tokenizer = Tokenizer(models.WordLevel(vocab={"a": 0, "##b": 1}, unk_token="a"))
    assert not Lexicon.of(tokenizer.to_str()).continues_V.any()
    rows = column([0, 1, 0, 1, 0, 1, 0])
    assert repeated(rows, 5, Lexicon.of(tokenizer.to_str()), unit="word", rule="paper") == repeated(
        rows, 5, rule="paper"
    )


def test_a_tokenizer_of_pieces_with_scores_has_no_prefix():
    tokenizer = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=0))
    assert not Lexicon.of(tokenizer.to_str()).continues_V.any()


def test_none_leaves_tokens_as_they_are():
    tokens = column([1, 2], [3])
    assert none(tokens, np.random.default_rng(0), None) is tokens


def test_defaults_are_the_released_ones():
    choice = complete(AUGMENTATIONS, Choice(kind="repeat"), "augment.1")
    assert choice.options == {"rate": 0.32, "rule": "released", "unit": "subword"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.5}, r"augment\.1\.rate is 1\.5: .*less than or equal to 1"),
        ({"rate": -0.1}, r"augment\.1\.rate is -0\.1: .*greater than or equal to 0"),
        ({"rule": "mine"}, r"augment\.1\.rule is 'mine': .*'released' or 'paper'"),
        ({"unit": "letter"}, r"augment\.1\.unit is 'letter': .*'subword' or 'word'"),
        ({"share": 0.1}, r'augment\.1 has no option "share"; options of repeat: rate, rule, unit'),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_can(options, message):
    with pytest.raises(RecipeError, match=message):
        complete(AUGMENTATIONS, Choice(kind="repeat", options=options), "augment.1")


def test_words_are_read_for_their_unit_alone():
    read = [complete(AUGMENTATIONS, Choice(kind="repeat", options={"unit": unit}), "") for unit in ("word", "subword")]
    assert [reads_words(choice) for choice in read] == [True, False]
    assert not reads_words(Choice(kind="none"))
