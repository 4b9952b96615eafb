"""Objectives: against double loops, at limits known on paper, and their invariances."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.objectives import COUNTS, OBJECTIVES, binary, hinge, kept, margin, softmax

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


def slow_binary(scores, answers):
    """Nats and pairs, by loops over plain numbers."""
    total, count = 0.0, 0
    for row, right in zip(scores, answers, strict=True):
        for column, score in enumerate(row):
            if score > -math.inf:
                chance = 1 / (1 + math.exp(-score))
                total -= math.log(chance if column in right else 1 - chance)
                count += 1
    return total, count


def slow_margin(scores, answers, by):
    """Sum and triples, by loops over plain numbers."""
    total, count = 0.0, 0
    for row, right in zip(scores, answers, strict=True):
        for p in sorted({column for column in right if column >= 0}):
            for c, score in enumerate(row):
                if c not in right and score > -math.inf and row[p] > -math.inf:
                    total, count = total + max(0.0, by - row[p] + score), count + 1
    return total, count


def once(answers):
    """Answers of an anchor, each column once."""
    return [[c if c not in row[:at] else -1 for at, c in enumerate(row)] for row in answers]


def found(objective, scores, answers, **options):
    amount, count = objective(torch.tensor(scores, dtype=torch.float64), torch.tensor(answers), **options)
    return amount.item(), count.item()


@cases_without_clock
@given(cases())
def test_binary_equals_a_double_loop(case):
    assert found(binary, *case) == pytest.approx(slow_binary(*case), abs=1e-9)


@cases_without_clock
@given(cases(), st.floats(0.1, 6))
def test_margin_equals_a_triple_loop(case, by):
    scores, answers = case[0], once(case[1])
    assert found(margin, scores, answers, margin=by) == pytest.approx(slow_margin(scores, answers, by), abs=1e-9)


@cases_without_clock
@given(cases())
def test_hinge_and_margin_are_one_sum(case):
    scores, answers = case[0], once(case[1])
    assert found(hinge, scores, answers, margin=2.0) == found(margin, scores, answers, margin=2.0)


@cases_without_clock
@given(cases())
def test_gradient_of_binary_is_chance_less_label(case):
    scores, answers = torch.tensor(case[0]).double().requires_grad_(), torch.tensor(case[1])
    binary(scores, answers)[0].backward()
    label = torch.tensor([[float(c in row) for c in range(scores.shape[1])] for row in case[1]])
    expected = torch.where(scores.detach() == -math.inf, 0.0, scores.detach().sigmoid() - label)
    torch.testing.assert_close(scores.grad, expected)


@pytest.mark.parametrize("name", COUNTS)
@cases_without_clock
@given(case=cases())
def test_a_count_is_known_without_scores(name, case):
    scores, answers = torch.tensor(case[0]), torch.tensor(once(case[1]))
    target = torch.zeros_like(scores) if name == "gram" else answers  # a teacher's scores, in place of answers
    assert COUNTS[name](kept(scores), answers) == OBJECTIVES[name](scores, target)[1]


def test_binary_of_zero_scores_is_the_log_of_two_a_pair():
    nats, count = found(binary, [[0.0] * 5] * 3, [[0], [2], [4]])
    assert (nats / count, count) == (pytest.approx(math.log(2)), 15)


def test_binary_of_large_scores_neither_overflows_nor_rounds_to_nothing():
    assert found(binary, [[-800.0, 800.0]], [[0]])[0] == 1600
    assert found(binary, [[30.0]], [[0]])[0] == pytest.approx(math.exp(-30), rel=1e-9)


@pytest.mark.parametrize("objective", [margin, hinge])
def test_scores_that_are_all_alike_cost_the_margin_a_triple(objective):
    total, count = found(objective, [[7.0] * 6] * 2, [[0, 3], [5, -1]], margin=2.5)
    assert (total, count) == (2.5 * 13, 2 * 4 + 5)


def test_a_right_answer_that_leads_by_the_margin_costs_nothing():
    assert found(margin, [[3.0, 2.0, -4.0]], [[0]]) == (0, 2)


def test_an_answer_that_is_left_out_leads_nobody():
    assert found(margin, [[-math.inf, 2.0, -1.0, 1.5]], [[0, 3]]) == (1.5 + 0, 2)


def test_anchors_without_a_wrong_candidate_make_no_triple():
    assert found(margin, [[3.0, -math.inf]], [[0]]) == (0, 0)


@pytest.mark.parametrize("objective", [binary, margin, hinge])
def test_what_is_left_out_has_no_gradient_and_spoils_none(objective):
    scores = draw(2, 6).index_fill(1, torch.tensor([0, 4]), -math.inf).requires_grad_()
    objective(scores, torch.tensor([[1, 4], [2, 3]]))[0].backward()
    assert scores.grad.isfinite().all() and not scores.grad[:, [0, 4]].any()
    assert scores.grad[:, [1, 2, 3, 5]].any()


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_score_that_is_no_number_shows(objective):
    assert math.isnan(found(objective, [[0.5, math.nan, 0.25]], [[0]])[0])


@pytest.mark.parametrize("objective", [margin, hinge])
def test_a_number_added_to_all_scores_of_an_anchor_changes_no_margin(objective):
    scores, answers = draw(3, 5), torch.tensor([[0], [2], [4]])
    added = scores + torch.tensor([[7.0], [-30.0], [500.0]])
    torch.testing.assert_close(objective(added, answers), objective(scores, answers))


def test_a_number_added_to_all_scores_changes_binary():
    scores, answers = draw(3, 5), torch.tensor([[0], [2], [4]])
    assert abs(binary(scores + 1, answers)[0] - binary(scores, answers)[0]) > 0.1


@pytest.mark.parametrize("objective", [binary, margin, hinge])
def test_sums_and_counts_of_parts_are_those_of_the_whole(objective):
    scores, answers = draw(5, 4), torch.tensor([[0, -1], [1, 2], [2, -1], [3, 0], [0, -1]])
    parts = [objective(scores[part], answers[part]) for part in (slice(0, 2), slice(2, 5), slice(5, 5))]
    torch.testing.assert_close([sum(side) for side in zip(*parts, strict=True)], list(objective(scores, answers)))


@pytest.mark.parametrize("objective", [margin, hinge])
@pytest.mark.parametrize("by", [0.0, -1.0, math.nan])
def test_a_margin_that_is_not_positive_is_refused(objective, by):
    with pytest.raises(ValueError, match=r"objective.margin is .*above 0"):
        objective(torch.zeros(1, 2), torch.tensor([[0]]), margin=by)
