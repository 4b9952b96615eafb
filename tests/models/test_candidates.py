"""Who is an anchor, which candidates it is told apart from, and which are left out: against plain loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import examples, questions

from models.candidates import Memory, Pool, Rows, anchors, batch, other_view, own, scores
from models.similarity import dot

cases_without_clock = settings(deadline=None, database=None)  # shared machines are slow at random; leave no file


def rows(side, group, answers):
    return Rows(torch.tensor(side, dtype=torch.uint8), torch.tensor(group), torch.tensor(answers))


def run(answers, side=None, group=None):
    """Rows of both sides and of groups of their own, unless told otherwise."""
    return rows(side or [0] * len(answers), group or list(range(len(answers))), answers)


def left_out(pool):
    """Columns left out for each anchor."""
    shift = torch.zeros(len(pool.answer_AP), len(pool.candidate_CD)) if pool.shift_AC is None else pool.shift_AC
    return [row.isneginf().nonzero().flatten().tolist() for row in shift]


def slow_left_out(side, group, answers, anchor, own="mask"):
    right = [answer for answer in answers[anchor] if answer >= 0]
    groups = {group[row] for row in [anchor, *right]}
    out = []
    for column in range(len(side)):
        alike = group[column] in groups and column not in right and not (own == "zero" and column == anchor)
        if side[column] in (1, 3) or alike:
            out.append(column)
    return out


@st.composite
def batches(draw):
    size = draw(st.integers(2, 9))
    side = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=size, max_size=size))
    group = draw(st.lists(st.integers(-3, 5), min_size=size, max_size=size))
    known = [row for row in range(size) if side[row] in (0, 2)]
    answer = st.sampled_from([-1, *known])
    answers = []
    for row in range(size):
        drawn = draw(st.lists(answer, min_size=2, max_size=2))
        answers.append([x if x != row and side[row] in (0, 1) else -1 for x in drawn])
    return side, group, answers


@cases_without_clock
@given(batches(), st.sampled_from(["mask", "zero"]))
def test_left_out_are_those_that_a_plain_loop_leaves_out(case, own):
    side, group, answers = case
    table = rows(side, group, answers)
    anchors = table.anchors()
    pool = batch(table, anchors, torch.zeros(len(side), 2), self=own)
    assert left_out(pool) == [slow_left_out(side, group, answers, a, own) for a in anchors.tolist()]


@cases_without_clock
@given(batches())
def test_no_right_answer_is_ever_left_out(case):
    table = rows(*case)
    pool = batch(table, table.anchors(), torch.zeros(len(case[0]), 2))
    for out, right in zip(left_out(pool), pool.answer_AP.tolist(), strict=True):
        assert not set(out) & set(right)


@cases_without_clock
@given(batches())
def test_a_workers_share_is_its_rows_of_the_whole(case):
    table = rows(*case)
    anchors, vectors = table.anchors(), torch.zeros(len(case[0]), 2)
    whole = batch(table, anchors, vectors)
    assert left_out(batch(table, anchors[1::2], vectors)) == left_out(whole)[1::2]


def test_anchors_are_rows_of_the_right_side_that_have_an_answer():
    table = rows([0, 0, 1, 2, 3, 1], range(6), [[1, -1], [-1, -1], [-1, 0], [0, -1], [0, -1], [-1, -1]])
    assert table.anchors().tolist() == [0, 2]


def test_with_groups_of_their_own_only_the_own_row_is_left_out():
    table = run([[1, -1], [0, 2], [1, 3], [2, -1]])
    assert left_out(batch(table, table.anchors(), torch.zeros(4, 2))) == [[0], [1], [2], [3]]


def test_rows_of_the_anchors_group_are_left_out():
    table = run([[1], [0], [3], [2]], group=[5, 6, 5, 7])
    assert left_out(batch(table, torch.tensor([0]), torch.zeros(4, 2))) == [[0, 2]]


def test_rows_of_an_answers_group_are_left_out_but_not_the_answer():
    table = run([[1], [0], [3], [2]], group=[5, 6, 7, 6])
    assert left_out(batch(table, torch.tensor([0]), torch.zeros(4, 2))) == [[0, 3]]


def test_an_answer_of_the_anchors_own_group_stays():
    table = run([[1], [0], [3], [2]], group=[5, 5, 6, 7])
    assert left_out(batch(table, torch.tensor([0]), torch.zeros(4, 2))) == [[0]]


def test_fillers_and_mere_anchors_are_no_candidates():
    table = rows([0, 2, 1, 3], range(4), [[1], [-1], [1], [-1]])
    assert left_out(batch(table, table.anchors(), torch.zeros(4, 2))) == [[0, 2, 3], [2, 3]]


def test_nothing_to_leave_out_is_no_shift():
    table = rows([0, 0], [0, 1], [[1], [0]])
    assert batch(table, table.anchors(), torch.zeros(2, 2), self="zero").shift_AC is None


def test_the_own_row_can_keep_the_score_zero():
    table = run([[1], [0], [1]])
    pool = batch(table, table.anchors(), torch.ones(3, 2), self="zero")
    assert scores(pool, torch.ones(3, 2), dot).tolist() == [[0, 2, 2], [2, 0, 2], [2, 2, 0]]


def test_other_rows_of_the_own_group_are_left_out_also_where_the_own_row_stays():
    table = run([[1], [0], [1]], group=[4, 5, 4])
    pool = batch(table, torch.tensor([0]), torch.ones(3, 2), self="zero")
    assert scores(pool, torch.ones(1, 2), dot).tolist() == [[0, 2, -math.inf]]


def test_a_fixed_score_overrides_and_the_shift_comes_on_top():
    nan = math.nan
    pool = Pool(torch.ones(3, 1), torch.tensor([[2]]), torch.tensor([[1.0, 1, 0]]), torch.tensor([[nan, 7, nan]]))
    assert scores(pool, torch.tensor([[5.0]]), dot).tolist() == [[6, 8, 5]]


def test_a_fixed_score_has_no_gradient():
    vectors = torch.tensor([[2.0], [3.0]], requires_grad=True)
    pool = Pool(torch.ones(2, 1), torch.tensor([[0], [0]]), None, torch.tensor([[math.nan, 0], [0, 0]]))
    scores(pool, vectors, dot).sum().backward()
    assert vectors.grad.tolist() == [[1], [0]]


def test_shift_has_the_vectors_precision():
    table = run([[1], [0]])
    assert batch(table, table.anchors(), torch.zeros(2, 2).double()).shift_AC.dtype == torch.float64


def test_a_worker_without_anchors_gets_an_empty_pool():
    table = run([[1], [0]])
    pool = batch(table, torch.tensor([], dtype=torch.int64), torch.zeros(2, 3))
    assert scores(pool, torch.zeros(0, 3), dot).shape == (0, 2)


def test_an_answer_that_is_no_candidate_is_refused_by_row():
    table = rows([0, 1, 0], range(3), [[2, -1], [0, -1], [0, 1]])
    with pytest.raises(ValueError, match="row 2 of the batch names row 1 as a right answer, which is no candidate"):
        batch(table, table.anchors(), torch.zeros(3, 2))


def test_an_unknown_way_with_the_own_row_is_refused():
    with pytest.raises(ValueError, match=r'candidates\.self is "keep"; known: mask, zero'):
        batch(run([[1], [0]]), torch.tensor([0]), torch.zeros(2, 2), self="keep")


def seen(rows, memory=None, **options):
    """Columns that each anchor of a term with other views is told apart from, its answer included."""
    own = anchors("other-view", rows)
    pool = other_view(rows, own, torch.zeros(len(rows.side_B), 2), memory=memory, **options)
    out = left_out(pool)
    return [[c for c in range(len(pool.candidate_CD)) if c not in row] for row in out]


def test_anchors_of_other_views_are_first_views():
    assert anchors("other-view", examples(3, 2)).tolist() == [0, 2, 4]
    assert anchors("batch", examples(3, 2)).tolist() == [0, 1, 2, 3, 4, 5]


def test_candidates_are_second_views_and_no_fillers():
    assert seen(examples(3, 2, fillers=2)) == [[1, 3, 5]] * 3


def test_of_a_triple_the_hard_negative_is_a_candidate_of_all_where_wanted():
    assert seen(examples(2, 3)) == [[1, 4]] * 2
    assert seen(examples(2, 3), hard=True) == [[1, 2, 4, 5]] * 2


def test_the_weight_is_added_to_the_own_hard_negative_alone():
    rows = examples(2, 3)
    pool = other_view(rows, torch.tensor([0, 3]), torch.zeros(6, 2), hard=True, log_alpha=0.5)
    shift = pool.shift_AC.tolist()
    assert shift == [[-math.inf, 0, 0.5, -math.inf, 0, 0], [-math.inf, 0, 0, -math.inf, 0, 0.5]]


def test_a_text_that_stands_twice_is_not_told_apart_from_itself():
    assert seen(examples(3, 2, groups=[0, 0, 1, 1, 0, 0])) == [[1, 3], [1, 3, 5], [3, 5]]


def test_a_hard_negative_that_repeats_a_positive_is_left_out():
    assert seen(examples(2, 3, groups=[0, 1, 2, 3, 4, 1]), hard=True) == [[1, 2, 4], [1, 2, 4, 5]]


def test_a_weight_brings_no_left_out_candidate_back():
    rows = examples(1, 3, groups=[0, 1, 1])
    assert other_view(rows, torch.tensor([0]), torch.zeros(3, 2), hard=True, log_alpha=9).shift_AC[0, 2] == -math.inf


def test_what_a_queue_holds_stands_behind_the_batch_but_for_texts_alike():
    memory = Memory(torch.ones(3, 2), torch.tensor([7, 2, 8]))
    assert seen(examples(2, 2), memory) == [[1, 3, 4, 5, 6], [1, 3, 4, 6]]


def test_a_plain_loop_finds_the_same_other_views():
    draw = torch.Generator().manual_seed(0)
    for _ in range(30):
        groups = torch.randint(0, 6, (12,), generator=draw).tolist()
        held = torch.randint(0, 6, (4,), generator=draw).tolist()
        found = seen(examples(4, 3, groups=groups, fillers=1), Memory(torch.ones(4, 2), torch.tensor(held)), hard=True)
        for anchor, columns in zip((0, 3, 6, 9), found, strict=True):
            alike = {groups[anchor], groups[anchor + 1]}
            rows = [c for c in range(12) if c % 3 and (c == anchor + 1 or groups[c] not in alike)]
            assert columns == rows + [13 + at for at, group in enumerate(held) if group not in alike]


def test_neighbours_have_no_other_views():
    with pytest.raises(ValueError, match="row 0 of the batch names row 1 as a right answer, which is no candidate"):
        other_view(run([[1], [0]]), torch.tensor([0]), torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"queue": -1}, "candidates.queue is -1; 0 for none, or how many vectors to keep"),
        ({"momentum": 1.5}, "candidates.momentum is 1.5; a share from 0 to 1"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(option, message):
    with pytest.raises(ValueError) as caught:
        other_view(examples(1, 2), torch.tensor([0]), torch.zeros(2, 2), **option)
    assert str(caught.value) == message


def of_questions(rows, **options):
    """Columns that each question is told apart from, its answer included."""
    asking = anchors("own", rows)
    pool = own(rows, asking, torch.zeros(len(rows.side_B), 2), **options)
    return [[c for c, shift in enumerate(row) if shift == 0] for row in pool.shift_AC.tolist()]


def test_own_candidates_are_a_questions_right_answer_and_its_wrong_ones():
    assert of_questions(questions((1, 2), (1, 1), fillers=2)) == [[1, 2, 3], [5, 6]]


def test_of_several_right_answers_each_stands_alone_against_the_wrong_ones():
    assert of_questions(questions((2, 3))) == [[2, 4, 5, 6], [3, 4, 5, 6]]


def test_a_wrong_answer_alike_the_right_one_or_the_question_is_left_out():
    assert of_questions(questions((1, 3), groups=[0, 1, 2, 1, 0])) == [[1, 2]]


def test_a_question_without_a_wrong_answer_is_no_anchor():
    rows = questions((1, 0), (1, 2), (1, 1), groups=[0, 1, 2, 3, 4, 5, 6, 7, 7])
    assert anchors("own", rows).tolist() == [2]
    assert anchors("own", questions((1, 0))).tolist() == []


def test_examples_without_hard_rows_have_no_anchors_with_candidates_of_their_own():
    rows = examples(2, 2)
    assert anchors("own", rows).tolist() == [] and of_questions(rows) == []


def test_answers_of_a_question_must_be_candidates():
    rows = questions((1, 1))
    wrongly = Rows(torch.tensor([1, 1, 2], dtype=torch.uint8), *list(vars(rows).values())[1:])
    with pytest.raises(ValueError, match="row 0 of the batch names row 1 as a right answer, which is no candidate"):
        own(wrongly, torch.tensor([0]), torch.zeros(3, 2))


def test_fewer_than_one_wrong_answer_cannot_be_wanted():
    with pytest.raises(ValueError, match=r"candidates\.count is 0; how many wrong candidates an anchor has, 1 or more"):
        of_questions(questions((1, 1)), count=0)
