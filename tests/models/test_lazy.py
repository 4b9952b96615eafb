"""Adam by rows, beside torch's own, and what it leaves alone."""

import pytest
import torch

from models.optimizer import optimizer
from models.recipe import Training

ROWS = [[0, 3], [3], [1, 3], [0]]


def weights():
    return torch.nn.Parameter(torch.arange(8.0).view(4, 2))


def rows_of(draw, row_N):
    values = torch.randn(len(row_N), 2, generator=draw)
    return torch.sparse_coo_tensor(torch.tensor([row_N]), values, (4, 2), check_invariants=True)


def moved(optimize, parameter, lists, dense=False):
    draw = torch.Generator().manual_seed(0)
    for row_N in lists:
        gradient = rows_of(draw, row_N)
        parameter.grad = gradient.to_dense() if dense else gradient
        optimize.step()
    return parameter.detach()


def lazy(parameter, kind="lazy-adam"):
    return optimizer([parameter], Training(optimizer=kind, rate=0.1, betas=(0.8, 0.99), epsilon=1e-6))


def test_rows_move_as_those_of_sparse_adam():
    ours, theirs = weights(), weights()
    plain = torch.optim.SparseAdam([theirs], lr=0.1, betas=(0.8, 0.99), eps=1e-6)
    # Theirs adds epsilon before the bias is taken off, which shows in the sixth digit.
    assert torch.allclose(moved(lazy(ours), ours, ROWS), moved(plain, theirs, ROWS), rtol=1e-4)


@pytest.mark.parametrize("dense", [True, False])
def test_where_every_row_has_a_gradient_it_is_adam(dense):
    ours, theirs = weights(), weights()
    plain = torch.optim.Adam([theirs], lr=0.1, betas=(0.8, 0.99), eps=1e-6, foreach=False)
    every = [[0, 1, 2, 3]] * 5
    expected = moved(plain, theirs, every, dense=True)
    assert torch.allclose(moved(lazy(ours), ours, every, dense), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["lazy-adam", "lazy-sgd"])
def test_rows_without_a_gradient_stay_to_the_bit(kind):
    parameter = weights()
    found = moved(lazy(parameter, kind), parameter, ROWS)
    assert torch.equal(found[2], weights()[2]) and not torch.equal(found[1], weights()[1])


def test_by_rows_gradient_descent_is_what_it_is():
    ours, theirs = weights(), weights()
    expected = moved(torch.optim.SGD([theirs], lr=0.1), theirs, ROWS, dense=True)
    assert torch.allclose(moved(lazy(ours, "lazy-sgd"), ours, ROWS), expected, atol=1e-6)


def test_a_number_by_itself_moves_too():
    alone = torch.nn.Parameter(torch.tensor(2.0))
    optimize = lazy(alone)
    alone.grad = torch.tensor(-3.0)
    optimize.step()
    assert alone.item() == pytest.approx(2.1, abs=1e-5)


def test_a_state_that_was_written_goes_on(tmp_path):
    whole, first = weights(), weights()
    expected = moved(lazy(whole), whole, ROWS)
    optimize = lazy(first)
    moved(optimize, first, ROWS[:2])
    torch.save(optimize.state_dict(), tmp_path / "state.pt")
    again = lazy(first)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    draw = torch.Generator().manual_seed(0)
    for row_N in ROWS[:2]:
        rows_of(draw, row_N)
    for row_N in ROWS[2:]:
        first.grad = rows_of(draw, row_N)
        again.step()
    assert torch.equal(first.detach(), expected)
