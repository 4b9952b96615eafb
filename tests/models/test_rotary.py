"""Rotary positions, by hand and against the transformers library's own attention."""

import copy
import math

import pytest
import torch
from tiny import WORDS, build, drawn_examples, number, padded, recipe_of, tower, words
from transformers import AutoModel, AutoModelForMaskedLM, RoFormerConfig, RoFormerForMaskedLM, RoFormerModel

from models.folder import load, save
from models.method import Method
from models.recipe import RecipeError
from models.rotary import RotaryAttention, rotate
from models.step import Setup, World, step_gradient

TEXTS = [number("river", "sing", "owl"), number("baker"), number("the", "old", "clock", "##s", "wait")]
X, Y = [1, 2, 3, 4], [0.5, -1, 2, 0.25]
ROTARY = "encoder.rotary=true"


def turned(vector, place):
    """One vector at a place, its angles worked out pair by pair."""
    width = len(vector)
    angles = [place * 10000 ** (-2 * pair / width) for pair in range(width // 2)]
    sine, cosine = (torch.tensor([[f(a) for a in angles]], dtype=torch.float64) for f in (math.sin, math.cos))
    return rotate(torch.tensor([vector], dtype=torch.float64), sine, cosine)[0]


def test_a_vector_at_place_three():
    assert turned(X, 3).tolist() == pytest.approx([-1.272233, -1.838865, 2.878668, 4.088187], abs=1e-6)


@pytest.mark.parametrize(("left", "right"), [(3, 1), (7, 5), (2, 0)])
def test_a_product_of_two_turned_vectors_depends_on_the_difference_of_places(left, right):
    assert turned(X, left).dot(turned(Y, right)).item() == pytest.approx(5.659235, abs=1e-6)


@pytest.mark.parametrize("place", [0, 1, 3, 500])
def test_turning_keeps_the_norm(place):
    assert turned(X, place).norm().item() == pytest.approx(5.477226, abs=1e-6)


def test_place_zero_is_left_as_it_is():
    assert turned(X, 0).tolist() == X


def test_the_gradient_is_turned_back():
    given = torch.tensor([X], dtype=torch.float64, requires_grad=True)
    angle = torch.tensor([[0.3, 1.1]], dtype=torch.float64)
    slope = torch.tensor([Y], dtype=torch.float64)
    rotate(given, angle.sin(), angle.cos()).backward(slope)
    assert torch.allclose(given.grad, rotate(slope, -angle.sin(), angle.cos()), atol=1e-12)


def test_half_precision_stays_and_is_turned_in_full():
    given, angle = torch.randn(2, 5, 8).bfloat16(), torch.randn(5, 4)
    found = rotate(given, angle.sin(), angle.cos())
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, rotate(given.float(), angle.sin(), angle.cos()).bfloat16())


def attention_of(encoder):
    """The library's own model, with the encoder's weights, which are made large enough to matter."""
    torch.manual_seed(0)
    for parameter in encoder.body.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    theirs = RoFormerModel(copy.deepcopy(encoder.body.config)).to(next(encoder.parameters()).dtype).eval()
    theirs.config._attn_implementation = "eager"
    theirs.load_state_dict(encoder.body.state_dict())
    return theirs


def plain_states(library, ids, sees_LTS, segment=None):
    """States by the library's own attention, which adds its masks."""
    added = torch.zeros(sees_LTS.shape, dtype=torch.float64).masked_fill(~sees_LTS, -1e300)
    return library(input_ids=ids, attention_mask=added[:, None], token_type_ids=segment).last_hidden_state


@pytest.fixture
def encoder():
    return tower(ROTARY, "encoder.layers=2", name="mlm")


@pytest.mark.parametrize("values", [False, True])
def test_states_are_those_of_the_librarys_own_attention(values, tmp_path):
    config = RoFormerConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, rotary_value=values,
    )  # fmt: skip
    torch.manual_seed(0)
    library = RoFormerModel(config).eval()
    for parameter in library.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    library.save_pretrained(tmp_path)
    encoder = Method(recipe_of("simcse-unsup", f"encoder.path='{tmp_path}'"), len(WORDS), tokenizer=words()).eval()
    ids, lengths = padded(TEXTS)
    states = encoder.tower("f").states(ids, lengths)[-1]
    for row, text in enumerate(TEXTS):
        alone = library(input_ids=torch.tensor([text])).last_hidden_state[0]
        assert torch.allclose(states[row, : len(text)], alone, atol=1e-5)


def test_a_mask_of_four_dimensions_reaches_attention_as_it_is(encoder):
    library, ids = attention_of(encoder), torch.randint(5, 40, (2, 6))
    sees_LTS = torch.rand(2, 6, 6) < 0.5
    sees_LTS |= torch.eye(6, dtype=torch.bool)
    segment = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    ours = encoder.body(input_ids=ids, attention_mask=sees_LTS[:, None], token_type_ids=segment).last_hidden_state
    assert torch.allclose(ours, plain_states(library, ids, sees_LTS, segment), atol=1e-10)
    assert not torch.allclose(ours, plain_states(library, ids, torch.ones_like(sees_LTS), segment), atol=1e-3)


def test_an_order_of_tokens_matters(encoder):
    attention_of(encoder)
    forth, back = (encoder(*padded([text])) for text in (TEXTS[0], TEXTS[0][::-1]))
    assert not torch.allclose(forth, back, atol=1e-3)


def test_attention_drops_in_training_alone(encoder):
    attention_of(encoder)
    ids, lengths = padded(TEXTS)
    for module in encoder.modules():
        if isinstance(module, RotaryAttention):
            module.train()
    first, second = (encoder(ids, lengths) for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-3)
    encoder.eval()
    assert torch.equal(encoder(ids, lengths), encoder(ids, lengths))


@pytest.mark.parametrize("name", ["mlm", "simcse-unsup", "consert-mlm"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_is_trained(name, precision):
    views = ["view=[{kind='none'}, {kind='feature-cutoff'}]"] if name == "consert-mlm" else []
    method = build(name, ROTARY, *views, double=False).train()
    batch = drawn_examples(torch.Generator().manual_seed(0), method.recipe.pairs.kind)
    assert step_gradient(method, batch, 0, Setup(0, 5, precision), World()) > 0
    body = method.tower("f").body
    assert body.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
    assert body.encoder.embed_positions.weight.grad is None


@pytest.mark.parametrize("pooling", ["first", "mean", "mean-last-two"])
def test_a_text_alone_has_the_vector_that_it_has_among_others(pooling):
    encoder = tower(ROTARY, "encoder.layers=2", f"encoder.pooling={pooling}")
    alone = torch.cat([encoder(*padded([text])) for text in TEXTS])
    assert torch.allclose(encoder(*padded(TEXTS, filler=17, extra=3)), alone, atol=1e-12)


@pytest.fixture
def saved(tmp_path):
    method = build("mlm", ROTARY, "encoder.layers=2", double=False)
    attention_of(method.tower("f"))
    save(tmp_path / "base", method, words().to_str(), {"corpus": "tiny"}, "")
    return tmp_path / "base", method


def test_a_folder_gives_the_vectors_that_were_saved(saved):
    folder, method = saved
    again = load(folder).method
    assert torch.equal(again.readout(*padded(TEXTS)), method.readout(*padded(TEXTS)))


def test_a_folder_opens_in_transformers_with_equal_states_and_words(saved):
    folder, method = saved
    encoder, ids = method.tower("f"), torch.tensor([TEXTS[2]])
    ours = encoder.states(ids, torch.tensor([5]))[-1]
    assert torch.allclose(AutoModel.from_pretrained(folder)(input_ids=ids).last_hidden_state, ours, atol=1e-5)
    told = AutoModelForMaskedLM.from_pretrained(folder)
    assert isinstance(told, RoFormerForMaskedLM) and not isinstance(
        told.roformer.encoder.layer[0].attention.self, RotaryAttention
    )
    assert torch.allclose(told(input_ids=ids).logits, encoder.words_at(ours), atol=1e-4)


def test_training_goes_on_from_a_folder(saved):
    folder, method = saved
    more = Method(recipe_of("simcse-unsup", f"encoder.path='{folder}'"), len(WORDS), tokenizer=words())
    assert more.tower("f").body.config.model_type == "roformer"
    known = method.tower("f").body.state_dict()
    assert all(torch.equal(value, known[name]) for name, value in more.tower("f").body.state_dict().items())


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            "{kind='shuffle'}",
            'view "shuffle" needs position numbers, which rotary positions have not; use token-cutoff, feature-cutoff, '
            "dropout or a template",
        ),
        (
            "{kind='template', text='a [X] is [MASK]'}",
            'a template\'s delta is "positions", which needs position numbers, and rotary positions have none; use '
            '"x-tokens" or "none"',
        ),
    ],
)
def test_what_needs_position_numbers_is_refused(view, message):
    with pytest.raises(RecipeError) as caught:
        recipe_of("simcse-unsup", ROTARY, f"view=[{view}]")
    assert str(caught.value) == f"recipe simcse-unsup: {message}"


def test_a_template_with_unknown_words_in_its_texts_place_works():
    encoder = tower(ROTARY, "view.0.delta=x-tokens", "view.1.delta=x-tokens", name="promptbert")
    assert encoder(*padded(TEXTS)).isfinite().all()


def test_heads_of_an_odd_width_are_refused():
    with pytest.raises(RecipeError) as caught:
        recipe_of("mlm", ROTARY, "encoder.width=6", "encoder.heads=2")
    assert str(caught.value) == (
        "recipe mlm: encoder.width is 6; rotary positions turn pairs of numbers, so it should be a multiple of twice "
        "encoder.heads, 4"
    )


def test_a_model_with_other_positions_is_refused(tmp_path):
    save(tmp_path, build("mlm", double=False), words().to_str(), {}, "")
    with pytest.raises(RecipeError) as caught:
        recipe_of("simcse-unsup", ROTARY, f"encoder.path='{tmp_path}'")
    assert str(caught.value) == (
        f"recipe simcse-unsup: encoder.rotary is true, but the model in {tmp_path} is a bert, with positions of its "
        "own; --set encoder.rotary=false keeps them"
    )


def test_words_narrower_than_states_work_but_for_the_transform_head(tmp_path):
    config = RoFormerConfig(
        vocab_size=len(WORDS), hidden_size=16, embedding_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    RoFormerForMaskedLM(config).save_pretrained(tmp_path)
    path = f"encoder.path='{tmp_path}'"
    recipe = recipe_of("consert-mlm", path, "view=[{kind='none'}, {kind='feature-cutoff'}]")
    method = Method(recipe, len(WORDS), tokenizer=words()).train()
    batch = drawn_examples(torch.Generator().manual_seed(0), recipe.pairs.kind)
    assert step_gradient(method, batch, 0, Setup(0, 5, "fp32"), World()) > 0
    with pytest.raises(RecipeError, match="narrows to the width of its words"):
        recipe_of("simcse-unsup", path, "encoder.head=transform")
