import json
import subprocess
import sys
import time

import polars as pl
import pytest
from corpora import Document, sentences
from tokenizers import Tokenizer, models, pre_tokenizers

from models import recipe
from pipeline import vocabulary
from pipeline.road import make_tokens
from pipeline.store import Piece, Store
from pipeline.tables import SENTENCES
from pipeline.vocabulary import VocabularyError, pinned

WORDS = recipe.Tokenizer(kind="word-level", size=100)


def piece(store: Store, key: str, *texts: str, held_out: bool = False) -> Piece:
    """A shard's sentences: one document."""
    return store.write(SENTENCES, key, sentences([Document(texts, held_out)]), started=time.time())


def words(store: Store, *pieces: Piece, settings: recipe.Tokenizer = WORDS, corpus: str = "trees") -> dict[str, int]:
    return pinned(store, corpus, settings, list(pieces)).words()


def numbers(text: str, tokenizer: str, most: int = 50) -> list[int]:
    frame = pl.DataFrame({"text": [text]})
    return vocabulary.tokens(frame, vocabulary.open_tokenizer(tokenizer, most))["tokens"].to_list()[0]


def ready(path, **numbered: int) -> str:
    """A tokenizer.json of somebody else's, with padding, a cut and a gap in its numbers."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 7, **numbered}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(2)
    tokenizer.save(str(path))
    return str(path)


# Pinning


def test_the_vocabulary_is_that_of_the_corpus_and_frequent_words_come_first(tmp_path):
    store = Store.at(tmp_path)
    found = pinned(store, "trees", WORDS, [piece(store, "a", "oak elm oak", "oak elm ash")])
    assert found.words() == {"<unk>": 0, "oak": 1, "elm": 2, "ash": 3}
    assert (found.counts, found.size) == ((0, 3, 2, 1), 4)


def test_the_vocabulary_stays_when_the_corpus_grows(tmp_path):
    store = Store.at(tmp_path)
    first = words(store, piece(store, "a", "oak elm"))
    assert words(store, piece(store, "a", "oak elm"), piece(store, "b", "fir fir")) == first


def test_each_corpus_name_has_its_own(tmp_path):
    store = Store.at(tmp_path)
    words(store, piece(store, "a", "oak"))
    assert "fir" in words(store, piece(store, "b", "fir"), corpus="others")


@pytest.mark.parametrize("change", [{"refresh": 1}, {"size": 99}, {"lowercase": True}, {"kind": "wordpiece"}])
def test_a_refresh_or_other_settings_train_another(tmp_path, change):
    store = Store.at(tmp_path)
    words(store, piece(store, "a", "oak"))
    grown = [piece(store, "a", "oak"), piece(store, "b", "fir fir")]
    assert "fir" in words(store, *grown, settings=WORDS.model_copy(update=change))


def test_the_cut_does_not_train_another(tmp_path):
    store = Store.at(tmp_path)
    first = words(store, piece(store, "a", "oak"))
    assert words(store, piece(store, "b", "fir"), settings=WORDS.model_copy(update={"most_tokens": 3})) == first


def test_the_digest_changes_with_the_counts(tmp_path):
    store = Store.at(tmp_path)
    one = pinned(store, "one", WORDS, [piece(store, "a", "oak oak elm")])
    other = pinned(store, "other", WORDS, [piece(store, "b", "oak oak oak elm")])
    assert one.words() == other.words()
    assert one.digest != other.digest


def test_held_out_sentences_train_nothing(tmp_path):
    store = Store.at(tmp_path)
    assert "fir" not in words(store, piece(store, "a", "oak"), piece(store, "b", "fir fir", held_out=True))


def test_no_word_is_an_error(tmp_path):
    store = Store.at(tmp_path)
    with pytest.raises(VocabularyError, match="no word to train a vocabulary on: the corpus has no training sentence"):
        pinned(store, "trees", WORDS, [piece(store, "a", "fir", held_out=True)])


def test_a_sample_is_taken_evenly_from_all_shards(tmp_path):
    store = Store.at(tmp_path)
    one = piece(store, "a", *(f"oak{n}" for n in range(10)))
    other = piece(store, "b", *(f"elm{n}" for n in range(10)))
    found = words(store, one, other, settings=WORDS.model_copy(update={"sample": 4}))
    assert sorted(found) == ["<unk>", "elm0", "elm5", "oak0", "oak5"]


# Kinds


def test_wordpiece_lower_cases_and_cuts_words_into_pieces(tmp_path):
    store = Store.at(tmp_path)
    settings = recipe.Tokenizer(kind="wordpiece", size=60, lowercase=True)
    found = words(store, piece(store, "a", "Oak OAK oakwood", "Oak wood"), settings=settings)
    assert found["<unk>"] == 0
    assert "oak" in found
    assert "##wood" in found
    assert not any(word.lower() != word for word in found if not word.startswith("["))


def test_word_level_keeps_case_unless_told(tmp_path):
    store = Store.at(tmp_path)
    assert "Oak" in words(store, piece(store, "a", "Oak"))
    assert "oak" in words(store, piece(store, "a", "Oak"), settings=WORDS.model_copy(update={"lowercase": True}))


def test_a_saved_tokenizer_is_taken_as_it_is(tmp_path):
    store, settings = Store.at(tmp_path / "s"), recipe.Tokenizer(kind="saved", path=str(tmp_path))
    ready(tmp_path / "tokenizer.json", oak=1, elm=2)
    assert words(store, piece(store, "a", "fir"), settings=settings) == {"[UNK]": 7, "oak": 1, "elm": 2}


def test_counts_of_a_saved_tokenizer_know_nothing_of_its_padding_its_cut_and_its_gaps(tmp_path):
    store = Store.at(tmp_path / "s")
    settings = recipe.Tokenizer(kind="saved", path=ready(tmp_path / "tokenizer.json", oak=1, elm=2))
    found = pinned(store, "trees", settings, [piece(store, "a", "oak elm oak oak fir", "elm")])
    assert found.counts == (0, 3, 2, 0, 0, 0, 0, 1)


@pytest.mark.parametrize("path", ["", "nowhere.json", "broken.json"])
def test_a_saved_tokenizer_that_cannot_be_read_is_an_error(tmp_path, path):
    (tmp_path / "broken.json").write_text("{")
    settings = recipe.Tokenizer(kind="saved", path=str(tmp_path / path) if path else "")
    with pytest.raises(VocabularyError, match=rf'tokenizer.path is ".*{path}": .*; give a tokenizer\.json or a folder'):
        pinned(Store.at(tmp_path / "s"), "trees", settings, [])


# Tokens


@pytest.fixture(scope="module")
def trees() -> str:
    return vocabulary.train(lambda: iter([["oak oak oak elm elm ash"]]), WORDS)


def test_unknown_words_are_number_0(trees):
    assert numbers("oak fir ash", trees) == [1, 0, 3]


def test_a_longer_sentence_is_cut(trees):
    assert numbers("oak elm ash oak", trees, most=2) == [1, 2]


def test_a_sentence_without_a_token_is_one_unknown_word(trees):
    assert numbers("", trees) == [0]


def test_tokens_stand_row_by_row_beside_sentences(trees):
    frame = pl.DataFrame({"text": ["elm", "oak oak", "ash"]})
    found = vocabulary.tokens(frame, vocabulary.open_tokenizer(trees, 50))
    assert found["tokens"].to_list() == [[2], [1, 1], [3]]


def test_no_sentences_give_no_tokens(trees):
    frame = pl.DataFrame({"text": []}, schema={"text": pl.String})
    assert vocabulary.tokens(frame, vocabulary.open_tokenizer(trees, 50)).schema == {"tokens": pl.List(pl.Int32)}


def test_the_stage_counts_tokens_unknown_words_and_sentences_that_were_cut(tmp_path, trees):
    store = Store.at(tmp_path)
    store.put("tokenizers/x.json", trees)
    made = make_tokens(
        store, "k", (piece(store, "a", "oak fir", "oak elm ash", "fir fir fir fir"), "tokenizers/x.json", 3)
    )
    assert store.read(made)["tokens"].to_list() == [[1, 0], [1, 2, 3], [0, 0, 0]]
    assert made.counts == {"tokens": 8, "unknown": 4, "cut": 1}


def test_the_stage_knows_what_is_unknown_to_a_saved_tokenizer(tmp_path):
    store = Store.at(tmp_path / "s")
    ready(tmp_path / "tokenizer.json", oak=0)
    store.put("tokenizers/x.json", vocabulary.saved(str(tmp_path)))
    made = make_tokens(store, "k", (piece(store, "a", "oak fir oak"), "tokenizers/x.json", 50))
    assert made.counts["unknown"] == 1


def test_a_tokenizer_without_an_unknown_word_knows_all():
    assert vocabulary.unknown(Tokenizer(models.BPE())) == -1


def test_a_vocabulary_says_what_it_was_made_from(tmp_path):
    store = Store.at(tmp_path)
    words(store, piece(store, "a", "oak"))
    (name,) = store.names("vocabulary/")
    assert json.loads((tmp_path / name).read_text())["made_from"] == ["a"]


TRAINED_ELSEWHERE = """
from models.recipe import Tokenizer
from pipeline.vocabulary import train
texts = [f"{one}{two}{one} {two}{one}" for one in "abcdefghijklm" for two in "nopqrstuvwxyz"]
print(train(lambda: iter([texts]), Tokenizer(kind="wordpiece", size=80)))
"""


def test_wordpieces_are_the_same_in_every_process():
    run = [sys.executable, "-c", TRAINED_ELSEWHERE]
    found = {subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1
    tree = json.loads(found.pop())
    assert [token["content"] for token in tree["added_tokens"]] == ["<unk>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]


# The words of a ready table, and words that no text keeps.


def test_a_tables_words_are_the_vocabulary_in_their_order_behind_the_unknown_one():
    tokenizer = Tokenizer.from_str(vocabulary.of_words(["owl", "hawk", "owl", "a.m."], recipe.Tokenizer(kind="table")))
    assert tokenizer.get_vocab() == {vocabulary.UNKNOWN: 0, "owl": 1, "hawk": 2, "a.m.": 3}
    assert tokenizer.encode("owl wren Owl hawk").ids == [1, 0, 0, 2]


def test_words_that_are_left_out_leave_no_token_behind():
    settings = recipe.Tokenizer(kind="table", lowercase=True, leave_out=("the", "there", "a.m."))
    tokenizer = Tokenizer.from_str(vocabulary.of_words(["owl", "he", "re"], settings))
    assert tokenizer.encode("The owl: there, at A.M. he").tokens == ["owl", "<unk>", "<unk>", "<unk>", "he"]
    assert tokenizer.encode("the THE").tokens == []


def test_a_word_that_is_left_out_is_in_no_trained_vocabulary():
    trained = vocabulary.train(lambda: iter([["the owl and the hawk"]]), recipe.Tokenizer(leave_out=("the",)))
    assert set(Tokenizer.from_str(trained).get_vocab()) == {"<unk>", "owl", "and", "hawk"}


def test_leaving_nothing_out_pins_under_the_name_that_it_always_had(tmp_path):
    store = Store.at(str(tmp_path))
    words(store, piece(store, "a", "an owl"), corpus="birds")
    what = WORDS.model_dump(exclude={"most_tokens", "path", "leave_out"})
    name = recipe.digest(vocabulary.VOCABULARY_VERSION, what, None)
    assert store.get(f"vocabulary/birds-{name}.json")


def test_words_that_are_left_out_are_written_as_texts_are():
    settings = recipe.Tokenizer(
        kind="table", lowercase=True, leave_out=("The", "\ufb01r")
    )  # the second with a ligature
    tokenizer = Tokenizer.from_str(vocabulary.of_words(["owl"], settings))
    assert tokenizer.encode("THE owl the fir").tokens == ["owl"]


def test_leaving_out_the_same_words_pins_one_vocabulary(tmp_path):
    store = Store.at(str(tmp_path))
    for word in ("the", "The"):
        words(store, piece(store, "a", "an owl"), settings=recipe.Tokenizer(lowercase=True, leave_out=(word,)))
    assert len(store.names("vocabulary/")) == 1
