"""The recurrent encoder against torch.nn.GRU on packed sequences, and what padding and precision may do to it."""

import pytest
import torch
from torch import nn

from models.lookup import Words
from models.recurrent import GRU

LENGTHS = [3, 7, 1, 5, 7, 0, 2]


def lane(lengths=LENGTHS, vocabulary=11, fill=0):
    ids = torch.full((len(lengths), max(lengths)), fill)
    draw = torch.Generator().manual_seed(1)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(vocabulary, (length,), generator=draw)
    return ids, torch.tensor(lengths)


def encoder(dtype=torch.float64, **options):
    torch.manual_seed(0)
    return GRU(11, width=4, word_width=3, initial=1.0, **options).to(dtype)


def packed(model, ids, lengths):
    """The same network by torch.nn.GRU: last states of both directions; it takes no text without tokens."""
    some = lengths > 0
    words = model.words(ids[some])
    packed = nn.utils.rnn.pack_padded_sequence(words, lengths[some], batch_first=True, enforce_sorted=False)
    state = model.gru(packed)[1].transpose(0, 1).flatten(1)
    return state.new_zeros(len(ids), state.shape[1]).index_put((some.nonzero().flatten(),), state)


def gradients(model, vectors):
    weights = dict(model.named_parameters())
    upstream = torch.linspace(-1, 2, vectors.numel(), dtype=vectors.dtype).view_as(vectors)
    return dict(zip(weights, torch.autograd.grad((vectors * upstream).sum(), list(weights.values())), strict=True))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_vectors_equal_those_of_torch_on_packed_sequences(bidirectional, dtype, near):
    model, (ids, lengths) = encoder(dtype, bidirectional=bidirectional), lane()
    torch.testing.assert_close(model(ids, lengths), packed(model, ids, lengths), rtol=0, atol=near)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_gradients_equal_those_of_torch_on_packed_sequences(bidirectional, dtype, near):
    model, (ids, lengths) = encoder(dtype, bidirectional=bidirectional), lane()
    ours, theirs = gradients(model, model(ids, lengths)), gradients(model, packed(model, ids, lengths))
    torch.testing.assert_close(ours, theirs, rtol=near, atol=near)


def test_gradients_agree_with_finite_differences():
    model, (ids, lengths) = encoder(bidirectional=True), lane()
    names, weights = zip(*model.named_parameters(), strict=True)

    def vectors(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (ids, lengths))

    assert torch.autograd.gradcheck(vectors, tuple(weight.detach().requires_grad_() for weight in weights))


def test_one_step_agrees_with_its_equations_written_out():
    model = encoder()
    word = model.words(torch.tensor([5]))[0]
    w_r, w_z, w_n = (model.gru.weight_ih_l0 @ word + model.gru.bias_ih_l0).chunk(3)
    c_r, c_z, c_n = model.gru.bias_hh_l0.chunk(3)
    n = torch.tanh(w_n + torch.sigmoid(w_r + c_r) * c_n)
    torch.testing.assert_close(model(torch.tensor([[5]]), torch.tensor([1]))[0], (1 - torch.sigmoid(w_z + c_z)) * n)


def test_what_stands_behind_a_texts_end_changes_nothing():
    model, (ids, lengths) = encoder(bidirectional=True), lane(fill=0)
    wider = torch.cat([lane(fill=9)[0], torch.full((len(ids), 6), 3)], dim=1)
    assert torch.equal(model(ids, lengths), model(wider, lengths))


def test_what_stands_behind_a_texts_end_has_no_gradient():
    model, (ids, lengths) = encoder(bidirectional=True), lane([2, 1], vocabulary=5, fill=10)
    assert gradients(model, model(ids, lengths))["words.weight"][10].abs().max() == 0


def test_a_text_has_the_same_vector_in_any_company():
    model, (ids, lengths) = encoder(bidirectional=True), lane()
    alone = torch.cat([model(ids[[i]], lengths[[i]]) for i in range(len(ids))])
    torch.testing.assert_close(model(ids, lengths), alone, rtol=0, atol=1e-14)


def test_a_text_without_tokens_is_zeros():
    model, (ids, lengths) = encoder(bidirectional=True), lane()
    assert not model(ids, lengths)[lengths == 0].any()


def test_a_lane_without_tokens_gives_zeros_and_zero_gradients():
    model = encoder(bidirectional=True)
    vectors = model(torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 0]))
    assert vectors.shape == (2, 8)
    assert all(not gradient.any() for gradient in gradients(model, vectors).values())


def test_a_reversed_text_swaps_the_states_of_equal_directions():
    model = encoder(bidirectional=True)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        getattr(model.gru, f"{name}_reverse").data.copy_(getattr(model.gru, name))
    there = model(torch.tensor([[1, 2, 3, 0]]), torch.tensor([3]))
    back = model(torch.tensor([[3, 2, 1, 0]]), torch.tensor([3]))
    torch.testing.assert_close(back, there.roll(4, dims=1))


def test_autocast_gives_float32_near_the_exact_vectors():
    model, (ids, lengths) = encoder(torch.float32, bidirectional=True), lane()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model(ids, lengths)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, model(ids, lengths), rtol=0, atol=0.02)  # bf16 keeps 8 bits: steps of 0.004


def test_autocast_multiplies_in_the_lower_precision():
    model, (ids, lengths) = encoder(torch.float32), lane()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model(ids, lengths)
    assert not torch.equal(vectors, model(ids, lengths))


def test_autocast_gives_float32_gradients_near_the_exact_ones():
    model, (ids, lengths) = encoder(torch.float32, bidirectional=True), lane()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = gradients(model, model(ids, lengths))
    for name, exact in gradients(model, model(ids, lengths)).items():
        assert near[name].dtype == torch.float32
        assert (near[name] - exact).norm() < 0.02 * exact.norm()


def test_autocast_leaves_float64_exact():
    model, (ids, lengths) = encoder(torch.float64), lane()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = model(ids, lengths)
    assert torch.equal(vectors, model(ids, lengths))


def test_vectors_without_gradient_are_the_same():
    model, (ids, lengths) = encoder(bidirectional=True), lane()
    with torch.no_grad():
        vectors = model(ids, lengths)
    assert torch.equal(vectors, model(ids, lengths))


def test_new_recurrent_weights_are_those_torch_would_draw():
    model = encoder(torch.float32, words=Words(2, 3))
    torch.manual_seed(0)
    assert all(torch.equal(a, b) for a, b in zip(model.gru.parameters(), nn.GRU(3, 4).parameters(), strict=True))


@pytest.mark.parametrize(("bidirectional", "width"), [(False, 4), (True, 8)])
def test_width_counts_both_directions(bidirectional, width):
    model, (ids, lengths) = encoder(bidirectional=bidirectional), lane()
    assert (model.width, model(ids, lengths).shape[1]) == (width, width)


def test_a_shared_mask_hides_the_same_numbers_of_every_word():
    model, (ids, lengths) = encoder(dropout=0.3, shared_dropout=True), lane()
    vectors = model(ids, lengths, torch.tensor([1, 0, 1]))
    model.words.weight.data[:, 1] = 0
    assert torch.equal(vectors, model.eval()(ids, lengths))


def test_dropout_repeats_from_the_same_seed():
    model, (ids, lengths) = encoder(dropout=0.5), lane()
    drawn = [torch.manual_seed(seed) and model(ids, lengths) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_two_towers_can_share_one_table():
    words = Words(11, 3)
    f, g = (GRU(11, width=4, words=words) for _ in range(2))
    assert f.words.weight is g.words.weight


def test_frozen_words_get_no_gradient():
    model, (ids, lengths) = encoder(frozen=True), lane()
    model(ids, lengths).sum().backward()
    assert model.words.weight.grad is None
    assert model.gru.weight_ih_l0.grad.any()
