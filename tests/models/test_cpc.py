"""
CPC put together from its parts, against numbers worked out by plain numpy in float64.

van den Oord, Li and Vinyals 2018, equations 3 to 5: the context of a run finds what comes k later among other vectors.
Values on tables are exact: expectations are sums over everything that can be drawn.
"""

import itertools
import math

import pytest
import torch
from tiny import A as F
from tiny import B as G
from torch import nn

from models.batch import Batch
from models.candidates import FILLER, Rows, ahead, batch, scores
from models.encoding import Setup
from models.gathering import World
from models.method import Method
from models.objectives import softmax
from models.recipe import RecipeError, load, parse
from models.resolving import resolve
from models.similarity import Bilinear, cosine
from models.step import step_gradient

TABLE = torch.tensor([[0.4, 0.1], [0.1, 0.4]], dtype=torch.float64)
INFORMATION = 0.192745
CONTEXT = [[0.5, -1], [1, 0.2], [-0.3, 0.8], [0, 1]]
WEIGHT = [[0.6, -0.2], [0.1, 0.9], [-0.4, 0.3]]
SMALL = ("encoder.width=6", "encoder.word_width=5", "batches.lane_rows=5")


def printed(value):
    return pytest.approx(value, abs=1.5e-6)


def double(values, **more):
    return torch.tensor(values, dtype=torch.float64, **more)


# The critic: equations 3 to 5 of the paper


def critic():
    form = Bilinear(widths=(2, 3)).double()
    form.weight = nn.Parameter(double(WEIGHT))
    return form


def four_pairs(similarity):
    """Loss of four contexts whose answers are the four sentences, in this order."""
    nats, anchors = softmax(similarity(double(CONTEXT), double(G)), torch.arange(4)[:, None])
    return nats / anchors


def test_loss_of_contexts_that_find_their_sentences():
    loss = four_pairs(critic())
    assert loss.item() == printed(1.257798)
    assert math.log(4) - loss.item() == printed(0.128497)


def test_gradient_of_the_bilinear_form():
    form = critic()
    four_pairs(form).backward()
    expected = [[0.008790, 0.124256], [0.245589, 0.072336], [-0.016417, -0.256044]]
    assert torch.allclose(form.weight.grad, double(expected), atol=1.5e-6)


def test_the_softmax_goes_over_sentences_and_not_over_contexts():
    score_CC = critic()(double(CONTEXT), double(G))
    nats, anchors = softmax(score_CC.T, torch.arange(4)[:, None])
    assert (nats / anchors).item() == printed(1.246128)  # what some ports compute


def test_a_cosine_is_another_loss():
    turned = double(CONTEXT) @ double(WEIGHT).T
    nats, anchors = softmax(cosine(turned, double(G)), torch.arange(4)[:, None])
    assert (nats / anchors).item() == printed(1.321374)


def test_probabilities_of_which_sentence_is_right_sum_to_one():
    sums = critic()(double(CONTEXT), double(G)).softmax(dim=1).sum(dim=1)
    assert torch.allclose(sums, torch.ones(4, dtype=torch.float64))


def test_the_best_critic_is_the_ratio_times_anything_of_the_context():
    """Trained on exact expectations over a table, what log f - log ratio leaves depends on the context alone."""
    score_CX = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    moving = torch.optim.LBFGS([score_CX], max_iter=200, tolerance_grad=1e-12, tolerance_change=0.0)

    def loss():
        moving.zero_grad()
        value = expected_loss(score_CX, TABLE, 3)
        value.backward()
        return value

    moving.step(loss)
    rest_CX = score_CX.detach() - log_ratio(TABLE)
    assert torch.allclose(rest_CX[:, 0], rest_CX[:, 1], atol=1e-6)
    assert abs(score_CX.detach()[0, 0] - score_CX.detach()[0, 1]) > 1


# The bound, exactly, on tables p(c, x)


def log_ratio(joint_CX):
    """log p(x | c) / p(x), [C, X]; contexts first."""
    return (joint_CX / (joint_CX.sum(dim=1, keepdim=True) * joint_CX.sum(dim=0))).log()


def expected_loss(score_CX, joint_CX, count):
    """
    Exact L_N: the answer comes from p(x | c), the count - 1 others from p(x).

    How often each x is drawn decides the denominator, so sums go over counts, each with its multinomial weight.
    """
    apart, p_X, total = joint_CX.shape[1], joint_CX.sum(dim=0), 0.0
    for drawn in counts(count - 1, apart):
        many = math.lgamma(count) - sum(math.lgamma(n + 1) for n in drawn)
        chance = math.exp(many + sum(n * math.log(p) for n, p in zip(drawn, p_X.tolist(), strict=True)))
        for c, x in itertools.product(range(len(joint_CX)), range(apart)):
            every = double(drawn)
            every[x] += 1
            below = (score_CX[c] + every.log()).logsumexp(dim=0)
            total = total + chance * joint_CX[c, x] * (below - score_CX[c, x])
    return total


def counts(total, kinds):
    """All ways to draw so many of some kinds, order aside."""
    if kinds == 1:
        yield (total,)
        return
    for first in range(total + 1):
        yield from ((first, *rest) for rest in counts(total - first, kinds - 1))


LOSSES = {
    2: (0.596775, 0.096372),
    4: (1.240493, 0.145801),
    8: (1.909701, 0.169740),
    16: (2.591221, 0.181368),
    64: (3.968959, 0.189924),
    256: (5.353136, 0.192041),
}


def test_mutual_information_of_the_table():
    assert (TABLE * log_ratio(TABLE)).sum().item() == printed(INFORMATION)


@pytest.mark.parametrize(("count", "expected"), LOSSES.items())
def test_the_best_loss_gives_a_bound_below_the_information(count, expected):
    loss = expected_loss(log_ratio(TABLE), TABLE, count).item()
    assert (loss, math.log(count) - loss) == (printed(expected[0]), printed(expected[1]))
    assert math.log(count) - loss < INFORMATION


def test_more_candidates_bring_the_bound_nearer():
    bounds = [math.log(count) - expected_loss(log_ratio(TABLE), TABLE, count).item() for count in LOSSES]
    assert bounds == sorted(bounds)


def test_the_step_of_the_papers_proof_that_is_an_approximation_gives_another_number():
    """The sum over others replaced by its mean: not the loss, but above it."""
    ratio = log_ratio(TABLE).exp()
    assert (TABLE * ((ratio + 3) / ratio).log()).sum().item() == printed(1.272855)


def test_a_critic_that_is_too_sure_bounds_below():
    bound = math.log(8) - expected_loss(3 * log_ratio(TABLE), TABLE, 8).item()
    assert bound == printed(-0.163802)


@pytest.mark.parametrize(("count", "expected"), [(2, 0.682317), (8, 2.005081), (64, 3.591631), (512, 4.095826)])
def test_the_bound_stays_below_the_log_of_the_candidates(count, expected):
    """x = c, even over 64 values: an answer's copies among the others share its chance, nothing else scores."""
    copies = [
        math.comb(count - 1, n) * (1 / 64) ** n * (63 / 64) ** (count - 1 - n) * math.log(n + 1) for n in range(count)
    ]
    assert math.log(count) - sum(copies) == printed(expected)
    assert expected < min(math.log(count), math.log(64))


def test_the_bound_of_drawn_tables_by_the_loss_itself_is_the_exact_one():
    """Contexts and sentences drawn from the table, N = 8, scored by the log ratio: the mean over many is L_8."""
    draw, many = torch.Generator().manual_seed(0), 200_000
    drawn = torch.multinomial(TABLE.flatten(), many, replacement=True, generator=draw)
    c, x = drawn // 2, drawn % 2
    others = torch.multinomial(TABLE.sum(dim=0), many * 7, replacement=True, generator=draw).view(many, 7)
    score = log_ratio(TABLE)[c[:, None], torch.cat([x[:, None], others], dim=1)]
    nats, anchors = softmax(score, torch.zeros(many, 1, dtype=torch.int64))
    assert (nats / anchors).item() == pytest.approx(LOSSES[8][0], abs=0.004)


# Candidates: who could stand k later


def rows(groups=None):
    """Runs a b c d | e f g | h i | j, then k of the first document after a gap, and a filler."""
    places = [*((0, n) for n in range(4)), *((1, 5 + n) for n in range(3)), (2, 0), (2, 1), (3, 0), (0, 5), (0, 0)]
    document_B, place_B = torch.tensor(places).T
    side_B = torch.tensor([0] * 11 + [FILLER], dtype=torch.uint8)
    nobody = torch.full((12, 1), -1)
    return Rows(side_B, torch.tensor(groups or range(12)), nobody, document_B=document_B, place_B=place_B)


NAMES = "abcdefghijk."


def pools(step, **options):
    """Anchor's and answer's letter, and those of who is left in its pool."""
    groups = options.pop("groups", None)
    table = rows(groups).ahead(step)
    pool = ahead(table, table.anchors(), torch.zeros(12, 2), **options)
    assert pool.shift_AC is not None
    return {
        NAMES[anchor] + NAMES[answer]: "".join(NAMES[at] for at in shift.isfinite().nonzero().flatten().tolist())
        for anchor, (answer,), shift in zip(table.anchors(), pool.answer_AP.tolist(), pool.shift_AC, strict=True)
    }


def test_candidates_stand_at_the_same_step_of_other_runs():
    assert pools(1) == {"ab": "bfi", "bc": "cg", "cd": "d", "ef": "bfi", "fg": "cg", "hi": "bfi"}
    assert pools(2) == {"ac": "cg", "bd": "d", "eg": "cg"}
    assert pools(3) == {"ad": "d"}


def test_candidates_may_be_all_of_the_run():
    assert pools(1, among="sequence") == {
        "ab": "abcd", "bc": "abcd", "cd": "abcd", "ef": "efg", "fg": "efg", "hi": "hi",
    }  # fmt: skip


def test_candidates_may_be_all_of_the_batch_but_fillers():
    assert set(pools(2, among="both").values()) == {"abcdefghijk"}


@pytest.mark.parametrize(("among", "expected"), [("batch", "bi"), ("sequence", "abd"), ("both", "abdeghijk")])
def test_a_repeat_of_the_answer_is_no_wrong_answer(among, expected):
    """c and f say what b does."""
    groups = [0, 1, 1, 3, 4, 1, 6, 7, 8, 9, 10, 11]
    assert pools(1, among=among, groups=groups)["ab"] == expected


def test_a_repeat_of_the_anchor_stays_for_its_context_has_read_it():
    groups = [0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11]  # f says what a does
    assert pools(1, groups=groups)["ab"] == "bfi"


def test_an_unknown_choice_of_candidates_is_refused():
    with pytest.raises(ValueError, match=r'candidates.among is "all"; known: batch, sequence, both'):
        pools(1, among="all")


def test_two_fillers_or_ten_change_no_pool():
    few, table = rows(), rows()
    more = Rows(
        *(torch.cat([part, part[-1:].expand(9, *part.shape[1:])]) for part in (few.side_B, few.group_B)),
        torch.full((21, 1), -1),
        document_B=torch.cat([few.document_B, torch.zeros(9, dtype=torch.int64)]),
        place_B=torch.cat([few.place_B, torch.zeros(9, dtype=torch.int64)]),
    )
    short, long = (
        ahead(each.ahead(1), each.ahead(1).anchors(), torch.zeros(len(each.side_B), 2), among="both").shift_AC
        for each in (table, more)
    )
    assert torch.equal(short, long[:, :12]) and long[:, 11:].isneginf().all()


# Identities


def test_one_step_ahead_without_context_is_quick_thoughts_towards_the_next():
    """c = f of the sentence itself, z = g of others, W = 1, all other sentences for candidates."""
    form = Bilinear(widths=(3, 3)).double()
    form.weight = nn.Parameter(torch.eye(3, dtype=torch.float64))
    nobody = torch.full((4, 1), -1)
    four = Rows(
        torch.zeros(4, dtype=torch.uint8),
        torch.arange(4),
        nobody,
        document_B=torch.zeros(4, dtype=torch.int64),
        place_B=torch.arange(4),
    ).ahead(1)
    pool = batch(four, four.anchors(), double(G))
    nats, anchors = softmax(scores(pool, double(F)[four.anchors()], form), pool.answer_AP)
    assert anchors == 3 and (nats / anchors).item() == printed(1.281792)


def method_of(tree, ready=None, double_precision=True):
    recipe = resolve(parse({"name": "tiny"} | tree))
    torch.manual_seed(0)
    method = Method(recipe, 4, ready or {})
    return method.double().eval() if double_precision else method.eval()


def test_the_same_identity_as_a_recipe():
    """The answers of the table, which both neighbours stand in, are not asked."""
    term = {"anchor": "f", "candidate": "g", "candidates": "batch", "similarity": "bilinear", "objective": "softmax"}
    tree = {
        "encoder": {"kind": "bag", "towers": ["f", "g"], "f": {"table": "F"}, "g": {"table": "G"}},
        "terms": [term | {"ahead": 1}],
        "training": {"precision": "fp64"},
    }
    method = method_of(tree, {"F": torch.tensor(F), "G": torch.tensor(G)})
    with torch.no_grad():
        method.summands[0].similarity.weight.copy_(torch.eye(3))
    answers = torch.tensor([[1, -1], [0, 2], [1, 3], [2, -1]])
    where = {"document_B": torch.zeros(4, dtype=torch.int64), "place_B": torch.arange(4)}
    four = Rows(torch.zeros(4, dtype=torch.uint8), torch.arange(4), answers, **where)
    bound_S = method.no_bounds()
    lines = Batch(torch.arange(4), torch.ones(4, dtype=torch.int64), four)
    loss = step_gradient(method, lines, 0, Setup(0, 4, "fp64"), World(), bound_S)
    assert loss == printed(1.281792)
    assert method.bounds(bound_S) == {0: printed(math.log(3) - 1.281792)}


# The recipe


def built(*overrides):
    recipe = resolve(load("cpc", [*SMALL, "training.precision=fp64", *overrides]))
    torch.manual_seed(0)
    return Method(recipe, 30).double().eval()


def three_runs(seed=0, words=None):
    """Runs of 5, 4 and 2 sentences and a filler."""
    draw = torch.Generator().manual_seed(seed)
    places = [*((0, n) for n in range(5)), *((1, n) for n in range(4)), *((2, n) for n in range(2)), (0, 0)]
    document_B, place_B = torch.tensor(places).T
    length_B = torch.randint(1, 5, (12,), generator=draw)
    ids = torch.randint(0, 30, (int(length_B.sum()),), generator=draw) if words is None else words
    side_B = torch.tensor([0] * 11 + [FILLER], dtype=torch.uint8)
    nobody = torch.full((12, 1), -1)
    return Batch(ids, length_B, Rows(side_B, torch.arange(12), nobody, document_B=document_B, place_B=place_B))


def test_the_loss_of_the_recipe_is_a_mean_over_rows_then_over_steps():
    """Against loops: contexts by a cell, scores z'W c one by one, a softmax over the same step of other runs."""
    method, lines = built("context.width=4"), three_runs()
    with torch.no_grad():
        for weight in method.parameters():
            weight.mul_(4)  # new ones score nearly alike
    z = method.encode("f", *lines.padded(torch.arange(12)))
    cell = nn.GRUCell(12, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): v for name, v in method.contexts["f"].gru.state_dict().items()})
    runs = [range(5), range(5, 9), range(9, 11)]
    steps, bounds = [], []
    for number, k in enumerate((1, 2, 3)):
        weight, nats, logs = method.summands[number].similarity.weight, [], []
        for run in runs:
            c = torch.zeros(1, 4, dtype=torch.float64)
            for t, row in enumerate(run):
                c = cell(z[row : row + 1], c)
                if t + k < len(run):
                    others = [other[t + k] for other in runs if t + k < len(other)]
                    score = {at: (z[at] @ weight @ c[0]).item() for at in others}
                    nats.append(math.log(sum(map(math.exp, score.values()))) - score[run[t + k]])
                    logs.append(math.log(len(others)))
        steps.append(sum(nats) / len(nats))
        bounds.append(sum(logs) / len(logs) - steps[-1])
    bound_S = method.no_bounds()
    assert step_gradient(method, lines, 0, Setup(0, 5, "fp64"), World(), bound_S) == pytest.approx(sum(steps) / 3)
    assert method.bounds(bound_S) == pytest.approx(dict(enumerate(bounds)))


def test_asking_for_bounds_changes_neither_loss_nor_gradient():
    method = built()
    found = []
    for bound_S in (None, method.no_bounds()):
        loss = step_gradient(method, three_runs(), 0, Setup(0, 5, "fp64"), World(), bound_S)
        found.append((loss, torch.cat([weight.grad.flatten() for weight in method.parameters()])))
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])


def test_a_term_with_another_objective_has_no_bound():
    method = built("terms.1.objective.kind='binary'")
    assert set(method.bounds(method.no_bounds())) == {0, 2}


def test_gradient_reaches_encoder_context_and_forms():
    method = built()
    step_gradient(method, three_runs(), 0, Setup(0, 5, "fp64"), World())
    assert all(weight.grad.abs().sum() > 0 for weight in method.parameters())


def test_a_score_of_texts_takes_the_left_one_for_the_start_of_a_run():
    method, texts = built(), (torch.tensor([[1, 2], [3, 4], [5, 0]]), torch.tensor([2, 2, 1]))
    z = method.readout(*texts)
    state = torch.cat([method.contexts["f"].gru(one[None])[0] for one in z])
    expected = sum(state @ term.similarity.weight.T @ z.T for term in method.summands) / 3
    assert torch.allclose(method.double().score(z, z).double(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("context={kind='lstm'}", 'context.kind is "lstm"; known: gru'),
        ("context={kind='gru',wdith=3}", 'context has no option "wdith"; options of gru: width'),
        ("context.width=-2", "recipe cpc: context.width is -2; 0 for that of a sentence's vector"),
        ("terms.0.candidates.among='all'", "terms.0.candidates.among is 'all': Input should be 'batch', 'sequence'"),
        ("terms.0.ahead=0", 'terms.0.candidates.kind is "ahead", but terms.0.ahead is 0; 1 or more'),
        ("terms.0.ahead=-1", "recipe cpc: terms.0.ahead is -1: Input should be greater than or equal to 0"),
        ("terms.0.candidates={kind='other-view'}", 'terms.0.ahead is 1, but its candidates.kind is "other-view"'),
    ],
)
def test_what_cannot_look_ahead_is_named_before_any_work(override, message):
    with pytest.raises(RecipeError) as caught:
        resolve(load("cpc", [override]))
    assert str(caught.value).startswith(message)


def test_a_context_that_nobody_asks_is_refused():
    with pytest.raises(RecipeError, match=r'context.kind is "gru", but no term has `ahead`; give one, or no context'):
        resolve(load("quick-thoughts", ["context={kind='gru'}"]))


def test_widths_that_no_product_can_compare_are_refused():
    with pytest.raises(RecipeError, match="recipe cpc: "):
        resolve(load("cpc", [*SMALL, "context.width=4", "terms.0.similarity={kind='dot'}"]))
