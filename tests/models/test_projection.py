"""The projection into the ball: values by hand, what is read and what is not, and where gradients go."""

import math

import pytest
import torch
from torch import nn

from models.hyperbolic import distances, riemannian_factor, scale_as_released
from models.lookup import Words
from models.projection import Projection
from models.recipe import RecipeError, load
from models.resolving import resolve
from models.similarity import Energy

TABLE = [[9.0, 9.0, 9.0], [1.0, 0.0, 2.0], [0.0, 1.0, -1.0], [0.5, -0.5, 0.0], [-1.0, 2.0, 0.3]]
NUMBERS = {"dropout": 0.0, "riemannian": "none"}


def encoder(*, frozen=True, table=TABLE, **options):
    """Of three numbers a word and two a text, with weights that are known."""
    words = Words(len(table), 3, frozen=frozen, weight=torch.tensor(table, dtype=torch.float64))
    made = Projection(len(table), **{"width": 2, **NUMBERS, "frozen": frozen, **options}, words=words)
    made = made.double()
    with torch.no_grad():
        made.layer.weight.copy_(torch.tensor([[0.2, -0.1, 0.4], [-0.3, 0.5, 0.1]], dtype=torch.float64))
        made.layer.bias.copy_(torch.tensor([0.05, 0.3], dtype=torch.float64))
    return made


def seen(made, ids, lengths):
    return made(torch.tensor(ids), torch.tensor(lengths))


def near(*values):
    return pytest.approx(list(values), abs=1.5e-6)


def test_words_are_projected_cut_at_zero_and_summed():
    assert seen(encoder(head="none"), [[1, 2]], [2])[0].tolist() == near(1.05, 0.9)


def test_a_sum_outside_the_ball_is_brought_to_its_edge():
    assert seen(encoder(radius=1.0), [[1, 2]], [2])[0].tolist() == near(0.759257, 0.650791)
    assert seen(encoder(), [[1, 2]], [2]).norm().item() == pytest.approx(0.99, abs=1e-12)


@pytest.mark.parametrize("filler", [0, 3, 4])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_whatever_fills_says_nothing(pooling, filler):
    """With the layer's bias counted for a padding of zeros, the sum would turn to 0.675725, 0.737154."""
    made = encoder(pooling=pooling, radius=0.5)
    padded = seen(made, [[1, 2, filler, filler], [3, 1, 2, 4]], [2, 4])
    assert torch.equal(padded[:1], seen(made, [[1, 2]], [2]))


def test_a_mean_is_the_sum_over_the_number_of_words():
    ids, lengths = [[1, 2, 3], [4, 0, 0]], [3, 1]
    whole, mean = (seen(encoder(head="none", pooling=pooling), ids, lengths) for pooling in ("sum", "mean"))
    torch.testing.assert_close(mean, whole / torch.tensor([[3], [1]]))


def test_the_scale_multiplies_before_the_ball():
    plain, scaled = (seen(encoder(scale=scale), [[1, 2]], [2])[0].tolist() for scale in (1.0, 0.1))
    assert scaled == near(0.105, 0.09) and plain != near(1.05, 0.9)


def test_a_text_without_words_is_the_centre():
    assert seen(encoder(), [[1]], [0]).tolist() == [[0, 0]]


def test_the_share_on_the_edge_is_told():
    made = encoder(scale=0.5)
    seen(made, [[1, 2], [1, 2], [3, 0], [2, 0]], [2, 2, 1, 1])  # lengths .69, .69, .33, .40 before the ball
    assert made.on_edge.item() == 0
    seen(made, [[1, 2, 1, 2], [3, 0, 0, 0]], [4, 1])
    assert made.on_edge.item() == 0.5


def test_points_are_float64_whatever_the_weights_are():
    assert seen(encoder().float(), [[1, 2]], [2]).dtype == torch.float64
    assert seen(encoder(head="none").float(), [[1, 2]], [2]).dtype == torch.float32


def test_points_on_the_edge_stay_there_in_float64():
    """In float32 the length would be .99 but for 3e-8."""
    assert seen(encoder().float(), [[1, 2, 1]], [3]).norm().item() == pytest.approx(0.99, abs=1e-15)


def test_what_is_kept_in_float32_moves_distances_by_little():
    torch.manual_seed(0)
    made = Projection(50, width=300, word_width=50, frozen=False, initial=1.0).eval()
    points = made(torch.randint(0, 50, (20, 9)), torch.full((20,), 9)).detach()
    exact, kept = distances(points, points), distances(points.float(), points.float())
    apart = ~torch.eye(20, dtype=torch.bool)
    assert (exact - kept)[apart].abs().max() < 1e-5 * exact[apart].std()
    assert math.isclose(points.norm(dim=1).min().item(), 0.99, abs_tol=1e-12)


def test_dropout_of_words_comes_before_the_layer_and_that_of_the_sum_before_the_ball():
    made = encoder(dropout=0.5).train()
    with torch.no_grad():
        made.layer.weight.zero_()
        made.layer.bias.fill_(100.0)
    torch.manual_seed(0)
    vectors = torch.cat([seen(made, [[1, 2]], [2]) for _ in range(30)])
    assert vectors.norm(dim=1).max().item() == pytest.approx(0.99)  # dropped after the ball, twice as long
    assert {tuple(v) for v in (vectors > 0).tolist()} == {(True, True), (True, False), (False, True), (False, False)}


def test_out_of_training_nothing_is_dropped():
    made = encoder(dropout=0.5).eval()
    assert torch.equal(seen(made, [[1, 2]], [2]), seen(encoder(), [[1, 2]], [2]))


def layer_gradient(riemannian, scale=0.1):
    made = encoder(riemannian=riemannian, scale=scale)
    point = seen(made, [[1, 2]], [2])
    distances(point, torch.tensor([[-0.2, 0.4]], dtype=torch.float64)).sum().backward()
    return made.layer.weight.grad, riemannian_factor(point.detach()).item()


def test_a_points_factor_multiplies_what_the_layer_gets():
    (plain, factor), (point, _) = layer_gradient("none"), layer_gradient("point")
    torch.testing.assert_close(point, factor * plain, rtol=1e-12, atol=0)
    assert factor == pytest.approx((1 - 0.105**2 - 0.09**2) ** 2 / 4, abs=1e-12)


def test_points_on_the_edge_learn_nothing_by_their_factor_and_scaled_sums_do():
    """Words as long as GloVe's, about 5. Of Adam's epsilon, 1e-8, the stuck ones are a small part."""

    def gradient(**options):
        torch.manual_seed(0)
        made = Projection(50, width=300, word_width=50, frozen=False, dropout=0.0, initial=1.2, **options)
        question, answer = made(torch.randint(0, 50, (2, 9)), torch.tensor([9, 9]))
        distances(question[None], answer[None]).sum().backward()
        return made.layer.weight.grad.abs().mean().item(), made.on_edge.item()

    stuck, moving = gradient(radius=1 - 1e-5), gradient(radius=1 - 1e-5, scale=0.005)
    assert stuck[1] == 1 and moving[1] == 0
    assert stuck[0] < 1e-8 and moving[0] > 1e4 * stuck[0]


def test_released_scaling_of_a_matrix():
    """|g|^2 = .25: .75^2 + 1e-5 over 4 of each number."""
    found = scale_as_released(torch.tensor([[0.3, 0.0], [0.0, -0.4]], dtype=torch.float64))
    factor = (0.5625 + 1e-5) / 4
    assert found.flatten().tolist() == pytest.approx([0.3 * factor, 0, 0, -0.4 * factor], abs=1e-15)


def test_released_scaling_knows_the_whole_matrix_and_not_its_rows():
    """|g|^2 = 1, of each row .36 and .64: next to nothing is left."""
    found = scale_as_released(torch.tensor([[0.6, 0.0], [0.0, 0.8]], dtype=torch.float64))
    assert found.abs().max().item() == pytest.approx(0.8 * 1e-5 / 4, rel=1e-6)


def test_released_scaling_leaves_a_bias_but_for_its_length():
    assert scale_as_released(torch.tensor([0.6, 0.5])).tolist() == pytest.approx([0.6, 0.5])
    assert scale_as_released(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.6, 0.8])


def test_released_scaling_cuts_numbers_and_then_the_length():
    """(1 - 500)^2 / 4 times as much: both numbers are cut at 10, so their ratio of 2 is lost."""
    found = scale_as_released(torch.tensor([[10.0, -20.0]], dtype=torch.float64))
    assert found.tolist()[0] == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-12)


def test_the_released_form_changes_each_tensor_of_the_encoder():
    made = encoder(riemannian="reference", frozen=False)
    gradients = {}
    for name, parameter in made.named_parameters():
        parameter.grad = torch.full_like(parameter, 0.3)
        gradients[name] = scale_as_released(parameter.grad)
    for part in (made, made.words):
        part.on_gradient()
    assert gradients.keys() == {"words.weight", "layer.weight", "layer.bias"}
    assert all(torch.equal(parameter.grad, gradients[name]) for name, parameter in made.named_parameters())


@pytest.mark.parametrize("riemannian", ["point", "none"])
def test_other_forms_leave_gradients_and_weights_as_they_are(riemannian):
    made = encoder(riemannian=riemannian, frozen=False)
    made.words.weight.grad = torch.ones_like(made.words.weight)
    for part in (made, made.words):
        part.on_gradient()
        part.after_step()
    assert (made.words.weight.grad == 1).all() and made.words.weight.tolist() == TABLE


def test_a_table_of_points_starts_in_the_ball_and_keeps_what_was_there():
    rows = encoder(riemannian="table", frozen=False, table=[[0.1, 0.2, 0.3], [3.0, 0.0, 4.0]]).words.weight
    assert rows[0].tolist() == [0.1, 0.2, 0.3] and rows[1].tolist() == near(0.594, 0, 0.792)


def test_a_tables_step_is_the_factor_times_the_gradient_and_ends_in_the_ball():
    words = encoder(riemannian="table", frozen=False, table=[[0.3, 0.1, 0.0], [0.0, 0.9, 0.0]]).words
    words.weight.grad = torch.tensor([[1.0, 0.0, 0.0], [0.0, -500.0, 0.0]], dtype=torch.float64)
    words.on_gradient()
    expected = [0.2025, -500 * (1 - 0.81) ** 2 / 4]
    assert [words.weight.grad[0, 0].item(), words.weight.grad[1, 1].item()] == pytest.approx(expected, rel=1e-12)
    torch.optim.SGD([words.weight], lr=1.0).step()
    words.after_step()
    assert words.weight.flatten().tolist() == near(0.3 - 0.2025, 0.1, 0, 0, 0.99, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "encoder.scale is 0.0; it multiplies"),
        ({"scale": math.nan}, "encoder.scale is nan; it multiplies"),
        ({"radius": 1.5}, "encoder.radius is 1.5; the ball's own is 1"),
        ({"radius": 0.0}, "encoder.radius is 0.0; the ball's own is 1"),
        ({"head": "none", "riemannian": "point"}, 'encoder.riemannian is "point" but encoder.head is "none"'),
        ({"riemannian": "table"}, 'encoder.riemannian is "table" but the word table is frozen'),
        ({"dropout": 1.0}, "dropout is 1.0; it is a share"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError) as caught:
        encoder(**options)
    assert str(caught.value).startswith(message)


def test_a_layer_from_300_to_300_and_an_energy_have_90302_weights():
    made = nn.ModuleList([Projection(7, width=300, word_width=300), Energy(widths=(300, 300))])
    assert sum(weight.numel() for weight in made.parameters() if weight.requires_grad) == 90_302


def test_what_the_released_code_does_wants_whole_gradients():
    settings = ["encoder.table='ready'", "encoder.frozen=false", "encoder.riemannian='reference'"]
    settings += ["training.optimizer='lazy-adam'", "training.weight_decay=0"]
    with pytest.raises(RecipeError, match="it scales whole gradients; use adam"):
        resolve(load("hyperqa", settings))
