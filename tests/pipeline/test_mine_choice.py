"""Which listed texts become hard negatives."""

import numpy as np
import pytest

from models.recipe import Negatives, RecipeError, load
from pipeline.mine_choice import chosen, may_be_right
from pipeline.mine_search import Lists

SCORES = [0.9, 0.8, 0.76, 0.7, 0.5, 0.2]


def lists(*scores):
    score_QK = np.array(scores, np.float32)
    number_QK = np.arange(score_QK.size, dtype=np.uint64).reshape(score_QK.shape)
    return Lists(score_QK, number_QK, number_QK)


def places(found, right=0.8, barred=(), **rules):
    barred_QK = np.zeros(found.score_QK.shape, bool)
    barred_QK[:, list(barred)] = True
    right_Q = np.full(len(barred_QK), right, np.float32)
    return chosen(found, barred_QK, right_Q, Negatives(**rules), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("rules", "right"),
    [
        ({"count": 2}, [0, 1]),
        ({"count": 2, "first": 1}, [1, 2]),
        ({"count": 2, "absolute_margin": 0.0}, [1, 2]),  # .8 is not above .8
        ({"count": 2, "absolute_margin": 0.11}, [4, 5]),
        ({"count": 2, "relative_margin": 0.05}, [2, 3]),  # .76 is 95 % of .8
        ({"count": 2, "relative_margin": 0.06}, [3, 4]),
        ({"count": 2, "relative_margin": 0.05, "first": 1}, [3, 4]),  # counted behind the rule
        ({"count": 2, "ceiling": 0.75}, [3, 4]),
        ({"count": 2, "floor": 0.85}, [0, -1]),
        ({"count": 2, "last": 3, "ceiling": 0.77}, [2, -1]),
        ({"count": 2, "barred": (0, 2)}, [1, 3]),
        ({"count": 2, "last": 2, "barred": (0,)}, [1, 2]),  # what is barred is not looked at
    ],
)
def test_each_rule_leaves_what_it_should(rules, right):
    assert places(lists(SCORES), **rules).place_QC.tolist() == [right]


def test_the_share_is_taken_off_the_size_of_a_negative_score():
    found = places(lists([-0.9, -1.04, -1.06]), right=-1.0, count=3, relative_margin=0.05)
    assert found.place_QC.tolist() == [[2, -1, -1]]  # -1 - .05, not -.95


def test_what_is_drawn_lies_in_the_range_and_is_different_and_in_order():
    found = places(lists(*[sorted(SCORES * 3, reverse=True)] * 200), count=4, first=2, last=12, choose="sample")
    rows = found.place_QC
    assert rows.min() == 2
    assert rows.max() == 11
    assert (np.diff(rows, axis=1) > 0).all()
    times = np.bincount(rows.ravel(), minlength=12)[2:]
    assert abs(times - 80).max() < 40  # 200 lists draw 4 of 10


def test_a_list_shorter_than_asked_for_is_counted_and_not_filled():
    found = places(lists([0.9, -np.inf], [-np.inf, -np.inf]), count=2)
    assert found.place_QC.tolist() == [[0, -1], [-1, -1]]
    assert (found.counts["short"], found.counts["without"]) == (2, 1)


def test_what_each_rule_leaves_out_is_counted():
    counts = places(lists(SCORES), barred=(0,), relative_margin=0.05, floor=0.3).counts
    assert counts == {"barred": 1, "relative_margin": 1, "floor": 1, "short": 0, "without": 0}


def test_the_query_s_group_and_those_of_all_its_answers_may_be_right():
    group_QK = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]], np.uint64)
    found = may_be_right(group_QK, np.array([1, 9, 4], np.uint64), np.array([0, 1, 1]), np.array([3, 2, 4], np.uint64))
    assert found.tolist() == [[True, False, True, False], [False, True, False, True], [False, False, False, True]]


def test_a_range_too_small_for_its_count_is_refused():
    with pytest.raises(RecipeError, match=r"negatives.first 3 and count 2 reach beyond last, 4; set negatives.last"):
        load("quick-thoughts", ["negatives={first=3, count=2, last=4}"])
