"""Probes against values worked out by hand, or by plain gradient descent."""

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from models.recipe import Choice, RecipeError
from pipeline import probe
from pipeline.classes import Classed
from pipeline.evaluate import EVALUATIONS, check, given
from pipeline.probe import STRENGTHS, Split
from pipeline.tables import PREDICTIONS
from pipeline.word_vectors import WordVectorsError

BIRDS = ("owl", "wren", "rook", "crow", "lark", "dove", "swan", "hawk")
BOATS = ("punt", "brig", "raft", "scow", "yawl", "dory", "proa", "tug")
FOUR = {"folds": 4}


class Knowing:
    """Its vectors tell boats from birds, but for those texts that it mistakes."""

    def __init__(self, mistaken=()):
        self.mistaken = mistaken
        self.asked = []

    def encode(self, texts):
        self.asked += texts
        is_boat = [any(boat in text for boat in BOATS) != (text in self.mistaken) for text in texts]
        return np.array([[1000.0, 5 + boat, 5 - boat] for boat in is_boat], np.float32)


class Silent:
    """All texts are the same to it; `value` says how."""

    def __init__(self, value=0.0):
        self.value = value

    def encode(self, texts):
        return np.full((len(texts), 3), self.value, np.float32)


def table(path, rows):
    path.write_text("\n".join(["text\tlabel", *("\t".join(row) for row in rows)]) + "\n")
    return str(path)


def named(birds=BIRDS, boats=BOATS, shared="the"):
    return [(f"{shared} {bird}", "bird") for bird in birds] + [(f"{shared} {boat}", "boat") for boat in boats]


def measure(path, model=None, **options):
    return EVALUATIONS["probe"](model or Knowing(), pl.DataFrame(), None, path=path, **FOUR | options)


def classed(labels, test=None):
    frame = lambda names: pl.DataFrame(
        {"source": "a.tsv", "row": range(1, len(names) + 1), "text": [f"text {n}" for n in names], "label": names},
        schema={"source": pl.String, "row": pl.UInt64, "text": pl.String, "label": pl.String},
    )
    return Classed(frame(list(labels)), None if test is None else frame(list(test)), 0)


# The regression.


def descended(feature_ND, is_right_N, strength, steps=20_000):
    """Weights and bias of the same regression with two classes, by plain gradient descent."""
    sign_N, w_D, b = np.where(is_right_N, 1.0, -1.0), np.zeros(feature_ND.shape[1]), 0.0
    for _ in range(steps):
        pull_N = strength * sign_N / (1 + np.exp(sign_N * (feature_ND @ w_D + b)))
        w_D, b = w_D + 0.02 * (pull_N @ feature_ND - w_D), b + 0.02 * pull_N.sum()
    return w_D, b


def test_a_regression_is_the_least_of_its_loss():
    draw = np.random.default_rng(0)
    feature_ND = draw.normal(size=(40, 3))
    is_right_N = feature_ND[:, 0] + draw.normal(size=40) > 0
    w_D, b = descended(feature_ND, is_right_N, 0.25)
    found = probe._regression(0.25).fit(feature_ND, is_right_N)
    assert found.coef_[0] == pytest.approx(w_D, abs=2e-3)
    assert found.intercept_[0] == pytest.approx(b, abs=2e-3)


def test_features_are_scaled_to_a_mean_squared_distance_of_1_from_their_mean():
    known_ND, asked_ND = probe._scaled(np.array([[2.0, 1], [2, 5]]), np.array([[4.0, 3]]))
    assert known_ND.tolist() == [[0, -1], [0, 1]]  # mean 2, 3; distances 2, so squares of 4
    assert asked_ND.tolist() == [[1, 0]]


def test_counts_are_scaled_as_dense_features_are_but_not_centred():
    known_ND, asked_ND = np.array([[2.0, 1], [2, 5], [0, 3]]), np.array([[4.0, 3]])
    plain = probe._scaled(known_ND, asked_ND)
    thin = probe._scaled(sparse.csr_matrix(known_ND), sparse.csr_matrix(asked_ND))
    middle_D = thin[0].toarray().mean(axis=0)
    assert thin[0].toarray() - middle_D == pytest.approx(plain[0])
    assert thin[1].toarray() - middle_D == pytest.approx(plain[1])


def test_features_of_any_scale_and_place_give_the_same_classes():
    draw = np.random.default_rng(1)
    feature_ND, label_N = draw.normal(size=(60, 4)), draw.choice(["a", "b", "c"], 60)
    split = Split(np.arange(40), np.arange(40, 60), 3)
    expected = probe.said(feature_ND, label_N, split).tolist()
    assert len(set(expected)) > 1
    assert probe.said(1000 * feature_ND + 7, label_N, split).tolist() == expected


def test_labels_of_the_tried_rows_are_not_looked_at():
    draw = np.random.default_rng(1)
    feature_ND, label_N = draw.normal(size=(60, 4)), draw.choice(["a", "b"], 60)
    split = Split(np.arange(40), np.arange(40, 60), 3)
    expected = probe.said(feature_ND, label_N, split).tolist()
    label_N[40:] = "c"
    assert probe.said(feature_ND, label_N, split).tolist() == expected


def chosen(feature_ND, label_N, inner):
    """The strength that is right most often, by fits that begin anew; of equally good ones the least."""
    right = np.zeros(len(STRENGTHS), int)
    for train, tried in probe._stratified(label_N, inner):
        for at, strength in enumerate(STRENGTHS):
            model = probe._regression(strength).fit(feature_ND[train], label_N[train])
            right[at] += (model.predict(feature_ND[tried]) == label_N[tried]).sum()
    return STRENGTHS[right.argmax()], right


def test_the_strength_is_the_best_of_the_inner_folds():
    draw = np.random.default_rng(2)
    feature_ND, label_N = draw.normal(size=(90, 30)), draw.choice(["a", "b"], 90)
    feature_ND[:60, 0] += 2 * (label_N[:60] == "a")
    split = Split(np.arange(60), np.arange(60, 90), 3)
    known_ND, asked_ND = probe._scaled(feature_ND[:60], feature_ND[60:])
    strength, right = chosen(known_ND, label_N[:60], 3)
    by_strength = {c: probe._regression(c).fit(known_ND, label_N[:60]).predict(asked_ND).tolist() for c in STRENGTHS}
    assert len(set(right)) > 1 and strength not in (STRENGTHS[0], STRENGTHS[-1])
    assert [c for c, classes in by_strength.items() if classes == by_strength[strength]] == [strength]
    assert probe.said(feature_ND, label_N, split).tolist() == by_strength[strength]


def test_a_regression_that_begins_where_a_weaker_one_ended_ends_where_a_new_one_does():
    draw = np.random.default_rng(3)
    feature_ND = draw.normal(size=(300, 100)) * np.geomspace(1, 0.01, 100)  # most directions are narrow
    label_N = feature_ND @ np.geomspace(1, 100, 100) + draw.normal(size=300) > 0
    known_ND, _ = probe._scaled(feature_ND, feature_ND[:1])
    exact = LogisticRegression(C=STRENGTHS[-1], tol=1e-8, max_iter=5000).fit(known_ND, label_N)
    model = probe._regression(STRENGTHS[0])
    for strength in STRENGTHS:
        model.set_params(C=strength).fit(known_ND, label_N)
    assert model.coef_ == pytest.approx(exact.coef_, abs=0.1)  # 0.04; with the tolerance 1e-4 it is 0.5


def test_of_equally_good_strengths_the_least_is_taken():
    label_N = np.array(["a", "b"] * 12)
    assert probe._strength(np.where(label_N == "a", 1.0, -1.0)[:, None], label_N, 3) == STRENGTHS[0]


# Folds.


def test_folds_hold_equal_shares_of_each_class_and_try_every_row_once():
    split = probe.splits(classed("a" * 8 + "b" * 16), 4)
    assert sorted(np.concatenate([part.tried_N for part in split])) == list(range(24))
    for part in split:
        assert sorted([*part.train_N, *part.tried_N]) == list(range(24))
        assert [int((part.tried_N < 8).sum()), len(part.tried_N), part.inner] == [2, 6, 3]


def test_folds_are_the_same_each_time_and_do_not_follow_the_file():
    first, second = (probe.splits(classed("ab" * 20), 4) for _ in range(2))
    assert [part.tried_N.tolist() for part in first] == [part.tried_N.tolist() for part in second]
    assert first[0].tried_N.tolist() != list(range(10))


def test_with_a_test_part_that_alone_is_tried_and_folds_choose_the_strength():
    [part] = probe.splits(classed("aabbb", test="ab"), 7)
    assert (part.train_N.tolist(), part.tried_N.tolist(), part.inner) == ([0, 1, 2, 3, 4], [5, 6], 7)


# Baselines.


def test_a_bag_counts_words_in_lower_case():
    assert probe.bag(["An owl, an OWL.", "?", "owl"]).toarray().tolist() == [[2, 2], [0, 0], [0, 1]]


def test_texts_without_a_word_have_a_column_of_zeros():
    assert probe.bag(["?", "!"]).toarray().tolist() == [[0], [0]]


def test_word_vectors_are_averaged_over_the_words_that_have_one(tmp_path):
    (tmp_path / "v.txt").write_text("owl 1 2\nOwl 9 9\nan 3 0\nferry 7 7\n")
    found = probe.word_means(str(tmp_path / "v.txt"), ["An owl, owl!", "Owl", "An AUK", "an auk", "?"])
    assert found.mean_ND.tolist() == [[5 / 3, 4 / 3], [9, 9], [3, 0], [3, 0], [0, 0]]
    assert (found.known, found.words, found.scarce) == (6, 8, "")


def test_most_words_without_a_vector_are_told():
    assert probe.Words(np.zeros((1, 1)), 400, 1000).scarce == "600 of 1,000 words have no word vector"
    assert probe.Words(np.zeros((1, 1)), 500, 1000).scarce == ""


def test_a_file_of_word_vectors_has_to_be_there_and_hold_a_word(tmp_path):
    with pytest.raises(WordVectorsError, match=r"no such file.*; give a text or binary file of word vectors"):
        probe.word_means(str(tmp_path / "v.txt"), ["owl"])
    (tmp_path / "v.txt").write_text("ferry 1 2\n")
    with pytest.raises(WordVectorsError, match="the texts hold no word"):
        probe.word_means(str(tmp_path / "v.txt"), ["?"])


# The evaluation.


def test_a_model_that_tells_classes_apart_is_right_throughout_and_a_bag_of_new_words_is_not(tmp_path):
    scores = measure(table(tmp_path / "a.tsv", named()))
    assert scores.figures["probe.a.accuracy"] == 100
    assert scores.figures["probe.a.bag.accuracy"] <= 50  # no word but "the" stands twice
    assert scores.figures["probe.a.most_common"] == 50


def test_a_bag_that_knows_the_words_is_right_too(tmp_path):
    rows = [(f"{text} {kind}", kind) for text, kind in named()]
    figures = measure(table(tmp_path / "a.tsv", rows), Silent(3.0)).figures
    assert (figures["probe.a.accuracy"], figures["probe.a.bag.accuracy"]) == (50, 100)


def test_mistaken_texts_lower_the_accuracy_by_their_share(tmp_path):
    figures = measure(table(tmp_path / "a.tsv", named()), Knowing(("the owl", "the tug"))).figures
    assert figures["probe.a.accuracy"] == 100 * 14 / 16


def test_a_test_part_is_tried_and_most_common_is_that_of_the_training_part(tmp_path):
    path, test = (
        table(tmp_path / "a.tsv", named(BIRDS[:6], BOATS[:4])),
        table(tmp_path / "b.tsv", named(("auk",), BOATS[4:])),
    )
    scores = measure(path, test=test)
    assert scores.figures["probe.a.accuracy"] == 100
    assert scores.figures["probe.a.most_common"] == 20  # there birds are most, here one of five
    assert scores.counts == {"texts": 5, "classes": 2, "dropped": 0, "trained": 10}
    assert scores.rows["source"].unique().to_list() == ["b.tsv"]


def test_word_vectors_stand_beside_where_they_are_given(tmp_path):
    path = table(tmp_path / "a.tsv", named())
    (tmp_path / "v.txt").write_text("".join(f"{w} {at} 1\n" for at, part in enumerate((BIRDS, BOATS)) for w in part))
    figures = measure(path, Silent(), vectors=str(tmp_path / "v.txt")).figures
    assert (figures["probe.a.accuracy"], figures["probe.a.words.accuracy"]) == (50, 100)
    assert figures["probe.a.accuracy_over_words"] == -50
    assert "probe.a.words.accuracy" not in measure(path).figures


def test_words_without_vectors_give_a_note(tmp_path):
    (tmp_path / "v.txt").write_text("owl 1 2\n")
    scores = measure(table(tmp_path / "a.tsv", named()), vectors=str(tmp_path / "v.txt"))
    assert scores.note == "probe.a: 31 of 32 words have no word vector"


def test_what_is_said_of_each_text_is_kept(tmp_path):
    rows = measure(table(tmp_path / "a.tsv", named()), Knowing(("the owl",)), name="mine").rows
    assert rows["row"].to_list() == list(range(1, 17))
    assert rows["label"].to_list() == ["bird"] * 8 + ["boat"] * 8
    assert rows["model"].to_list() == ["boat"] + ["bird"] * 7 + ["boat"] * 8
    assert rows["fold"].value_counts().sort("fold").rows() == [(fold, 4) for fold in range(4)]
    assert (rows["evaluation"].unique().to_list(), rows["words"].null_count()) == (["mine"], 16)


def test_figures_can_be_worked_out_again_from_the_rows(tmp_path):
    scores = measure(table(tmp_path / "a.tsv", named()), Knowing(("the owl",)))
    assert {f"probe.a.{name}": value for name, value in probe.agreement(scores.rows).items()} == scores.figures


def test_the_difference_to_the_bag_comes_with_its_interval_over_texts():
    right, wrong, size = ["a"], ["b"], 100
    frame = {"evaluation": ["e"] * size, "source": ["s"] * size, "row": range(size), "text": range(size)}
    frame |= {"label": right * size, "fold": [0] * size, "model": right * 80 + wrong * 20}
    frame |= {"bag": right * 60 + wrong * 40, "words": [None] * size, "most_common": wrong * size}
    schema = {name: column.type for name, column in PREDICTIONS.columns.items()}
    found = probe.agreement(pl.DataFrame({k: list(v) for k, v in frame.items()}, schema=schema))
    assert (found["accuracy"], found["bag.accuracy"], found["most_common"]) == (80, 60, 0)
    assert found["accuracy_over_bag"] == 20
    # 20 of 100 texts differ: the mean of draws has the deviation 4
    assert found["accuracy_over_bag.low"] == pytest.approx(20 - 1.96 * 4, abs=1)
    assert found["accuracy_over_bag.high"] == pytest.approx(20 + 1.96 * 4, abs=1)


def test_rows_without_a_label_are_counted(tmp_path):
    scores = measure(table(tmp_path / "a.tsv", [*named(), ("the mule", "")]))
    assert scores.flat()["probe.a.dropped"] == 1 and scores.flat()["probe.a.texts"] == 16


def test_a_vector_that_is_not_finite_is_refused_with_its_text(tmp_path):
    with pytest.raises(ValueError, match="16 texts are not finite; the first: 'the owl'"):
        measure(table(tmp_path / "a.tsv", named()), Silent(np.nan))


def test_a_text_that_stands_in_several_rows_is_encoded_once(tmp_path):
    model = Knowing()
    measure(table(tmp_path / "a.tsv", named() * 2), model)
    assert len(model.asked) == 16


# Before any training.


def refused(*evaluations):
    with pytest.raises(RecipeError) as found:
        check([Choice.model_validate({"kind": "probe", **options}) for options in evaluations])
    return str(found.value)


def test_what_is_wrong_is_told_with_its_place_in_the_recipe(tmp_path):
    good, bad = table(tmp_path / "a.tsv", named()), table(tmp_path / "b.tsv", [*named(), ("", "bird")])
    assert refused(FOUR | {"path": good}, FOUR | {"path": bad}) == (
        "evaluation.1: b.tsv, row 17: text is empty; fill it in or drop the row"
    )
    assert "evaluation.0: a.tsv, row 1: label is 'bird', of which there are 8 texts" in refused({"path": good})


def test_the_test_part_and_word_vectors_are_read_beforehand_too(tmp_path):
    good, other = table(tmp_path / "a.tsv", named()), table(tmp_path / "b.tsv", [("a mule", "beast")])
    assert "b.tsv, row 1: label is 'beast'" in refused(FOUR | {"path": good, "test": other})
    assert "v.txt: no such file" in refused(FOUR | {"path": good, "vectors": str(tmp_path / "v.txt")})
    (tmp_path / "v.txt").write_text("owl 1 2\ntug 1\n")
    assert "v.txt, line 2: 1 numbers after the word" in refused(
        FOUR | {"path": good, "vectors": str(tmp_path / "v.txt")}
    )


def test_fewer_than_four_folds_are_refused(tmp_path):
    path = table(tmp_path / "a.tsv", named())
    assert "evaluation.0.folds is 3" in refused({"path": path, "folds": 3})


def test_two_probes_of_one_name_are_refused_but_not_one_of_another_kind(tmp_path):
    path = table(tmp_path / "a.tsv", named())
    assert "evaluation.0 and evaluation.1 are both called" in refused(*[FOUR | {"path": path}] * 2)
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\ne\tf\t3\n")
    pairs = {"path": str(tmp_path / "pairs.tsv"), "name": "a"}
    check([Choice(kind="probe", options=FOUR | {"path": path}), Choice(kind="sts", options=pairs)])


def test_bytes_of_each_file_that_is_named_are_in_the_digest(tmp_path):
    path, test = table(tmp_path / "a.tsv", named()), table(tmp_path / "b.tsv", named())
    (tmp_path / "v.txt").write_text("owl 1 2\n")
    options = {"path": path, "test": test, "vectors": str(tmp_path / "v.txt"), "name": ""}
    ask = lambda **changes: given([Choice(kind="probe", options=options | changes)])
    found = [ask(), ask(test=""), ask(vectors=""), ask(test="", vectors="")]
    for name, text in (("v.txt", "owl 1 3\n"), ("b.tsv", "text\tlabel\n"), ("a.tsv", "text\tlabel\n")):
        (tmp_path / name).write_text(text)
        found.append(ask())
    assert len({digest for [digest] in found}) == 7
