"""Terms that generate, and terms that learn from a teacher, as parts of a step."""

from dataclasses import replace

import pytest
import torch
from tiny import A, B, build, drawn_examples, examples, fitted, lying_by_example, recipe_of, sides

from models.batch import Batch
from models.candidates import ANCHOR, CANDIDATE
from models.encoding import Setup
from models.gathering import World
from models.generation import matched_and_told, told
from models.method import Method
from models.objectives import gram
from models.recipe import RecipeError, load
from models.resolving import resolve
from models.step import step_gradient

GENERATION = "{objective={kind='generation'}}"
GRAM = "{candidates={kind='all'}, similarity={kind='cosine'}, objective={kind='gram'}, weight=100}"
ALONE = f"terms=[{GENERATION}]"
DOUBLE = "training.precision=fp64"


def batch(recipe, seed=1):
    return fitted(drawn_examples(torch.Generator().manual_seed(seed), "pairs"), recipe)


def loss(method, given, lane_rows=5):
    return step_gradient(method, given, 0, Setup(0, lane_rows, "fp64"), World())


def test_loss_and_gradient_are_a_mean_over_the_told_tokens_of_the_whole_batch():
    method = build("simbert", ALONE)
    given, encoder = batch(method.recipe), method.tower("f")
    every = torch.arange(len(given.length_B))
    _, nats = matched_and_told(encoder, *given.padded(every), *given.targets(every, torch.device("cpu")))
    ends = int((given.target_length_B > 0).sum())
    assert told(encoder, given.length_B, given.target_length_B) == len(given.target_ids) + ends
    mean = nats / (len(given.target_ids) + ends)
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(mean, weights, allow_unused=True)
    assert loss(method, given) == pytest.approx(mean.item(), rel=1e-12)
    for weight, gradient in zip(weights, gradients, strict=True):
        torch.testing.assert_close(weight.grad, torch.zeros_like(weight) if gradient is None else gradient.to_dense())


def test_a_sum_is_divided_by_nothing():
    mean, whole = build("simbert", ALONE), build("simbert", ALONE, "terms.0.reduce=sum")
    given = batch(mean.recipe)
    count = told(mean.tower("f"), given.length_B, given.target_length_B)
    assert loss(whole, given) == pytest.approx(count * loss(mean, given), rel=1e-12)


def test_a_weight_multiplies_loss_and_gradient():
    once, twice = build("simbert", ALONE), build("simbert", ALONE, "terms.0.weight=2")
    given = batch(once.recipe)
    assert loss(twice, given) == pytest.approx(2 * loss(once, given), rel=1e-12)
    for one, other in zip(once.parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(other.grad, 2 * one.grad)


def test_loss_and_gradient_are_those_of_both_terms_alone():
    """One pass gives what two would."""
    match = build(
        "simbert", "terms=[{candidates='batch',similarity={kind='cosine',temperature=0.1},objective='softmax'}]"
    )
    both = build("simbert", "terms.0.similarity.temperature=0.1")
    write, given = build("simbert", ALONE), batch(both.recipe)
    write.load_state_dict(both.state_dict())
    match.towers["f"].load_state_dict(both.tower("f").state_dict(), strict=False)
    match.towers["f"].body.load_state_dict(both.tower("f").body.state_dict(), strict=False)
    total = loss(match, replace(given, target_ids=None, target_length_B=None)) + loss(write, given)
    assert loss(both, given) == pytest.approx(total, rel=1e-12)
    body = [dict(method.tower("f").body.named_parameters()) for method in (both, match, write)]
    for name, weight in body[0].items():
        torch.testing.assert_close(weight.grad, body[1][name].grad + body[2][name].grad, msg=name)


def test_the_number_of_lanes_changes_nothing():
    method = build("simbert")
    given = batch(method.recipe)
    assert loss(method, given, 5) == pytest.approx(loss(method, given, 20), rel=1e-12)


def test_lanes_go_by_the_length_of_text_and_answer():
    given = Batch(torch.arange(6), torch.tensor([3, 2, 1]), examples(1, 3), torch.arange(4), torch.tensor([0, 3, 1]))
    assert [lane.row_L.tolist() for lane in given.lanes(1)] == [[2], [0], [1]]


def test_a_batch_without_targets_is_refused():
    method = build("simbert")
    given = replace(batch(method.recipe), target_ids=None, target_length_B=None)
    with pytest.raises(ValueError, match="without the column target say no answers; a term that generates needs it"):
        loss(method, given)


def test_a_batch_that_tells_nothing_costs_nothing():
    method = build("simbert", ALONE)
    given = batch(method.recipe)
    none = torch.zeros_like(given.length_B)
    assert loss(method, replace(given, target_ids=torch.zeros(0, dtype=torch.int64), target_length_B=none)) == 0


def lookup(override, *views, temperature=1 / 30, **more):
    """A method whose only tower gives rows of the views: each text is one word, whose vector is just that."""
    terms = (f"terms.0.similarity.temperature={temperature}",) if "gram" not in override else ()
    ready = ("encoder={kind='bag', table='ready'}", override, *terms, DOUBLE)
    recipe = resolve(load("simbert", ready))
    table = lying_by_example(*map(torch.tensor, views))
    method = Method(recipe, len(table), {"ready": table}).double().train()
    rows = replace(examples(len(views[0]), len(views)), **more)
    found = loss(method, Batch(torch.arange(len(table)), torch.ones(len(table), dtype=torch.int64), rows), 4)
    return found, method.tower("f").words.weight.grad


COMPARED = "terms=[{candidates={kind='batch', self='mask'}, similarity={kind='cosine'}, objective={kind='softmax'}}]"


@pytest.mark.parametrize(("scale", "expected"), [(30, 0.000889778), (20, 0.00743186), (10, 0.0703303)])
def test_four_pairs_find_each_other(scale, expected):
    """At scale 10 the loss of ConSERT, whose rows stand in another order."""
    assert lookup(COMPARED, A, B, temperature=1 / scale)[0] == pytest.approx(expected, abs=1.5e-6)


@pytest.mark.parametrize(("scale", "expected"), [(30, 0.00177956), (20, 0.01486325)])
def test_two_pairs_find_each_other(scale, expected):
    found, gradient = lookup(COMPARED, [A[0], A[3]], [B[0], B[3]], temperature=1 / scale)
    assert found == pytest.approx(expected, abs=1.5e-6)
    if scale == 30:
        assert gradient[0].tolist() == pytest.approx([0.000061, 0.019010, 0.019132], abs=1.5e-6)


TAUGHT = f"terms=[{GRAM}]"


def taught(teacher, student, **more):
    """Loss and gradient of a hundred times the mean squared difference, each text one word."""
    recipe = resolve(load("simbert", ["encoder={kind='bag', table='ready'}", TAUGHT, "teacher={model='t'}", DOUBLE]))
    method = Method(recipe, len(student), {"ready": torch.tensor(student)}).double().train()
    rows = replace(examples(len(student), 1), teacher_BE=torch.tensor(teacher), **more)
    given = Batch(torch.arange(len(student)), torch.ones(len(student), dtype=torch.int64), rows)
    return loss(method, given, 2), method.tower("f").words.weight.grad


def test_the_geometry_of_a_teacher():
    found, gradient = taught(A, B)
    assert found == pytest.approx(2.690986, abs=1.5e-6)
    assert gradient[0].tolist() == pytest.approx([-2.445220, 2.649770, -1.901317], abs=1.5e-5)


def test_a_rotated_and_longer_teacher_has_the_same_geometry():
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    student = (3 * torch.tensor(A, dtype=torch.float64) @ turn).tolist()
    assert taught(A, student)[0] == pytest.approx(0, abs=1e-10)


def test_a_teacher_may_be_wider():
    assert taught([[*row, 0.0, 0.0] for row in A], B)[0] == pytest.approx(2.690986, abs=1.5e-6)


def test_every_text_is_compared_whatever_its_side():
    sides_B = torch.tensor([0, ANCHOR, CANDIDATE, CANDIDATE], dtype=torch.uint8)
    assert taught(A, B, side_B=sides_B)[0] == pytest.approx(2.690986, abs=1.5e-6)


def test_fillers_are_compared_with_nothing():
    recipe = resolve(load("simbert", ["encoder={kind='bag', table='ready'}", TAUGHT, "teacher={model='t'}", DOUBLE]))
    method = Method(recipe, 5, {"ready": torch.tensor([*B, [9.0, 9, 9]])}).double().train()
    rows = replace(examples(4, 1, fillers=2), teacher_BE=torch.tensor([*A, [0.0] * 3, [0.0] * 3]))
    given = Batch(torch.tensor([0, 1, 2, 3, 4, 4]), torch.ones(6, dtype=torch.int64), rows)
    assert loss(method, given, 4) == pytest.approx(2.690986, abs=1.5e-6)


def test_a_batch_without_a_teacher_is_refused():
    method = build("simbert", TAUGHT, "teacher={model='t'}")
    with pytest.raises(ValueError, match="without the column teacher say no vectors of one; objective gram needs it"):
        loss(method, replace(batch(method.recipe), rows=examples(10, 2)))


def test_gram_is_a_double_loop_and_a_pair_left_out_counts_nothing():
    score_AC, taught_AC = sides([[0.5, -0.25, 1.0], [0.0, 0.75, -1.0]], [[0.5, 0.25, 0.0], [1.0, 0.5, 0.0]])
    masked_AC = score_AC + torch.tensor([[0, 0, -torch.inf], [0, 0, 0]])
    amount, count = gram(masked_AC, taught_AC.detach())
    amount.backward()
    assert amount.item() == pytest.approx(0.0 + 0.25 + 1.0 + 0.0625 + 1.0) and count == 5
    assert score_AC.grad.tolist() == [[0.0, -1.0, 0.0], [-2.0, 0.5, -2.0]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["encoder={kind='gru'}"],
            r'terms\.1\.objective\.kind is "generation", which wants encoder\.kind = transformer',
        ),
        (["view=['shuffle']"], r'of a text as it is, but view\.0\.kind is "shuffle"; leave view out'),
        (["view=[{kind='template', text='[X] is [MASK]'}]"], r'view\.0\.kind is "template"; leave view out'),
        (["encoder.pooling=mask"], r'but encoder\.pooling is "mask"; should be first or mean'),
        (["encoder.pooling=mean-last-two"], r'but encoder\.pooling is "mean-last-two"; should be first or mean'),
        (
            ["encoder.towers=['f','g']", "terms.1.anchor=g"],
            r'of tower "g", which no term compares: one pass does both; set terms\.1\.anchor to one of f',
        ),
        ([f"terms=[{GENERATION}, {GENERATION}]"], r'of tower "f" a second time; leave one out, or change its weight'),
        (
            [TAUGHT],
            r'objective\.kind is "gram", but there is no teacher; name the folder of a model, as in teacher\.model',
        ),
        (["teacher={model='x'}"], r'teacher\.model is "x", but no term learns from it; give one objective ='),
        (
            ["terms.0.candidates=all"],
            r'"softmax" and its candidates\.kind "all"; objective "gram" and candidates "all"',
        ),
        (["terms.0.objective=gram"], r'"gram" and its candidates\.kind "batch"; objective "gram" and candidates "all"'),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_remedy(overrides, message):
    with pytest.raises(RecipeError, match=message):
        recipe_of("simbert", *overrides) if "gru" not in overrides[0] else resolve(load("simbert", overrides))
