"""Dot product and cosine: values by hand, and what must leave them alone."""

import pytest
import torch

from models.objectives import hinge, softmax
from models.similarity import SIMILARITIES, Bilinear, Energy, cosine, dot, poincare

FUNCTIONS = [part for part in SIMILARITIES.values() if not isinstance(part, type)]


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


@pytest.mark.parametrize("similarity", FUNCTIONS)
def test_one_rotation_of_both_sides_changes_nothing(similarity):
    anchors, candidates, turn = draw(3), draw(4, seed=1), rotation()
    torch.testing.assert_close(similarity(anchors @ turn, candidates @ turn), similarity(anchors, candidates))


def test_a_cosines_gradient_stands_upright_on_its_vector():
    anchors, candidates = draw(3).requires_grad_(), draw(4, seed=1).requires_grad_()
    (cosine(anchors, candidates) * draw(3, 4, seed=2)).sum().backward()
    for vector in (anchors, candidates):
        torch.testing.assert_close((vector * vector.grad).sum(dim=1), torch.zeros(len(vector), dtype=torch.float64))


@pytest.mark.parametrize("similarity", FUNCTIONS)
def test_a_temperature_that_is_not_positive_is_refused(similarity):
    with pytest.raises(ValueError, match="temperature is 0"):
        similarity(draw(1), draw(1), temperature=0)


def the_bilinear():
    """Contexts [4, 2], candidates [4, 3] and a form between them."""
    contexts = torch.tensor([[0.5, -1], [1, 0.2], [-0.3, 0.8], [0, 1]], dtype=torch.float64)
    candidates = torch.tensor(
        [[0.9, 0.4, -0.6], [0.1, -0.8, 0.5], [-0.5, 0.6, 0.7], [0.7, 0.6, 0.3]], dtype=torch.float64
    )
    form = Bilinear(widths=(2, 3)).double()
    with torch.no_grad():
        form.weight.copy_(torch.tensor([[0.6, -0.2], [0.1, 0.9], [-0.4, 0.3]]))
    return form, contexts, candidates


def test_a_bilinear_score_is_the_candidate_times_the_form_times_the_anchor():
    form, contexts, candidates = the_bilinear()
    slowly = [[float(z @ form.weight.detach() @ c) for z in candidates] for c in contexts]
    torch.testing.assert_close(form(contexts, candidates), torch.tensor(slowly, dtype=torch.float64))


def test_infonce_of_a_bilinear_form_is_the_papers_value_and_gradient():
    form, contexts, candidates = the_bilinear()
    total, count = softmax(form(contexts, candidates), torch.arange(4)[:, None])
    (total / count).backward()
    assert (total / count).item() == pytest.approx(1.257798, abs=1e-6)
    expected = [[0.008790, 0.124256], [0.245589, 0.072336], [-0.016417, -0.256044]]
    torch.testing.assert_close(form.weight.grad, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_softmax_over_anchors_instead_of_candidates_is_another_loss():
    form, contexts, candidates = the_bilinear()
    total, count = softmax(form(contexts, candidates).T, torch.arange(4)[:, None])
    assert (total / count).item() == pytest.approx(1.246128, abs=1e-6)


def test_a_bilinear_form_refuses_a_temperature_that_is_not_positive():
    with pytest.raises(ValueError, match="temperature is 0"):
        Bilinear(temperature=0, widths=(2, 2))


Q, A, N = (torch.tensor([point], dtype=torch.float64) for point in ([0.3, 0.1], [-0.2, 0.4], [0.6, -0.5]))


def energy(w=None, b=0.2, **options):
    """An energy of that weight and bias, in float64."""
    made = Energy(widths=(2, 2), **options).double()
    with torch.no_grad():
        if w is not None:
            raw = w if options.get("free") else torch.tensor(w, dtype=torch.float64).expm1().log()
            made.weight.copy_(torch.as_tensor(raw))
        made.bias.fill_(b)
    return made


@pytest.mark.parametrize("free", [False, True])
def test_energies_of_distances_of_printed_points(free):
    found = energy(1.5, free=free)(Q, torch.cat([A, N]))
    assert (-found).tolist()[0] == pytest.approx([2.126408, 3.115657], abs=1.5e-6)


def test_energies_of_cosines_of_printed_points():
    found = energy(1.5, of="cosine")(Q, torch.cat([A, N]))
    assert found.tolist()[0] == pytest.approx([1.5 * -0.141421 + 0.2, 1.5 * 0.526355 + 0.2], abs=2e-6)
    assert hinge(found, torch.tensor([[0]]), margin=1.0)[0].item() == pytest.approx(2.001664, abs=1.5e-6)


@pytest.mark.parametrize("of", ["poincare", "cosine"])
@pytest.mark.parametrize("free", [False, True])
def test_a_new_energy_is_the_plain_score(of, free):
    plain = {"poincare": poincare, "cosine": cosine}[of]
    found = Energy(of=of, free=free, widths=(2, 2))(Q, torch.cat([A, N]))
    torch.testing.assert_close(found, plain(Q, torch.cat([A, N])), rtol=1e-6, atol=0)


def test_a_hinge_of_energies_moves_the_question_and_the_weight_but_no_bias():
    made, q = energy(1.5, free=True), Q.clone().requires_grad_()
    lost, _ = hinge(made(q, torch.cat([A, N])), torch.tensor([[0]]), margin=5.0)
    lost.backward()
    assert lost.item() == pytest.approx(4.010751, abs=1.5e-6)
    assert q.grad[0].tolist() == pytest.approx([3.814496, -4.558354], abs=1.5e-6)
    assert made.weight.grad.item() == pytest.approx(-0.659499, abs=1.5e-6)
    assert made.bias.grad.item() == 0


def test_a_weight_that_is_not_free_takes_its_gradient_through_the_softplus():
    """Of softplus the slope is 1 - exp(-w), w being its value."""
    made = energy(1.5)
    hinge(made(Q, torch.cat([A, N])), torch.tensor([[0]]), margin=5.0)[0].backward()
    assert made.weight.grad.item() == pytest.approx(-0.659499 * (1 - 2.718281828**-1.5), abs=2e-6)


@pytest.mark.parametrize("of", ["poincare", "cosine"])
def test_a_bias_has_no_gradient_under_the_sum_of_many_hinges(of):
    made = energy(1.3, of=of)
    score = made(0.4 * torch.tanh(draw(7, 2)), 0.4 * torch.tanh(draw(9, 2, seed=1)))
    hinge(score, torch.arange(7)[:, None], margin=5.0)[0].backward()
    assert made.bias.grad.item() == 0 and made.weight.grad.abs().item() > 1e-3


def test_only_a_free_weight_turns_the_order_round():
    turned, kept = energy(-1.0, free=True), energy()
    with torch.no_grad():
        kept.weight.fill_(-100.0)
    assert turned(Q, torch.cat([A, N])).argmax() == 1 and kept(Q, torch.cat([A, N]))[0].diff() <= 0


def test_the_temperature_divides_an_energy():
    torch.testing.assert_close(energy(1.5, temperature=0.5)(Q, A), 2 * energy(1.5)(Q, A))


def test_an_energy_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="temperature is 0"):
        Energy(temperature=0, widths=(2, 2))
    with pytest.raises(ValueError, match="an anchor's vector has 2 numbers and a candidate's 3"):
        Energy(widths=(2, 3))


@pytest.mark.parametrize("of", ["poincare", "cosine"])
def test_one_rotation_of_both_sides_changes_no_energy(of):
    left, right, turn = 0.3 * torch.tanh(draw(3)), 0.3 * torch.tanh(draw(4, seed=1)), rotation()
    made = Energy(of=of, widths=(5, 5)).double()
    torch.testing.assert_close(made(left @ turn, right @ turn), made(left, right))
