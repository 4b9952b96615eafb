"""Nearest texts in blocks, and lists that merge."""

import numpy as np
import pytest
import torch

from pipeline import mine_search
from pipeline.mine_search import Lists, exact, listed, top, unit


def vectors(seed, count, width=24):
    return unit(np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32))


def plainly(query_QD, text_ND, k):
    """By float64 and a whole sort."""
    score_QN = query_QD.astype(np.float64) @ text_ND.T.astype(np.float64)
    row_QK = np.argsort(-score_QN, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(score_QN, row_QK, axis=1), row_QK


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("texts", [5, 700, 3000])
def test_the_search_finds_what_a_whole_sort_finds(monkeypatch, rounded, texts):
    monkeypatch.setattr(mine_search, "CELLS", 50_000)  # several blocks
    query_QD, text_ND = vectors(1, 120), vectors(2, texts)
    score_QK, row_QK = exact(query_QD, text_ND, 9, rounded=rounded)
    right_QK, right_row_QK = plainly(query_QD, text_ND, 9)
    assert np.array_equal(row_QK, right_row_QK)
    assert np.abs(score_QK - right_QK).max() < 1e-6


def test_texts_too_close_for_rounding_are_found_all_the_same():
    near_ND = unit(vectors(3, 1)[0] + 1e-4 * vectors(4, 2000))  # bfloat16 cannot tell these apart
    query_QD = vectors(5, 20)
    _, row_QK = exact(query_QD, near_ND, 5, rounded=True)
    right_QK = plainly(query_QD, near_ND, 5)[0]
    found_QK = np.einsum("qd,qkd->qk", query_QD.astype(np.float64), near_ND[row_QK].astype(np.float64))
    assert np.abs(found_QK - right_QK).max() < 2e-7


def test_a_row_is_believed_only_where_rounding_cannot_have_hidden_a_nearer_text():
    look = mine_search._Rounded(torch.from_numpy(unit(vectors(3, 1)[0] + 1e-4 * vectors(4, 2000))))
    assert not look.top(torch.from_numpy(vectors(5, 20)), 5)[2].any()
    spread = mine_search._Rounded(torch.from_numpy(vectors(6, 2000)))
    assert spread.top(torch.from_numpy(vectors(6, 2000)[:20]), 1)[2].all()


def test_the_highest_of_layered_scores_are_those_of_a_whole_sort():
    score_BN = torch.from_numpy(np.random.default_rng(7).standard_normal((6, 32 * 90 + 7)).astype(np.float32))
    score_BN[:, -1] = 9.0  # in the rest behind the last layer
    value_BM, column_BM = top(score_BN, 11)
    assert torch.equal(value_BM, score_BN.sort(dim=1, descending=True).values[:, :11])
    assert torch.equal(score_BN.gather(1, column_BM), value_BM)


def lists_of(query_QD, text_ND, first, group_N, k):
    numbers_N = np.arange(first, first + len(text_ND), dtype=np.uint64)
    return listed(*exact(query_QD, text_ND, k), numbers_N, group_N)


def test_lists_of_parts_merge_into_the_list_of_all():
    query_QD, text_ND, group_N = vectors(8, 40), vectors(9, 300), np.arange(300, dtype=np.uint64)
    one = lists_of(query_QD, text_ND[:7], 0, group_N[:7], 10)  # fewer than a list holds
    other = lists_of(query_QD, text_ND[7:], 7, group_N[7:], 10)
    whole = lists_of(query_QD, text_ND, 0, group_N, 10)
    for found in (one.merged(other, 10), other.merged(one, 10), Lists.none(40).merged(whole, 10)):
        assert np.array_equal(found.text_QK, whole.text_QK)
        assert np.allclose(found.score_QK, whole.score_QK, atol=1e-6)


def test_a_group_stands_once_and_by_its_smallest_number():
    one = Lists(*(np.array([row], kind) for row, kind in (([0.9, 0.5], "f4"), ([7, 8], "u8"), ([1, 2], "u8"))))
    other = Lists(*(np.array([row], kind) for row, kind in (([0.9, 0.4], "f4"), ([3, 4], "u8"), ([1, 3], "u8"))))
    found = one.merged(other, 4)
    assert found.text_QK.tolist() == [[3, 8, 4, 0]]
    assert found.group_QK.tolist() == [[1, 2, 3, 0]]
    assert found.score_QK[0].tolist() == pytest.approx([0.9, 0.5, 0.4, -np.inf])


def test_a_vector_of_zeros_has_no_direction_and_scores_nothing():
    zero_ND = np.zeros((2, 4), np.float32)
    assert np.array_equal(unit(zero_ND), zero_ND)
    assert exact(unit(zero_ND), vectors(1, 3, 4), 2)[0].tolist() == [[0, 0], [0, 0]]
