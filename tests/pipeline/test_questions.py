"""Questions with their answers as examples, and batches that hold them whole."""

import tempfile
import time
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.recipe import Batches
from pipeline import batches, questions
from pipeline.batches import BatchesError, Source, epoch
from pipeline.corpus import group
from pipeline.examples import Examples
from pipeline.pairs import PAIRINGS, VIEWS
from pipeline.reader import Epoch
from pipeline.store import Store
from pipeline.tables import ANCHOR, CANDIDATE, FILLER, PAIRS, SENTENCES, TOKENS

Question = tuple[str, Sequence[str], Sequence[str]]  # with its right and its wrong answers
SWIFTS = ("Where do swifts sleep?", ["On the wing."], ["In burrows.", "At sea.", "Never."])
OWLS = ("What do owls eat?", ["Mice.", "Voles."], ["Moss."])
TEN = Batches(rows=10, bucket_rows=20)


def sentences(documents: Sequence[Sequence[Question]], held_out: Sequence[int] = (), first: int = 0) -> pl.DataFrame:
    """Table `sentences` of documents of questions, wrong and right answers by turns as they come."""
    rows = []
    for number, asked in enumerate(documents):
        texts = [
            (text, label)
            for question, right, wrong in asked
            for text, label in [(question, None), *((text, 0) for text in wrong), *((text, 1) for text in right)]
        ]
        rows += [
            (first + number, at, at, number in held_out, "en", 0, label, text) for at, (text, label) in enumerate(texts)
        ]
    schema = {name: column.type for name, column in SENTENCES.columns.items()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return SENTENCES.check(frame.with_columns(group=group(frame["text"])))


def made_of(store: Store, shards: Sequence[pl.DataFrame], most: int = 64) -> Source:
    made: dict = {"sentences": {}, "tokens": {}, "pairs": {}}
    for number, frame in enumerate(shards):
        tokens = pl.DataFrame({"tokens": [[1000 * number + row] for row in range(len(frame))]}, TOKENS.empty().schema)
        for table, content in ((SENTENCES, frame), (TOKENS, tokens), (PAIRS, PAIRINGS["qa"](frame))):
            made[table.name][number] = store.write(table, f"shard{number}", content, started=time.time())
    held_out = batches.held_out(store, made["sentences"])
    return Source(made["sentences"], made["tokens"], made["pairs"], held_out, Examples(VIEWS["qa"], most=most))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def rows(store: Store, made: Source, how: Batches = TEN, seed: int = 0, number: int = 0) -> pl.DataFrame:
    frame = store.read(epoch(store, how, seed, number, made)).with_row_index("at")
    return frame.with_columns(batch=pl.col("at") // how.rows, row=pl.col("at") % how.rows)


def named(frame: pl.DataFrame, shards: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The text of each row."""
    real = frame.select("text", "side").rows()
    texts = [shards[text >> 32]["text"][text & 0xFFFFFFFF] if side != FILLER else "" for text, side in real]
    return frame.with_columns(name=pl.Series(texts))


def told(frame: pl.DataFrame, shards: Sequence[pl.DataFrame]) -> list[tuple[str, list[str], list[str]]]:
    """What each question row says: its text, its answers and its wrong ones, by way of row numbers."""
    found = []
    for _, batch in named(frame, shards).group_by("batch", maintain_order=True):
        texts = batch["name"].to_list()
        for name, answers, hard in (
            batch.filter(pl.col("view") == 0, pl.col("side") != FILLER).select("name", "answers", "hard").rows()
        ):
            found.append((name, [texts[at] for at in answers], [texts[at] for at in hard]))
    return sorted(found)


# Pairs


def test_a_question_pairs_with_each_right_answer_and_its_wrong_ones_stand_beside():
    frame = sentences([[SWIFTS, OWLS]])
    assert frame["text"].to_list()[5:] == ["What do owls eat?", "Moss.", "Mice.", "Voles."]
    assert PAIRINGS["qa"](frame).rows() == [(0, 4, 1, [1, 2, 3]), (5, 7, 1, [6]), (5, 8, 1, [6])]


def test_a_question_without_wrong_answers_has_an_empty_list_and_one_without_right_ones_no_pair():
    frame = sentences([[("Why?", ["So."], [])], [("How?", [], ["So."])]])
    assert PAIRINGS["qa"](frame).rows() == [(0, 1, 1, [])]


# Examples in batches


def test_an_example_is_its_question_for_each_right_answer_then_these_then_the_wrong_ones(store):
    shards = [sentences([[OWLS]])]
    frame = named(rows(store, made_of(store, shards), Batches(rows=8)), shards).select(
        "name", "side", "view", "answers", "hard"
    )
    asked = "What do owls eat?"
    assert frame.rows()[:5] == [
        (asked, ANCHOR, 0, [2], [4]),
        (asked, ANCHOR, 0, [3], [4]),
        ("Mice.", CANDIDATE, 1, [], []),
        ("Voles.", CANDIDATE, 1, [], []),
        ("Moss.", CANDIDATE, 2, [], []),
    ]
    assert frame["side"].to_list()[5:] == [FILLER] * 3


def test_row_numbers_are_those_of_the_batch_whatever_stands_before(store):
    shards = [sentences([[OWLS], [SWIFTS], [("Why?", ["So."], ["No.", "Yes."])]])]
    assert told(rows(store, made_of(store, shards)), shards) == [
        ("What do owls eat?", ["Mice."], ["Moss."]),
        ("What do owls eat?", ["Voles."], ["Moss."]),
        ("Where do swifts sleep?", ["On the wing."], ["In burrows.", "At sea.", "Never."]),
        ("Why?", ["So."], ["No.", "Yes."]),
    ]


def test_tokens_and_group_of_a_row_are_those_of_its_text(store):
    shards = [sentences([[OWLS]]), sentences([[SWIFTS]], first=50)]
    frame = rows(store, made_of(store, shards)).filter(pl.col("side") != FILLER)
    for text, tokens, digest in frame.select("text", "tokens", "group").rows():
        shard, row = divmod(text, 1 << 32)
        assert (tokens, digest) == ([1000 * shard + row], shards[shard]["group"][row])


def test_a_reader_pads_lists_of_unlike_lengths(store):
    shards = [sentences([[OWLS], [SWIFTS]])]
    made = made_of(store, shards)
    batch = Epoch(store, epoch(store, Batches(rows=10), 0, 0, made))[0].rows
    assert batch.hard_BH is not None and batch.hard_BH.shape == (10, 3)
    frame = rows(store, made, Batches(rows=10))
    for row, hard in enumerate(frame["hard"]):
        assert batch.hard_BH[row].tolist() == hard.to_list() + [-1] * (3 - len(hard))
    assert batch.anchors().tolist() == frame.filter(view=0, side=ANCHOR)["row"].to_list()


def test_more_wrong_answers_than_most_are_sampled_anew_each_epoch_and_counted(store):
    wrong = [f"Wrong {number}." for number in range(40)]
    shards = [sentences([[("Why?", ["So."], wrong)]])]
    made = made_of(store, shards, most=5)
    drawn = [told(rows(store, made, number=number), shards)[0][2] for number in range(30)]
    assert {len(set(some)) for some in drawn} == {5}
    assert len(set(map(tuple, drawn))) > 25 and set().union(*drawn) == set(wrong)
    assert (
        drawn[0] == told(rows(Store.at(store.root + "2"), made_of(Store.at(store.root + "2"), shards, 5)), shards)[0][2]
    )
    assert epoch(store, TEN, 0, 0, made).counts["wrong_beyond_most"] == 35


def test_a_wrong_answer_that_says_what_a_right_one_says_is_left_out_and_counted(store):
    shards = [sentences([[("Why?", ["So it is."], ["so  IT is!", "No."])]])]
    made = made_of(store, shards)
    assert told(rows(store, made), shards) == [("Why?", ["So it is."], ["No."])]
    assert epoch(store, TEN, 0, 0, made).counts["wrong_is_right"] == 1


def test_questions_without_a_right_or_a_wrong_answer_make_no_example_and_are_counted(store):
    more = [[("Why?", ["So."], [])], [("How?", [], ["So.", "No."])], [("Who?", ["Me."], ["me"])]]
    shards = [sentences([[OWLS], *more])]
    made = made_of(store, shards)
    assert {name for name, _, _ in told(rows(store, made), shards)} == {"What do owls eat?"}
    counts = epoch(store, TEN, 0, 0, made).counts
    assert (counts["no_right"], counts["no_wrong"], counts["wrong_is_right"]) == (1, 2, 1)
    assert counts["in_no_example"] == 8


def test_held_out_questions_do_not_train_and_what_repeats_their_texts_is_left_out(store):
    secret = ("Why?", ["So."], ["No."])
    again, partly = ("WHY", ["Yes."], ["Never."]), ("Who?", ["Me.", "so"], ["You.", "no!"])
    spoiled = ("How?", ["So!"], ["Slowly."])
    shards = [sentences([[secret], [again], [partly], [spoiled], [OWLS]], held_out=[0])]
    made = made_of(store, shards)
    assert told(rows(store, made), shards) == [
        ("What do owls eat?", ["Mice."], ["Moss."]),
        ("What do owls eat?", ["Voles."], ["Moss."]),
        ("Who?", ["Me."], ["You."]),
    ]
    assert epoch(store, TEN, 0, 0, made).counts["repeats_of_held_out"] == 4


def test_a_question_larger_than_a_batch_is_refused_with_its_rows(store):
    shards = [sentences([[SWIFTS], [OWLS]])]
    with pytest.raises(
        BatchesError, match=r"takes 5 rows with its answers, a batch has 4; set batches.rows to at least 5"
    ):
        rows(store, made_of(store, shards), Batches(rows=4))


def test_no_question_with_both_kinds_of_answers_is_refused(store):
    with pytest.raises(BatchesError, match="no training question has both a right and a wrong answer"):
        rows(store, made_of(store, [sentences([[("Why?", ["So."], [])]])]))


def test_questions_that_are_all_lost_to_held_out_texts_are_told_from_those_that_lack_answers(store):
    secret, again, alone = ("Why?", ["So."], ["No."]), ("WHY", ["Yes."], ["Never."]), ("How?", ["Thus."], [])
    with pytest.raises(
        BatchesError, match="; 1 have no wrong answer; 1 texts stay out because they repeat held-out ones;"
    ):
        rows(store, made_of(store, [sentences([[secret], [again], [alone]], held_out=[0])]))


def test_every_epoch_has_an_order_of_its_own_and_the_same_again(store, tmp_path):
    shards = [sentences([[(f"Why {n}?", ["So."], ["No.", "Yes."])] for n in range(20)])]
    made = made_of(store, shards)
    orders = [rows(store, made, number=number)["text"].to_list() for number in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    other = Store.at(tmp_path / "other")
    assert [rows(other, made_of(other, shards), number=number)["text"].to_list() for number in range(4)] == orders


QUESTIONS = st.tuples(st.integers(0, 3), st.integers(0, 6))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(QUESTIONS, min_size=1, max_size=4), min_size=1, max_size=12),
    st.sampled_from([12, 13, 30]),
    st.integers(1, 40),
)
def test_any_questions_stand_whole_in_one_batch_once_an_epoch_of_equally_many_batches(documents, size, bucket):
    counter = iter(range(10_000))
    asked = [
        [
            (f"Q{next(counter)}?", [f"R{next(counter)}" for _ in range(r)], [f"W{next(counter)}" for _ in range(w)])
            for r, w in some
        ]
        for some in documents
    ]
    half = len(asked) // 2
    shards = [sentences(asked[:half]), sentences(asked[half:], first=100)]
    wanted = sorted((q, [one], wrong) for some in asked for q, right, wrong in some for one in right if wrong)
    with tempfile.TemporaryDirectory() as place:
        store = Store.at(place)
        made = made_of(store, shards)
        how = Batches(rows=size, bucket_rows=bucket)
        if not wanted:
            with pytest.raises(BatchesError):
                rows(store, made, how)
            return
        epochs = [rows(store, made, how, number=number) for number in range(3)]
    for frame in epochs:
        assert told(frame, shards) == wanted
        assert len(frame) == len(epochs[0]) and len(frame) % size == 0


# Packing


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 20), min_size=1, max_size=200), st.randoms(use_true_random=False))
def test_a_plan_holds_each_example_once_within_the_rows_and_its_length_is_of_sizes_alone(sizes, draw):
    shuffled = draw.sample(sizes, len(sizes))
    plans = [questions.planned(some, 20) for some in (sizes, shuffled)]
    assert len(plans[0]) == len(plans[1])
    for plan, some in zip(plans, (sizes, shuffled), strict=True):
        assert sorted(number for members in plan for number in members) == list(range(len(sizes)))
        assert all(members and sum(some[number] for number in members) <= 20 for members in plan)
        assert [members[-1] for members in plan] == sorted(members[-1] for members in plan)


def test_a_spare_batch_for_sixteen_is_made_by_halving_one():
    plan = questions.planned([10] * 64, 20)
    assert sorted(map(len, plan)) == [1] * 4 + [2] * 30
