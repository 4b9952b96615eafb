"""The Poincaré ball: printed values, what leaves distances alone, and its edge and its meeting points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hyperbolic import (
    arcosh_of_one_and,
    clip_to_ball,
    distances,
    riemannian_factor,
    with_riemannian_gradient,
)
from models.objectives import hinge
from models.similarity import cosine, poincare

Q, A, N = [0.3, 0.1], [-0.2, 0.4], [0.6, -0.5]  # question, right answer, wrong one
cases_without_clock = settings(deadline=None, database=None)  # shared machines are slow at random; leave no file


def points(*rows, grad=False):
    return torch.tensor(rows, dtype=torch.float64, requires_grad=grad)


def distance(left, right):
    return distances(points(left), points(right)).item()


def printed(*values, within=1.5e-6):
    return pytest.approx(values if len(values) > 1 else values[0], abs=within)


def moved(t, x):
    """Möbius translation of the points x [N, D] by t [D]."""
    dot, square = x @ t, x.square().sum(dim=1)
    along = (1 + 2 * dot + square)[:, None] * t + (1 - t @ t) * x
    return along / (1 + 2 * dot + (t @ t) * square)[:, None]


@st.composite
def in_ball(draw, count, farthest=0.99, width=3):
    """Points no farther out than `farthest`, some of them on that sphere."""
    rows = [draw(st.lists(st.floats(-1, 1), min_size=width, max_size=width)) for _ in range(count)]
    return clip_to_ball(torch.tensor(rows, dtype=torch.float64), farthest)


def test_distances_of_printed_points():
    found = distances(points(Q, A), points(A, N)).tolist()
    assert found[0] == printed(1.284272, 1.943771)  # 1.688867 with norms unsquared below, 1.617614 above
    assert found[1][1] == printed(3.022426)


def test_distance_from_the_centre_is_twice_the_artanh_of_the_length():
    assert distance([0.0, 0.0], Q) == printed(0.654900)
    assert distance([0.0, 0.0], Q) == pytest.approx(2 * math.atanh(math.hypot(*Q)), abs=1e-12)


def test_gradients_of_a_distance():
    q, a = points(Q, grad=True), points(A, grad=True)
    distances(q, a).sum().backward()
    assert q.grad[0].tolist() == printed(2.043310, -0.873589)
    assert a.grad[0].tolist() == printed(-1.948918, 1.565797)


def test_gradients_are_those_of_small_steps():
    torch.manual_seed(0)
    left, right = (clip_to_ball(torch.randn(n, 3, dtype=torch.float64), 0.9).requires_grad_() for n in (2, 3))
    assert torch.autograd.gradcheck(distances, (left, right))


def test_a_riemannian_gradient_has_length_1_in_the_metric():
    q = points(Q, grad=True)
    distances(with_riemannian_gradient(q), points(A)).sum().backward()
    assert riemannian_factor(q).item() == pytest.approx(0.2025, abs=1e-12)
    assert q.grad[0].tolist() == printed(0.413770, -0.176902)
    assert 2 / (1 - q.square().sum()).item() * q.grad.norm().item() == pytest.approx(1, abs=1e-12)


def test_the_factor_is_each_points_own_and_moves_none():
    before = points(Q, N, grad=True)
    after = with_riemannian_gradient(before)
    (after * points([1.0, 2.0], [3.0, 4.0])).sum().backward()
    expected = points([1.0, 2.0], [3.0, 4.0]) * torch.tensor([[0.2025], [(1 - 0.61) ** 2 / 4]])
    assert torch.equal(after, before)
    torch.testing.assert_close(before.grad, expected)


def test_without_a_gradient_there_is_nothing_to_rescale():
    assert with_riemannian_gradient(points(Q)).grad_fn is None


def test_translation_of_printed_points():
    t = torch.tensor([0.25, -0.35], dtype=torch.float64)
    q, a = moved(t, points(Q, A)).tolist()
    assert [*q, *a] == printed(0.491124, -0.301775, 0.063927, 0.059361)
    assert distance(q, a) == printed(1.284272)


def test_scaling_changes_distances():
    assert distance([0.15, 0.05], [-0.1, 0.2]) == printed(0.596961)


@cases_without_clock
@given(in_ball(2), in_ball(1, farthest=0.9))
def test_translations_change_no_distance(pair, by):
    before, after = (distances(x[:1], x[1:]).item() for x in (pair, moved(by[0], pair)))
    assert after == pytest.approx(before, rel=1e-9, abs=1e-6)


@cases_without_clock
@given(in_ball(2), st.integers(0, 1000))
def test_rotations_change_no_distance(pair, seed):
    draw = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=draw)).Q
    before, after = (distances(x[:1], x[1:]).item() for x in (pair, pair @ turn))
    assert after == pytest.approx(before, rel=1e-9, abs=1e-7)


@cases_without_clock
@given(in_ball(4))
def test_distances_there_and_back_are_the_same(four):
    torch.testing.assert_close(distances(four, four), distances(four, four).T, rtol=0, atol=1e-12)


@cases_without_clock
@given(in_ball(3))
def test_no_way_round_is_shorter(three):
    d = distances(three, three)
    assert d[0, 1] <= d[0, 2] + d[2, 1] + 1e-9


@cases_without_clock
@given(in_ball(2))
def test_a_distance_is_that_from_the_centre_once_one_point_is_moved_there(pair):
    length = moved(-pair[0], pair[1:]).norm().item()
    assert distances(pair[:1], pair[1:]).item() == pytest.approx(2 * math.atanh(length), rel=1e-9, abs=1e-6)


@cases_without_clock
@given(in_ball(3, farthest=1.0), in_ball(3, farthest=1.0))
def test_values_and_gradients_are_finite_up_to_the_edge(left, right):
    left, right = left.requires_grad_(), torch.cat([right, left.detach()]).requires_grad_()
    found = distances(left, right)
    found.sum().backward()
    assert found.isfinite().all() and left.grad.isfinite().all() and right.grad.isfinite().all()


@pytest.mark.parametrize("factor", [1.0, 1 - 1e-16, 1.5, 1e6])
def test_values_and_gradients_are_finite_on_the_edge_and_beyond(factor):
    x = (factor * points([0.6, 0.8], [0.0, 1.0], [0.6, 0.8])).requires_grad_()
    found = distances(x, x[:1])
    found.sum().backward()
    assert found.isfinite().all() and x.grad.isfinite().all()


def test_close_to_the_edge():
    near = (1 - 1e-5) * points([0.6, 0.8], [0.0, 1.0])
    assert distances(near[:1], near[1:]).item() == printed(22.109550)


def test_where_points_meet_the_distance_is_next_to_nothing_and_has_no_gradient():
    q = points(Q, grad=True)
    found = distances(q, points(Q))
    found.sum().backward()
    assert 0 < found.item() < 1e-7 and q.grad.tolist() == [[0, 0]]


def test_arcosh_of_a_little_more_than_1():
    found = arcosh_of_one_and(torch.tensor(1e-8, dtype=torch.float64)).item()
    assert found == printed(1.414214e-4, within=1e-10)  # arcosh of 1 + 1e-8 in float32 is 0
    assert found == pytest.approx(2 * math.asinh(math.sqrt(1e-8 / 2)), rel=1e-12, abs=0)


@pytest.mark.parametrize("t", [10.0**power for power in range(-14, 13)])
def test_arcosh_is_twice_the_arsinh_of_the_root_of_half(t):
    found = arcosh_of_one_and(torch.tensor(t, dtype=torch.float64)).item()
    assert found == pytest.approx(2 * math.asinh(math.sqrt(t / 2)), rel=1e-12, abs=0)


def test_close_points_are_told_apart():
    """By |x|^2 + |y|^2 - 2 x.y the difference of 1e-9 would drown in rounding."""
    near = points([0.3 + 1e-6, 0.1])
    expected = 2 * math.asinh(1e-6 / math.sqrt(0.9 * (1 - near.square().sum().item())))
    assert distances(points(Q), near).item() == pytest.approx(expected, rel=1e-9, abs=0)


def test_float32_is_computed_and_answered_in_float64():
    left, right = points(Q).float().requires_grad_(), points(A).float()
    found = poincare(left, right)
    found.sum().backward()
    assert (found.dtype, left.grad.dtype) == (torch.float64, torch.float32)
    assert found.item() == pytest.approx(poincare(left.double(), right.double()).item(), rel=1e-15)


def test_the_score_is_less_the_distance_over_the_temperature():
    assert poincare(points(Q), points(A, N)).tolist()[0] == printed(-1.284272, -1.943771)
    assert poincare(points(Q), points(A), temperature=0.5).item() == printed(-2 * 1.284272, within=3e-6)


def test_a_vector_within_the_ball_stays_to_the_bit_and_a_longer_one_keeps_its_direction():
    inside, outside = points([0.3, 0.1], [0.0, 0.0], [0.99, 0.0]), points([3.0, 4.0])
    assert torch.equal(clip_to_ball(inside), inside)
    torch.testing.assert_close(clip_to_ball(outside, 0.5), points([0.3, 0.4]))


def test_a_sum_of_projected_words_is_clipped_to_the_edge():
    assert clip_to_ball(points([1.05, 0.9]), 1.0)[0].tolist() == printed(0.759257, 0.650791)


def test_clipping_has_a_gradient_at_zero_and_none_outwards():
    x = points([0.0, 0.0], [3.0, 4.0], grad=True)
    (clip_to_ball(x) * points([1.0, 1.0], [3.0, 4.0])).sum().backward()
    torch.testing.assert_close(x.grad, points([1.0, 1.0], [0.0, 0.0]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("radius", [0, -1, 1.01, math.nan])
def test_a_radius_that_is_not_in_the_ball_is_refused(radius):
    with pytest.raises(ValueError, match=r"radius is .*; the ball's own is 1"):
        clip_to_ball(points(Q), radius)


def energies():
    """The weight and bias of the energies, the question, and scores of its right and its wrong answer."""
    w, b = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.5, 0.2))
    q = points(Q, grad=True)
    return w, b, q, -(w * -poincare(q, points(A, N)) + b)


def test_energies_of_printed_points():
    assert (-energies()[3]).tolist()[0] == printed(2.126408, 3.115657)


def test_hinge_of_energies_and_its_gradients():
    w, b, q, score = energies()
    answer = torch.tensor([[0]])
    assert hinge(score, answer, margin=1.0)[0].item() == printed(0.0107512, within=1e-7)
    lost, count = hinge(score, answer, margin=5.0)
    lost.backward()
    assert (lost.item(), count.item()) == (printed(4.010751), 1)
    assert q.grad[0].tolist() == printed(3.814496, -4.558354)
    assert w.grad.item() == printed(-0.659499) and b.grad.item() == 0


def test_the_cosine_prefers_the_other_answer():
    near = cosine(points(Q), points(A, N))
    assert near[0].tolist() == printed(-0.141421, 0.526355)
    assert hinge(1.5 * near, torch.tensor([[0]]), margin=1.0)[0].item() == printed(2.001664)
    assert poincare(points(Q), points(A, N)).argmax() == 0
