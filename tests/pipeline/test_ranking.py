"""Measures of ranked answers against values by hand, and against loops over one question at a time."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ranking import average_precision, chance, counted, hit, ndcg, ordered, ranking, recall, reciprocal_rank

LISTS = [(0, 1, 1, 0), (1, 0, 0), (0, 0), (1, 1)]
TIED = ((0.5, 0.5, 0.5, 0.2), (1, 0, 0, 1), (7, 7, 7, 7))
cases_without_clock = settings(deadline=None, database=None)  # shared machines are slow at random; leave no file


def flat(lists):
    """Scores, labels and questions of lists that stand in order."""
    return (
        [-place for labels in lists for place, _ in enumerate(labels)],
        [label for labels in lists for label in labels],
        [question for question, labels in enumerate(lists) for _ in labels],
    )


def slow(score, label, question, k):
    """Measures of each question by plain loops: one candidate is put behind all that beat it or are wrong and tie."""
    found = []
    for name in sorted(set(question)):
        own = [(s, y) for s, y, q in zip(score, label, question, strict=True) if q == name]
        labels = [y for _, y in sorted(own, key=lambda one: (-one[0], one[1]))]
        places = [place for place, y in enumerate(labels, start=1) if y]
        best = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(places)) + 1))
        gain = sum(1 / math.log2(place + 1) for place in places if place <= k)
        found.append(
            (
                sum(n / place for n, place in enumerate(places, start=1)) / max(1, len(places)),
                1 / places[0] if places else 0,
                float(any(place <= k for place in places)),
                sum(place <= k for place in places) / max(1, len(places)),
                gain / best if best else 0,
            )
        )
    return np.array(found)


candidates = st.tuples(st.integers(-2, 2).map(float), st.integers(0, 1), st.integers(0, 4))


@cases_without_clock
@given(st.lists(candidates, min_size=1, max_size=20), st.integers(1, 5))
def test_every_measure_is_that_of_a_loop_over_questions(rows, k):
    lists = ordered(*zip(*rows, strict=True))
    found = [average_precision(lists), reciprocal_rank(lists), hit(lists, k), recall(lists, k), ndcg(lists, k)]
    np.testing.assert_allclose(np.stack(found, axis=1), slow(*zip(*rows, strict=True), k), atol=1e-12)


@cases_without_clock
@given(st.lists(candidates, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_in_which_candidates_come_changes_nothing(rows, random):
    before = ranking(*zip(*rows, strict=True), ks=(1, 3))
    random.shuffle(rows)
    assert ranking(*zip(*rows, strict=True), ks=(1, 3)) == pytest.approx(before, nan_ok=True)


@pytest.mark.parametrize(
    ("no_positive", "expected", "count"),
    [
        ("zero", (0.645833, 0.625, 0.5), 4),
        ("drop", (0.861111, 0.833333, 0.666667), 3),
        ("clean", (0.791667, 0.75, 0.5), 2),
    ],
)
def test_questions_without_a_right_answer_are_dropped_zero_or_cleaned(no_positive, expected, count):
    got = ranking(*flat(LISTS), no_positive=no_positive)
    assert (got["map"], got["mrr"], got["p@1"]) == pytest.approx(expected, abs=1e-6)
    assert (got["questions"], got["none_right"], got["all_right"]) == (count, 1, 1)


def test_hit_asks_for_any_and_recall_for_the_share_of_right_answers():
    got = ranking(*flat(LISTS), ks=(1, 2, 3))
    assert [got[f"hit@{k}"] for k in (1, 2, 3)] == pytest.approx([0.666667, 1, 1], abs=1e-6)
    assert [got[f"recall@{k}"] for k in (1, 2, 3)] == pytest.approx([0.5, 0.833333, 1], abs=1e-6)


def test_ndcg_discounts_by_the_log_of_the_place():
    got = ranking(*flat([(0, 1, 1, 0)]), ks=(1, 2, 3))
    third, second = 1 / math.log2(4), 1 / math.log2(3)
    best = [1, 1 + second, 1 + second]
    assert [got[f"ndcg@{k}"] for k in (1, 2, 3)] == pytest.approx([0, second / best[1], (second + third) / best[2]])


def test_ndcg_of_the_best_order_is_1_also_where_more_are_right_than_places():
    assert ranking(*flat([(1, 1, 1, 0)]), ks=(2,))["ndcg@2"] == 1


def test_of_equal_scores_the_wrong_answers_come_first():
    got = ranking(*TIED)
    assert got["map"] == pytest.approx(0.416667, abs=1e-6)  # 0.75 if the right one came first
    assert got["mrr"] == pytest.approx(0.333333, abs=1e-6)


def test_a_constant_scorer_cannot_look_good():
    got = ranking(np.zeros(100), [1] * 10 + [0] * 90, np.zeros(100, int), ks=(1, 90))
    assert (got["p@1"], got["hit@90"], got["ndcg@90"], got["mrr"]) == (0, 0, 0, 1 / 91)


def test_a_right_answer_without_a_score_comes_last_and_a_wrong_one_first():
    nan = float("nan")
    assert ordered((nan, 0.3, nan, -math.inf), (1, 1, 0, 0), [0] * 4).label_N.tolist() == [0, 1, 0, 1]


def test_candidates_of_a_question_need_not_stand_together():
    lists = ordered((0.1, 0.9, 0.3, 0.2), (1, 0, 0, 1), ("b", "a", "b", "a"))
    assert lists.question_Q.tolist() == ["a", "b"]
    assert (lists.label_N.tolist(), lists.place_N.tolist()) == ([0, 1, 0, 1], [1, 2, 1, 2])


def test_values_of_questions_come_in_the_order_of_their_names():
    lists = ordered((1, 0, 1, 0), (1, 0, 0, 1), (12, 12, -3, -3))
    assert (lists.question_Q.tolist(), reciprocal_rank(lists).tolist()) == ([-3, 12], [0.5, 1])


@pytest.mark.parametrize("no_positive", ["drop", "clean"])
def test_without_a_question_that_counts_there_is_no_figure(no_positive):
    got = ranking(*flat([(0, 0)]), no_positive=no_positive)
    assert math.isnan(got["map"]) and (got["questions"], got["none_right"]) == (0, 1)


def test_no_candidates_are_no_questions():
    got = ranking([], [], [])
    assert math.isnan(got["mrr"]) and (got["questions"], got["none_right"], got["all_right"]) == (0, 0, 0)


def test_counted_says_which_questions_a_mean_is_over():
    assert counted(ordered(*flat(LISTS)), "clean").tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (lambda: ranking(*TIED, no_positive="skip"), '"skip"; known: drop, zero, clean'),
        (lambda: ranking(*TIED, ks=(0, 1)), r"ks are \[0, 1\]; places in a list, from 1"),
        (lambda: ordered((1, 2), (0, 2), (5, 5)), "candidate 1 has the label 2; should be 1, right, or 0, wrong"),
        (lambda: ordered((1, 2), (0, math.nan), (5, 5)), "candidate 1 has the label nan"),
        (lambda: ordered((1, 2), (0, 1), (5,)), r"shape \(2,\), \(2,\) and \(1,\)"),
    ],
)
def test_what_is_no_list_is_refused(order, message):
    with pytest.raises(ValueError, match=message):
        order()


def test_a_million_candidates_take_a_moment():
    draw = np.random.default_rng(0)
    score, label, question = draw.normal(size=10**6), draw.random(10**6) < 0.1, draw.integers(50_000, size=10**6)
    start = time.process_time()
    ranking(score, label, question, ks=(1, 10))
    assert time.process_time() - start < 5  # .6 s on one core; the slack is for a busy machine


def exact(size, right):
    """Expected 1 / place of the first right answer, as a fraction."""
    places = range(1, size - right + 2)
    return sum(Fraction(math.comb(size - place, right - 1), place) for place in places) / math.comb(size, right)


@pytest.mark.parametrize(("size", "right"), [(1, 1), (5, 5), (9, 1), (30, 7), (400, 390), (3000, 900)])
def test_chance_is_the_exact_fraction_for_any_number_of_right_answers(size, right):
    found = chance([1] * right + [0] * (size - right), [0] * size)["mrr"]
    assert found == pytest.approx(float(exact(size, right)), rel=1e-12)
