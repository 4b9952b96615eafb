"""Rewriting: what counts as another text, how it is spelled, and what comes first."""

import numpy as np
import pytest
import torch
from tiny import WORDS, build, number, words
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from models.decoding import Drawing
from models.folder import load, save
from models.model import ready
from models.rewriting import Gathered, RewriteError, alike, forbidden, rewritten, spoken, writer
from models.trouble import FolderError

TEXT = "the old clock"


def model(*overrides, name="simbert", spread=0.5):
    method = build(name, *overrides, double=False)
    torch.manual_seed(0)
    for parameter in method.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=spread)
    return ready(method, words().to_str(), {})


def ending(place):
    """A model that writes one word, whatever it reads: by its bias alone."""
    made = model(spread=1e-6)
    torch.nn.init.ones_(made.method.tower("f").body.encoder.layer[-1].output.LayerNorm.weight)
    made.method.tower("f").whole.cls.predictions.bias.data[place] = 50.0
    return made


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["the", "clock", "##s", "wait", "."], "the clocks wait."),
        (["sing", "##ing"], "singing"),
        (["a", ":", "an"], "a : an"),
        ([], ""),
    ],
)
def test_pieces_are_joined_to_words(said, expected):
    assert spoken(words(), number(*said)) == expected


def test_chinese_letters_stand_close():
    entries = ["[UNK]", "怎", "么", "？", "python", "用", "##3"]
    tokenizer = Tokenizer(WordPiece({word: at for at, word in enumerate(entries)}, unk_token="[UNK]"))
    assert spoken(tokenizer, [1, 2, 5, 4, 6, 3]) == "怎么用python3？"


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("The old clock.", "the old clock", True),
        ("怎 么 用?", "怎么用？", True),
        ("old clock", "clock old", False),
        ("???", "...", False),
        ("", " ", True),
    ],
)
def test_texts_are_alike_by_letters_and_digits(left, right, same):
    assert (alike(words(), left) == alike(words(), right)) == same


def test_copies_empty_texts_and_repetitions_are_counted_and_left_out():
    gathered = Gathered(words(), "The river sings.")
    for said in (["the", "river", "sing", "##s"], [], ["owl"], ["owl", "."], ["baker"]):
        gathered.add(number(*said))
    assert list(gathered.others.values()) == ["owl", "baker"]
    assert (gathered.drawn, gathered.copies, gathered.empty, gathered.repeated) == (5, 1, 1, 1)


def test_special_words_but_the_last_are_never_written():
    made = model()
    assert [WORDS[word] for word in forbidden(words(), writer(made))] == ["<unk>", "[PAD]", "[CLS]", "[MASK]"]


def test_numbers_that_no_word_has_are_never_written():
    tokenizer = words()
    made = model()
    made.method.tower("f").body.config.vocab_size = len(WORDS) + 2
    assert forbidden(tokenizer, writer(made))[-2:] == [len(WORDS), len(WORDS) + 1]


def test_the_most_similar_texts_come_first_with_the_models_own_score():
    made = model()
    found = rewritten(made, TEXT, 6, Drawing(top_k=0, longest=5))
    vectors = made.encode([TEXT, *found.texts])
    assert found.scores == pytest.approx(made.score(vectors[:1], vectors[1:])[0].tolist(), abs=1e-4)
    assert len(set(found.texts)) == 6 and list(found.scores) == sorted(found.scores, reverse=True)
    assert TEXT not in found.texts and found.drawn >= 12


def test_the_same_seed_gives_the_same_texts_and_another_others():
    made = model()
    first, again, other = (rewritten(made, TEXT, 4, Drawing(top_k=0, longest=6), seed).texts for seed in (0, 0, 1))
    assert first == again != other


def test_fewer_texts_than_wanted_come_with_what_was_drawn():
    found = rewritten(ending(WORDS.index("owl")), TEXT, 3, Drawing(top_k=1, longest=2))
    assert (found.texts, found.drawn, found.repeated) == (("owl owl",), 30, 29)


def test_empty_texts_are_drawn_again_and_then_told():
    with pytest.raises(RewriteError) as caught:
        rewritten(ending(WORDS.index("[SEP]")), TEXT, 2, Drawing(top_k=1))
    assert str(caught.value) == (
        "none of 20 texts that were drawn is another one: 20 are empty, 0 say the same; train the model longer, or "
        "draw from more words: top_k"
    )


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(text):
    with pytest.raises(RewriteError, match="the text is empty; give one"):
        rewritten(model(), text)


def test_a_text_that_leaves_no_room_is_refused():
    with pytest.raises(RewriteError, match="the text fills all 6 tokens that the model reads"):
        rewritten(model("encoder.positions=8"), "river " * 40)


@pytest.mark.parametrize("name", ["mlm", "simcse-unsup"])
def test_a_model_that_was_not_trained_to_write_says_what_to_train(name):
    with pytest.raises(FolderError) as caught:
        rewritten(model(name=name), TEXT)
    assert str(caught.value) == (
        f"model of recipe {name} writes nothing: none of its terms generates; train one that does, as firth retrain "
        'simbert, or add a term with objective = { kind = "generation" }'
    )


@pytest.mark.parametrize("kind", ["encoder.rotary=false", "encoder.rotary=true"])
def test_a_folder_writes_what_the_model_wrote_that_was_saved(kind, tmp_path):
    made, drawing = model(kind), Drawing(longest=6)
    save(tmp_path / "model", made.method, words().to_str(), {}, "")
    first, again = rewritten(made, TEXT, 3, drawing), rewritten(load(tmp_path / "model"), TEXT, 3, drawing)
    assert first.texts == again.texts and np.allclose(first.scores, again.scores, atol=1e-4)
