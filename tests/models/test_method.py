"""Encoders and terms put together by a recipe."""

import pytest
import torch
from tiny import WORDS, drawn_examples, fitted, recipe_of, words
from torch import nn

from models.batch import Batch
from models.candidates import Rows
from models.encoding import Setup
from models.gathering import World
from models.hyperbolic import riemannian_factor
from models.method import Method
from models.optimizer import clip, optimizer
from models.recipe import RecipeError, known, load, parse
from models.reduction import trainable
from models.resolving import resolve
from models.scorers import SCORERS
from models.step import step_gradient
from models.summand import CELLS

VOCABULARY = 12
SMALL = {
    "bag": ["encoder.width=6"],
    "gru": ["encoder.width=6", "encoder.word_width=5"],
    "ngram": [],
    "projection": ["encoder.width=6", "encoder.table='ready'", "encoder.scale=0.3"],
    "log-bilinear": ["encoder.word_width=5"],
    "nplm": ["encoder.word_width=5", "encoder.hidden=6"],
    "table": ["encoder.width=6", "encoder.subsample=0", "encoder.initial=6"],
}
READY = torch.linspace(-1, 1, VOCABULARY * 5).view(VOCABULARY, 5)


def small(name, *overrides):
    """A recipe of the folder at a size for tests; a frozen tower gets the ready-made table."""
    plain = load(name)
    if plain.encoder.kind == "transformer":
        return recipe_of(name, "batches.lane_rows=3", *overrides)
    frozen = [
        f"encoder.{tower}.table='ready'"
        for tower in plain.encoder.towers
        if plain.encoder.tower(tower).get("frozen") and not plain.encoder.tower(tower).get("table")
    ]
    return resolve(load(name, [*SMALL[plain.encoder.kind], "batches.lane_rows=3", *frozen, *overrides]))


def build(recipe):
    torch.manual_seed(0)
    if recipe.encoder.kind == "transformer":
        return Method(recipe, len(WORDS), tokenizer=words())
    size = len(WORDS) if recipe.pairs.kind == "qa" else VOCABULARY
    ready = {"ready": READY if size == VOCABULARY else torch.randn(size, 5)}
    return Method(recipe, size, ready, torch.full((size,), 1 / size))


def eight_texts():
    """Two documents of four texts; neighbours answer each other."""
    answers = [[j if 0 <= j < 8 and j // 4 == i // 4 else -1 for j in (i - 1, i + 1)] for i in range(8)]
    ids = [[i, i + 1, (3 * i) % VOCABULARY][: 1 + i % 3] for i in range(8)]
    return Batch(
        torch.tensor([word for text in ids for word in text]),
        torch.tensor([len(text) for text in ids]),
        Rows(
            torch.zeros(8, dtype=torch.uint8),
            torch.arange(8),
            torch.tensor(answers),
            document_B=torch.arange(8) // 4,
            place_B=torch.arange(8) % 4,
        ),
    )


def run(method, steps):
    """Losses of a few steps on one batch, at a rate that shows."""
    training = method.recipe.training.model_copy(update={"rate": 0.02})
    moving = list(trainable(method))
    optimize, losses = optimizer(moving, training), []
    kind = method.recipe.pairs.kind
    ready = kind == "neighbours" or method.recipe.encoder.kind in SCORERS
    batch = eight_texts() if ready else drawn_examples(torch.Generator().manual_seed(0), kind, 14)
    batch = fitted(batch, method.recipe)
    for number in range(steps):
        losses.append(step_gradient(method.train(), batch, number, Setup(0, 3, lazy=training.lazy), World()))
        method.on_gradient()
        clip(moving, training)
        optimize.step()
        method.after_step()
    return losses


@pytest.mark.parametrize("name", [name for name in known() if not load(name).counting])
def test_a_few_steps_of_every_recipe_lower_its_loss(name):
    # Of a new encoder a template's vectors differ by little but dropout, whose noise would hide what is learned; and so
    # it is where a question has few wrong answers.
    calm = ["encoder.dropout=0.0"] if load(name).encoder.kind in ("projection", "transformer") else []
    losses = run(build(small(name, *calm)), steps=15)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", known())
def test_resolving_twice_changes_nothing(name):
    assert resolve(small(name)) == small(name)


@pytest.mark.parametrize("name", known())
def test_a_resolved_recipe_says_every_option(name):
    recipe = small(name)
    for term in recipe.terms:
        assert term.anchor and term.candidate
        assert not term.similarity or {"temperature"} <= set(term.similarity.options)
        of_kind = {
            None: set(),
            "ahead": {"among"},
            "all": set(),
            "batch": {"self"},
            "other-view": {"hard", "log_alpha", "queue", "momentum"},
            "own": {"choose", "count"},
        }
        of_kind |= {"vocabulary": set(), "noise": {"count", "power", "shared", "drawn", "correct"}}
        assert of_kind[term.candidates and term.candidates.kind] <= set(
            term.candidates.options if term.candidates else ()
        )
    of_kinds = {"transformer": {"path", "pooling", "head", "width", "dropout"}, "ngram": {"order", "smoothing"}}
    of_kinds |= {"table": {"width", "window", "table"}}
    of_kinds |= {kind: {"order", "word_width", "initial"} for kind in ("nplm", "log-bilinear")}
    of_encoder = of_kinds.get(recipe.encoder.kind, {"table", "width", "dropout"})
    assert of_encoder <= {*recipe.encoder.options, *recipe.encoder.own.get("f", {})}
    assert recipe.readout.towers


def test_what_all_towers_share_stands_once():
    encoder = small("quick-thoughts-multichannel").encoder
    assert encoder.options["width"] == 6 and encoder.own["g2"] == {"table": "f2", "frozen": True}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("encoder.kind='gur'", 'encoder.kind is "gur"; known: bag, gru'),
        ("encoder.widht=3", 'encoder has no option "widht"; options of gru: bidirectional, dropout,'),
        ("encoder.g.widht=3", 'encoder.g has no option "widht"; options of gru: bidirectional, dropout,'),
        ("encoder.dropout='much'", "encoder.dropout is 'much': Input should be a valid number"),
        ("encoder.dropout=1.5", "recipe quick-thoughts: dropout is 1.5; it is a share"),
        ("encoder.width=-3", "recipe quick-thoughts: "),
        ("terms.0.similarity.kind='cosin'", 'terms.0.similarity.kind is "cosin"; known: bilinear, cosine, dot'),
        ("terms.0.similarity.temperature=0", "recipe quick-thoughts: temperature is 0"),
        ("terms.0.objective.margin=1", 'terms.0.objective has no option "margin"; options of softmax: none'),
        ("terms.0.candidates.self='own'", "terms.0.candidates.self is 'own': Input should be 'mask' or 'zero'"),
        (
            "encoder={kind='projection', towers=['f','g'], radius=2}",
            "recipe quick-thoughts: encoder.radius is 2.0; the ball's own is 1",
        ),
        (
            "encoder={kind='projection', towers=['f','g'], riemannian='table', frozen=false}",
            'encoder.f.riemannian is "table" but training.optimizer is "adam", which divides',
        ),
        ("encoder.f.table='g'", 'encoder.f.table is "g": neither a tower before it nor a table that was read'),
    ],
)
def test_what_cannot_be_built_is_named_before_any_work(override, message):
    with pytest.raises(RecipeError) as caught:
        resolve(load("quick-thoughts", [override]))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("simcse-unsup", "terms.0.candidates.queue=-1", "recipe simcse-unsup: candidates.queue is -1; 0 for none, or"),
        ("esimcse", "terms.0.candidates.momentum=1.5", "recipe esimcse: candidates.momentum is 1.5; a share"),
        ("consert", "view.0.rate=1", "recipe consert: view.rate is 1.0; it is a share"),
        ("consert", "view=['cut']", 'view.0.kind is "cut"; known: dropout, feature-cutoff, none, shuffle, template'),
        ("mlm", "terms.0.objective.rate=0", "recipe mlm: objective.rate is 0.0; a chance between 0 and 1"),
        ("mlm", "encoder={kind='bag'}", "a term that tells masked words needs encoder.kind = transformer, not bag"),
        ("mlm", "terms.0.candidates='batch'", "terms.0 has no similarity; a term has candidates and a similarity, or"),
        ("mlm", "terms.0.objective.kind='clm'", 'terms.0.objective.kind is "clm"; known: generation, mlm'),
        ("promptbert", "view=[]", 'recipe promptbert: encoder.pooling is "mask", so every view needs a template'),
        ("promptbert", "view.0.kind='none'", 'view.0 has no option "text"'),
        (
            "promptbert",
            "view.0.text='[X] means it'",
            'recipe promptbert: template "[X] means it" has 1 [X] and 0 [MASK]',
        ),
        (
            "promptbert",
            "view.0.frozen=true",
            "recipe promptbert: view: all templates need the same `delta` and `frozen`",
        ),
        ("promptbert", "readout.pooling='last'", 'recipe promptbert: readout.pooling is "last"; known: first, mean'),
        ("simcse-unsup", "readout.pooling='mask'", 'recipe simcse-unsup: readout.pooling is "mask", so every view'),
        ("simcse-unsup", "encoder.heads=3", "recipe simcse-unsup: encoder.width is 16; should be a multiple of"),
    ],
)
def test_what_no_transformer_can_be_is_named_before_any_work(name, override, message):
    with pytest.raises(RecipeError) as caught:
        recipe_of(name, override)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("part", ["view=[{kind='shuffle'}]", "readout.head=false", "readout.pooling='mean'"])
def test_what_transformers_alone_know_is_refused_for_others(part):
    with pytest.raises(RecipeError, match=r"is for encoder.kind = transformer; this encoder is gru"):
        small("quick-thoughts", part)


def test_a_table_that_nobody_read_is_named():
    with pytest.raises(RecipeError, match=r'encoder.f2.table is "ready": neither'):
        Method(small("quick-thoughts-multichannel"), VOCABULARY)


def test_towers_share_a_table_where_the_recipe_says_so():
    method = build(small("quick-thoughts-multichannel"))
    tables = {name: method.tower(name).words.weight for name in ("f", "g", "f2", "g2")}
    assert tables["g2"] is tables["f2"] and tables["g"] is not tables["f"]


def test_a_ready_made_table_is_taken_as_it_is():
    assert torch.equal(build(small("quick-thoughts-multichannel")).tower("f2").words.weight, READY)


def test_a_frozen_table_stays_while_the_rest_moves():
    method = build(small("quick-thoughts-multichannel"))
    before = {name: weight.clone() for name, weight in method.state_dict().items()}
    run(method, steps=2)
    same = {name for name, weight in method.state_dict().items() if torch.equal(weight, before[name])}
    assert same == {"towers.f2.words.weight", "towers.g2.words.weight"}


def test_a_shared_table_takes_the_gradient_of_both_towers():
    """Fed alike, two towers of one bag send each the same, so the sum is twice that of one with the other frozen."""
    tree = {
        "name": "shared",
        "encoder": {"kind": "bag", "width": 4, "towers": ["f", "g"], "g": {"table": "f"}},
        "terms": [
            {"anchor": "f", "candidate": "g", "candidates": "batch", "similarity": "dot", "objective": "softmax"}
        ],
    }
    both = build(resolve(parse(tree)))
    step_gradient(both, eight_texts(), 0, Setup(0, 8), World())
    apart = build(resolve(parse(tree | {"encoder": tree["encoder"] | {"g": {}}})))
    apart.load_state_dict({name: both.tower("f").words.weight for name in apart.state_dict()})
    step_gradient(apart, eight_texts(), 0, Setup(0, 8), World())
    expected = apart.tower("f").words.weight.grad + apart.tower("g").words.weight.grad
    assert torch.allclose(both.tower("f").words.weight.grad, expected, atol=1e-7)


def test_a_table_that_towers_share_is_made_riemannian_once():
    tree = {
        "name": "shared",
        "encoder": {"kind": "projection", "riemannian": "table", "frozen": False, "towers": ["f", "g"]}
        | {"width": 4, "word_width": 3, "g": {"table": "f"}},
        "terms": [{"candidates": "batch", "similarity": "dot", "objective": "softmax"}],
        "training": {"optimizer": "sgd"},
    }
    method = build(resolve(parse(tree)))
    weight = method.tower("f").words.weight
    weight.grad = torch.ones_like(weight)
    method.on_gradient()
    assert method.tower("g").words.weight is weight
    torch.testing.assert_close(weight.grad, riemannian_factor(weight.detach()).expand_as(weight))


TEXTS = (torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2]))


def test_readout_is_the_towers_side_by_side():
    method = build(small("quick-thoughts-multichannel")).eval()
    expected = torch.cat([method.encode(name, *TEXTS) for name in ("f", "g", "f2", "g2")], dim=1)
    assert torch.equal(method.readout(*TEXTS), expected) and method.widths() == [
        (n, 12) for n in ("f", "g", "f2", "g2")
    ]


def test_readout_may_scale_each_tower_to_length_one():
    method = build(small("quick-thoughts", "readout.normalise=true")).eval()
    lengths = method.readout(*TEXTS).view(2, 2, 12).norm(dim=2)
    assert torch.allclose(lengths, torch.ones(2, 2))


def test_score_is_f_of_left_times_g_of_right():
    method = build(small("quick-thoughts")).eval()
    vector = method.readout(*TEXTS)
    expected = method.encode("f", *TEXTS) @ method.encode("g", *TEXTS).T
    assert torch.allclose(method.score(vector, vector), expected, atol=1e-6)


def test_scores_of_terms_add_by_weight():
    method = build(small("quick-thoughts-multichannel", "terms.1.weight=0.5")).eval()
    f, g, f2, g2 = (method.encode(name, *TEXTS) for name in ("f", "g", "f2", "g2"))
    vector = method.readout(*TEXTS)
    assert torch.allclose(method.score(vector, vector), f @ g.T + 0.5 * f2 @ g2.T, atol=1e-6)


def test_without_a_term_that_compares_the_score_is_the_cosine():
    left, right = torch.tensor([[3.0, 0], [1, 1]]), torch.tensor([[0.0, 2], [5, 0]])
    padded = [nn.functional.pad(side, (0, 14)) for side in (left, right)]
    found = build(small("mlm")).score(*padded)
    assert torch.allclose(found, torch.tensor([[0, 1], [0.5**0.5, 0.5**0.5]]))


def test_weights_of_terms_multiply_their_part_of_the_loss():
    one, half = (build(small("quick-thoughts", f"terms.0.weight={weight}")).eval() for weight in (1, 0.5))
    losses = [step_gradient(method, eight_texts(), 0, Setup(0, 3), World()) for method in (one, half)]
    assert losses[1] == pytest.approx(losses[0] / 2, rel=1e-6)


def test_a_sum_term_is_not_divided():
    mean, whole = (build(small("quick-thoughts", f"terms.0.reduce='{how}'")).eval() for how in ("mean", "sum"))
    losses = [step_gradient(method, eight_texts(), 0, Setup(0, 3), World()) for method in (mean, whole)]
    assert losses[1] == pytest.approx(8 * losses[0], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "count"), [("quick-thoughts-binary", 8 * 7), ("quick-thoughts-margin", 4 * 6 + 8 * 5)]
)
def test_a_mean_over_pairs_or_triples_is_divided_by_their_number(name, count):
    mean, whole = (build(small(name, f"terms.0.reduce='{how}'")).eval() for how in ("mean", "sum"))
    losses = [step_gradient(method, eight_texts(), 0, Setup(0, 3), World()) for method in (mean, whole)]
    assert losses[1] == pytest.approx(count * losses[0], rel=1e-6)


def full(queue):
    """The queue, after a batch of its own."""
    queue.push(torch.randn(9, queue.vector_MD.shape[1]), torch.arange(9) + 100)
    return queue


@pytest.mark.parametrize("cells", [1, 50, CELLS])
@pytest.mark.parametrize("kind", ["binary", "hinge", "margin", "softmax"])
@pytest.mark.parametrize("name", ["quick-thoughts", "simcse-sup", "simcse-unsup"])
def test_a_mean_is_divided_by_what_its_objective_counts(name, kind, cells):
    """Repeated texts, fillers, hard negatives and a queue included; rows alone say how many there are."""
    queue = ["terms.0.candidates.queue=7"] if "simcse" in name else []
    method = build(small(name, f"terms.0.objective.kind='{kind}'", *queue))
    batch = drawn_examples(torch.Generator().manual_seed(0), "triples" if name == "simcse-sup" else "single", 15)
    term, held = method.summands[0], full(method.queue(0)) if queue else None
    vectors = {tower: torch.randn(15, method.tower(tower).width) for tower in method.used}
    _, count = term(batch.rows, term.anchors(batch.rows), vectors, held)
    assert int(term.divisor(batch.rows, held, cells)) == count.item() > 0


def test_a_margin_that_is_not_positive_is_named_before_any_work():
    with pytest.raises(RecipeError, match=r"recipe quick-thoughts-margin: objective.margin is 0.0; by how much"):
        small("quick-thoughts-margin", "terms.0.objective.margin=0")


def test_a_new_bag_starts_by_word_frequency():
    recipe = small("quick-thoughts-bag")
    rare, common = torch.full((VOCABULARY,), 0.0), torch.full((VOCABULARY,), 0.009)
    tables = []
    for frequency in (rare, common):
        torch.manual_seed(0)
        tables.append(Method(recipe, VOCABULARY, {}, frequency).tower("f").words.weight.detach())
    assert torch.allclose(tables[1], tables[0] / 10)  # 0.001 / (0.001 + 0.009)


def test_building_tries_no_memory():
    with torch.device("meta"):
        assert isinstance(build(small("quick-thoughts")), nn.Module)
    resolve(load("quick-thoughts", ["encoder.width=2000000"]))  # 16 TB of weights would not fit
