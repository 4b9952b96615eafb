"""How weights move, against torch's own and against numbers by hand."""

import pytest
import torch

from models.optimizer import clip, optimizer, rate
from models.recipe import Training


def weights():
    return [torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0])), torch.nn.Parameter(torch.tensor([[0.5]]))]


def with_gradients(first, second):
    moving = weights()
    moving[0].grad, moving[1].grad = torch.tensor(first), torch.tensor([[second]])
    return moving


def moved(optimize, parameters, steps=20):
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimize.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_an_optimizer_moves_weights_as_torch_does(kind):
    ours, theirs = weights(), weights()
    plain = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind]
    betas = {} if kind == "sgd" else {"betas": (0.8, 0.99), "foreach": False, "fused": False}
    expected = moved(plain(theirs, lr=0.1, weight_decay=0.01, **betas), theirs)
    training = Training(optimizer=kind, rate=0.1, betas=(0.8, 0.99), weight_decay=0.01)
    assert torch.allclose(moved(optimizer(ours, training), ours), expected, rtol=1e-6, atol=1e-7)


def test_the_first_step_of_adam_is_the_rate_against_the_gradients_sign():
    moving = with_gradients([3.0, -0.001, 40.0], 7.0)
    optimizer(moving, Training(rate=0.5)).step()
    assert moving[0].tolist() == pytest.approx([0.5, -1.5, 2.5], abs=1e-4)


def test_adam_is_fused():
    assert optimizer(weights(), Training()).defaults["fused"]


def test_each_tensor_is_clipped_by_itself():
    moving = with_gradients([3.0, 0.0, 4.0], 0.5)
    clip(moving, Training(clip=1.0, clip_by="tensor"))
    assert moving[0].grad.tolist() == pytest.approx([0.6, 0.0, 0.8], rel=1e-5) and moving[1].grad.item() == 0.5


def test_all_tensors_are_clipped_together():
    moving = with_gradients([2.0, 0.0, 3.0], 6.0)  # norm 7
    clip(moving, Training(clip=3.5))
    assert [*moving[0].grad.tolist(), moving[1].grad.item()] == pytest.approx([1.0, 0.0, 1.5, 3.0], rel=1e-5)


def test_without_clip_gradients_stay():
    moving = with_gradients([300.0, 0.0, 400.0], 1.0)
    clip(moving, Training())
    assert moving[0].grad.tolist() == [300.0, 0.0, 400.0]


def test_a_weight_without_gradient_is_passed_over():
    moving = weights()
    clip(moving, Training(clip=1.0, clip_by="tensor"))
    assert moving[0].grad is None


def rates(steps, **settings):
    return [rate(Training(rate=1.0, **settings), step, steps) for step in range(steps)]


def test_a_constant_rate_stays():
    assert rates(3) == [1.0, 1.0, 1.0]


def test_a_linear_rate_falls_to_nothing_behind_the_last_step():
    assert rates(4, schedule="linear") == [1.0, 0.75, 0.5, 0.25]


def test_warm_up_rises_evenly_then_the_rate_falls():
    assert rates(8, schedule="linear", warmup=0.5) == [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("steps", [1, 7, 10, 33])
@pytest.mark.parametrize("warmup", [0.01, 0.05, 0.33, 0.99])
@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_no_step_exceeds_the_rate(steps, warmup, schedule):
    assert all(0 < value <= 1 for value in rates(steps, schedule=schedule, warmup=warmup))


def decayed(kind, decay):
    """A number, a vector and a matrix, all 2, after one step without a gradient."""
    moving = [torch.nn.Parameter(torch.full(shape, 2.0)) for shape in ((), (1,), (1, 1))]
    for parameter in moving:
        parameter.grad = torch.zeros_like(parameter)
    optimizer(moving, Training(optimizer=kind, rate=0.1, weight_decay=0.5, decay=decay)).step()
    return [parameter.item() for parameter in moving]


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_weight_decay_may_leave_biases_and_numbers_alone(kind):
    everything, matrices = decayed(kind, "all"), decayed(kind, "matrices")
    assert everything[0] == everything[1] == everything[2] < 2
    assert matrices == [2, 2, everything[2]]


def test_weight_decay_is_the_gradient_of_half_the_sum_of_squares():
    weight = torch.nn.Parameter(torch.tensor([[1.0, -3.0]]))
    weight.grad = torch.tensor([[0.2, 0.4]])
    optimizer([weight], Training(optimizer="sgd", rate=1.0, weight_decay=0.1, decay="matrices")).step()
    assert weight.tolist()[0] == pytest.approx([1 - 0.2 - 0.1, -3 - 0.4 + 0.3])


def test_without_matrices_there_is_one_group():
    vector = torch.nn.Parameter(torch.ones(3))
    assert [group["weight_decay"] for group in optimizer([vector], Training(decay="matrices")).param_groups] == [0]


def test_a_rate_reaches_every_group():
    vector, matrix = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3, 1))
    made = optimizer([vector, matrix], Training(rate=0.25, decay="matrices"))
    assert [group["lr"] for group in made.param_groups] == [0.25, 0.25]
