"""
The training step on one process and on several, dropout on.

One group of processes is started for each world size; it runs every case and leaves what it got in a file.
"""

import math
from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tiny import NEW, A, B, drawn_examples, examples, fitted, lying_by_example, words

from models.batch import Batch, lanes
from models.candidates import FILLER, Rows
from models.encoding import Encode, Setup, step_seed
from models.gathering import World
from models.method import Method
from models.optimizer import clip, optimizer
from models.recipe import known, load
from models.reduction import trainable
from models.resolving import resolve
from models.step import step_gradient

VOCABULARY, ROWS, STEPS, FEW = 40, 20, 20, 5
SMALL = ("encoder.width=6", "batches.lane_rows=5", "encoder.dropout=0.3")
GRU = (*SMALL, "encoder.word_width=5")
CASES = {
    "bi": ("quick-thoughts", GRU),
    "uni, one mask for all, self zero": (
        "quick-thoughts",
        (*GRU, "encoder.bidirectional=false", "encoder.shared_dropout=true", "terms.0.candidates.self='zero'"),
    ),
    "bag": ("quick-thoughts-bag", SMALL),
    "bag, two lanes": ("quick-thoughts-bag", (*SMALL, "batches.lane_rows=15")),
    "binary": ("quick-thoughts-binary", GRU),
    "margin": ("quick-thoughts-margin", GRU),
    "multichannel": ("quick-thoughts-multichannel", (*GRU, "encoder.f2.table='ready'")),
    "cpc": ("cpc", (*GRU, "context.width=4")),
    "cpc, all candidates, and neighbours too": (
        "cpc",
        (
            *GRU,
            "terms.0={ahead=0,candidates={kind='batch'},similarity={kind='dot'},objective={kind='softmax'}}",
            "terms.1.candidates.among='sequence'",
            "terms.2.candidates.among='both'",
        ),
    ),
}
TINY = (*NEW, "batches.lane_rows=5", "encoder.dropout=0.3", "training.rate=0.001")
QUEUE = "terms.0.candidates.queue=13"  # more than one batch brings, less than two
CASES |= {
    name: (name, (*TINY, QUEUE) if "esimcse" in name else TINY)
    for name in known()
    if load(name).encoder.kind == "transformer"
}
CASES |= {
    "one lane, a queue": ("simcse-unsup", (*TINY, QUEUE, "batches.lane_rows=20")),
    "binary, a queue": ("simcse-unsup", (*TINY, QUEUE, "terms.0.objective.kind='binary'")),
    "hard negatives, a weight and a queue": ("simcse-sup", (*TINY, QUEUE, "terms.0.candidates.log_alpha=0.5")),
    "templates of unknown words, frozen": (
        "promptbert",
        (*TINY, *(f"view.{at}.{option}" for at in (0, 1) for option in ("delta='x-tokens'", "frozen=true"))),
    ),
}
GENERATION = "{objective={kind='generation'}, weight=0.5}"
GRAM = "{candidates={kind='all'}, similarity={kind='cosine'}, objective={kind='gram'}, weight=100}"
TEACHER = "teacher={model='t'}"
PACKED = {
    "packed, a teacher, mean": ("simbert", (*TINY, TEACHER, f"terms=[{GRAM}, {GENERATION}]", "encoder.pooling='mean'")),
    "packed, nothing compared, a sum": (
        "simbert",
        (*TINY, "terms=[{objective={kind='generation'}, reduce='sum', weight=0.01}]"),
    ),
    "packed, two towers": (
        "simbert",
        (*TINY, "encoder.towers=['f','g']", "terms.0.candidate='g'", "terms.1.anchor='g'", "terms.1.candidate='g'"),
    ),
}
CASES |= PACKED
QA = (*SMALL, "encoder.table='ready'", "encoder.scale=0.3")
CHOICE = "terms.0.candidates"
# Of a bias that cancels, the gradient of a mean is rounding alone, which Adam would blow up.
MEAN = ("terms.0.reduce='mean'", "training.epsilon=1e-5")
CASES |= {
    "mix": ("hyperqa", QA),
    "mix, odd, on the edge, a mean": ("hyperqa-wikiqa", (*QA, *MEAN, "encoder.scale=1", f"{CHOICE}.count=3")),
    "max": ("hyperqa", (*QA, *MEAN, f"{CHOICE}={{kind='own', choose='max'}}", "terms.0.objective={kind='softmax'}")),
    "random, as released": (
        "hyperqa",
        (*QA, f"{CHOICE}.choose='random'", "encoder.riemannian='reference'", "encoder.frozen=false"),
    ),
    "cosine": ("cosineqa", (*QA, f"{CHOICE}.count=2")),
    "a table of points": (
        "hyperqa",
        (*QA, "encoder.riemannian='table'", "encoder.frozen=false", "training.optimizer='sgd'", f"{CHOICE}.count=2"),
    ),
}
GUIDE = "guide={model='g', margin=-0.1}"
CASES |= {
    "guided, a mean over triples": ("quick-thoughts-margin", (*GRU, GUIDE)),
    "guided, hard negatives": ("simcse-sup", (*TINY, GUIDE, "terms.0.candidates.log_alpha=0.5")),
    "guided, a mix": ("hyperqa", (*QA, GUIDE, f"{CHOICE}.count=2")),
}
WORD = ("encoder.word_width=4", "batches.lane_rows=5", "training.rate=0.01")
NPLM = (*WORD, "encoder.hidden=6", "encoder.order=3")
SKIP = ("encoder.width=6", "batches.lane_rows=5", "encoder.subsample=0.02")
TOLD = "{candidates={kind='noise'}, similarity={kind='dot'}, objective={kind='logistic'}}"
COMPARED = "{candidates={kind='batch'}, similarity={kind='cosine', temperature=0.1}, objective={kind='softmax'}}"
WORDS_TOLD = {
    "nplm": ("nplm", NPLM),
    "nce": ("nce", NPLM),
    "nce, shared noise, a global log z": (
        "nce",
        (*NPLM, "terms.0.candidates.shared=true", "terms.0.candidates.drawn=7", "terms.0.objective.log_z='global'"),
    ),
    "nce, a log z of each context": (
        "nce-log-bilinear",
        (*WORD, "encoder.order=2", "terms.0.objective.log_z='per-context'"),
    ),
    "nce-log-bilinear": ("nce-log-bilinear", WORD),
    "nce, not by rows": ("nce", (*NPLM, "training.optimizer='adam'")),
    "nce beside texts that are compared": (
        "nce",
        (
            *NPLM,
            f"terms=[{COMPARED}, {TOLD}]",
            "pairs={kind='neighbours', context_size=1}",
            "training.optimizer='adam'",
        ),
    ),
    "nce beside texts that are compared, by rows": (
        "nce",
        (*NPLM, f"terms=[{COMPARED}, {TOLD}]", "pairs={kind='neighbours', context_size=1}"),
    ),
    "skipgram": ("skipgram", SKIP),
    "skipgram, noise of each pair": (
        "skipgram",
        (*SKIP, "terms.0.candidates={kind='noise', count=5, power=0.75, correct=false}"),
    ),
    "skipgram, softmax": (
        "skipgram",
        (*SKIP, "terms.0.candidates={kind='vocabulary'}", "terms.0.objective={kind='softmax'}"),
    ),
    "skipgram, a lane": ("skipgram", (*SKIP, "batches.lane_rows=20")),
}
CASES |= WORDS_TOLD
RUNS = [(case, "fp64", cached) for case in CASES for cached in (False, True)]
RUNS += [("bi", "fp32", True), *((case, "fp32", False) for case in CASES)]
# Reading the library of transformers takes each process seconds, so larger groups do without.
GENERATING = ("simbert", "packed, a teacher, mean")
LIGHT = [case for case in CASES if case in GENERATING or load(CASES[case][0]).encoder.kind != "transformer"]
RUNS_OF = {2: RUNS, 4: [run for run in RUNS if run[0] in LIGHT]}
GROUPED = [(size, run) for size, runs in RUNS_OF.items() for run in runs]
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-12}

F = [[1, 0.5, -0.5], [0.2, -1, 0.3], [-0.7, 0.4, 0.9], [0.6, 0.8, 0.1]]
G = [[0.9, 0.4, -0.6], [0.1, -0.8, 0.5], [-0.5, 0.6, 0.7], [0.7, 0.6, 0.3]]


def drawn_batch(draw, pairs="neighbours", repeated=False):
    """Examples, or runs of 8 neighbours, lengths from 1 to 5, a few repeats, three fillers at the end."""
    if pairs != "neighbours":
        return drawn_examples(draw, pairs, ROWS, repeated)
    length_B = torch.randint(1, 6, (ROWS,), generator=draw)
    ids = torch.randint(0, VOCABULARY, (int(length_B.sum()),), generator=draw)
    real = ROWS - 3
    answers = [[j for j in (i - 1, i + 1) if 0 <= j < real and j // 8 == i // 8 and i < real] for i in range(ROWS)]
    side_B = torch.tensor([0] * real + [FILLER] * 3, dtype=torch.uint8)
    group_B = torch.randint(0, 30, (ROWS,), generator=draw)
    where = (torch.tensor([i // 8 if i < real else -1 for i in range(ROWS)]), torch.arange(ROWS) % 8)
    return Batch(ids, length_B, Rows(side_B, group_B, filled(answers), None, None, *where))


def filled(answers):
    return torch.tensor([row + [-1] * (2 - len(row)) for row in answers])


def new_method(case, precision="fp32"):
    name, overrides = CASES[case]
    recipe = resolve(load(name, [*overrides, f"training.precision={precision}"]))
    torch.manual_seed(0)
    ready, shares = {"ready": torch.rand(VOCABULARY, 5) - 0.5}, torch.full((VOCABULARY,), 0.01)
    method = Method(recipe, VOCABULARY, ready, shares, words())
    return (method.double() if precision == "fp64" else method).train()


def trained(case, precision, cached, world, steps=None):
    """Losses and bounds of a run and the weights at its end, what is in queues included."""
    method = new_method(case, precision)
    steps = steps or (FEW if method.recipe.encoder.kind in ("projection", "transformer") else STEPS)
    batch = lambda: fitted(drawn_batch(draw, method.recipe.pairs.kind, bool(method.recipe.augment)), method.recipe)
    training, draw = method.recipe.training, torch.Generator().manual_seed(1)
    setup = Setup(training.seed, method.recipe.batches.lane_rows, precision, cached, training.lazy)
    moving = list(trainable(method))
    optimize, losses, bounds = optimizer(moving, training), [], []
    for number in range(steps):
        bound_S = method.no_bounds()
        losses.append(step_gradient(method, batch(), number, setup, world, bound_S))
        bounds += [1 + bound for bound in method.bounds(bound_S).values()]  # near 0, with the rounding of a loss
        method.on_gradient()
        clip(moving, training)
        optimize.step()
        method.after_step()
    return torch.tensor(losses + bounds, dtype=torch.float64), flat(moving, method.queues.state_dict())


def flat(moving, queues):
    return torch.cat([weight.detach().flatten().double() for weight in (*moving, *queues.values())])


def four_pairs(world, cached=False):
    """Loss and gradient where the two views of text i are rows of A and B: its only word's vector is just that."""
    ready = ("encoder={kind='bag', table='ready'}", "readout.head=true", "terms.0.similarity.temperature=0.5")
    recipe = resolve(load("simcse-unsup", [*ready, "training.precision=fp64"]))
    table = lying_by_example(torch.tensor(A), torch.tensor(B))
    method = Method(recipe, 8, {"ready": table}).double().train()
    batch = Batch(torch.arange(8), torch.ones(8, dtype=torch.int64), examples(4, 2))
    loss = step_gradient(method, batch, 0, Setup(0, 4, "fp64", cached), world)
    return loss, method.tower("f").words.weight.grad.clone()


def four_sentences(documents, world, name="quick-thoughts"):
    """Loss and gradients where f and g of sentence i are rows of F and G: its only word's vector is just that."""
    ready = "encoder={kind='bag', towers=['f','g'], f={table='F'}, g={table='G'}}"
    recipe = resolve(load(name, [ready, "training.precision=fp64"]))
    method = Method(recipe, 4, {"F": torch.tensor(F), "G": torch.tensor(G)}).double().train()
    answers = [[j for j in (i - 1, i + 1) if 0 <= j < 4 and documents[i] == documents[j]] for i in range(4)]
    rows = Rows(torch.zeros(4, dtype=torch.uint8), torch.arange(4), filled(answers))
    loss = step_gradient(
        method, Batch(torch.arange(4), torch.ones(4, dtype=torch.int64), rows), 0, Setup(0, 2, "fp64"), world
    )
    return loss, *(method.tower(name).words.weight.grad.clone() for name in ("f", "g"))


def everything(world):
    found = {run: trained(*run, world) for run in RUNS_OF.get(world.size, RUNS)}
    found |= {("pairs", cached): four_pairs(world, cached) for cached in (False, True)}
    found |= {kind: four_sentences((0, 0, 0, 0), world, f"quick-thoughts-{kind}")[0] for kind in ("binary", "margin")}
    return found | {documents: four_sentences(documents, world) for documents in ((0, 0, 0, 0), (0, 1, 1, 1))}


def child(rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    found = everything(World(rank, size))
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()  # leaving while another still reduces aborts the process
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def alone():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield everything(World())
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """What each process of a group of that size got."""

    @cache
    def run(size):
        folder = tmp_path_factory.mktemp(f"group-of-{size}")
        mp.spawn(child, (size, str(folder)), nprocs=size)
        return [torch.load(folder / f"{rank}.pt") for rank in range(size)]

    return run


@pytest.fixture(scope="module", params=RUNS_OF)
def together(request, groups):
    return groups(request.param)


def difference(left, right):
    """Largest relative difference; of numbers below 1e-3 the absolute one in thousandths."""
    return ((left - right).abs() / left.abs().clamp(min=1e-3)).max().item()


@pytest.mark.parametrize(("size", "run"), GROUPED, ids=str)
def test_losses_are_those_of_one_process(size, run, alone, groups):
    assert difference(alone[run][0], groups(size)[0][run][0]) < TOLERANCE[run[1]]


@pytest.mark.parametrize(("size", "run"), [(size, run) for size, run in GROUPED if run[1] == "fp64"], ids=str)
def test_weights_after_the_run_are_those_of_one_process(size, run, alone, groups):
    assert difference(alone[run][1], groups(size)[0][run][1]) < 1e-9


@pytest.mark.parametrize("size", RUNS_OF)
def test_all_processes_hold_the_same_weights_to_the_bit(size, groups):
    first, *others = groups(size)
    assert all(torch.equal(first[run][1], other[run][1]) for run in RUNS_OF[size] for other in others)


@pytest.mark.parametrize("case", CASES)
def test_caching_changes_no_result(case, alone):
    plain, cached = alone[case, "fp64", False], alone[case, "fp64", True]
    assert difference(plain[0], cached[0]) < 1e-12 and difference(plain[1], cached[1]) < 1e-9


@pytest.mark.parametrize("case", [case for case in CASES if case not in WORDS_TOLD])
def test_dropout_is_on_in_these_runs(case, alone):
    off = new_method(case).eval()
    setup = Setup(0, off.recipe.batches.lane_rows)
    drawn = drawn_batch(torch.Generator().manual_seed(1), off.recipe.pairs.kind, bool(off.recipe.augment))
    first = fitted(drawn, off.recipe)
    assert step_gradient(off, first, 0, setup, World()) != pytest.approx(
        alone[case, "fp32", False][0][0].item(), rel=1e-5
    )


def test_gradient_of_a_gathered_batch_is_the_whole_one(together):
    """Every process holds the full gradient: not half of it, and with what the others' rows send back."""
    for loss, to_f, to_g in (found[0, 0, 0, 0] for found in together):
        assert loss == pytest.approx(1.235229, abs=1.5e-6)
        assert to_f[0].tolist() == pytest.approx([0.075684, 0.292198, -0.025228], abs=1.5e-6)
        assert to_g[0].tolist() == pytest.approx([0.047385, 0.163593, 0.035048], abs=1.5e-6)


@pytest.mark.parametrize("cached", [False, True])
def test_gradient_of_gathered_pairs_is_the_whole_one(cached, together):
    """Not half of it; with the others' rows detached, that of b1 would begin with 0.004490."""
    for loss, gradient in (found["pairs", cached] for found in together):
        assert loss == pytest.approx(0.410013, abs=1.5e-6)  # without the others' candidates 0.119894
        assert gradient[0].tolist() == pytest.approx([0.028540, 0.057317, 0.114397], abs=1.5e-6)
        assert gradient[1].tolist() == pytest.approx([0.012288, 0.048244, 0.050594], abs=1.5e-6)


def test_unequal_counts_are_divided_over_the_whole_batch(together):
    """The first process has one anchor, the second two; the mean of their means would be 1.088725."""
    assert [found[0, 1, 1, 1][0] for found in together] == pytest.approx([1.061667] * len(together), abs=1.5e-6)


@pytest.mark.parametrize(("kind", "expected"), [("binary", 0.745014), ("margin", 0.915)])
def test_a_mean_over_pairs_or_triples_is_over_those_of_all_workers(kind, expected, together):
    assert [found[kind] for found in together] == pytest.approx([expected] * len(together), abs=1.5e-6)


def test_lanes_go_by_length_then_row():
    found = lanes(torch.tensor([3, 1, 2, 1, 3]), 2)
    assert [(lane.number, lane.row_L.tolist()) for lane in found] == [(0, [1, 3]), (1, [2, 0]), (2, [4])]


def test_seeds_differ_between_seeds_steps_and_lanes():
    drawn = [step_seed(seed, number, lane) for seed in range(5) for number in range(50) for lane in range(-1, 50)]
    assert len(set(drawn)) == len(drawn) and all(0 <= seed < 2**63 for seed in drawn)


def test_a_lane_draws_the_same_dropout_on_whichever_worker():
    method, batch = new_method("bag"), drawn_batch(torch.Generator().manual_seed(1))
    lane = lanes(batch.length_B, 5)[3]
    here, there = (
        Encode(method, batch, 7, Setup(0, 5), World(rank, 4))(lane, graph=False).vector_LD for rank in (0, 3)
    )
    assert torch.equal(here, there)


def test_two_lanes_of_one_text_drop_differently():
    method = new_method("bag")
    rows = Rows(torch.zeros(2, dtype=torch.uint8), torch.arange(2), torch.tensor([[1], [0]]))
    batch = Batch(torch.tensor([4, 5, 6] * 2), torch.tensor([3, 3]), rows)
    encode = Encode(method, batch, 0, Setup(0, 1), World())
    first, second = (encode(lane, graph=False).vector_LD for lane in lanes(batch.length_B, 1))
    assert not torch.equal(first, second)


def test_two_steps_drop_differently():
    method, batch = new_method("bag"), drawn_batch(torch.Generator().manual_seed(1))
    lane = lanes(batch.length_B, 5)[0]
    first, second = (Encode(method, batch, step, Setup(0, 5), World())(lane, graph=False).vector_LD for step in (0, 1))
    assert not torch.equal(first, second)


def test_fillers_count_nothing():
    method, batch = new_method("bi").eval(), drawn_batch(torch.Generator().manual_seed(1))
    kept, rows = ROWS - 3, batch.rows
    without = Batch(
        batch.flat_ids[: int(batch.length_B[:kept].sum())],
        batch.length_B[:kept],
        Rows(rows.side_B[:kept], rows.group_B[:kept], rows.answers_BP[:kept]),
    )
    losses = [step_gradient(method, each, 0, Setup(0, 5), World()) for each in (batch, without)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_random_state_that_a_step_finds_says_nothing():
    batch = drawn_batch(torch.Generator().manual_seed(1))
    losses = []
    for seed in (3, 4):
        method = new_method("bi")
        torch.manual_seed(seed)
        losses.append(step_gradient(method, batch, 0, Setup(0, 5), World()))
    assert losses[0] == losses[1]


def test_an_untrained_method_knows_nothing():
    """Vectors near zero score alike, so each right answer has the chance of any candidate."""
    method = new_method("bi").eval()
    with torch.no_grad():
        for weight in method.parameters():
            weight.mul_(1e-3)
    batch = drawn_batch(torch.Generator().manual_seed(1))
    alone = Rows(batch.rows.side_B, torch.arange(ROWS), batch.rows.answers_BP)
    loss = step_gradient(method, Batch(batch.flat_ids, batch.length_B, alone), 0, Setup(0, 5), World())
    assert loss == pytest.approx(math.log(ROWS - 3 - 1), abs=1e-3)


@pytest.mark.parametrize("cached", [False, True])
def test_a_loss_that_is_not_finite_names_step_and_remedy(cached):
    method = new_method("bag")
    with torch.no_grad():
        method.tower("f").words.weight[3] = math.nan
    with pytest.raises(FloatingPointError, match=r"step 12: the loss is nan.*training.precision=fp32 or a lower"):
        step_gradient(method, drawn_batch(torch.Generator().manual_seed(1)), 12, Setup(0, 5, "fp32", cached), World())


def test_bf16_is_near_fp32_and_caching_changes_nothing():
    losses = []
    for precision, cached in (("fp32", False), ("bf16", False), ("bf16", True)):
        losses.append(trained("bi", precision, cached, World(), steps=3)[0][2].item())
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[2] == pytest.approx(losses[1], rel=1e-6)
