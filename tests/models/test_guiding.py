"""Candidates that a guide finds as right as the right answer: by hand, and against a plain loop."""

import math
from dataclasses import replace

import pytest
import torch
from tiny import NEW, A, B, drawn_examples, examples, lying_by_example, questions

from models.candidates import Memory, batch, other_view, own
from models.choosing import Choosing
from models.encoding import Setup
from models.gathering import World
from models.guiding import Guiding
from models.method import Method
from models.recipe import RecipeError, load
from models.resolving import resolve
from models.step import step_gradient


def at(degrees):
    """A vector of length 2 in that direction: cosines are those of differences."""
    return [2 * math.cos(math.radians(degrees)), 2 * math.sin(math.radians(degrees))]


def guided(rows, degrees):
    """Rows whose vectors by the guide point so; None: it has none."""
    return replace(rows, guide_BE=torch.tensor([[0.0, 0.0] if one is None else at(one) for one in degrees]))


def left_out(guiding, rows):
    """Rows that the guide takes out of each anchor's candidates."""
    found = guiding.likely(rows, rows.anchors())
    return [row.nonzero().flatten().tolist() for row in found]


PAIR = Guiding("absolute", 0.0)
# Anchor 0 points to 0 degrees and its answer, row 1, to 60: cosine .5.
SIX = [0, 60, 30, 90, 59, 61]


def test_a_candidate_nearer_than_the_answer_is_taken_out():
    assert left_out(PAIR, guided(examples(3, 2), SIX))[0] == [2, 4]


def test_answers_and_the_own_row_stay():
    """Anchor 4, at 59 degrees, has its answer at 61; nearer than 2 degrees is row 1, at 60."""
    assert left_out(PAIR, guided(examples(3, 2), SIX))[4] == [1]


def test_an_equal_score_is_enough():
    """As a text in another writing has it; rounding decides nothing."""
    assert left_out(PAIR, guided(examples(3, 2), [0, 60, 60, -60, 60.00003, 60.001]))[0] == [2, 3, 4]


@pytest.mark.parametrize(
    ("margin", "out"),
    [(0.1, [2]), (0.4, []), (-0.1, [2, 4, 5]), (-0.5, [2, 3, 4, 5])],  # cosines .866, .0, .515, .485 beside .5
)
def test_an_absolute_margin_moves_the_limit(margin, out):
    assert left_out(Guiding("absolute", margin), guided(examples(3, 2), SIX))[0] == out


@pytest.mark.parametrize(("margin", "out"), [(0.04, [2]), (0.02, [2, 4]), (-0.02, [2, 4]), (-0.04, [2, 4, 5])])
def test_a_relative_margin_is_a_share_of_the_answers_score(margin, out):
    """Limits .52, .51, .49 and .48."""
    assert left_out(Guiding("relative", margin), guided(examples(3, 2), SIX))[0] == out


def test_a_relative_margin_below_zero_leaves_more_out_also_of_a_score_below_zero():
    """The answer's cosine is -.5, the limit -.6; row 2 has -.55."""
    rows = guided(examples(2, 2), [0, 120, 123.37, 180])
    assert left_out(Guiding("relative", -0.2), rows)[0] == [2]
    assert left_out(Guiding("relative", 0.2), rows)[0] == []


def test_of_several_answers_the_one_that_the_guide_likes_best_counts():
    rows = replace(examples(3, 2), answers_BP=torch.tensor([[1, 3], *[[-1, -1]] * 5]))
    assert left_out(PAIR, guided(rows, [0, 60, 45, 30, 20, 61])) == [[4]]


def test_where_it_has_no_vector_the_guide_says_nothing():
    assert left_out(PAIR, guided(examples(3, 2), [None, 60, 30, 60, 60, 60]))[0] == []
    assert left_out(PAIR, guided(examples(3, 2), [0, None, 30, 60, 60, 60]))[0] == []
    assert left_out(PAIR, guided(examples(3, 2), [0, 120, 30, None, None, 60]))[0] == [2, 5]


def slow_left_out(rows, anchor, margin, kind):
    """One candidate after the other, from the definition."""
    cosine = lambda a, b: torch.nn.functional.cosine_similarity(
        rows.guide_BE[a].double(), rows.guide_BE[b].double(), dim=0
    ).item()
    answers = [answer for answer in rows.answers_BP[anchor].tolist() if answer >= 0]
    best = max(cosine(anchor, answer) for answer in answers)
    limit = best + (margin if kind == "absolute" else margin * abs(best))
    others = [row for row in range(len(rows.side_B)) if row != anchor and row not in answers]
    return [row for row in others if cosine(anchor, row) >= limit]


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_plain_loop_takes_the_same_out(kind):
    draw = torch.Generator().manual_seed(0)
    for margin in (-0.3, 0.0, 0.3):
        rows = replace(examples(6, 2), guide_BE=torch.randn(12, 3, generator=draw))
        anchors = rows.anchors().tolist()
        assert left_out(Guiding(kind, margin), rows) == [slow_left_out(rows, a, margin, kind) for a in anchors]


# Pools


def stay(pool):
    """Columns that stay in each anchor's pool."""
    return [[c for c, shift in enumerate(row) if shift != -math.inf] for row in pool.shift_AC.tolist()]


def test_of_a_batch_the_guide_leaves_out_beside_the_groups():
    rows = guided(examples(3, 2, groups=[0, 1, 2, 3, 4, 0]), SIX)
    pool = PAIR.without(batch(rows, torch.tensor([0]), torch.zeros(6, 2)), rows, torch.tensor([0]))
    assert stay(pool) == [[1, 3]]


def test_an_own_row_that_keeps_the_score_zero_stays():
    rows = guided(examples(3, 2), SIX)
    pool = PAIR.without(batch(rows, torch.tensor([0]), torch.zeros(6, 2), self="zero"), rows, torch.tensor([0]))
    assert pool.fixed_AC[0, 0] == 0 and 0 in stay(pool)[0]


def test_of_triples_the_guide_leaves_hard_negatives_out_the_own_one_too():
    """Rows 2 and 5 are the hard negatives of rows 0 and 3."""
    rows = guided(examples(2, 3), [0, 60, 40, 180, 240, 20])
    anchors = torch.tensor([0, 3])
    pool = PAIR.without(other_view(rows, anchors, torch.zeros(6, 2), hard=True, log_alpha=9.0), rows, anchors)
    assert stay(pool) == [[1, 4], [1, 2, 4, 5]]


def test_of_a_question_wrong_answers_that_may_be_right_are_nobody_s_choice():
    """Row 0 asks, row 1 is right, rows 2 to 5 are wrong; the second question is left without any."""
    rows = guided(questions((1, 4), (1, 1)), [0, 60, 10, 70, 20, 80, 180, 100, 110])
    heard = PAIR.hard(rows)
    assert heard.hard_BH[0].tolist() == [-1, 3, -1, 5] and heard.hard_BH[6].tolist() == [-1] * 4
    assert stay(own(heard, torch.tensor([0]), torch.zeros(9, 2))) == [[1, 3, 5]]
    chosen = Choosing("random", 4).among(heard, None, torch.Generator().manual_seed(0))
    assert chosen.hard_BH[0].sort().values.tolist() == [-1, -1, 3, 5]


def test_examples_without_hard_rows_are_as_they_were():
    rows = guided(examples(3, 2), SIX)
    assert PAIR.hard(rows) is rows


def test_batches_without_a_guide_are_refused():
    with pytest.raises(ValueError, match="batches without the column guide say no vectors of one"):
        PAIR.likely(examples(2, 2), torch.tensor([0]))


def test_a_queue_s_texts_stay_for_the_guide_has_not_read_them():
    rows = guided(examples(3, 2), SIX)
    memory = Memory(torch.ones(2, 2), torch.tensor([70, 71]))
    anchors = torch.tensor([0, 2, 4])
    pool = PAIR.without(other_view(rows, anchors, torch.zeros(6, 2), memory=memory), rows, anchors)
    assert [row[-2:] for row in stay(pool)] == [[6, 7]] * 3


# Steps


def method(name, *overrides):
    recipe = resolve(load(name, [*overrides, "training.precision=fp64"]))
    torch.manual_seed(0)
    return Method(recipe, 40, {"ready": torch.rand(40, 5) - 0.5}, torch.full((40,), 0.01)).double().eval()


BAG = ("encoder.width=3", "pairs={kind='pairs'}", "corpus.texts=['a','b']", "batches.rows=8", "batches.lane_rows=4")
GUIDE = "guide={model='g'}"
ONE = ("encoder.towers=['f']", "terms.0.candidate='f'", "terms.0.similarity={kind='dot'}")


def test_the_loss_is_that_of_the_candidates_that_are_left():
    """Two anchors at 0 and 90 degrees, answers 60 degrees away; anchor 0 loses row 4, of another example."""
    rows = guided(examples(4, 2), [0, 60, 90, 150, 31, 200, 270, 330])
    vectors = {"f": lying_by_example(torch.tensor(A), torch.tensor(B)).double()}
    built = method("quick-thoughts-bag", *BAG, GUIDE, *ONE)
    found = built.loss(rows, torch.ones(8, dtype=torch.bool), vectors)
    total = 0.0
    for a in rows.anchors().tolist():
        out = {a, *slow_left_out(rows, a, 0.0, "absolute")}
        scores = [vectors["f"][a] @ vectors["f"][c] for c in range(8) if c not in out]
        total += torch.stack(scores).logsumexp(0) - vectors["f"][a] @ vectors["f"][a ^ 1]
    assert slow_left_out(rows, 0, 0.0, "absolute") == [4, 7]
    assert abs(found.item() - total.item() / 8) < 1e-9


@pytest.mark.parametrize("guide", ["guide={model='g', mask=false}", "guide={model='g', margin=2.0}"])
def test_a_guide_that_only_tells_or_is_never_sure_changes_no_loss(guide):
    rows = guided(examples(4, 2), [0, 60, 90, 150, 31, 200, 270, 330])
    vectors = {"f": torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))}
    one, other = (
        method("quick-thoughts-bag", *BAG, *ONE, *more).loss(rows, torch.ones(8, dtype=torch.bool), vectors)
        for more in ((), (guide,))
    )
    assert one.item() == other.item()


def test_a_mean_over_triples_counts_those_that_are_left():
    rows = guided(examples(4, 2), [0, 60, 90, 150, 31, 200, 270, 330])
    built = method("quick-thoughts-margin", *BAG, "encoder.word_width=2", GUIDE)
    out = sum(len({*slow_left_out(rows, a, 0.0, "absolute")}) for a in rows.anchors().tolist())
    assert out == 20
    assert built.summands[0].divisor(rows).item() == 8 * 6 - out
    assert built.summands[0].divisor(rows, cells=9).item() == 8 * 6 - out  # one anchor at a time


def test_a_step_chooses_among_the_wrong_answers_that_a_guide_leaves():
    """With every wrong answer of all questions but the first one likely, the step is one of the first alone."""
    drawn = drawn_examples(torch.Generator().manual_seed(3), "qa")
    degrees = [0 if row in (0,) else 60 for row in range(20)]
    first = [row for row in drawn.rows.hard_BH[0].tolist() if row >= 0]
    degrees = [180 if row in first else one for row, one in enumerate(degrees)]
    overrides = ("encoder.width=3", "encoder.table='ready'", "encoder.scale=0.3", "batches.lane_rows=5")
    built = method("hyperqa", *overrides, GUIDE, "terms.0.reduce='sum'", "terms.0.candidates.choose='random'")
    setup = Setup(0, 5, "fp64", False)
    loss = step_gradient(built, replace(drawn, rows=guided(drawn.rows, degrees)), 0, setup, World())
    bare = method("hyperqa", *overrides, "terms.0.reduce='sum'", "terms.0.candidates.choose='random'")
    answers = drawn.rows.answers_BP.clone()
    answers[1:] = -1
    alone = replace(drawn, rows=replace(drawn.rows, answers_BP=answers))
    assert loss > 0
    assert built.summands[0].anchors(PAIR.hard(guided(drawn.rows, degrees))).tolist() == [0]
    assert loss == pytest.approx(step_gradient(bare, alone, 0, setup, World()), rel=1e-12)


# Recipes


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("cpc", [GUIDE], r'guide\.model is "g", but no term has candidates that it can judge'),
        ("mlm", [GUIDE, *NEW], r"candidates\.kind batch, other-view or own, and no `ahead`; leave guide out"),
        ("ngram", [GUIDE], "no term has candidates that it can judge"),
        ("quick-thoughts", ["guide={model='g', kind='other'}"], r"guide\.kind is 'other'"),
        ("quick-thoughts", ["guide={model='g', margin=3}"], r"guide\.margin is 3"),
        ("quick-thoughts", ["guide={model=''}"], r"guide\.model is ''"),
    ],
)
def test_a_guide_that_cannot_be_is_refused(name, overrides, message):
    with pytest.raises(RecipeError, match=message):
        resolve(load(name, overrides))
