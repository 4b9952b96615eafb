"""
SimCSE and its descendants put together from their parts, against numbers worked out by plain numpy in float64.

Gao, Yao and Chen 2021 (SimCSE), equations 4 and 5; Wu et al. 2022 (ESimCSE), equation 6; Yan et al. 2021 (ConSERT),
equation 1; Jiang et al. 2022 (PromptBERT), section 4.3.
"""

import math

import pytest
import torch
from tiny import A, B, C, Q, build, examples, lying_by_example, sides

from models.candidates import FILLER, Rows, other_view
from models.method import Method
from models.objectives import softmax
from models.similarity import cosine

D = [[0.1, 0.1, 0], [0.1, 0.1, 0], [0, 0.2, 0.1], [0.1, 0, 0.1]]  # template vectors of first views
E = [[0, 0.1, -0.1], [0.1, 0, 0.1], [0, 0.1, 0.1], [0.2, 0.1, 0]]  # and of second views


def method_of(name, temperature=None, *overrides):
    """A method of three numbers a vector; its own temperature unless told another."""
    size = ("encoder.width=3", "encoder.heads=1", "encoder.inner=4")
    terms = () if temperature is None else (f"terms.0.similarity.temperature={temperature}",)
    return build(name, *size, *terms, *overrides)


def loss(method, *views, rows=None):
    """The loss of views, as one worker has it."""
    vectors = lying_by_example(*views)
    rows = rows or examples(len(views[0]), len(views))
    return Method.loss(method, rows, torch.ones(len(vectors), dtype=torch.bool), {"f": vectors})


def printed(*values):
    return pytest.approx(values if len(values) > 1 else values[0], abs=1.5e-6)


@pytest.mark.parametrize(("temperature", "expected"), [(0.05, 0.00227688), (0.5, 0.410013)])
def test_unsupervised_loss(temperature, expected):
    assert loss(method_of("simcse-unsup", temperature), *sides(A, B)).item() == pytest.approx(expected, abs=1.1e-6)


def test_the_recipes_own_temperature_is_a_twentieth():
    assert loss(method_of("simcse-unsup"), *sides(A, B)).item() == printed(0.002277)


@pytest.mark.parametrize(
    ("name", "temperature", "views", "expected"),
    [
        ("simcse-unsup", 0.05, (A, B), 0.00227688),
        ("simcse-unsup", 0.5, (A, B), 0.410013),
        ("simcse-sup", 0.5, (A, B, C), 1.000216),
        ("consert", 0.1, (A, B), 0.0703303),
        ("consert", 0.5, (A, B), 0.685921),
        ("promptbert", 0.5, (A, B), 0.410013),
    ],
)
def test_losses_in_float32(name, temperature, views, expected):
    single = [side.detach().float() for side in sides(*views)]
    assert loss(method_of(name, temperature).float(), *single).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("temperature", "first", "second"),
    [
        (0.05, (0.002746, 0.006342, 0.011833), None),
        (0.5, (0.028540, 0.057317, 0.114397), (0.012288, 0.048244, 0.050594)),
    ],
)
def test_unsupervised_gradient(temperature, first, second):
    a, b = sides(A, B)
    loss(method_of("simcse-unsup", temperature), a, b).backward()
    assert a.grad[0].tolist() == printed(*first)
    assert second is None or b.grad[0].tolist() == printed(*second)


def test_losses_of_rows_are_each_ones_own():
    a, b = sides(A, B)
    rows, vectors = examples(4, 2), lying_by_example(a, b)
    found = []
    for anchor in (0, 2, 4, 6):
        own_B = torch.zeros(8, dtype=torch.bool)
        own_B[anchor] = True
        found.append(4 * method_of("simcse-unsup", 0.5).loss(rows, own_B, {"f": vectors}).item())
    assert found == printed(0.523828, 0.188916, 0.297892, 0.629417)


def test_two_workers_without_each_others_candidates_would_have_another_loss():
    method = method_of("simcse-unsup", 0.5)
    halves = [loss(method, *(side[half] for side in sides(A, B))).item() for half in (slice(0, 2), slice(2, 4))]
    assert sum(halves) / 2 == printed(0.119894)


@pytest.mark.parametrize(
    ("temperature", "log_alpha", "expected"),
    [(0.05, 0, 0.0889942), (0.5, 0, 1.000216), (0.5, math.log(2), 1.011417), (0.5, 1, 1.019376)],
)
def test_supervised_loss(temperature, log_alpha, expected):
    method = method_of("simcse-sup", temperature, f"terms.0.candidates.log_alpha={log_alpha}")
    found = loss(method, *sides(A, B, C)).item()
    assert found == printed(expected) and found != printed(0.429699)  # what the own negative alone would give


def test_supervised_gradient():
    a, b, c = sides(A, B, C)
    loss(method_of("simcse-sup", 0.5), a, b, c).backward()
    assert a.grad[0].tolist() == printed(0.008346, 0.041755, 0.058447)
    assert c.grad.abs().min() > 0


def test_with_hard_negatives_left_out_supervised_is_unsupervised():
    a, b, c = sides(A, B, C)
    rows = examples(4, 3)
    side_B = rows.side_B.where(rows.view_B < 2, FILLER)
    without = Rows(side_B, rows.group_B, rows.answers_BP, rows.view_B)
    assert loss(method_of("simcse-sup", 0.5), a, b, c, rows=without).item() == printed(0.410013)
    assert loss(method_of("simcse-sup", 0.5, "terms.0.candidates.hard=false"), a, b, c).item() == printed(0.410013)


def test_a_single_triple_with_its_negative_weighed_away_costs_nothing():
    a, b, c = (side[:1] for side in sides(A, B, C))
    rows, vectors = examples(1, 3), lying_by_example(a, b, c)
    pool = other_view(rows, torch.tensor([0]), vectors, hard=True, log_alpha=-math.inf)
    assert softmax(cosine(a, pool.candidate_CD) + pool.shift_AC, pool.answer_AP)[0].item() == 0


def queued(temperature=None):
    method = method_of("esimcse", temperature, "terms.0.candidates.queue=2")
    method.queue(0).push(torch.tensor(Q), torch.tensor([-1, -2]))
    return method


@pytest.mark.parametrize(("temperature", "expected"), [(None, 0.0434226), (0.5, 0.715889)])
def test_loss_with_a_queue(temperature, expected):
    assert loss(queued(temperature), *sides(A, B)).item() == printed(expected)


def test_gradient_with_a_queue():
    a, b = sides(A, B)
    method = queued(0.5)
    loss(method, a, b).backward()
    assert a.grad[0].tolist() == printed(0.003511, 0.106782, 0.113804)
    assert not method.queue(0).memory().vector_MD.requires_grad


def test_with_an_empty_queue_esimcse_is_simcse():
    assert loss(method_of("esimcse"), *sides(A, B)).item() == printed(0.002277)


@pytest.mark.parametrize(("temperature", "expected"), [(0.1, 0.0703303), (0.5, 0.685921)])
def test_consert_loss(temperature, expected):
    """Both directions; positives wrongly paired would give 11.3, the own row kept 0.902172, one direction 0.032863."""
    found = loss(method_of("consert", temperature), *sides(A, B)).item()
    assert found == printed(expected)


def test_the_mean_over_both_views_is_half_of_the_sum_of_their_means():
    a, b = sides(A, B)
    assert 2 * loss(method_of("consert"), a, b).item() == pytest.approx(0.1406605, abs=1.1e-6)


def test_consert_of_equal_views():
    assert loss(method_of("consert"), *sides(A, A)).item() == printed(0.0929551)


def test_consert_gradient():
    a, b = sides(A, B)
    loss(method_of("consert"), a, b).backward()
    assert a.grad[0].tolist() == printed(0.017838, 0.168745, 0.204422)


def test_consert_knows_no_order_of_views_and_examples():
    """The same rows with all first views before all second ones; their answers go along."""
    a, b = sides(A, B)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    rows = examples(4, 2)
    answers = [[order.index(rows.answers_BP[row].item())] for row in order]
    moved = Rows(rows.side_B, rows.group_B[order], torch.tensor(answers), rows.view_B[order])
    vectors, own_B = torch.cat([a, b]), torch.ones(8, dtype=torch.bool)
    assert method_of("consert").loss(moved, own_B, {"f": vectors}).item() == printed(0.0703303)


def test_one_direction_alone_would_be_another_loss():
    assert loss(method_of("simcse-unsup", 0.1), *sides(A, B)).item() == printed(0.0328625)


def denoised(method, vectors, bare):
    """As the encoder of a recipe takes off a template's own vector, here without a head."""
    return method.tower("f")._headed(vectors, bare, True)


@pytest.mark.parametrize(("temperature", "expected"), [(None, 0.00344479), (0.5, 0.399487)])
def test_promptbert_loss(temperature, expected):
    a, b, d, e = sides(A, B, D, E)
    method = method_of("promptbert", temperature, "encoder.head='none'")
    assert loss(method, denoised(method, a, d), denoised(method, b, e)).item() == printed(expected)


def test_promptbert_gradient_goes_to_text_and_template_with_opposite_signs():
    a, b, d, e = sides(A, B, D, E)
    method = method_of("promptbert", 0.5, "encoder.head='none'")
    loss(method, denoised(method, a, d), denoised(method, b, e)).backward()
    assert a.grad[0].tolist() == printed(0.022543, 0.070117, 0.096670)
    assert torch.equal(d.grad, -a.grad)


def test_with_template_vectors_of_zeros_promptbert_is_simcse():
    a, b = sides(A, B)
    method = method_of("promptbert", 0.5, "encoder.head='none'")
    nothing = torch.zeros_like(a)
    assert loss(method, denoised(method, a, nothing), denoised(method, b, nothing)).item() == printed(0.410013)


CASES = {"simcse-unsup": (A, B), "simcse-sup": (A, B, C), "consert": (A, B), "promptbert": (A, B), "esimcse": (A, B)}


def family(name):
    return queued(0.5) if name == "esimcse" else method_of(name, 0.5)


@pytest.mark.parametrize("name", CASES)
def test_the_length_of_a_vector_says_nothing(name):
    views = sides(*CASES[name])
    longer = [side * torch.tensor([[0.1], [3], [1], [50]]) for side in views]
    assert loss(family(name), *longer).item() == pytest.approx(loss(family(name), *views).item(), abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_gradients_stand_upright_on_their_vectors(name):
    views = sides(*CASES[name])
    loss(family(name), *views).backward()
    assert all((side * side.grad).sum(dim=1).abs().max() < 1e-15 for side in views)


@pytest.mark.parametrize("name", [name for name in CASES if name != "esimcse"])
def test_one_rotation_of_all_vectors_changes_nothing(name):
    views = sides(*CASES[name])
    turn = torch.linalg.qr(torch.tensor([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]], dtype=torch.float64)).Q
    turned = loss(family(name), *(side @ turn for side in views)).item()
    assert turned == pytest.approx(loss(family(name), *views).item(), abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_examples_says_nothing(name):
    views = sides(*CASES[name])
    moved = [side[[2, 0, 3, 1]] for side in views]
    assert loss(family(name), *moved).item() == pytest.approx(loss(family(name), *views).item(), abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_fillers_change_nothing(name):
    views = sides(*CASES[name])
    vectors = torch.cat([lying_by_example(*views), torch.full((2, 3), 9.0, dtype=torch.float64)])
    rows = examples(4, len(views), fillers=2)
    found = family(name).loss(rows, torch.ones(len(vectors), dtype=torch.bool), {"f": vectors})
    assert found.item() == pytest.approx(loss(family(name), *views).item(), abs=1e-12)
