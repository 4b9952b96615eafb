"""Dot product and cosine: values by hand, and what must leave them alone."""

import pytest
import torch

from models.similarity import SIMILARITIES, cosine, dot


def draw(rows, width=5, seed=0):
    return torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rotation(width=5):
    return torch.linalg.qr(draw(width, width, seed=7)).Q


def slow(anchors, candidates, temperature):
    return torch.tensor(
        [[sum(x * y for x, y in zip(a, c, strict=True)) / temperature for c in candidates] for a in anchors]
    )


def test_dot_is_the_sum_of_products_over_the_temperature():
    anchors, candidates = draw(3), draw(4, seed=1)
    expected = slow(anchors.tolist(), candidates.tolist(), 0.5)
    torch.testing.assert_close(dot(anchors, candidates, temperature=0.5), expected.double(), rtol=1e-6, atol=1e-6)


def test_cosine_of_known_angles():
    anchors, candidates = torch.tensor([[3.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-4.0, 0.0]])
    torch.testing.assert_close(cosine(anchors, candidates), torch.tensor([[1.0, 0.0, 0.5**0.5, -1.0]]))


def test_temperature_divides_the_cosine():
    anchors, candidates = draw(3), draw(4, seed=1)
    torch.testing.assert_close(cosine(anchors, candidates, temperature=0.05), cosine(anchors, candidates) * 20)


def test_cosine_of_a_zero_vector_is_zero():
    assert cosine(torch.zeros(1, 3), torch.ones(2, 3)).tolist() == [[0.0, 0.0]]


def test_gradient_at_a_zero_vector_is_finite():
    zero = torch.zeros(1, 3, requires_grad=True)
    cosine(zero, torch.ones(2, 3)).sum().backward()
    assert zero.grad.isfinite().all()


def test_the_length_of_a_vector_leaves_the_cosine_alone():
    anchors, candidates = draw(3), draw(4, seed=1)
    longer = candidates * torch.tensor([[0.1], [1.0], [7.0], [1000.0]])
    torch.testing.assert_close(cosine(anchors * 3, longer), cosine(anchors, candidates))


def test_the_length_of_a_vector_changes_the_dot_product():
    assert not torch.allclose(dot(draw(3) * 3, draw(4)), dot(draw(3), draw(4)))


@pytest.mark.parametrize("similarity", SIMILARITIES.values())
def test_one_rotation_of_both_sides_changes_nothing(similarity):
    anchors, candidates, turn = draw(3), draw(4, seed=1), rotation()
    torch.testing.assert_close(similarity(anchors @ turn, candidates @ turn), similarity(anchors, candidates))


def test_a_cosines_gradient_stands_upright_on_its_vector():
    anchors, candidates = draw(3).requires_grad_(), draw(4, seed=1).requires_grad_()
    (cosine(anchors, candidates) * draw(3, 4, seed=2)).sum().backward()
    for vector in (anchors, candidates):
        torch.testing.assert_close((vector * vector.grad).sum(dim=1), torch.zeros(len(vector), dtype=torch.float64))


@pytest.mark.parametrize("similarity", SIMILARITIES.values())
def test_a_temperature_that_is_not_positive_is_refused(similarity):
    with pytest.raises(ValueError, match="temperature is 0"):
        similarity(draw(1), draw(1), temperature=0)
