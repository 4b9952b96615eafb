"""The softmax objective: against double loops, at limits known on paper, and its invariances."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.objectives import softmax

cases_without_clock = settings(deadline=None, database=None)  # shared machines are slow at random; leave no file


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow(scores, answers):
    """Nats summed over anchors, by double loops over plain numbers; -inf has weight 0."""
    total = 0.0
    for row, right in zip(scores, answers, strict=True):
        below = sum(math.exp(score) for score in row)
        right = [column for column in right if column >= 0]
        total -= sum(math.log(math.exp(row[column]) / below) for column in right) / len(right)
    return total


@st.composite
def cases(draw):
    candidates = draw(st.integers(1, 6))
    places = draw(st.integers(1, 3))
    anchors = draw(st.integers(1, 4))
    answers = [
        draw(st.lists(st.integers(-1, candidates - 1), min_size=places, max_size=places).filter(lambda x: max(x) >= 0))
        for _ in range(anchors)
    ]
    score = st.one_of(st.floats(-5, 5), st.just(-math.inf))
    scores = [draw(st.lists(score, min_size=candidates, max_size=candidates)) for _ in range(anchors)]
    for row, right in zip(scores, answers, strict=True):
        for column in right:
            if column >= 0 and row[column] == -math.inf:
                row[column] = 0.5
    return scores, answers


@cases_without_clock
@given(cases())
def test_softmax_equals_a_double_loop(case):
    scores, answers = case
    nats, anchors = softmax(torch.tensor(scores, dtype=torch.float64), torch.tensor(answers))
    assert (nats.item(), anchors.item()) == (pytest.approx(slow(scores, answers), abs=1e-9), len(scores))


@cases_without_clock
@given(cases())
def test_gradient_is_softmax_less_target_and_sums_to_zero(case):
    scores, answers = (torch.tensor(side) for side in case)
    scores = scores.double().requires_grad_()
    softmax(scores, answers)[0].backward()
    target = torch.zeros_like(scores)
    for row, right in enumerate(answers.tolist()):
        right = [column for column in right if column >= 0]
        for column in right:
            target[row, column] += 1 / len(right)
    torch.testing.assert_close(scores.grad, scores.detach().softmax(dim=1) - target)
    torch.testing.assert_close(scores.grad.sum(dim=1), torch.zeros(len(scores), dtype=torch.float64))


def test_softmax_of_equal_scores_is_the_log_of_the_candidates():
    nats, anchors = softmax(torch.zeros(3, 8), torch.tensor([[0], [5], [7]]))
    assert nats.item() / anchors.item() == pytest.approx(math.log(8))


def test_a_candidate_left_out_is_not_counted():
    scores = torch.zeros(1, 8)
    scores[0, 3:6] = -math.inf
    assert softmax(scores, torch.tensor([[0]]))[0].item() == pytest.approx(math.log(5))


def test_a_candidate_left_out_has_no_gradient_and_spoils_none():
    scores = draw(2, 5).index_fill(1, torch.tensor([0, 4]), -math.inf).requires_grad_()
    softmax(scores, torch.tensor([[1, -1], [2, 3]]))[0].backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[:, [0, 4]].any()


def test_two_answers_cost_at_least_the_log_of_two():
    scores = torch.full((1, 6), -1000.0).index_fill(1, torch.tensor([2, 4]), 0.0)
    assert softmax(scores, torch.tensor([[2, 4]]))[0].item() == pytest.approx(math.log(2))


def test_a_sure_and_right_anchor_costs_nothing():
    assert softmax(torch.tensor([[1000.0, 0.0]]), torch.tensor([[0]]))[0].item() == 0


def test_places_that_fill_change_nothing():
    scores = draw(2, 4)
    filled = softmax(scores, torch.tensor([[1, -1, 2], [-1, 0, -1]]))
    torch.testing.assert_close(
        filled[0], softmax(scores[:1], torch.tensor([[1, 2]]))[0] + softmax(scores[1:], torch.tensor([[0]]))[0]
    )


def test_a_number_added_to_all_scores_of_an_anchor_changes_nothing():
    scores, answers = draw(3, 5), torch.tensor([[0], [2], [4]])
    added = scores + torch.tensor([[7.0], [-30.0], [500.0]])
    torch.testing.assert_close(softmax(added, answers), softmax(scores, answers))


def test_the_order_of_candidates_changes_nothing():
    scores, order = draw(2, 4), torch.tensor([2, 0, 3, 1])
    there, back = torch.tensor([[0, 1], [3, -1]]), torch.tensor([[1, 3], [2, -1]])
    torch.testing.assert_close(softmax(scores[:, order], back), softmax(scores, there))


def test_sums_of_parts_are_the_sum_of_the_whole():
    scores, answers = draw(5, 4), torch.tensor([[0], [1], [2], [3], [0]])
    parts = [softmax(scores[part], answers[part]) for part in (slice(0, 2), slice(2, 5))]
    torch.testing.assert_close([sum(side) for side in zip(*parts, strict=True)], list(softmax(scores, answers)))


def test_no_anchors_are_no_nats():
    scores = torch.zeros(0, 4, requires_grad=True)
    nats, anchors = softmax(scores, torch.zeros(0, 1, dtype=torch.int64))
    nats.backward()
    assert (nats.item(), anchors.item()) == (0, 0)


def test_an_anchor_without_an_answer_is_refused_by_number():
    with pytest.raises(ValueError, match=r"anchors \[1\] have no right answer"):
        softmax(torch.zeros(2, 3), torch.tensor([[0], [-1]]))
