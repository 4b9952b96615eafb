import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.pairs import FARTHEST, neighbours
from pipeline.tables import PAIRS


def places(*rows: tuple[int, int]) -> pl.DataFrame:
    """Document and place of each sentence."""
    return pl.DataFrame(rows, schema={"document": pl.UInt64, "place": pl.UInt32}, orient="row")


def test_each_sentence_is_paired_with_the_one_before_and_the_one_after():
    found = neighbours(places((7, 0), (7, 1), (7, 2)))
    assert found.rows() == [(0, 1, 1), (1, 0, -1), (1, 2, 1), (2, 1, -1)]
    assert found.schema == PAIRS.empty().schema


def test_a_context_of_two_reaches_two_sentences_either_way():
    assert neighbours(places((7, 0), (7, 1), (7, 2), (7, 3)), context_size=2).rows() == [
        *[(0, 1, 1), (0, 2, 2)],
        *[(1, 0, -1), (1, 2, 1), (1, 3, 2)],
        *[(2, 0, -2), (2, 1, -1), (2, 3, 1)],
        *[(3, 1, -2), (3, 2, -1)],
    ]


def test_nobody_is_paired_across_a_quarantined_place():
    assert neighbours(places((7, 0), (7, 2))).is_empty()


def test_a_quarantined_place_counts_in_the_distance():
    assert neighbours(places((7, 0), (7, 2), (7, 3)), context_size=2).rows() == [
        *[(0, 1, 2), (1, 0, -2), (1, 2, 1), (2, 1, -1)],
    ]


def test_nobody_is_paired_across_a_document_border():
    assert neighbours(places((7, 0), (8, 1), (9, 2))).is_empty()


def test_no_sentences_give_no_pairs():
    assert neighbours(places()).schema == PAIRS.empty().schema


@pytest.mark.parametrize("size", [0, -1, FARTHEST + 1])
def test_a_context_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match=rf"pairs\.context_size is {size}; from 1 to 127"):
        neighbours(places((7, 0)), context_size=size)


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 12))), st.integers(1, 4))
def test_pairs_are_those_of_a_double_loop(rows, size):
    ordered = sorted(rows)
    slow = [
        (anchor, positive, ordered[positive][1] - ordered[anchor][1])
        for anchor in range(len(ordered))
        for positive in range(len(ordered))
        if anchor != positive
        and ordered[anchor][0] == ordered[positive][0]
        and abs(ordered[positive][1] - ordered[anchor][1]) <= size
    ]
    assert neighbours(places(*ordered), context_size=size).rows() == sorted(slow, key=lambda pair: (pair[0], pair[2]))
