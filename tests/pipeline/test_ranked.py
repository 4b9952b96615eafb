"""Rankings of answers, against values worked out by hand."""

import itertools
import math

import numpy as np
import polars as pl
import pytest

from models.recipe import Choice, RecipeError
from pipeline import ranked
from pipeline.evaluate import EVALUATIONS, check, given
from pipeline.neighbours import words
from pipeline.ranking import average_precision, chance, hit, ordered, reciprocal_rank
from pipeline.shard import SourceError
from pipeline.tables import RANKINGS

HEADER = "question\tanswer\tlabel"
SWIFTS, OWLS, WRENS = "Where do swifts sleep?", "What do owls eat?", "Who hears wrens?"
ROWS = [
    (SWIFTS, "In burrows where swifts sleep.", "0"),
    (SWIFTS, "On the wing.", "1"),
    (SWIFTS, "Never.", "0"),
    (OWLS, "Owls eat mice.", "1"),
    (OWLS, "Moss.", "0"),
    (WRENS, "Nobody.", "0"),
]


class Placed:
    """Texts on a line, each where it was put; near is good. `left` says which side may ask."""

    def __init__(self, **place):
        self.place = {key.replace("_", " "): value for key, value in place.items()}
        self.asked = []

    def encode(self, texts):
        self.asked += texts
        return np.array([[self.place.get(text.split()[0].lower().strip(".?"), 0.0), 3.0] for text in texts], np.float32)

    def score(self, left_ND, right_ND):
        return -np.abs(left_ND[:, None, 0] - right_ND[None, :, 0]) + 10 * left_ND[:, 1:2] - right_ND[None, :, 1]


KNOWING = Placed(where=1.0, on=1.1, never=1.3, **{"in": 1.2}, what=5.0, owls=5.1, moss=5.2)


def table(path, rows=ROWS, header=HEADER):
    path.write_text("\n".join([*([header] if header else []), *("\t".join(row) for row in rows)]) + "\n")
    return str(path)


def measure(path, model=KNOWING, **options):
    return EVALUATIONS["ranking"](model, pl.DataFrame(), None, path=path, **options)


def test_a_model_that_knows_the_answers_puts_them_first_and_bm25_follows_the_words(tmp_path):
    figures = measure(table(tmp_path / "a.tsv")).figures
    assert (figures["ranking.a.map"], figures["ranking.a.mrr"], figures["ranking.a.p@1"]) == (1, 1, 1)
    # Of swifts the first answer shares words and is wrong; the two others share none and the wrong one stands before.
    assert figures["ranking.a.bm25.map"] == pytest.approx((1 / 3 + 1) / 2)
    assert figures["ranking.a.bm25.p@1"] == 0.5
    assert figures["ranking.a.map_over_bm25"] == pytest.approx(1 - (1 / 3 + 1) / 2)


def test_all_measures_stand_there_for_each_k(tmp_path):
    figures = measure(table(tmp_path / "a.tsv"), ks=(2, 3)).figures
    names = {"map", "mrr", "p@1"} | {f"{name}@{k}" for name in ("hit", "recall", "ndcg") for k in (2, 3)}
    wanted = {f"{side}{name}" for side in ("", "bm25.") for name in names}
    wanted |= {f"random.{name}" for name in ("map", "mrr", "p@1")} | {"question_norm", "answer_norm"}
    wanted |= {f"map_over_bm25{end}" for end in ("", ".low", ".high")}
    assert set(figures) == {f"ranking.a.{name}" for name in wanted}


def test_counts_are_always_there(tmp_path):
    counts = measure(table(tmp_path / "a.tsv", [*ROWS, (OWLS, "Stones.", "")])).counts
    assert counts == {"questions": 2, "none_right": 1, "all_right": 0, "answers": 6, "dropped": 1}


@pytest.mark.parametrize(("rule", "questions", "value"), [("drop", 3, 1), ("zero", 4, 3 / 4), ("clean", 2, 1)])
def test_questions_without_a_right_answer_are_counted_by_rule(tmp_path, rule, questions, value):
    path = table(tmp_path / "a.tsv", [*ROWS, ("Is it so?", "Yes.", "1")])
    scores = measure(path, no_positive=rule)
    assert (scores.counts["questions"], scores.figures["ranking.a.map"]) == (questions, value)
    assert (scores.counts["none_right"], scores.counts["all_right"]) == (1, 1)


def test_a_constant_model_is_put_last(tmp_path):
    figures = measure(table(tmp_path / "a.tsv"), Placed()).figures
    assert figures["ranking.a.mrr"] == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_questions_are_asked_on_the_left_and_answers_on_the_right(tmp_path):
    class OneSided(Placed):
        def score(self, left_ND, right_ND):
            assert left_ND.shape[0] == 1 and right_ND.shape[0] in (1, 2, 3)
            return super().score(left_ND, right_ND)

    measure(table(tmp_path / "a.tsv"), OneSided())


def test_each_text_is_encoded_once(tmp_path):
    model = Placed()
    measure(table(tmp_path / "a.tsv", ROWS * 2), model)
    assert len(model.asked) == len(set(model.asked)) == 9


def test_norms_are_means_over_different_texts_of_a_side(tmp_path):
    rows = [("a?", "b.", "1"), ("a?", "c.", "0"), ("d?", "b.", "0"), ("d?", "e.", "1")]
    figures = measure(table(tmp_path / "a.tsv", rows), Placed(a=4.0, b=0.0, c=4.0, d=0.0, e=0.0)).figures
    assert figures["ranking.a.question_norm"] == pytest.approx((5 + 3) / 2)
    assert figures["ranking.a.answer_norm"] == pytest.approx((3 + 5 + 3) / 3)


def test_word_vectors_stand_beside_where_they_are_given(tmp_path):
    (tmp_path / "v.txt").write_text("swifts 1 0\nwing 2 0.1\nburrows 0 1\nowls 1 1\nmice 1 1\nmoss 1 0\nsleep 0 0\n")
    scores = measure(table(tmp_path / "a.tsv"), vectors=str(tmp_path / "v.txt"))
    swifts = scores.rows.filter(question=1)["vectors"].to_list()
    # Means over all words: burrows + swifts; wing; nothing.
    assert swifts == pytest.approx([1 / math.sqrt(2), 2 / math.hypot(2, 0.1), 0])
    assert scores.figures["ranking.a.vectors.map"] == 1 and scores.figures["ranking.a.map_over_vectors"] == 0
    assert scores.note == "ranking.a: 17 of 25 words have no word vector"


def test_each_answer_is_kept_with_what_the_sides_gave_it_and_figures_come_from_there(tmp_path):
    scores = measure(table(tmp_path / "a.tsv"), name="mine")
    rows = scores.rows
    assert rows.schema == RANKINGS.empty().schema
    assert rows["row"].to_list() == [1, 2, 3, 4, 5, 6] and rows["label"].to_list() == [0, 1, 0, 1, 0, 0]
    assert rows["model"].to_list()[:2] == pytest.approx([27 - 0.2, 27 - 0.1])
    assert rows["vectors"].null_count() == 6 and set(rows["evaluation"]) == {"mine"}
    again = ranked.figures(rows, "drop", (5,))
    assert all(scores.figures[f"ranking.mine.{name}"] == value for name, value in again.items())


def test_bm25_is_the_sum_over_words_by_the_formula(tmp_path):
    answers = ranked.read(table(tmp_path / "a.tsv"), ranked.Columns("question", "answer", "label")).answers
    texts = [words(text) for text in answers["answer"]]
    mean = sum(map(len, texts)) / len(texts)
    wanted = []
    for question, answer in zip(answers["question"], texts, strict=True):
        total = 0.0
        for word in words(question):
            within = sum(word in text for text in texts)
            idf = math.log(1 + (len(texts) - within + 0.5) / (within + 0.5))
            often = answer.count(word)
            total += idf * often / (often + 1.2 * (0.25 + 0.75 * len(answer) / mean))
        wanted.append(total)
    assert ranked.lexical(answers) == pytest.approx(wanted, abs=1e-5)
    assert max(wanted) > 0


# Chance


@pytest.mark.parametrize("labels", [[1, 0, 0], [1, 1, 0, 0, 0], [1, 1], [0, 0, 0], [1]])
def test_chance_is_the_mean_over_all_orders(labels):
    every = [ordered(-np.arange(len(order)), order, [0] * len(labels)) for order in itertools.permutations(labels)]
    wanted = {"map": average_precision, "mrr": reciprocal_rank, "p@1": lambda lists: hit(lists, 1)}
    found = chance(labels, [0] * len(labels), no_positive="zero")
    assert found == {name: pytest.approx(np.mean([of(lists)[0] for lists in every])) for name, of in wanted.items()}


def test_chance_is_over_the_questions_that_count():
    labels, questions = [1, 0, 0, 0, 1], [0, 0, 1, 1, 2]
    assert chance(labels, questions)["p@1"] == 0.75
    assert chance(labels, questions, no_positive="clean")["p@1"] == 0.5
    assert math.isnan(chance([0], [0])["map"])


# What is read


def test_tables_without_a_header_and_parallel_lines_say_the_same(tmp_path):
    path = table(tmp_path / "a.txt", header=None)
    for name, column in zip("qal", zip(*ROWS, strict=True), strict=True):
        (tmp_path / "lines").mkdir(exist_ok=True)
        (tmp_path / "lines" / name).write_text("\n".join(column) + "\n")
    plain = measure(path, columns=("question", "answer", "label"), name="x")
    beside = measure(str(tmp_path / "lines"), parallel=True, question="q", answer="a", label="l", name="x")
    with_header = measure(table(tmp_path / "a.tsv"), name="x")
    assert plain.figures == pytest.approx(beside.figures) and plain.figures == pytest.approx(with_header.figures)
    assert beside.rows["source"].unique().to_list() == ["q"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("Why?", "So.", "2"), r"a\.tsv, row 7: label is '2', should be 1 for a right answer or 0 for a wrong one"),
        (("Why?", " ", "1"), r"a\.tsv, row 7: answer is empty; fill it in or drop the row"),
        (("", "So.", "1"), r"a\.tsv, row 7: question is empty"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_place(tmp_path, row, said):
    with pytest.raises(SourceError, match=said):
        measure(table(tmp_path / "a.tsv", [*ROWS, row]))


def test_parallel_lines_of_unlike_counts_are_refused(tmp_path):
    for name, lines in (("question", "a\nb\n"), ("answer", "c\n"), ("label", "1\n0\n")):
        (tmp_path / name).write_text(lines)
    with pytest.raises(SourceError, match="answer has 1 lines, question has 2"):
        measure(str(tmp_path), parallel=True)


# Held-out questions


def sentences(*documents, label=True):
    rows = [
        {"document": d, "place": p, "label": label, "group": 0, "text": text}
        for d, texts in enumerate(documents)
        for p, (text, label) in enumerate(texts)
    ]
    schema = {"document": pl.UInt64, "place": pl.UInt32, "label": pl.UInt8, "group": pl.UInt64, "text": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame if label else frame.drop("label")


DOCUMENTS = (
    [(SWIFTS, None), ("On the wing.", 1), ("Never.", 0), (OWLS, None), ("Moss.", 0), ("Owls eat mice.", 1)],
    [(SWIFTS, None), ("In burrows.", 0), ("On the wing.", 1)],
)


def test_without_a_path_the_held_out_questions_are_asked():
    scores = EVALUATIONS["ranking"](KNOWING, sentences(*DOCUMENTS))
    assert scores.counts == {"questions": 3, "none_right": 0, "all_right": 0, "answers": 6, "dropped": 0}
    assert scores.figures["ranking.held-out.map"] == 1
    assert scores.rows["question"].to_list() == [0, 0, 1, 1, 2, 2]


def test_questions_are_whole_within_the_most_texts():
    found = ranked.held_out(sentences(*DOCUMENTS), most=8)
    assert found.answers["number"].to_list() == [0, 0, 1, 1]


def test_no_held_out_question_gives_a_note_and_no_figures():
    for frame in (sentences(), sentences(*DOCUMENTS, label=False), sentences([("Why?", None), ("So.", 0)])):
        scores = EVALUATIONS["ranking"](KNOWING, frame)
        assert scores.figures == {} and "raise corpus.held_out" in scores.note


# Before any training


def refused(*evaluations):
    with pytest.raises(RecipeError) as found:
        check([Choice.model_validate({"kind": "ranking", **options}) for options in evaluations])
    return str(found.value)


def test_what_is_wrong_is_told_with_its_place_in_the_recipe(tmp_path):
    good = table(tmp_path / "a.tsv")
    bad = table(tmp_path / "b.tsv", [(SWIFTS, "On the wing.", "maybe")])
    check([Choice(kind="ranking", options={"path": good}), Choice(kind="ranking")])
    assert refused({"path": good}, {"path": bad}).startswith("evaluation.1: b.tsv, row 1: label is 'maybe'")
    assert "no-such-words: no such file, and no package" in refused({"path": good, "vectors": "no-such-words"})
    assert "no question counts" in refused({"path": table(tmp_path / "c.tsv", ROWS[-1:])})
    assert "both called" in refused({"path": good}, {"path": good})


def test_bytes_of_each_file_that_is_named_are_in_the_digest(tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    for name in ("question", "answer", "label", "more"):
        (folder / name).write_text("1\n")
    (tmp_path / "v.txt").write_text("swifts 1\n")
    options = {"path": str(folder), "parallel": True, "vectors": str(tmp_path / "v.txt"), "columns": ()}
    options |= {"question": "question", "answer": "answer", "label": "label"}
    ask = lambda: given([Choice(kind="ranking", options=options)])[0]
    found = [ask()]
    (folder / "more").write_text("2\n")
    assert ask() == found[0]
    for path in (folder / "question", folder / "answer", folder / "label", tmp_path / "v.txt"):
        path.write_text("2\n")
        found.append(ask())
    assert len(set(found)) == 5
