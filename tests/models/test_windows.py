"""Windows over the words of a lane, against plain loops over texts."""

import pytest
import torch
from scipy.stats import chisquare
from tiny import padded

from models.windows import around, before, keep_chances

MARK = 9


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def by_loop(texts, order):
    whole = [[MARK] * (order - 1) + text + [MARK] for text in texts]
    places = [(text, at) for text in whole for at in range(order - 1, len(text))]
    return [(text[at - order + 1 : at], text[at]) for text, at in places]


@pytest.mark.parametrize("order", [1, 2, 3, 6])
@pytest.mark.parametrize("extra", [0, 3])
def test_each_word_and_the_end_has_the_words_before_it_the_oldest_first(order, extra):
    texts = [[4, 5, 6, 7], [8], [3, 3]]
    windows = before(*padded(texts, filler=1, extra=extra), order, MARK)
    assert list(zip(windows.input.tolist(), windows.target_P.tolist(), strict=True)) == by_loop(texts, order)


def test_a_text_without_words_has_an_end():
    windows = before(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([0]), 3, MARK)
    assert windows.input.tolist() == [[MARK, MARK]] and windows.target_P.tolist() == [MARK]


def pairs(windows):
    return [(windows.input[a].item(), w) for a, w in zip(windows.anchor_P, windows.target_P.tolist(), strict=True)]


def test_a_radius_of_one_pairs_neighbours_of_a_text_both_ways():
    windows = around(*padded([[1, 2, 3], [4], [5, 6]], filler=7, extra=2), 1, torch.ones(8))
    assert sorted(pairs(windows)) == [(1, 2), (2, 1), (2, 3), (3, 2), (5, 6), (6, 5)]
    assert windows.input.tolist() == [1, 2, 3, 4, 5, 6]
    assert windows.told_words().tolist() == [1, 2, 1, 0, 1, 1]


def test_the_radius_is_even_from_one_to_the_window():
    """Of a pair d places apart, the anchor reaches the other with chance (5 - d + 1) / 5."""
    count = 4000
    windows = around(torch.arange(7).expand(count, 7), torch.full((count,), 7), 5, torch.ones(7))
    away = [(a - b) for a, b in pairs(windows) if a == 6]
    found = [away.count(d) for d in range(1, 6)] + [away.count(6)]
    assert found[0] == count and found[5] == 0
    for d in range(2, 6):
        expected = count * (6 - d) / 5
        assert chisquare([found[d - 1], count - found[d - 1]], [expected, count - expected]).pvalue > 0.001


def test_both_ends_draw_their_own_radius():
    windows = around(torch.tensor([[0, 1, 2]] * 500), torch.full((500,), 3), 2, torch.ones(3))
    there, back = ({a for a, p in zip(windows.anchor_P.tolist(), windows.target_P.tolist(), strict=True)
                    if (a % 3, p) == ends} for ends in ((0, 2), (2, 0)))  # fmt: skip
    assert {a // 3 for a in there} != {a // 3 for a in back}


def test_words_that_are_left_out_leave_no_gap():
    keep = torch.tensor([1.0, 0.0, 1.0])
    windows = around(torch.tensor([[0, 1, 1, 1, 2]]), torch.tensor([5]), 1, keep)
    assert sorted(pairs(windows)) == [(0, 2), (2, 0)]


def test_words_are_kept_as_often_as_they_should():
    windows = around(torch.arange(2).expand(3000, 2), torch.full((3000,), 2), 1, torch.tensor([1.0, 0.3]))
    kept = (windows.input == 1).sum().item()
    assert chisquare([kept, 3000 - kept], [900, 2100]).pvalue > 0.001


@pytest.mark.parametrize("texts", [[[1], [2]], [[]], [[1, 2]]])
def test_lanes_without_pairs_have_none(texts):
    windows = around(*padded(texts, extra=1), 5, torch.zeros(3) if len(texts[0]) == 2 else torch.ones(3))
    assert len(windows.target_P) == 0


def test_word2vecs_code_keeps_more_of_what_is_a_little_too_common():
    share_V = torch.tensor([1e-6, 1e-5, 2e-5, 4e-5, 1e-3], dtype=torch.float64)
    paper, code = keep_chances(share_V, 1e-5), keep_chances(share_V, 1e-5, "word2vec")
    assert paper.tolist() == pytest.approx([1, 1, 0.5**0.5, 0.5, 0.1])
    assert code.tolist() == pytest.approx([1, 1, 1, 0.75, 0.11])
