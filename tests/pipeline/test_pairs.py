import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.pairs import FARTHEST, PAIRINGS, groups, neighbours, none, pairs, single, triples
from pipeline.tables import PAIRS, schema


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


# Examples


def test_a_single_sentence_is_paired_with_itself():
    assert single(places((7, 0), (7, 2), (8, 0))).rows() == [(0, 0, 0), (1, 1, 0), (2, 2, 0)]


def test_pairs_are_every_two_sentences_of_a_document():
    assert pairs(places((7, 0), (7, 1), (7, 2), (7, 3), (7, 4), (8, 0), (8, 1))).rows() == [
        *[(0, 1, 1), (2, 3, 1), (5, 6, 1)],
    ]


def test_a_pair_that_lost_a_text_is_left_out_and_the_next_ones_stay():
    assert pairs(places((7, 1), (7, 2), (7, 3), (7, 4), (8, 5), (9, 0), (9, 2))).rows() == [(1, 2, 1)]


def test_triples_name_anchor_positive_and_negative():
    found = triples(places((7, 0), (7, 1), (7, 2), (7, 3), (7, 4), (7, 5), (8, 0)))
    assert found.columns == ["anchor", "positive", "distance", "negative"]
    assert found.rows() == [(0, 1, 1, 2), (3, 4, 1, 5)]


@pytest.mark.parametrize("gap", [3, 4, 5])
def test_a_triple_that_lost_a_text_is_left_out_and_the_next_one_stays(gap):
    rows = [(7, place) for place in range(9) if place != gap]
    assert triples(places(*rows)).rows() == [(0, 1, 1, 2), (5, 6, 1, 7)]


def test_no_triple_reaches_into_the_next_document():
    assert triples(places((7, 0), (7, 1), (8, 2), (8, 3), (8, 4), (9, 5))).is_empty()


def test_sentences_without_pairs_have_none():
    assert none(places((7, 0), (7, 1))).is_empty()


def texts(*rows: tuple[int, int]) -> pl.DataFrame:
    """Document and text of each sentence."""
    return pl.DataFrame(rows, schema={"document": pl.UInt64, "group": pl.UInt64}, orient="row")


def test_a_group_has_its_different_texts_for_members():
    found = groups(texts((7, 1), (7, 2), (7, 1), (7, 3), (8, 1), (8, 9)))
    assert found.rows() == [(0, 1, 1, [0, 1, 3]), (4, 5, 1, [4, 5])]


def test_a_group_of_one_text_has_no_pair():
    assert groups(texts((7, 1), (8, 2), (8, 2))).is_empty()


@pytest.mark.parametrize("kind", PAIRINGS)
def test_every_pairing_gives_a_table_of_pairs_though_there_is_no_sentence(kind):
    more = {"triples": ["negative"], "qa": ["wrong"], "groups": ["members"]}.get(kind, [])
    nothing = places().with_columns(label=pl.lit(None, pl.UInt8), group=pl.lit(0, pl.UInt64))
    assert PAIRINGS[kind](nothing).schema == schema(PAIRS, ["anchor", "positive", "distance", *more])


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 12))), st.sampled_from([2, 3]))
def test_examples_are_those_of_a_look_at_every_place(rows, views):
    ordered = sorted(rows)
    slow = [
        tuple(ordered.index((document, place + step)) for step in range(views))
        for document, place in ordered
        if place % views == 0 and all((document, place + step) in rows for step in range(views))
    ]
    found = {2: pairs, 3: triples}[views](places(*ordered))
    assert found.select(("anchor", "positive", "negative")[:views]).rows() == slow
    assert set(found["distance"]) <= {1}
