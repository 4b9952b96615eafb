"""Runs of a batch and the contexts of their rows: against a plain loop over one run at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.candidates import Rows
from models.sequence import Recurrent, Runs

cases_without_clock = settings(deadline=None, database=None)
PLACES = [(7, 3), (7, 4), (7, 5), (9, 6), (9, 8), (9, 9), (7, 6), (0, 0), (0, 0)]  # two fillers at the end


def runs(places=PLACES):
    document_B, place_B = torch.tensor(places).T
    return Runs.of(document_B, place_B)


def network(inner=3, width=0):
    torch.manual_seed(0)
    return Recurrent(inner, width=width).double()


def vectors(rows, inner=3, seed=1):
    return torch.randn(rows, inner, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow(net, vector_BD, places):
    """One run at a time, one step at a time."""
    found, state, before = [], None, None
    for row, (document, place) in enumerate(places):
        if before != (document, place - 1):
            state = torch.zeros(1, net.width, dtype=torch.float64)
        cell = torch.nn.GRUCell(vector_BD.shape[1], net.width).double()
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in net.gru.state_dict().items()})
        state = cell(vector_BD[row : row + 1], state)
        found.append(state)
        before = (document, place)
    return torch.cat(found)


def test_runs_end_at_documents_gaps_and_fillers():
    assert runs().run_B.tolist() == [0, 0, 0, 1, 2, 2, 3, 4, 5]
    assert runs().step_B.tolist() == [0, 1, 2, 0, 0, 1, 0, 0, 0]


def test_a_document_that_ends_where_another_begins_is_another_run():
    assert runs([(1, 0), (1, 1), (2, 2), (2, 3)]).run_B.tolist() == [0, 0, 1, 1]


def test_what_follows_in_its_document_is_one_run():
    assert runs([(1, 0), (1, 1), (1, 2)]).step_B.tolist() == [0, 1, 2]


def test_the_last_row_is_not_before_the_first():
    assert runs([(1, 1), (1, 0)]).run_B.tolist() == [0, 1]


def test_later_rows_stand_in_the_same_run():
    assert runs().later(1).tolist() == [1, 2, -1, -1, 5, -1, -1, -1, -1]
    assert runs().later(2).tolist() == [2, *[-1] * 8]
    assert runs().later(9).tolist() == [-1] * 9


def test_rows_of_batches_without_places_have_no_runs():
    rows = Rows(torch.zeros(2, dtype=torch.uint8), torch.arange(2), torch.tensor([[1], [-1]]))
    with pytest.raises(ValueError, match="without the columns document and place have no runs"):
        rows.ahead(1)


@cases_without_clock
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 4))
def test_contexts_are_those_of_a_plain_loop(lengths, width):
    places = [(document, place) for document, size in enumerate(lengths) for place in range(size)]
    net, vector_BD = network(width=width), vectors(len(places))
    assert torch.allclose(net(vector_BD, runs(places)), slow(net, vector_BD, places), atol=1e-12)


def test_another_runs_text_changes_no_context_of_this_one():
    net, vector_BD = network(), vectors(9)
    other = vector_BD.clone()
    other[[3, 4, 5, 6]] = 9.0
    same = [0, 1, 2, 7, 8]
    assert torch.equal(net(vector_BD, runs())[same], net(other, runs())[same])


def test_a_context_sees_nothing_that_comes_later():
    net, vector_BD = network(), vectors(9)
    other = vector_BD.clone()
    other[2] = 9.0
    changed = (net(vector_BD, runs()) != net(other, runs())).any(dim=1)
    assert changed.tolist() == [False, False, True, *[False] * 6]


def test_gradient_of_a_context_reaches_its_run_up_to_itself():
    net, vector_BD = network(), vectors(9).requires_grad_()
    net(vector_BD, runs())[1].sum().backward()
    assert (vector_BD.grad != 0).any(dim=1).tolist() == [True, True, *[False] * 7]


def test_longer_runs_in_the_batch_change_nothing():
    """What others call padding: a batch whose longest run is longer."""
    net, vector_BD = network(), vectors(9)
    more = torch.cat([vectors(20, seed=2), vector_BD])
    places = [(5, place) for place in range(20)] + PLACES
    assert torch.allclose(net(more, runs(places))[20:], net(vector_BD, runs()), atol=1e-14)


def test_a_context_is_as_wide_as_it_should_be_or_as_a_sentence():
    assert network(inner=5).width == 5
    assert network(width=4)(vectors(9), runs()).shape == (9, 4)


def test_a_negative_width_is_refused():
    with pytest.raises(ValueError, match=r"context.width is -1; 0 for"):
        Recurrent(3, width=-1)
