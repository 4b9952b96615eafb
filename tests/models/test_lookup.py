"""Word tables, dropout on word vectors, and the bag of words."""

import pytest
import torch
from torch import nn

from models.lookup import Bag, Dropout, Words

IDS = torch.tensor([[1, 2, 2], [3, 0, 9], [7, 7, 7]])
LENGTHS = torch.tensor([3, 2, 0])


def bag(**options):
    torch.manual_seed(0)
    return Bag(10, width=4, initial=1.0, **options).double()


def slow_means(model):
    table = model.words.weight
    return torch.stack(
        [table[ids[:n]].mean(dim=0) if n else table.new_zeros(4) for ids, n in zip(IDS, LENGTHS, strict=True)]
    )


def test_a_bag_is_the_mean_of_its_real_tokens():
    model = bag()
    torch.testing.assert_close(model(IDS, LENGTHS), slow_means(model))


def test_gradients_of_a_bag_are_those_of_the_mean():
    model = bag()
    upstream = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    ours, theirs = (
        torch.autograd.grad((vectors * upstream).sum(), model.words.weight)
        for vectors in (model(IDS, LENGTHS), slow_means(model))
    )
    torch.testing.assert_close(ours, theirs)


def test_word_zero_counts_like_any_other():
    model = bag()
    torch.testing.assert_close(model(torch.tensor([[0]]), torch.tensor([1]))[0], model.words.weight[0])


def test_padding_changes_nothing_in_a_bag():
    model = bag()
    wider = torch.cat([IDS, torch.full((3, 5), 4)], dim=1)
    wider[1, 2], wider[2] = 6, 5
    assert torch.equal(model(wider, LENGTHS), model(IDS, LENGTHS))


def test_an_empty_bag_is_zeros_also_with_dropout():
    assert not bag(dropout=0.5)(IDS, LENGTHS)[2].any()


def test_dropout_is_off_in_evaluation():
    model = bag(dropout=0.5).eval()
    torch.testing.assert_close(model(IDS, LENGTHS), slow_means(model))


def test_usual_dropout_keeps_the_mean_over_many_draws():
    model, table = bag(dropout=0.5), slow_means(bag())
    mean = torch.stack([model(IDS, LENGTHS) for _ in range(4000)]).mean(dim=0)
    torch.testing.assert_close(mean, table, rtol=0, atol=0.05)  # a number's spread is at most 1 / sqrt(4000) = 0.016


def test_usual_dropout_hides_numbers_token_by_token():
    model = bag(dropout=0.5)
    model.words.weight.data.fill_(1.0)
    values = {round(value, 6) for _ in range(50) for value in model(IDS[:1], LENGTHS[:1]).flatten().tolist()}
    assert values == {0.0, round(2 / 3, 6), round(4 / 3, 6), 2.0}  # none, one, two or all three tokens kept, each twice


def test_shared_dropout_hides_the_same_numbers_everywhere_and_rescales_nothing():
    model, mask = bag(dropout=0.25, shared_dropout=True), torch.tensor([1, 0, 1, 1])
    torch.testing.assert_close(model(IDS, LENGTHS, mask), slow_means(model) * mask)


def test_shared_dropout_without_a_mask_is_refused():
    with pytest.raises(ValueError, match="shared dropout got no mask"):
        bag(dropout=0.25, shared_dropout=True)(IDS, LENGTHS)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(ValueError, match=f"dropout is {rate}"):
        Dropout(rate, shared=False)


def test_a_new_table_is_drawn_evenly_around_zero():
    torch.manual_seed(0)
    weight = Words(1000, 20, initial=0.1).weight
    assert weight.abs().max().item() == pytest.approx(0.1, abs=1e-3)
    assert weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)


def test_ready_made_vectors_are_copied():
    vectors = torch.ones(3, 2)
    words = Words(3, 2, weight=vectors)
    vectors.zero_()
    assert words.weight.sum() == 6


def test_a_parameter_is_shared():
    weight = nn.Parameter(torch.ones(3, 2))
    assert Words(3, 2, weight=weight).weight is weight


def test_a_frozen_table_is_not_trained():
    assert not Words(3, 2, frozen=True, weight=torch.ones(3, 2)).weight.requires_grad


def test_freezing_a_table_that_another_trains_is_refused():
    with pytest.raises(ValueError, match="shares its vectors with a trained one"):
        Words(3, 2, frozen=True, weight=nn.Parameter(torch.ones(3, 2)))


def test_ready_made_vectors_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 2\); vocabulary and width want \(4, 2\)"):
        Words(4, 2, weight=torch.ones(3, 2))


def test_a_named_table_that_nobody_resolved_is_refused():
    with pytest.raises(ValueError, match=r'encoder\.table is "glove"'):
        Bag(10, table="glove")


def test_width_comes_from_a_shared_table():
    assert Bag(10, width=300, words=Words(10, 7)).width == 7


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_sparse_gradient_equals_the_dense_one(dropout):
    gradients = []
    for sparse in (False, True):
        model = bag(dropout=dropout)
        model.words.sparse = sparse
        torch.manual_seed(1)
        model(IDS, LENGTHS).square().sum().backward()
        gradients.append(model.words.weight.grad.to_dense())
    torch.testing.assert_close(*gradients)
