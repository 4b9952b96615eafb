"""The scoreboard, read as a person reads it: as plain text of 100 columns."""

import io
import re

import pytest
from rich.console import Console

from pipeline.report import scoreboard


def stage(name, **facts):
    plain = {"key": "ab", "seconds": 1.5, "cached": False, "shards_new": 2, "shards_same": 0, "shards_gone": 0}
    return {"name": name, **plain, "rows": 1200, "quarantined": 0, **facts}


@pytest.fixture
def result():
    """A whole run."""
    figures = {"mrr": 0.235, "hit@1": 0.15, "bm25.mrr": 0.2, "bm25.hit@1": 0.12, "random.mrr": 0.0005}
    figures |= {"random.hit@1": 0.0001, "mrr_over_bm25": 0.035, "mrr_over_bm25.low": 0.03, "mrr_over_bm25.high": 0.04}
    figures |= {"uniformity": -3.1, "queries": 18000, "candidates": 19999}
    return {
        "recipe": "quick-thoughts-bag",
        "corpus": "pydoc:",
        "store": "/data/store",
        "read": {"documents": 1200, "sentences": 34000},
        "model_folder": "/data/store/models/3f2a",
        "scores": {f"neighbours.{name}": value for name, value in figures.items()},
        "gate": None,
        "registered": {
            "name": "pydoc",
            "version": 3,
            "uri": "models:/pydoc/3",
            "alias": "candidate",
            "run_id": "77aa",
            "tracking": "sqlite:////data/store/mlflow.db",
        },
        "stages": [stage("documents", quarantined=17), stage("tokens", cached=True, seconds=0)],
        "dropped": {"no text": 2, "not UTF-8": 15, "too long": 0},
        "training": {"steps": 2230, "rows_per_second": 51234.4, "loss": [7.6, 5.0, 2.5], "seconds": 812, "workers": 2},
        "notes": ["12 % of the sentences were cut"],
    }


def page(result, **console):
    out = io.StringIO()
    Console(file=out, width=100, **console).print(scoreboard(result))
    return out.getvalue()


def line(text, start):
    """The words of the one line that begins so."""
    [found] = [entry for entry in text.splitlines() if entry.strip().startswith(start)]
    return found.split()


def test_the_head_says_what_was_read(result):
    assert line(page(result), "read") == ["read", "1,200", "documents,", "34,000", "sentences"]


def test_a_stage_is_a_line_of_counts(result):
    assert line(page(result), "documents") == ["documents", "1,200", "2", "·", "·", "17", "1.5"]


def test_a_stage_that_was_there_already_says_so(result):
    assert line(page(result), "tokens")[-1] == "cached"


def test_drops_come_with_their_reason_the_most_first(result):
    text = page(result)
    assert text.index("15   not UTF-8") < text.index("2   no text")
    assert "too long" not in text


def test_training_says_steps_pace_and_both_ends_of_the_loss(result):
    text = page(result)
    assert "2,230 steps in 13 min 32 s, 51,234 rows/s" in text
    assert "7.6000 → 2.5000 nats  █▄▁" in text


def test_training_says_how_much_each_term_has_learned(result):
    result["training"]["bound"] = {"0": [[0, 0.001], [90, 1.25]], "2": [[0, -0.5], [90, 0.75]]}
    text = page(result)
    assert "log N - loss 0.0010 → 1.2500 nats" in text and "log N - loss -0.5000 → 0.7500 nats" in text


def test_baselines_stand_beside_the_model(result):
    text = page(result)
    assert line(text, "model") == ["model", "BM25", "chance"]
    assert line(text, "mrr") == ["mrr", "0.2350", "0.2000", "0.0005"]
    assert line(text, "uniformity") == ["uniformity", "-3.1000"]


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        ((0.035, 0.03, 0.04), "beats BM25 by +.035 MRR (95 % interval +.030 to +.040)"),
        ((0.01, -0.002, 0.02), "does not beat BM25: +.010 MRR, which may be chance (95 % interval -.002 to +.020)"),
        ((-0.1, -0.12, -0.08), "does not beat BM25: -.100 MRR (95 % interval -.120 to -.080)"),
    ],
)
def test_a_sentence_says_whether_the_model_beats_bm25(result, interval, sentence):
    for end, value in zip(("", ".low", ".high"), interval, strict=True):
        result["scores"][f"neighbours.mrr_over_bm25{end}"] = value
    assert sentence in page(result)


def test_the_page_says_where_the_model_is_and_how_to_use_it(result):
    text = page(result)
    assert "pydoc version 3, alias candidate" in text
    assert 'mlflow.pyfunc.load_model("models:/pydoc/3")' in text
    assert 'echo "some text" | firth encode pydoc --store /data/store' in text
    assert 'firth search pydoc --corpus pydoc: --store /data/store "some text"' in text


def test_a_model_that_was_only_logged_is_not_called_registered(result):
    result["registered"] |= {"name": None, "version": None, "alias": None, "uri": "models:/m-1"}
    assert line(page(result), "logged") == ["logged", "models:/m-1"]


def test_notes_are_shown_as_they_are(result):
    result["notes"] = ["column [body] is empty"]
    assert "note: column [body] is empty" in page(result)


def test_nothing_is_wider_than_a_hundred_columns(result):
    result["store"] = "/data/" + "long/" * 40
    result["dropped"] = {"word " * 60: 3}
    assert max(map(len, page(result).splitlines())) <= 100


def test_only_a_terminal_gets_colours(result):
    assert "\x1b" not in page(result)
    assert "\x1b" in page(result, force_terminal=True)


def test_a_loss_that_is_no_number_is_shown_and_breaks_nothing(result):
    result["training"]["loss"] = [7.0, float("nan")]
    assert "7.0000 → nan nats" in page(result)


def test_a_folder_with_blanks_is_quoted(result):
    result |= {"model_folder": "/my data/3f2a", "registered": None}
    assert "firth search '/my data/3f2a'" in page(result)


def test_the_page_shows_rows_set_aside_and_where_all_of_them_are(result):
    first = [{"source": "a.jsonl", "row": 3, "reason": "text is blank; fill it in or drop the row"}]
    text = page(result | {"quarantine": {"files": ["/s/q.parquet", "/s/r.parquet"], "first": first}})
    assert "a.jsonl, row 3: text is blank; fill it in or drop the row" in text
    assert 'polars.read_parquet("/s/q.parquet") and 1 more beside it' in text


def test_a_run_that_measured_and_registered_nothing_still_has_a_page(result):
    text = page(result | {"scores": {"neighbours.queries": 0.0}, "registered": None, "dropped": {}, "training": {}})
    assert "Scores" not in text
    assert line(text, "registered") == ["registered", "no"]


@pytest.fixture
def rated(result):
    """A run that was scored on two files of rated pairs, and on neighbours."""
    figures = {"spearman": 61.234, "pearson": 60.5, "overlap.spearman": 54.5, "overlap.pearson": 53.25}
    figures |= {f"spearman_over_overlap{end}": value for end, value in (("", 6.734), (".low", 0.7), (".high", 12.0))}
    figures |= {"length_bias": -20.5, "alignment": 0.21, "random_cosine": 0.05, "pairs": 1500, "dropped": 12}
    names = ("stsb-dev", "sick")
    result["scores"] |= {f"sts.{name}.{key}": value for name in names for key, value in figures.items()}
    return result


def test_each_file_of_rated_pairs_has_a_section_of_its_own(rated):
    titles = [row.strip() for row in page(rated).splitlines() if row.startswith("Scores")]
    assert titles == ["Scores: neighbours", "Scores: sts.stsb-dev", "Scores: sts.sick"]


def test_correlations_stand_beside_those_of_the_overlap_of_words_with_two_decimals(rated):
    rows = page(rated).splitlines()
    assert [row.split() for row in rows if row.strip().startswith("spearman")] == 2 * [["spearman", "61.23", "54.50"]]
    assert [row.split() for row in rows if row.strip().startswith("alignment")] == 2 * [["alignment", "0.2100"]]
    assert sum("word overlap" in row and "model" in row for row in rows) == 2


def test_a_sentence_says_whether_the_model_beats_the_overlap_of_words(rated):
    assert page(rated).count("beats word overlap by +6.73 Spearman (95 % interval +.70 to +12.00)") == 2


def test_rated_pairs_are_counted_with_those_left_out(rated):
    assert page(rated).count("1,500 rated pairs, 12 without a score left out") == 2


@pytest.fixture
def probed(result):
    """A run whose vectors were tried on classes of texts."""
    figures = {"accuracy": 76.5, "bag.accuracy": 75.25, "words.accuracy": 77.0, "most_common": 50.0}
    figures |= {f"accuracy_over_bag{end}": value for end, value in (("", 1.25), (".low", 0.5), (".high", 2.0))}
    figures |= {f"accuracy_over_words{end}": value for end, value in (("", -0.5), (".low", -1.0), (".high", 0.25))}
    figures |= {"texts": 500, "classes": 6, "trained": 5452, "dropped": 3}
    result["scores"] |= {f"probe.trec.{key}": value for key, value in figures.items()}
    return page(result)


def test_accuracies_stand_beside_those_of_words_and_of_the_largest_class(probed):
    assert "model   bag of words   word vectors   largest class" in probed
    assert line(probed, "accuracy") == ["accuracy", "76.50", "75.25", "77.00", "50.00"]
    assert "most_common" not in probed


def test_a_probe_is_judged_against_each_of_its_baselines(probed):
    assert "beats bag of words by +1.25 accuracy (95 % interval +.50 to +2.00)" in probed
    assert "does not beat word vectors: -.50 accuracy, which may be chance (95 % interval -1.00 to +.25)" in probed


def test_texts_are_counted_with_those_trained_on_and_left_out(probed):
    assert "500 texts, 6 classes, trained on 5,452 others, 3 without a label left out" in probed


def test_an_evaluation_without_figures_has_no_section(result):
    result["scores"] |= {"sts.sick.pairs": 3.0, "sts.sick.dropped": 0.0}
    assert "sts.sick" not in page(result)


@pytest.fixture
def ranked(result):
    """A run that put answers to questions in order."""
    figures = {"map": 0.75, "bm25.map": 0.7, "vectors.map": 0.65, "random.map": 0.4, "question_norm": 0.9}
    figures |= {f"map_over_bm25{end}": value for end, value in (("", 0.05), (".low", 0.01), (".high", 0.09))}
    figures |= {f"map_over_vectors{end}": value for end, value in (("", 0.1), (".low", -0.01), (".high", 0.2))}
    figures |= {"questions": 243, "none_right": 390, "all_right": 6, "answers": 6165, "dropped": 2}
    result["scores"] |= {f"ranking.wikiqa.{key}": value for key, value in figures.items()}
    return page(result)


def test_measures_of_rankings_stand_beside_those_of_words_and_of_chance(ranked):
    assert line(ranked, "map") == ["map", "0.7500", "0.7000", "0.6500", "0.4000"]
    assert line(ranked, "question_norm") == ["question_norm", "0.9000"]
    assert "beats BM25 by +.050 MAP (95 % interval +.010 to +.090)" in ranked
    assert "does not beat word vectors: +.100 MAP, which may be chance (95 % interval -.010 to +.200)" in ranked


def test_questions_are_counted_with_those_that_have_one_kind_of_answer(ranked):
    assert "243 questions counted, 6,165 answers in all, 2 without a label left out" in ranked
    assert "390 had no right answer, 6 no wrong one" in ranked


def test_false_negatives_are_shares_before_and_after(result):
    told = {"none": {"wrong": 159600, "likely": 1596, "share": 0.01}, "masked": True, "batches": 10}
    told |= {"groups": {"wrong": 159000, "likely": 996, "share": 0.006264}}
    told |= {"guide": {"wrong": 158004, "likely": 0, "share": 0.0}}
    shown = page(result | {"false_negatives": told})
    assert re.search(r"nothing +159,600 +1,596 +1\.000 %", shown)
    assert re.search(r"same group +159,000 +996 +0\.626 %", shown)
    assert re.search(r"same group, and by the guide +158,004 +0 +0\.000 %", shown)
    assert "of 10 batches of the first epoch" in shown and "guide.mask" not in shown
    assert "guide.mask is false" in page(result | {"false_negatives": told | {"masked": False}})


def test_without_a_guide_nothing_is_said_of_false_negatives(result):
    assert "False negatives" not in page(result | {"false_negatives": None})
