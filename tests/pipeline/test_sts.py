"""Sentence similarity against values worked out by hand or by a slower, plainer way."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest

from models.recipe import Choice, RecipeError
from pipeline import sts
from pipeline.evaluate import EVALUATIONS, check, given
from pipeline.metrics import uniformity
from pipeline.tables import SIMILARITIES

HAND = ((5, 4, 4, 2, 1, 0), (0.9, 0.8, 0.7, 0.75, 0.2, 0.3))


class Angles:
    """A text that is a number has that cosine with every other text."""

    def encode(self, texts):
        cosine_N = np.array([self._cosine(text) for text in texts])
        return np.stack([3 * cosine_N, 3 * np.sqrt(1 - cosine_N**2)], axis=1).astype(np.float32)

    def _cosine(self, text):
        return float(text) if text.replace(".", "").isdecimal() else 1.0


class Constant:
    """All texts are the same to it; `value` 0 makes them zeros."""

    def __init__(self, value):
        self.value = value

    def encode(self, texts):
        return np.full((len(texts), 7), self.value, np.float32)


def table(path, golds, cosines, left="east"):
    """A file of pairs whose cosines `Angles` finds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{left}\t{cosine}\t{gold}" for gold, cosine in zip(golds, cosines, strict=True)]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return str(path)


def measure(path, model=None, **options):
    return EVALUATIONS["sts"](model or Angles(), pl.DataFrame(), None, path=path, **options)


@pytest.fixture
def hand(tmp_path):
    return measure(table(tmp_path / "hand.tsv", *HAND))


def rows_of(golds, cosines, overlaps=None, longer=None):
    """Table `similarities`, by hand."""
    size = len(golds)
    frame = {"evaluation": ["e"] * size, "source": ["s"] * size, "row": range(size), "left": range(size)}
    frame |= {"right": range(size), "gold": golds, "cosine": cosines, "overlap": overlaps or range(size)}
    frame |= {"longer": longer or range(size)}
    schema = {name: column.type for name, column in SIMILARITIES.columns.items()}
    return pl.DataFrame({k: list(v) for k, v in frame.items()}, schema=schema, strict=False)


def test_spearman_ranks_cosines_and_gives_ties_their_mean(hand):
    assert hand.figures["sts.hand.spearman"] == pytest.approx(84.0668, abs=1e-6)


def test_pearson_stands_beside(hand):
    assert hand.figures["sts.hand.pearson"] == pytest.approx(87.390570, abs=1e-4)


def test_files_of_a_folder_are_correlated_once_all_together(tmp_path):
    table(tmp_path / "all" / "a.tsv", (5, 3, 1), (0.9, 0.5, 0.6))
    table(tmp_path / "all" / "b.tsv", (4, 2, 0, 1), (0.4, 0.3, 0.1, 0.2))
    assert measure(str(tmp_path / "all")).figures["sts.all.spearman"] == pytest.approx(68.471247, abs=1e-6)


def test_alignment_looks_at_pairs_in_the_top_fifth_of_the_scale(hand):
    assert hand.figures["sts.hand.alignment"] == pytest.approx(2 - 2 * 0.9, abs=1e-6)  # 5 alone is above 4


def test_alignment_knows_scales_that_do_not_begin_at_0(tmp_path):
    figures = measure(table(tmp_path / "hand.tsv", (1, 2, 4.2, 4.3, 5), (0.1, 0.2, 0.3, 0.6, 0.8))).figures
    assert figures["sts.hand.alignment"] == pytest.approx((0.8 + 0.4) / 2, abs=1e-6)


def test_uniformity_and_random_cosine_count_each_text_once(hand):
    vectors = Angles().encode(["east", *map(str, HAND[1])])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = [unit[i] @ unit[j] for i in range(7) for j in range(i)]
    assert hand.figures["sts.hand.random_cosine"] == pytest.approx(np.mean(cosines), abs=1e-6)
    assert hand.figures["sts.hand.uniformity"] == pytest.approx(uniformity(vectors), abs=1e-6)


def test_length_bias_is_of_the_pairs_below_the_middle_of_the_scale():
    gold, cosine = np.array([5, 3, 2, 1, 1, 0]), np.array([0.9, 0.1, 0.5, 0.7, 0.6, 0.2])
    longer = np.array([9, 0, 2, 1, 3, 5])  # ranks of 2, 1, 3, 5 and .5, .7, .6, .2: 2 1 3 4 and 2 4 3 1
    assert sts.length_bias(gold, cosine, longer) == pytest.approx(-80)


def test_length_bias_asks_nothing_of_a_pair_in_the_middle_of_the_scale():
    gold, cosine, longer = np.array([0, 0, 2, 4]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 2, 3, 4])
    assert math.isnan(sts.length_bias(gold, cosine, longer))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("the cat sat", "the cat ran", 2 / 3),
        ("a a b", "a", 2 / 5**0.5),
        ("The CATS", "the cat", 1),
        ("owl", "boat", 0),
        ("?", "owl", 0),
    ],
)
def test_overlap_is_the_cosine_of_word_counts(left, right, expected):
    assert sts.overlap(*(Counter(sts.words(text)) for text in (left, right))) == pytest.approx(expected)


def test_each_pairs_values_are_kept(tmp_path):
    path = table(tmp_path / "pairs.tsv", (1, 2, 3), ("0.5", "0.25", "0"), left="east 5")
    rows = measure(path, name="mine").rows
    assert rows["evaluation"].unique().to_list() == ["mine"]
    assert rows["row"].to_list() == [1, 2, 3]
    assert rows["cosine"].to_list() == pytest.approx([0.5, 0.25, 0])
    assert rows["overlap"].to_list() == pytest.approx([0.5, 0, 0])  # east 5; 0 5, 0 25, 0
    assert rows["longer"].to_list() == [0, 0, 1]


def test_figures_can_be_worked_out_again_from_the_rows(tmp_path):
    scores = measure(table(tmp_path / "all.tsv", (5, 0, 1, 0.5), ("0.5", "0.25", "0", "1"), left="east 5"))
    again = {f"sts.all.{name}": value for name, value in sts.agreement(scores.rows).values.items()}
    shape = {f"sts.all.{name}" for name in ("alignment", "uniformity", "random_cosine", "effective_rank")}
    assert set(scores.figures) == set(again) | shape and len(again) == 8
    assert again.items() <= scores.figures.items()


def test_the_difference_to_the_overlap_comes_with_its_interval():
    draw = np.random.default_rng(4)
    gold = draw.normal(size=200)
    rows = rows_of(gold, gold + 0.1 * draw.normal(size=200), list(draw.normal(size=200)))
    found = sts.agreement(rows).values
    over = found["spearman_over_overlap"]
    assert over == pytest.approx(found["spearman"] - found["overlap.spearman"])
    assert 0 < found["spearman_over_overlap.low"] < over < found["spearman_over_overlap.high"]


def test_a_model_that_gives_one_cosine_gets_a_note_and_no_number_that_is_none(tmp_path):
    scores = measure(table(tmp_path / "hand.tsv", *HAND), Constant(0.3))
    assert not {"sts.hand.spearman", "sts.hand.pearson", "sts.hand.spearman_over_overlap"} & set(scores.figures)
    assert "sts.hand: no spearman, pearson: the model gives all 6 pairs the same cosine" in scores.note
    assert all(map(math.isfinite, scores.flat().values()))


def test_vectors_of_zeros_have_the_cosine_0(tmp_path):
    scores = measure(table(tmp_path / "hand.tsv", *HAND), Constant(0))
    assert scores.rows["cosine"].to_list() == [0] * 6
    assert all(map(math.isfinite, scores.flat().values()))


def test_texts_without_a_common_word_get_a_note_for_the_overlap(tmp_path):
    scores = measure(table(tmp_path / "hand.tsv", *HAND))
    assert "no overlap.spearman, overlap.pearson: all 6 pairs have the same overlap of words" in scores.note


def test_a_vector_that_is_not_finite_is_refused_with_its_text(tmp_path):
    with pytest.raises(ValueError, match="7 texts are not finite; the first: 'east'"):
        measure(table(tmp_path / "hand.tsv", *HAND), Constant(np.nan))


def test_pairs_and_those_left_out_are_counted(tmp_path):
    path = table(tmp_path / "hand.tsv", (*HAND[0], ""), (*HAND[1], 0.5))
    flat = measure(path).flat()
    assert (flat["sts.hand.pairs"], flat["sts.hand.dropped"]) == (6, 1)


# Before any training.


def refused(*evaluations):
    with pytest.raises(RecipeError) as found:
        check([Choice.model_validate({"kind": "sts", **options}) for options in evaluations])
    return str(found.value)


def test_a_file_that_cannot_be_used_is_refused_with_its_place_in_the_recipe(tmp_path):
    path = table(tmp_path / "hand.tsv", (1, 2, "x"), (0.1, 0.2, 0.3))
    good = table(tmp_path / "good.tsv", *HAND)
    assert refused({"path": good}, {"path": path}).startswith("evaluation.1: hand.tsv, row 3: score is 'x'")


def test_a_path_is_needed():
    assert refused({}) == "evaluation.0 needs the option path"


def test_two_evaluations_of_one_name_are_refused(tmp_path):
    paths = [table(tmp_path / place / "hand.tsv", *HAND) for place in ("a", "b")]
    said = refused(*({"path": path} for path in paths))
    assert said == 'evaluation.0 and evaluation.1 are both called "hand"; give one of them another name'
    check([Choice(kind="sts", options={"path": path, "name": f"n{at}"}) for at, path in enumerate(paths)])


@pytest.mark.parametrize("name", ["a.b", "a b", "a/b"])
def test_a_name_that_would_break_figures_apart_is_refused(tmp_path, name):
    path = table(tmp_path / "hand.tsv", *HAND)
    assert f'evaluation.0.name is "{name}"; should be letters' in refused({"path": path, "name": name})


def test_only_evaluations_that_read_files_have_digests(tmp_path):
    path = table(tmp_path / "hand.tsv", *HAND)
    assert len(given([Choice(kind="neighbours"), Choice(kind="sts", options={"path": path})])) == 1
