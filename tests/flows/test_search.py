"""Search: which rows are best, each text once."""

import numpy as np
import pytest

from flows.search import QueryError, best, hits


def test_the_best_rows_come_best_first():
    assert best(np.array([0.1, 0.9, 0.5]), np.array([1, 2, 3]), 2).tolist() == [1, 2]


def test_a_text_that_repeats_comes_once_where_it_scores_best():
    assert best(np.array([0.7, 0.9, 0.8, 0.5]), np.array([4, 4, 4, 5]), 2).tolist() == [1, 3]


def test_fewer_texts_than_wanted_are_all_there_are():
    assert best(np.array([0.7, 0.9]), np.array([4, 4]), 5).tolist() == [1]


def test_equal_scores_keep_the_order_of_rows():
    assert best(np.zeros(4), np.array([9, 3, 7, 1]), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_query_that_asks_nothing_is_refused(query):
    with pytest.raises(QueryError, match="the query is empty"):
        hits("no model", query, "no corpus")
