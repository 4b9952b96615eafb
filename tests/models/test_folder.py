"""Model folders: what is kept, what is refused, what encoding depends on."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from models.folder import CARD, LINEAGE, RECIPE, TOKENIZER, WEIGHTS, load, save
from models.method import Method
from models.model import ROWS
from models.recipe import load as load_recipe
from models.resolving import resolve
from models.similarity import SIMILARITIES
from models.trouble import FolderError

WORDS = ("<unk>", "river", "baker", "clock", "owl", "sings", "waits", "sleeps", "the", "a")
TEXTS = ["the river waits", "a baker sings the clock", "owl", "the the the owl sleeps", "river clock baker"]
SIZES = ["encoder.width=6", "encoder.word_width=5", "tokenizer.most_tokens=8", "encoder.f2.table='ready'"]


def words():
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.fixture
def method():
    recipe = resolve(load_recipe("quick-thoughts-multichannel", SIZES))
    torch.manual_seed(0)
    return Method(recipe, len(WORDS), {"ready": torch.randn(len(WORDS), 5)})


@pytest.fixture
def folder(method, tmp_path):
    save(tmp_path / "model", method, words().to_str(), {"corpus": "tiny"}, "# card")
    return tmp_path / "model"


def test_a_folder_holds_weights_tokenizer_recipe_lineage_and_card(folder):
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, TOKENIZER, RECIPE, LINEAGE, CARD}


def test_vectors_are_those_of_the_method_that_was_saved(method, folder):
    ids = [words().encode(text).ids for text in TEXTS]
    padded = torch.tensor([row + [0] * (8 - len(row)) for row in ids])
    expected = method.eval().readout(padded, torch.tensor([len(row) for row in ids]))
    assert np.abs(load(folder).encode(TEXTS) - expected.numpy()).max() < 1e-6


def test_what_was_saved_again_gives_equal_vectors(folder, tmp_path):
    once = load(folder)
    save(tmp_path / "again", once.method, once.tokenizer.to_str(), once.lineage, "")
    assert np.array_equal(load(tmp_path / "again").encode(TEXTS), once.encode(TEXTS))


def test_recipe_and_lineage_come_back(method, folder):
    model = load(folder)
    assert model.recipe == method.recipe and model.lineage == {"corpus": "tiny"} and model.width == 48


def test_a_shared_table_is_shared_after_reading(folder):
    method = load(folder).method
    assert method.tower("g2").words.weight is method.tower("f2").words.weight
    assert not method.tower("f2").words.weight.requires_grad


def test_scores_are_those_of_the_method(method, folder):
    model = load(folder)
    vectors = model.encode(TEXTS)
    expected = method.score(torch.tensor(vectors), torch.tensor(vectors)).numpy()
    assert np.allclose(model.score(vectors, vectors), expected, atol=1e-6)


@pytest.fixture(params=["hyperqa", "cosineqa"])
def asking(request):
    """A method of learned energies, some steps away from its start."""
    recipe = resolve(
        load_recipe(request.param, ["encoder.width=6", "encoder.table='ready'", "tokenizer.most_tokens=8"])
    )
    torch.manual_seed(0)
    method = Method(recipe, len(WORDS), {"ready": torch.randn(len(WORDS), 5)})
    with torch.no_grad():
        method.similarities["0"].weight.fill_(2.0)
        method.similarities["0"].bias.fill_(-3.0)
    return method.eval()


def test_energies_that_were_learned_come_back(asking, tmp_path):
    save(tmp_path, asking, words().to_str(), {}, "")
    vectors = load(tmp_path).encode(TEXTS)
    vector = torch.tensor(vectors)
    w, near = np.log1p(np.exp(2.0)), SIMILARITIES[asking.recipe.terms[0].similarity.options["of"]](vector, vector)
    sign = -1 if asking.recipe.name == "hyperqa" else 1
    assert np.allclose(load(tmp_path).score(vectors, vectors), w * near.numpy() + sign * -3.0, atol=1e-5)


def test_points_are_kept_as_they_were(asking, tmp_path):
    save(tmp_path, asking, words().to_str(), {}, "")
    ids = [words().encode(text).ids for text in TEXTS]
    padded = torch.tensor([row + [0] * (8 - len(row)) for row in ids])
    expected = asking.readout(padded, torch.tensor([len(row) for row in ids]))
    assert np.abs(load(tmp_path).encode(TEXTS) - expected.numpy()).max() < 1e-6
    assert expected.dtype == (torch.float64 if asking.recipe.name == "hyperqa" else torch.float32)


def test_context_and_bilinear_forms_come_back(tmp_path):
    torch.manual_seed(0)
    trained = Method(resolve(load_recipe("cpc", [*SIZES[:3], "context.width=4"])), len(WORDS))
    save(tmp_path / "model", trained, words().to_str(), {}, "")
    model = load(tmp_path / "model")
    assert set(model.method.state_dict()) == set(trained.state_dict())
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in model.method.state_dict().items())
    vectors = model.encode(TEXTS)
    expected = trained.eval().score(torch.tensor(vectors), torch.tensor(vectors)).numpy()
    assert vectors.shape == (5, 12) and np.array_equal(model.score(vectors, vectors), expected)


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER, RECIPE, LINEAGE])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FolderError, match=f"is no model folder: no {name}; give the folder that"):
        load(folder)


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER, RECIPE, LINEAGE])
def test_a_file_cut_short_is_a_damaged_folder(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FolderError, match=rf"{folder.name} is damaged: .*copy it anew"):
        load(folder)


def test_weights_of_another_shape_are_a_damaged_folder(folder):
    recipe = json.loads((folder / RECIPE).read_text())
    (folder / RECIPE).write_text(json.dumps(recipe | {"encoder": recipe["encoder"] | {"width": 7}}))
    with pytest.raises(FolderError, match=r"is damaged: .*size mismatch"):
        load(folder)


def test_a_folder_that_is_not_there_is_no_model(tmp_path):
    with pytest.raises(FolderError, match="is no model folder"):
        load(tmp_path / "nothing")


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER, RECIPE, LINEAGE])
@pytest.mark.parametrize("write", [pickle.dump, torch.save])
def test_a_pickle_in_the_folder_is_never_executed(folder, tmp_path, name, write):
    with (folder / name).open("wb") as file:
        write(Trap(str(tmp_path / "sprung")), file)
    with pytest.raises(FolderError, match="is damaged"):
        load(folder)
    assert not (tmp_path / "sprung").exists()


def test_no_text_has_no_vector(folder):
    vectors = load(folder).encode([])
    assert vectors.shape == (0, 48) and vectors.dtype == np.float32


def test_an_empty_text_and_one_of_unknown_words_have_the_unknown_words_vector(folder):
    empty, blank, unknown = load(folder).encode(["", "  ", "zebra"])
    assert np.array_equal(empty, unknown) and np.array_equal(blank, unknown) and np.isfinite(empty).all()


def test_a_long_text_is_cut_as_in_training(folder):
    long, cut = load(folder).encode(["river " * 100_000, "river " * 8])
    assert np.array_equal(long, cut)


def test_the_order_of_texts_is_kept(folder):
    model = load(folder)
    there, back = model.encode(TEXTS), model.encode(TEXTS[::-1])
    assert np.abs(there - back[::-1]).max() < 1e-6


def test_a_vector_does_not_depend_on_the_other_texts(folder):
    model = load(folder)
    draw = np.random.default_rng(0)
    many = [" ".join(draw.choice(WORDS, size=draw.integers(1, 9))) for _ in range(ROWS + 100)]
    together = model.encode(many)
    alone = np.concatenate([model.encode([text]) for text in many[:: ROWS // 8]])
    assert np.abs(together[:: ROWS // 8] - alone).max() < 1e-6


def test_encoding_twice_gives_the_same_for_dropout_is_off(folder):
    model = load(folder)
    assert np.array_equal(model.encode(TEXTS), model.encode(TEXTS))


def test_a_text_by_itself_is_not_taken_for_a_list_of_letters(folder):
    with pytest.raises(TypeError, match=r"encode got one text, 'river'; should be a list of texts"):
        load(folder).encode("river")


@pytest.mark.parametrize("wrong", [None, 3, float("nan")])
def test_what_is_no_text_is_named_by_its_place(folder, wrong):
    with pytest.raises(TypeError, match=f"text 1 is {wrong}; every text should be a string"):
        load(folder).encode(["river", wrong])
