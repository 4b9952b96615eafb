"""The transformer encoder: pooling, heads, templates, what reaches its body, and whose models it reads."""

import pytest
import torch
from tiny import NEW, WORDS, build, drawn_examples, number, padded, recipe_of, tower, words
from transformers import BertConfig, BertModel, RobertaConfig, RobertaForMaskedLM

from models.encoding import Setup
from models.gathering import World
from models.generation import matched_and_told
from models.method import Method
from models.recipe import RecipeError
from models.step import step_gradient

TEXTS = [number("river", "sing", "owl"), number("baker"), number("the", "old", "clock", "##s", "wait")]
RECIPES = ["simcse-unsup", "simcse-sup", "esimcse", "consert", "consert-mlm", "promptbert", "promptbert-sup", "mlm"]


def vectors(encoder, texts, view=None, extra=0, filler=0):
    with torch.no_grad():
        return encoder(*padded(texts, filler, extra), None, view)


@pytest.fixture
def watched():
    """What reaches the embeddings of an encoder, call by call."""
    handles = []

    def watch(encoder):
        seen = []
        hook = lambda _, given, named: seen.append({**named})
        handles.append(encoder.body.embeddings.register_forward_pre_hook(hook, with_kwargs=True))
        return seen

    yield watch
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("name", RECIPES)
def test_a_text_alone_has_the_vector_that_it_has_among_others(name):
    encoder = tower(name=name)
    alone = torch.cat([vectors(encoder, [text]) for text in TEXTS])
    assert torch.allclose(vectors(encoder, TEXTS), alone, atol=1e-12)


@pytest.mark.parametrize("name", RECIPES)
def test_what_stands_behind_a_texts_end_is_not_read(name):
    encoder = tower(name=name)
    assert torch.allclose(vectors(encoder, TEXTS), vectors(encoder, TEXTS, extra=4, filler=17), atol=1e-12)


@pytest.mark.parametrize("name", ["simcse-unsup", "consert", "esimcse"])
def test_without_dropout_both_views_are_equal(name):
    encoder = tower(name=name)
    first, second = (vectors(encoder, TEXTS, torch.full((3,), view)) for view in (0, 1))
    assert torch.equal(first, second)


def test_with_dropout_two_views_differ():
    encoder = tower(name="simcse-unsup").train()
    first, second = vectors(encoder, [TEXTS[0]] * 2, torch.tensor([0, 1]))
    assert not torch.allclose(first, second, atol=1e-3)


@pytest.mark.parametrize(
    "view", ["{kind='shuffle'}", "{kind='token-cutoff', rate=0.4}", "{kind='feature-cutoff'}", "{kind='dropout'}"]
)
def test_a_view_changes_its_own_rows_in_training_alone(view):
    encoder = tower(f"view=[{{kind='none'}}, {view}]", "encoder.dropout=0.0", "encoder.pooling='mean'")
    plain = vectors(encoder, TEXTS)
    shown = vectors(encoder.train(), TEXTS, torch.tensor([0, 0, 1]))
    assert torch.allclose(shown[:2], plain[:2], atol=1e-12) and not torch.allclose(shown[2], plain[2], atol=1e-3)


def test_a_readout_is_never_cut():
    method = build("consert")
    first, second = (method.readout(*padded(TEXTS)) for _ in range(2))
    assert torch.equal(first, second)
    plain = build("consert", "view=[]")
    assert torch.equal(first, plain.readout(*padded(TEXTS)))


def test_a_cut_zeroes_embeddings_behind_their_layer_norm_and_rescales_nothing():
    encoder = tower("view=[{kind='feature-cutoff', rate=0.25}]", "encoder.dropout=0.0").train()
    seen = []
    encoder.body.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    vectors(encoder, [TEXTS[0], TEXTS[0]])
    whole_LSD = encoder.body.embeddings(input_ids=torch.tensor([number("[CLS]", "river", "sing", "owl", "[SEP]")] * 2))
    cut_LSD = seen[0] == 0
    assert cut_LSD[:, 0].sum(dim=1).tolist() == [4, 4] and torch.equal(cut_LSD, cut_LSD[:, :1].expand_as(cut_LSD))
    assert torch.equal(seen[0][~cut_LSD], whole_LSD[~cut_LSD])


def test_a_shuffle_changes_positions_and_no_tokens(watched):
    encoder = tower("view=[{kind='shuffle'}]", "encoder.dropout=0.0").train()
    seen = watched(encoder)
    vectors(encoder, [TEXTS[2], TEXTS[0]])
    ids, places = seen[0]["input_ids"], seen[0]["position_ids"]
    assert ids[1].tolist() == [*number("[CLS]", "river", "sing", "owl", "[SEP]"), *[encoder.filler] * 2]
    assert sorted(places[0].tolist()) == list(range(7))
    assert sorted(places[1, :5].tolist()) == list(range(5)) and places[1, 5:].tolist() == [5, 6]


def states(encoder, text):
    whole = torch.tensor([[*number("[CLS]"), *text, *number("[SEP]")]])
    return encoder.body(input_ids=whole, output_hidden_states=True).hidden_states


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("first", lambda layers: layers[-1][0, 0]),
        ("mean", lambda layers: layers[-1][0].mean(dim=0)),
        ("mean-last-two", lambda layers: (layers[-1][0] + layers[-2][0]).mean(dim=0) / 2),
    ],
)
def test_poolings(pooling, expected):
    encoder = tower(f"encoder.pooling='{pooling}'", "encoder.head='none'", "encoder.layers=2")
    for text, vector in zip(TEXTS, vectors(encoder, TEXTS), strict=True):
        assert torch.allclose(vector, expected(states(encoder, text)), atol=1e-12)


def test_the_head_of_simcse_is_a_linear_map_and_tanh():
    encoder = tower()
    linear = encoder.head[0]
    first = states(encoder, TEXTS[0])[-1][0, 0]
    assert torch.allclose(vectors(encoder, TEXTS)[0], (linear.weight @ first + linear.bias).tanh(), atol=1e-12)


def test_the_readout_of_unsupervised_simcse_is_the_first_state_itself():
    method = build("simcse-unsup")
    found = method.readout(*padded(TEXTS))
    assert torch.allclose(found[0], states(method.tower("f"), TEXTS[0])[-1][0, 0], atol=1e-12)


def test_the_readout_of_supervised_simcse_keeps_the_head():
    method = build("simcse-sup")
    assert torch.equal(method.readout(*padded(TEXTS)), method.encode("f", *padded(TEXTS)))


def test_the_readout_of_consert_is_the_mean_of_the_last_two_layers():
    method = build("consert", "encoder.layers=2")
    layers = states(method.tower("f"), TEXTS[0])
    expected = (layers[-1][0] + layers[-2][0]).mean(dim=0) / 2
    assert torch.allclose(method.readout(*padded(TEXTS))[0], expected, atol=1e-12)


TEMPLATE = 'view=[{kind="template", text="this sentence of \\"[X]\\" means [MASK]."%s}]'
BEFORE, BEHIND = ["[CLS]", "this", "sentence", "of", '"'], ['"', "means", "[MASK]", ".", "[SEP]"]


def prompted(options="", head="none", **given):
    return tower(TEMPLATE % options, f"encoder.head='{head}'", name="promptbert", **given)


def test_a_templates_own_words_keep_their_places_without_the_text(watched):
    encoder = prompted()
    seen = watched(encoder)
    vectors(encoder, [TEXTS[0]])
    filled, bare = seen
    assert [WORDS[at] for at in filled["input_ids"][0].tolist()] == [*BEFORE, "river", "sing", "owl", *BEHIND]
    assert filled["position_ids"] is None or filled["position_ids"][0].tolist() == list(range(13))
    assert [WORDS[at] for at in bare["input_ids"][0].tolist()] == [*BEFORE, *BEHIND]
    assert bare["position_ids"][0].tolist() == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]


def test_templates_alone_are_encoded_once_for_each_length_and_view(watched):
    encoder = tower(name="promptbert")
    seen = watched(encoder)
    vectors(encoder, [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[0]], torch.tensor([0, 0, 1, 0]))
    assert len(seen[0]["input_ids"]) == 4 and len(seen[1]["input_ids"]) == 3


def at_mask(encoder, whole, places=None):
    ids = torch.tensor([number(*whole)])
    places = None if places is None else torch.tensor([places])
    return encoder.body(input_ids=ids, position_ids=places).last_hidden_state[0, whole.index("[MASK]")]


def test_the_vector_is_the_mask_words_state_less_that_of_the_template_alone():
    encoder = prompted()
    filled = at_mask(encoder, [*BEFORE, "river", "sing", "owl", *BEHIND])
    bare = at_mask(encoder, [*BEFORE, *BEHIND], [0, 1, 2, 3, 4, 8, 9, 10, 11, 12])
    assert torch.allclose(vectors(encoder, [TEXTS[0]])[0], filled - bare, atol=1e-12)


def test_unknown_words_may_stand_for_the_text():
    encoder = prompted(", delta='x-tokens'")
    filled = at_mask(encoder, [*BEFORE, "river", "sing", "owl", *BEHIND])
    bare = at_mask(encoder, [*BEFORE, "<unk>", "<unk>", "<unk>", *BEHIND])
    found = vectors(encoder, [TEXTS[0]])[0]
    assert torch.allclose(found, filled - bare, atol=1e-12)
    assert not torch.allclose(found, vectors(prompted(), [TEXTS[0]])[0], atol=1e-4)


def test_a_template_may_be_left_on():
    encoder = prompted(", delta='none'")
    filled = at_mask(encoder, [*BEFORE, "river", "sing", "owl", *BEHIND])
    assert torch.allclose(vectors(encoder, [TEXTS[0]])[0], filled, atol=1e-12)


def test_less_a_vector_of_zeros_is_the_plain_one():
    encoder, state = prompted(head="mlp"), torch.randn(3, 16, dtype=torch.float64)
    assert torch.equal(encoder._headed(state, torch.zeros_like(state), True), encoder._headed(state, None, True))


def test_the_head_follows_the_subtraction():
    encoder = prompted(head="mlp")
    bare = prompted()
    bare.load_state_dict(encoder.state_dict(), strict=False)
    assert torch.allclose(vectors(encoder, TEXTS), encoder.head(vectors(bare, TEXTS)), atol=1e-12)


def test_a_masked_word_models_transform_comes_before_the_subtraction():
    encoder = prompted(head="transform")
    through = encoder.whole.cls.predictions.transform
    filled = at_mask(encoder, [*BEFORE, "river", "sing", "owl", *BEHIND])
    bare = at_mask(encoder, [*BEFORE, *BEHIND], [0, 1, 2, 3, 4, 8, 9, 10, 11, 12])
    assert torch.allclose(vectors(encoder, [TEXTS[0]])[0], through(filled) - through(bare), atol=1e-12)


def test_the_readout_of_promptbert_is_the_bare_state_under_the_first_template():
    method = build("promptbert")
    whole = [*BEFORE, "river", "sing", "owl", *BEHIND]
    assert torch.allclose(method.readout(*padded(TEXTS))[0], at_mask(method.tower("f"), whole), atol=1e-12)


def test_frozen_stops_the_gradient_of_the_template_alone():
    found, slope = {}, torch.arange(16, dtype=torch.float64)
    for frozen in ("false", "true"):
        encoder = prompted(f", frozen={frozen}")
        (encoder(*padded([TEXTS[0]])) @ slope).sum().backward()
        found[frozen] = encoder.body.embeddings.position_embeddings.weight.grad.clone()
    encoder = prompted()
    at_mask(encoder, [*BEFORE, "river", "sing", "owl", *BEHIND]).dot(slope).backward()
    assert torch.allclose(found["true"], encoder.body.embeddings.position_embeddings.weight.grad, atol=1e-10)
    assert not torch.allclose(found["false"], found["true"], atol=1e-3)


def test_two_views_have_two_templates():
    encoder = tower(name="promptbert")
    first, second = vectors(encoder, [TEXTS[0]] * 2, torch.tensor([0, 1]))
    assert not torch.allclose(first, second, atol=1e-4)


def test_a_single_view_is_that_of_all_rows():
    encoder = prompted()
    assert torch.equal(vectors(encoder, TEXTS, torch.tensor([0, 1, 2])), vectors(encoder, TEXTS))


SIZES = {"vocab_size": 48, "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """The folder of a model whose positions begin behind the number of its padding word."""
    folder = tmp_path_factory.mktemp("roberta")
    torch.manual_seed(0)
    RobertaForMaskedLM(RobertaConfig(**SIZES, pad_token_id=1, max_position_embeddings=34)).save_pretrained(folder)
    return folder


def from_folder(folder, name, *overrides):
    return recipe_of(name, f"encoder.path='{folder}'", *overrides)


def read(folder, name, *overrides):
    torch.manual_seed(0)
    return Method(from_folder(folder, name, *overrides), len(WORDS), tokenizer=words()).double().eval()


def test_positions_of_roberta_begin_behind_the_padding_word(roberta, watched):
    encoder = read(roberta, "promptbert").tower("f")
    seen = watched(encoder)
    vectors(encoder, [TEXTS[0]])
    assert seen[1]["position_ids"][0].tolist() == [2, 3, 4, 5, 6, 10, 11, 12, 13, 14]


def test_told_positions_of_roberta_are_those_that_it_takes_by_itself(roberta):
    encoder = read(roberta, "simcse-unsup").tower("f")
    ids, lengths = padded([number("[CLS]", "river", "owl", "[SEP]")])
    told = encoder.states(ids, lengths, torch.arange(4)[None])[-1]
    assert torch.equal(told, encoder.states(ids, lengths)[-1])


def test_a_body_without_segments_takes_texts_in_a_row_with_their_answers(roberta):
    encoder = read(roberta, "simbert").tower("f")
    texts, answers = padded([number("river", "owl"), number("a", "clock")]), padded([number("owl"), number("a", "red")])
    vector_LD, _ = matched_and_told(encoder, *texts, *answers)
    torch.testing.assert_close(vector_LD, encoder(*texts), atol=1e-6, rtol=0)


def test_room_is_what_positions_leave(roberta):
    assert read(roberta, "simcse-unsup").tower("f").room() == 34 - 2 - 2
    assert tower("encoder.positions=20").room() == 18 and prompted().room() == 64 - 10


@pytest.mark.parametrize("name", ["simcse-unsup", "mlm", "consert-mlm"])
def test_a_roberta_is_trained(roberta, name):
    method = read(roberta, name).train()
    pairs = method.recipe.pairs.kind
    loss = step_gradient(
        method, drawn_examples(torch.Generator().manual_seed(0), pairs), 0, Setup(0, 5, "fp64"), World()
    )
    assert loss > 0 and method.tower("f").body.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_weights_of_a_folder_are_taken(roberta):
    saved = RobertaForMaskedLM.from_pretrained(roberta).roberta.state_dict()
    taken = read(roberta, "simcse-unsup").tower("f").body.state_dict()
    assert all(torch.equal(value, saved[name].to(value)) for name, value in taken.items())


def test_a_folders_dropout_is_the_models_unless_the_recipe_says_otherwise(roberta):
    rates = [read(roberta, "simcse-unsup", *other).tower("f").body.config.hidden_dropout_prob
             for other in ((), ("encoder.dropout=0.25",))]  # fmt: skip
    assert rates == [0.1, 0.25]


def test_the_transform_head_is_for_models_that_have_one(roberta):
    with pytest.raises(RecipeError) as caught:
        from_folder(roberta, "promptbert-sup")
    assert str(caught.value) == (
        'recipe promptbert-sup: encoder.head is "transform", which only models like BERT have; this is roberta: '
        'use "mlp"'
    )


def test_a_model_with_fewer_words_than_the_tokenizer_is_refused(tmp_path):
    BertModel(BertConfig(**{**SIZES, "vocab_size": 30})).save_pretrained(tmp_path)
    with pytest.raises(ValueError) as caught:
        read(tmp_path, "simcse-unsup")
    assert str(caught.value) == (
        f"the model in {tmp_path} has 30 words, the tokenizer 40; use the model's own: --set tokenizer.kind=encoder"
    )


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(RecipeError) as caught:
        from_folder(tmp_path, "simcse-unsup")
    assert str(caught.value) == (
        f'encoder.path is "{tmp_path}", a folder without config.json; give a model that can be read'
    )


def test_a_name_that_nobody_gives_says_the_ways_out(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(RecipeError) as caught:
        from_folder("nobody/nothing", "simcse-unsup")
    message = str(caught.value)
    assert message.startswith('encoder.path is "nobody/nothing": no folder here, and the hub does not give it (')
    assert '--set encoder.path=FOLDER; a new encoder, --set encoder.path="" with encoder.layers, width' in message


def test_sizes_are_those_of_the_recipe():
    encoder = tower("encoder.layers=3", "encoder.inner=20", "encoder.positions=30")
    config = encoder.body.config
    assert (config.num_hidden_layers, config.intermediate_size, config.max_position_embeddings) == (3, 20, 30)
    assert encoder.width == 16 and encoder.vocabulary() == 40 and len(NEW) == 5


def test_no_pooler_is_carried_along():
    assert tower().body.pooler is None
