"""Measures against values worked out by hand or by a slower, plainer way."""

import math
import time

import numpy as np
import pytest
from scipy.stats import spearmanr

from pipeline import metrics

A = np.array([[1, 0.5, -0.5], [0.2, -1, 0.3], [-0.7, 0.4, 0.9], [0.6, 0.8, 0.1]])
B = np.array([[0.9, 0.4, -0.6], [0.1, -0.8, 0.5], [-0.5, 0.6, 0.7], [0.7, 0.6, 0.3]])


def test_spearman_gives_ties_the_mean_of_their_ranks():
    assert metrics.spearman((5, 4, 4, 2, 1, 0), (0.9, 0.8, 0.7, 0.75, 0.2, 0.3)) == pytest.approx(84.0668, abs=1e-6)


def test_spearman_agrees_with_scipy_on_ties_at_random():
    left, right = np.random.default_rng(1).integers(5, size=(2, 40))
    assert metrics.spearman(left, right) == pytest.approx(100 * spearmanr(left, right).statistic)


def test_spearman_of_a_constant_side_is_no_number():
    assert math.isnan(metrics.spearman((1, 1, 1), (1, 2, 3)))


def test_a_constant_whose_mean_rounds_is_constant_too():
    assert math.isnan(metrics.pearson([0.1] * 3, (1, 2, 3)))


def test_pearson_does_not_rank():
    assert metrics.pearson((5, 4, 4, 2, 1, 0), (0.9, 0.8, 0.7, 0.75, 0.2, 0.3)) == pytest.approx(87.39057, abs=1e-6)


def test_spearman_refuses_sides_of_unlike_length():
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        metrics.spearman((1, 2), (1, 2, 3))


def test_the_all_setting_is_one_correlation_over_the_subsets_together():
    subsets = [((5, 3, 1), (0.9, 0.5, 0.6)), ((4, 2, 0, 1), (0.4, 0.3, 0.1, 0.2))]
    assert [metrics.spearman(*subset) for subset in subsets] == pytest.approx([50, 100])
    assert metrics.spearman_all(subsets) == pytest.approx(68.471247, abs=1e-6)


def test_cosine_is_that_of_each_row():
    expected = [a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(A, B, strict=True)]
    assert metrics.cosine(A.astype(np.float32), 3 * B.astype(np.float32)) == pytest.approx(expected, abs=1e-7)


def test_cosine_with_a_vector_of_zeros_is_0():
    assert metrics.cosine(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 0.0]])).tolist() == [0, 1]


def test_cosines_that_differ_by_rounding_are_ties():
    same = np.random.default_rng(6).normal(size=(500, 33)).astype(np.float32)
    assert set(metrics.cosine(same, same)) == {1.0}


def test_random_cosine_is_the_mean_over_all_pairs_of_different_rows():
    vectors = np.concatenate([A, B, np.zeros((1, 3))])
    cosines = [metrics.cosine(vectors[[i]], vectors[[j]])[0] for i in range(9) for j in range(9) if i != j]
    assert metrics.random_cosine(vectors) == pytest.approx(np.mean(cosines))


def test_random_cosine_of_one_vector_is_no_number():
    assert math.isnan(metrics.random_cosine(A[:1]))


def test_alignment_is_the_mean_squared_distance_of_normalised_pairs():
    assert metrics.alignment(A, B) == pytest.approx(0.0649, abs=1e-6)


def test_alignment_does_not_see_lengths():
    assert metrics.alignment(3 * A, B) == pytest.approx(metrics.alignment(A, B))


@pytest.mark.parametrize("block", [1, 2, 3, 1024])
def test_uniformity_counts_each_pair_once_and_no_vector_with_itself(block):
    assert metrics.uniformity(A, block) == pytest.approx(-2.624941, abs=1e-6)


def test_uniformity_of_one_vector_is_no_number():
    assert math.isnan(metrics.uniformity(A[:1]))


def test_rank_is_one_more_than_those_who_score_as_high():
    score = np.array([[0.5, 0.9, 0.5, 0.1, 0.5]])
    assert metrics.ranks(score, np.array([2])).tolist() == [4]


def test_a_constant_scorer_ranks_last():
    assert metrics.ranks(np.zeros((2, 7)), np.array([0, 6])).tolist() == [7, 7]


def test_a_query_is_not_among_its_candidates():
    score = np.array([[9.0, 1.0, 0.0], [0.0, 9.0, 1.0]])
    assert metrics.ranks(score, np.array([1, 2]), np.array([0, 1])).tolist() == [1, 1]


def test_a_score_that_is_no_number_counts_against_the_scorer():
    nan = float("nan")
    score = np.array([[nan, 1.0, 0.0], [0.0, nan, 1.0]])
    assert metrics.ranks(score, np.array([1, 1])).tolist() == [2, 3]


def test_figures_of_ranks_are_plain_means():
    assert metrics.from_ranks(np.array([1, 2, 20]), (1, 10)) == pytest.approx(
        {"mrr": (1 + 1 / 2 + 1 / 20) / 3, "hit@1": 1 / 3, "hit@10": 2 / 3}
    )


def test_bootstrap_interval_is_that_of_the_normal_law_for_many_queries():
    difference = np.random.default_rng(2).normal(0.1, 1, 5000)
    got, half = metrics.bootstrap_difference(difference, np.zeros(5000)), 1.96 * difference.std() / math.sqrt(5000)
    assert got.mean == pytest.approx(difference.mean())
    assert (got.low, got.high) == pytest.approx((got.mean - half, got.mean + half), abs=0.03 * half)


def test_bootstrap_draws_queries_as_pairs():
    hard = np.random.default_rng(3).normal(0, 100, 500)
    got = metrics.bootstrap_difference(hard + 1, hard)
    assert (got.low, got.mean, got.high) == pytest.approx((1, 1, 1))


def test_bootstrap_gives_the_same_interval_each_time():
    left, right = np.random.default_rng(4).normal(size=(2, 50))
    assert metrics.bootstrap_difference(left, right) == metrics.bootstrap_difference(left, right)


def test_bootstrap_of_twenty_thousand_queries_takes_a_moment():
    left, right = np.random.default_rng(5).normal(size=(2, 20_000))
    start = time.process_time()
    metrics.bootstrap_difference(left, right)
    assert time.process_time() - start < 4  # .7 s on one core; the slack is for a busy machine


def test_bootstrap_refuses_a_query_without_a_score():
    with pytest.raises(ValueError, match=r"queries \[1\]"):
        metrics.bootstrap_difference((1.0, float("nan")), (0.0, 0.0))


def test_bootstrap_of_spearman_ranks_each_draw_anew():
    draw = np.random.default_rng(7)
    gold, left = draw.integers(4, size=30), draw.normal(size=30).round(1)
    right = gold + draw.normal(size=30)
    place = np.random.default_rng(0).integers(30, size=(200, 30))
    found = [metrics.spearman(left[at], gold[at]) - metrics.spearman(right[at], gold[at]) for at in place]
    got = metrics.bootstrap_spearman(gold, left, right, draws=200)
    assert (got.low, got.high) == pytest.approx(tuple(np.percentile(found, [2.5, 97.5])))
    assert got.mean == pytest.approx(metrics.spearman(left, gold) - metrics.spearman(right, gold))


def test_bootstrap_of_spearman_is_zero_for_the_same_side_twice():
    gold, left = np.random.default_rng(8).normal(size=(2, 50))
    assert metrics.bootstrap_spearman(gold, left, left) == metrics.Interval(0, 0, 0)


def test_bootstrap_of_spearman_leaves_out_draws_in_which_a_side_is_constant():
    got = metrics.bootstrap_spearman((1, 2, 3), (1, 2, 3), (3, 2, 1))
    assert (got.low, got.mean, got.high) == pytest.approx((200, 200, 200))


@pytest.mark.parametrize("left", [(1, 1, 1), (1, 2, float("nan"))])
def test_bootstrap_of_spearman_refuses_a_side_without_order(left):
    with pytest.raises(ValueError, match="Spearman is undefined"):
        metrics.bootstrap_spearman((1, 2, 3), left, (1, 2, 3))


def test_vectors_that_fill_all_directions_alike_have_the_rank_of_their_width():
    assert metrics.effective_rank(np.concatenate([np.eye(5), -3 * np.eye(5)])) == pytest.approx(5)


def test_vectors_of_one_direction_have_rank_one():
    assert metrics.effective_rank(np.array([[1.0, 2.0], [2.0, 4.0], [-1.0, -2.0]])) == pytest.approx(1)


def test_effective_rank_is_e_to_the_entropy_of_singular_values():
    vectors = np.random.default_rng(0).normal(size=(20, 4)) * [4, 2, 1, 0.5]
    values = np.linalg.svd(metrics.normalised(vectors), compute_uv=False)
    share = values / values.sum()
    assert metrics.effective_rank(vectors) == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_zeros_have_no_effective_rank():
    assert np.isnan(metrics.effective_rank(np.zeros((3, 2))))
