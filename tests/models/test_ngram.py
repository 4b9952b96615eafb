"""The n-gram model in a folder: what it tells of texts, and what it refuses."""

import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from models.folder import COUNTS, load, save
from models.method import Method
from models.model import NoVectorsError
from models.recipe import RecipeError, parse
from models.recipe import load as load_recipe
from models.resolving import resolve
from models.trouble import FolderError

WORDS = ["<unk>", "the", "cat", "sat", "ran", "a"]
END, START = len(WORDS), len(WORDS) + 1
PAIRS = {  # word before, word: times; of "the cat sat", "the cat ran" and "a cat sat"
    (1, 2): 2,
    (2, 3): 2,
    (2, 4): 1,
    (3, END): 2,
    (4, END): 1,
    (5, 2): 1,
    (START, 1): 2,
    (START, 5): 1,
}


def counts(pairs=PAIRS):
    rows = [(before, word, times) for (before, word), times in pairs.items()]
    schema = {"back_1": pl.UInt32, "word": pl.UInt32, "count": pl.UInt64}
    return pl.DataFrame(rows, schema=schema, orient="row")


@pytest.fixture
def folder(tmp_path):
    recipe = resolve(load_recipe("ngram", ["encoder.order=2", "encoder.smoothing=mle"]))
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    save(tmp_path / "model", Method(recipe, len(WORDS)), tokenizer.to_str(), {"weights": "k"}, "# card")
    counts().write_parquet(tmp_path / "model" / COUNTS)
    return tmp_path / "model"


def test_each_word_and_the_end_of_each_text_has_a_score(folder):
    scores = load(folder).token_scores(["the cat sat", "a cat ran"])
    assert np.exp(scores.score_N).tolist() == pytest.approx([2 / 3, 1, 2 / 3, 1, 1 / 3, 1, 1 / 3, 1])
    assert scores.text_N.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not scores.log_z_N.any()


def test_a_texts_probability_is_the_product_of_its_words(folder):
    scores = load(folder).token_scores(["the cat sat", "sat the", "a cat ran"])
    assert np.exp(scores.of_texts(3)).tolist() == pytest.approx([4 / 9, 0, 1 / 9])


def test_a_text_without_words_ends_at_once(folder):
    scores = load(folder).token_scores([""])
    assert scores.score_N.tolist() == [-np.inf]


def test_words_are_counted_with_the_end_last(folder):
    assert load(folder).word_counts.tolist() == [0, 2, 3, 2, 1, 1, 3]


def test_there_are_no_vectors(folder):
    model = load(folder)
    assert model.width == 0
    with pytest.raises(NoVectorsError, match=r"recipe ngram counts words and has no vectors; .*token_scores"):
        model.encode(["the cat"])


def test_one_text_is_no_list_of_texts(folder):
    with pytest.raises(TypeError, match=r"token_scores got one text, 'the cat'; should be a list"):
        load(folder).token_scores("the cat")


def test_a_model_of_vectors_predicts_no_words(folder, tmp_path):
    tree = {"name": "tiny", "encoder": {"kind": "bag", "width": 3}}
    tree["terms"] = [{"candidates": "batch", "similarity": "dot", "objective": "softmax"}]
    torch.manual_seed(0)
    words = (folder / "tokenizer.json").read_text()
    save(tmp_path / "bag", Method(resolve(parse(tree)), len(WORDS)), words, {}, "# card")
    assert load(tmp_path / "bag").word_counts is None
    with pytest.raises(FolderError, match="model of recipe tiny tells no next word"):
        load(tmp_path / "bag").token_scores(["the cat"])


def test_a_folder_without_its_counts_is_named(folder):
    (folder / COUNTS).unlink()
    with pytest.raises(FolderError, match=r"is no model folder: no counts\.parquet"):
        load(folder)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (counts().rename({"back_1": "before"}), r"has columns \['before', 'word', 'count'\]; should be \['back_1',"),
        (counts().reverse(), "is not in ascending order"),
        (pl.concat([counts().head(1), counts()]), "has an n-gram twice"),
        (counts({(1, END + 1): 1}), "has words that the tokenizer lacks"),
        (counts({}), "is empty"),
    ],
)
def test_a_table_that_is_not_the_models_is_named(folder, table, message):
    table.write_parquet(folder / COUNTS)
    with pytest.raises(FolderError, match=rf"{folder.name} is damaged: .*{message}"):
        load(folder)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("encoder.order=0", r"encoder\.order is 0; at least 1"),
        ("encoder.smoothing='good-turing'", r"encoder\.smoothing is 'good-turing': Input should be 'mle', 'add-k'"),
        ("encoder.k=0", r"encoder\.k is 0\.0; should be above 0"),
        ("encoder.share=1", r"encoder\.share is 1\.0; should be between 0 and 1"),
        ("encoder.discount=0", r"encoder\.discount is 0\.0; should be between 0 and 1"),
        ("view=['none']", r"view is set, but encoder\.kind = ngram counts: leave it out"),
        ("augment=['none']", r"augment is set, but"),
        ("training.start='somewhere'", r"training\.start is set, but"),
        ("readout.normalise=true", r"readout is set, but"),
        ("encoder.towers=['f','g']", r"encoder\.towers is set, but"),
        ("terms=[{objective='softmax'}]", r"terms has 1; encoder\.kind = ngram counts: leave them out"),
        ("encoder={kind='bag'}", r"terms is \[\]; encoder\.kind = bag is trained: name at least one"),
    ],
)
def test_settings_that_counting_does_not_take_are_refused(override, message):
    with pytest.raises(RecipeError, match=message):
        resolve(load_recipe("ngram", [override]))
