"""Perplexity and word similarity against values worked out by hand."""

import gzip
import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from models.recipe import Choice, RecipeError, Watch, parse
from models.tokens_scored import TokenScores
from pipeline.evaluate import EVALUATIONS, check, fits, given
from pipeline.perplexity import figures, read
from pipeline.scoring import sample
from pipeline.shard import SourceError

WORDS = ["<unk>", "owl", "hawk", "boat", "ship"]
HELD_OUT = pl.DataFrame(
    {"document": [9, 1, 1], "place": [0, 1, 0], "text": ["owl wren", "boat", "owl hawk ship"]},
    schema={"document": pl.UInt64, "place": pl.UInt32, "text": pl.String},
)


def tokenizer():
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


class Halves:
    """Every word has the score log 1/2 and the log Z of log 2, so its probability is a quarter; `owl` is as told."""

    def __init__(self, owl=0.5, word_counts=None):
        self.tokenizer, self.owl, self.word_counts, self.asked = tokenizer(), owl, word_counts, []
        self.tokenizer.enable_truncation(3)  # as training cuts; what is predicted is not cut

    def encode(self, texts):
        angle = {"owl": 0.0, "hawk": 0.3, "boat": 1.2, "ship": 1.6}
        return np.array([[math.cos(angle[text]), math.sin(angle[text])] for text in texts], np.float32)

    def tokens(self, texts):
        self.asked += texts
        return [entry.ids for entry in tokenizer().encode_batch_fast(texts)]

    def score_tokens(self, texts):
        ids = [[*text, -1] for text in texts]
        p_N = np.array([self.owl if word == 1 else 0.5 for text in ids for word in text])
        with np.errstate(divide="ignore"):
            return TokenScores(
                np.log(p_N), np.full(len(p_N), np.log(2)), np.repeat(np.arange(len(ids)), list(map(len, ids)))
            )


def perplexity(model, **options):
    return EVALUATIONS["perplexity"](model, HELD_OUT, **options)


def test_an_even_model_is_as_perplexed_as_it_has_choices():
    found = perplexity(Halves()).figures
    assert found["perplexity.held-out.normalised"] == pytest.approx(4)
    assert found["perplexity.held-out.as_trained"] == pytest.approx(2)


def test_ends_are_predicted_and_counted():
    assert perplexity(Halves()).counts == {"tokens": 6 + 3, "unseen": 0, "texts": 3}


def test_log_z_has_a_mean_and_a_spread():
    scored = TokenScores(np.zeros(4), np.array([0.0, 0.0, 2.0, 2.0]), np.zeros(4, dtype=np.int64))
    found = figures(scored, [[1, 1, 1]], 0, None).values
    assert (found["log_z_mean"], found["log_z_spread"]) == (1, 1)
    assert (found["as_trained"], found["normalised"]) == (1, pytest.approx(math.e))


def test_held_out_sentences_are_taken_in_order_of_document_and_place():
    model = Halves()
    perplexity(model, most=2)
    assert model.asked == ["owl hawk ship", "boat"]


def test_words_that_the_vocabulary_lacks_are_a_share_of_the_words():
    assert perplexity(Halves()).figures["perplexity.held-out.unknown_share"] == pytest.approx(1 / 6)


def test_words_behind_the_cut_are_in_the_share_and_in_the_baseline(tmp_path):
    """Two of six words unknown, both behind the third; 7 tokens by (N + 1) / 15."""
    (tmp_path / "long.txt").write_text("owl owl owl owl wren wren\n")
    model = Halves(word_counts=np.array([2, 2, 1, 0, 1, 3]))
    found = perplexity(model, path=str(tmp_path / "long.txt")).figures
    assert found["perplexity.long.unknown_share"] == pytest.approx(2 / 6)
    shares = [3 / 15] * 6 + [4 / 15]
    assert found["perplexity.long.unigram.normalised"] == pytest.approx(math.exp(-sum(map(math.log, shares)) / 7))


def test_single_words_are_the_baseline_where_their_counts_are_known():
    """(N + 1) / 15: ends 4/15, owl 3/15, hawk and ship 2/15, boat 1/15, unknown 3/15."""
    counts = np.array([2, 2, 1, 0, 1, 3])
    found = perplexity(Halves(word_counts=counts)).figures["perplexity.held-out.unigram.normalised"]
    shares = [4 / 15] * 3 + [3 / 15] * 2 + [2 / 15] * 2 + [1 / 15, 3 / 15]
    assert found == pytest.approx(math.exp(-sum(map(math.log, shares)) / 9))
    assert "perplexity.held-out.unigram.normalised" not in perplexity(Halves()).figures


def test_a_word_held_impossible_leaves_no_figure_but_a_count_and_a_note():
    found = perplexity(Halves(owl=0.0))
    assert found.counts["unseen"] == 2
    assert "perplexity.held-out.normalised" not in found.figures
    assert "the perplexity is infinite: 2 of 9 tokens never followed" in found.note


def test_a_file_of_lines_is_read_in_place_of_held_out_sentences(tmp_path):
    (tmp_path / "wiki.txt").write_text(" \n = owl = \n\n owl  hawk ship \n")
    model = Halves()
    found = perplexity(model, path=str(tmp_path / "wiki.txt"))
    assert model.asked == ["= owl =", "owl hawk ship"]
    assert found.name == "perplexity.wiki"
    assert found.note == ""


def test_mostly_unknown_words_are_warned_of(tmp_path):
    (tmp_path / "wrens.txt").write_text("wren finch owl\n")
    found = perplexity(Halves(), path=str(tmp_path / "wrens.txt"))
    assert found.note == "perplexity.wrens: 67 % of the words are unknown to the vocabulary, and easily told"


def test_texts_are_read_from_packed_lines_and_from_columns(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("owl\nhawk\n")
    (tmp_path / "b.csv").write_text("line,more\nboat,x\n")
    assert read(str(tmp_path / "a.txt.gz"), "text") == ["owl", "hawk"]
    assert read(str(tmp_path / "b.csv"), "line") == ["boat"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"owl\nb\xffat\n", r"a\.txt, line 2: not UTF-8; convert"),
        ("a.txt", b" \n\n", "no text; give a file with a text a line"),
        ("a.csv", b"line\nowl\n", r"no column text; columns there: line"),
    ],
)
def test_texts_that_cannot_be_read_are_refused_before_any_work(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read(str(tmp_path / name), "text")
    with pytest.raises(RecipeError, match=rf"evaluation\.0: .*{message}"):
        check([Choice(kind="perplexity", options={"path": str(tmp_path / name)})])


def test_no_held_out_sentence_gives_a_note():
    found = EVALUATIONS["perplexity"](Halves(), HELD_OUT.clear())
    assert (found.figures, found.counts) == ({}, {})
    assert "raise corpus.held_out" in found.note


def test_other_bytes_are_other_texts(tmp_path):
    file, keys = tmp_path / "a.txt", []
    for text in ("owl", "hawk"):
        file.write_text(text)
        keys.append(given([Choice(kind="perplexity", options={"path": str(file), "text": "text"})]))
    assert keys[0] != keys[1]


def test_a_file_needs_no_held_out_sentence(tmp_path):
    sentences = [SimpleNamespace(counts={"held_out": 1000})]
    (tmp_path / "a.txt").write_text("owl\n")
    of = lambda **options: sample(sentences, [Choice(kind="perplexity", options=options)])
    assert of(path=str(tmp_path / "a.txt")) < of(most=100) < of(most=5000)


# Which models can be asked


@pytest.mark.parametrize(
    ("encoder", "evaluation", "message"),
    [
        ("bag", "perplexity", r'evaluation\.0\.kind is "perplexity", but encoder\.kind = bag predicts no words'),
        ("ngram", "neighbours", r'"neighbours", but encoder\.kind = ngram has no vectors'),
        ("ngram", "words", "ngram has no vectors"),
    ],
)
def test_what_a_model_cannot_be_asked_is_refused(encoder, evaluation, message):
    with pytest.raises(RecipeError, match=message):
        fits(
            SimpleNamespace(
                encoder=Choice(kind=encoder),
                counting=encoder == "ngram",
                evaluation=[Choice(kind=evaluation)],
                watch=Watch(),
            )
        )


# Words


def rated_words(folder, *rows):
    (folder / "words.csv").write_text("\n".join(["word1,word2,score", *rows]))
    return str(folder / "words.csv")


FOUR = ("owl,hawk,9", "boat,ship,8", "owl,boat,3", "hawk,ship,1")


def test_cosines_of_single_words_are_correlated_with_peoples_scores(tmp_path):
    """Angles .3, .4, 1.2 and 1.3: in the order of the scores."""
    found = EVALUATIONS["words"](Halves(), HELD_OUT, path=rated_words(tmp_path, *FOUR))
    assert found.figures["words.words.spearman"] == pytest.approx(100)
    assert found.counts == {"pairs": 4, "unknown": 0, "dropped": 0}
    assert found.note == ""
    assert found.rows["evaluation"].unique().to_list() == ["words.words"]


def test_ranks_out_of_order_lower_the_correlation(tmp_path):
    """Two neighbours of four change places: 1 - 6 * 2 / (4 * 15)."""
    rows = ("owl,hawk,8", "boat,ship,9", *FOUR[2:])
    found = EVALUATIONS["words"](Halves(), HELD_OUT, path=rated_words(tmp_path, *rows), name="swapped")
    assert found.figures["words.swapped.spearman"] == pytest.approx(80)


def test_pairs_with_an_unknown_word_are_left_out_and_counted(tmp_path):
    path = rated_words(tmp_path, *FOUR, "owl,wren,0", "finch,hawk,10")
    found = EVALUATIONS["words"](Halves(), HELD_OUT, path=path)
    assert found.figures["words.words.spearman"] == pytest.approx(100)
    assert (found.counts["pairs"], found.counts["unknown"], found.note) == (4, 2, "")


def test_mostly_unknown_pairs_are_warned_of(tmp_path):
    path = rated_words(tmp_path, *FOUR[:3], *(f"owl,wren,{n}" for n in range(4)))
    assert (
        "4 of 7 pairs have a word that the vocabulary lacks" in EVALUATIONS["words"](Halves(), HELD_OUT, path=path).note
    )


def test_no_known_pair_leaves_no_figure(tmp_path):
    found = EVALUATIONS["words"](
        Halves(), HELD_OUT, path=rated_words(tmp_path, "wren,tit,1", "tit,kite,2", "wren,kite,3")
    )
    assert found.figures == {}
    assert "3 of 3 pairs" in found.note


def test_too_few_known_pairs_are_told(tmp_path):
    path = rated_words(tmp_path, "owl,hawk,1", "boat,ship,2", "wren,kite,3")
    found = EVALUATIONS["words"](Halves(), HELD_OUT, path=path)
    assert found.figures == {} and "no spearman, pearson: 2 pairs are left" in found.note


# Names, and files of two kinds


def test_a_path_that_gives_no_name_asks_for_one_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("text\nowl\n")
    for found in (
        lambda: check([Choice(kind="perplexity", options={"path": "*.tsv"})]),
        lambda: perplexity(Halves(), path="*.tsv"),
    ):
        with pytest.raises(
            (RecipeError, SourceError), match=r'path is "\*\.tsv", which gives figures no name; set name'
        ):
            found()


def test_a_folder_of_lines_beside_a_table_is_refused_with_one_of_each(tmp_path):
    (tmp_path / "a.txt").write_text("owl\n")
    (tmp_path / "b.csv").write_text("text\nboat\n")
    with pytest.raises(SourceError, match=r"text, as a\.txt, beside tables, as b\.csv; give files of one kind"):
        read(str(tmp_path), "text")


def test_two_evaluations_that_have_no_name_to_tell_them_apart_are_refused():
    with pytest.raises(
        RecipeError, match=r"evaluation\.0 and evaluation\.2 are both neighbours, whose figures have one"
    ):
        check([Choice(kind="neighbours"), Choice(kind="perplexity"), Choice(kind="neighbours", options={"most": 7})])


def test_held_out_questions_of_a_corpus_without_any_are_refused():
    asked = parse(
        {
            "name": "r",
            "encoder": {"kind": "bag"},
            "terms": [{"objective": {"kind": "mlm"}}],
            "evaluation": [{"kind": "ranking"}],
        }
    )
    with pytest.raises(
        RecipeError, match=r'evaluation\.0\.kind is "ranking" without a path.*corpus\.labels is "entailment"'
    ):
        fits(asked)
    fits(asked.model_copy(update={"evaluation": (Choice(kind="ranking", options={"path": "birds.tsv"}),)}))
