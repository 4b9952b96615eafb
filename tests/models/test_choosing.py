"""Choosing among an anchor's wrong candidates: scores by hand, and a plain loop."""

import pytest
import torch
from tiny import WORDS, drawn_questions, questions

from models.batch import lanes
from models.choosing import Choosing
from models.encoding import Encode, Setup, step_seed
from models.gathering import World
from models.method import Method
from models.recipe import load
from models.resolving import resolve
from models.step import chosen_rows, step_gradient

WAYS = ["random", "max", "mix"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def chosen(choose, count, rows, scores, seed=0):
    """Row numbers that each anchor has then, in order; scores of one anchor's hard rows."""
    found = Choosing(choose, count).among(rows, torch.tensor(scores), generator(seed))
    return [sorted(x for x in found.hard_BH[a].tolist() if x >= 0) for a in rows.anchors().tolist()]


SIX = questions((1, 6))  # row 0 asks, row 1 is right, rows 2 to 7 are wrong
SCORES = [[-3.0, -1.0, -9.0, -1.5, -2.0, -0.5]]  # less the energies, so rows 7, 3, 5, 6, 2, 4


def test_max_takes_the_smallest_energies():
    assert chosen("max", 3, SIX, SCORES) == [[3, 5, 7]]


def test_of_equal_energies_the_first_are_taken():
    assert chosen("max", 2, SIX, [[-1.0] * 6]) == [[2, 3]]


def test_random_reads_no_scores():
    found = {tuple(chosen("random", 2, SIX, scores, seed)[0]) for seed in range(5) for scores in (SCORES, [[0.0] * 6])}
    assert len(found) == 5


def test_random_takes_each_alike_often():
    drawn = [row for seed in range(600) for row in chosen("random", 2, SIX, SCORES, seed)[0]]
    assert all(abs(drawn.count(row) - 200) < 60 for row in range(2, 8)) and len(drawn) == 1200


@pytest.mark.parametrize(("count", "hardest"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_mix_takes_the_hardest_of_what_was_not_drawn(count, hardest):
    """Of an odd number one more is drawn."""
    order = [7, 3, 5, 6, 2, 4]
    for seed in range(20):
        drawn = torch.rand(1, 6, generator=generator(seed))[0].argsort()[: count - hardest] + 2
        rest = [row for row in order if row not in drawn.tolist()]
        assert chosen("mix", count, SIX, SCORES, seed) == [sorted([*drawn.tolist(), *rest[:hardest]])]


@pytest.mark.parametrize("choose", WAYS)
@pytest.mark.parametrize("count", [6, 7, 40])
def test_too_few_are_all_taken(choose, count):
    assert chosen(choose, count, SIX, SCORES) == [[2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize("choose", WAYS)
def test_nothing_is_taken_twice_and_nothing_that_is_not_there(choose):
    rows = questions((1, 6), (2, 3), (1, 0))
    scores = torch.randn(4, 6, generator=generator())
    for count in range(1, 8):
        found = chosen(choose, count, rows, scores.tolist())
        assert [len(set(hard)) for hard in found] == [min(count, 6), *[min(count, 3)] * 2, 0]
        assert all(
            set(hard) <= own for hard, own in zip(found, [{*range(2, 8)}, *[{12, 13, 14}] * 2, set()], strict=True)
        )


@pytest.mark.parametrize("choose", WAYS)
def test_what_is_alike_the_right_answer_is_never_taken(choose):
    rows = questions((1, 3), groups=[0, 1, 2, 1, 3])  # row 3 says what row 1 does
    assert chosen(choose, 3, rows, [[0.0, 9.0, -1.0]]) == [[2, 4]]


def test_each_of_a_questions_right_answers_has_a_choice_of_its_own():
    rows = questions((2, 5))
    found = [chosen("random", 2, rows, [[0.0] * 5] * 2, seed) for seed in range(10)]
    assert any(first != second for first, second in found)


def test_other_rows_stay_as_they_are():
    found = Choosing("max", 3).among(SIX, torch.tensor(SCORES), generator())
    for name in ("side_B", "group_B", "answers_BP", "view_B"):
        assert getattr(found, name) is getattr(SIX, name)
    assert (found.hard_BH[1:] == -1).all() and (SIX.hard_BH[0] >= 0).all()


def test_scores_are_looked_at_only_where_they_decide():
    ways = {(choose, count): Choosing(choose, count).looks(SIX) for choose in WAYS for count in (1, 5, 6)}
    assert [way for way, looks in ways.items() if looks] == [("max", 1), ("max", 5), ("mix", 5)]  # a mix of 1 is drawn
    assert not Choosing("max", 1).looks(questions((1, 0), (2, 0)))


def method_of(choose="mix", count=2, dropout=0.5):
    settings = ["encoder.width=6", "encoder.table='ready'", "encoder.scale=0.3", f"encoder.dropout={dropout}"]
    own = f"terms.0.candidates={{kind='own', choose='{choose}', count={count}}}"
    torch.manual_seed(0)
    recipe = resolve(load("hyperqa", [*settings, own, "training.precision=fp64"]))
    return Method(recipe, len(WORDS), {"ready": torch.randn(len(WORDS), 5)}).double().train()


def of_step(method, batch, number=0, seed=0):
    """Hard rows of each row after the choice of a step."""
    encode = Encode(method, batch, number, Setup(seed, 5, "fp64"), World())
    return chosen_rows(encode, lanes(batch.length_B, 5))[0].hard_BH


def test_a_step_chooses_by_the_weights_as_they_are_without_dropout():
    method, batch = method_of("max"), drawn_questions(generator(1))
    found = of_step(method, batch)
    method.eval()
    ids, lengths, _ = batch.seen(torch.arange(20), torch.device("cpu"))
    vectors = method.encode("f", ids, lengths)
    score_AB = method.summands[0].similarity(vectors, vectors)
    for anchor in batch.rows.anchors().tolist():
        hard = [row for row in batch.rows.hard_BH[anchor].tolist() if row >= 0 and row != 7]  # 7 says what 1 does
        best = sorted(hard, key=lambda row: -score_AB[anchor, row].item())[:2]
        assert {*found[anchor].tolist()} - {-1} == {*best}


def test_draws_are_the_steps_own():
    method, batch, found = method_of("random"), drawn_questions(generator(1)), []
    for number in (3, 4):
        torch.manual_seed(0)
        found.append(of_step(method, batch, number, seed=7))
        draw = torch.Generator().manual_seed(step_seed(7, number, -1, 2))
        assert torch.equal(found[-1], Choosing("random", 2).among(batch.rows, None, draw).hard_BH)
    assert not torch.equal(*found)


def test_looking_leaves_random_state_and_modes_alone():
    method, batch = method_of(), drawn_questions(generator(1))
    method.tower("f").drop.eval()
    modes, state = {part: part.training for part in method.modules()}, torch.get_rng_state()
    Encode(method, batch, 0, Setup(0, 5, "fp64"), World()).calm(lanes(batch.length_B, 5))
    assert torch.equal(state, torch.get_rng_state())
    assert {part: part.training for part in method.modules()} == modes and not method.tower("f").drop.training


@pytest.mark.parametrize(("choose", "count", "times"), [("mix", 2, 2), ("random", 2, 1), ("mix", 6, 1), ("max", 1, 2)])
def test_the_batch_is_encoded_once_more_only_where_a_choice_looks(choose, count, times):
    method, calls = method_of(choose, count), []
    method.tower("f").register_forward_hook(lambda *given: calls.append(given))
    step_gradient(method, drawn_questions(generator(1)), 0, Setup(0, 5, "fp64"), World())
    assert len(calls) == times * 4  # lanes


@pytest.mark.parametrize("choose", WAYS)
def test_a_choice_of_all_is_the_loss_of_all(choose):
    batch = drawn_questions(generator(1))
    losses = [
        step_gradient(method_of(way, 40, dropout=0.0), batch, 0, Setup(0, 5, "fp64"), World())
        for way in (choose, "random")
    ]
    assert losses[0] == losses[1]


def test_a_mean_counts_the_chosen_triples():
    """Of 6 wrong answers one is alike the right one; 5, 3, 3, 2 are left, of which each takes 3 at most."""
    method, batch = method_of("mix", 3), drawn_questions(generator(1))
    term = method.summands[0]
    rows = term.choosing.among(batch.rows, None, generator())
    assert [*batch.rows.anchors().tolist()] == [0, 8, 9, 15]
    assert method.recipe.terms[0].reduce == "sum" and term.divisor(rows) == 1
    mean = resolve(load("hyperqa", ["encoder.table='ready'", "terms.0.reduce='mean'"]))
    torch.manual_seed(0)
    term = Method(mean, len(WORDS), {"ready": torch.randn(len(WORDS), 5)}).summands[0]
    assert int(term.divisor(rows)) == 3 + 3 + 3 + 2
