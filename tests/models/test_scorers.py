"""Scorers of words by hand, and where a text's vector comes from."""

import pytest
import torch
from tiny import padded

from models.method import Method
from models.noise import Counted, EveryWord, Normalised
from models.recipe import RecipeError, load
from models.resolving import resolve
from models.scorers import NPLM, LogBilinear, Table
from models.telling import Telling, Told
from models.windows import Windows

C = [[0.1, 0.2], [-0.3, 0.4], [0.5, -0.1], [0, 0.3]]
H = [[0.2, -0.4, 0.1, 0.3], [0.5, 0.1, -0.2, 0], [-0.1, 0.3, 0.4, -0.5]]
SHIFT = [0.05, -0.05, 0.1]
U = [[0.3, -0.2, 0.1], [0.1, 0.4, -0.3], [-0.5, 0.2, 0.2], [0, 0.1, 0.6]]
BIAS = [0.1, 0, -0.1, 0.05]
W = [[0.1, 0, 0, 0.2], [0, 0.1, -0.1, 0], [0.2, 0, 0.1, 0], [0, -0.2, 0, 0.1]]
TERM = Telling(EveryWord(), Normalised(), torch.ones(4))


def nplm(direct=True):
    """Four words, the last of which is the end."""
    encoder = NPLM(3, order=3, word_width=2, hidden=3, direct=direct).double()
    row = [[*u, *w, b] if direct else [*u, b] for u, w, b in zip(U, W, BIAS, strict=True)]
    with torch.no_grad():
        for weight, value in zip((encoder.words.weight, encoder.inner, encoder.shift, encoder.rows.weight),
                                 (C, H, SHIFT, row), strict=True):  # fmt: skip
            weight.copy_(torch.tensor(value, dtype=torch.float64))
    return encoder


def nll(encoder, context, target=3):
    windows = Windows(torch.tensor([context]), torch.tensor([target]))
    return TERM.told(encoder, encoder, Told(windows, None), torch.zeros(1))


def test_scores_of_a_context():
    encoder = nplm()
    found = encoder.anchors(torch.tensor([[2, 1]])) @ encoder.outputs.weight.T
    assert found[0].tolist() == pytest.approx([0.233757, 0.232652, -0.175731, -0.040296], abs=1.5e-6)


@pytest.mark.parametrize(
    ("direct", "context", "loss"), [(True, [2, 1], 1.504622), (False, [2, 1], 1.494803), (True, [1, 2], 1.203242)]
)
def test_the_loss_of_a_word_after_a_context(direct, context, loss):
    """Direct connections, and the order of the context, matter."""
    assert nll(nplm(direct), context).item() == pytest.approx(loss, abs=1.5e-6)


def test_only_the_words_of_a_context_take_a_gradient():
    encoder = nplm()
    nll(encoder, [2, 1]).backward()
    found = encoder.words.weight.grad
    assert found[1].tolist() == pytest.approx([-0.189579, 0.208646], abs=1.5e-6)
    assert found[2].tolist() == pytest.approx([0.125250, 0.045730], abs=1.5e-6)
    assert not found[[0, 3]].any()


def test_the_paper_counts_its_weights_like_this():
    with torch.device("meta"):
        encoder = NPLM(17964 - 1, order=5, word_width=30, hidden=100)
    assert sum(weight.numel() for weight in encoder.parameters()) == 4_521_064


def test_a_log_bilinear_score_by_hand():
    for positions in ("matrix", "diagonal"):
        encoder = LogBilinear(3, order=3, word_width=2, positions=positions).double()
        place = [[[1, 2], [0, 1]], [[3, 0], [1, -1]]] if positions == "matrix" else [[1, 2], [3, -1]]
        row = [[1, 0, 0.5], [0, 1, 0], [2, 2, -1], [0, 0, 0.25]]
        with torch.no_grad():
            for weight, value in zip((encoder.words.weight, encoder.place, encoder.rows.weight), (C, place, row),
                                     strict=True):  # fmt: skip
                weight.copy_(torch.tensor(value, dtype=torch.float64))
        # r(2) = (.5, -.1), r(1) = (-.3, .4); C_1 r(2) + C_2 r(1)
        told = (0.3 - 0.9, -0.1 - 0.7) if positions == "matrix" else (0.5 - 0.9, -0.2 - 0.4)
        found = (encoder.anchors(torch.tensor([[2, 1]])) @ encoder.outputs.weight.T)[0]
        expected = [told[0] * q + told[1] * p + b for q, p, b in row]
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("encoder", [NPLM, LogBilinear])
def test_a_model_without_context_gives_every_place_the_same(encoder):
    method = encoder(5, order=1, word_width=3)
    windows = method.windows(*padded([[1, 2, 3]]))
    score = method.anchors(windows.input) @ method.outputs.weight.T
    assert score.shape == (4, 6) and torch.equal(score[0].expand(4, 6), score)


@pytest.mark.parametrize("name", ["nplm", "nce", "nce-log-bilinear"])
@pytest.mark.parametrize("order", [0, -1])
def test_an_order_below_one_is_refused(name, order):
    with pytest.raises(RecipeError, match=rf"recipe {name}: encoder\.order is {order}; should be at least 1"):
        resolve(load(name, [f"encoder.order={order}"]))


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("nplm", "encoder.word_width=0", r"encoder\.word_width is 0; should be at least 1"),
        ("nplm", "encoder.hidden=-1", r"encoder\.hidden is -1; 0 for none"),
        ("skipgram", "encoder.window=0", r"encoder\.window is 0; how many places"),
        ("skipgram", "encoder.subsample=1", r"encoder\.subsample is 1\.0; a share"),
        ("nce", "terms.0.candidates.count=0", r"candidates\.count is 0"),
        ("nce", "terms.0.objective.log_z='per-context'", r"wants encoder\.order = 2, not 5"),
        ("nce", "terms.0.objective.log_z='none'", r"objective\.log_z is 'none': Input should be 'fixed', 'global' or"),
        ("nce", "terms.0.similarity.kind='cosine'", r'similarity\.kind is "cosine"; words are scored by "dot"'),
        ("nce", "terms.0.similarity.temperature=0", r"temperature is 0"),
        ("nce", "terms.0.candidates.kind='vocabulary'", r'has no option "count"; options of vocabulary: none'),
        ("nplm", "terms.0.objective={kind='logistic'}", r'noise goes with objective\.kind = "logistic"'),
        ("nplm", "terms.0.candidates.kind='words'", r"known: ahead, all, batch, noise, other-view, own, vocabulary"),
        (
            "nplm",
            "encoder={kind='bag'}",
            r"candidates\.kind = vocabulary wants encoder\.kind = log-bilinear, nplm, table",
        ),
        ("nce", "training.clip=1", r"training\.clip is 1\.0; lazy-adam has none"),
        ("skipgram", "training.weight_decay=0.1", r"training\.weight_decay is 0\.1; lazy-sgd has none"),
    ],
)
def test_what_no_scorer_can_be_is_named_before_any_work(name, setting, message):
    with pytest.raises(RecipeError, match=message):
        resolve(load(name, [setting]))


@pytest.mark.parametrize("name", ["nplm", "nce-log-bilinear", "skipgram"])
def test_a_texts_vector_is_the_mean_of_its_words(name):
    method = Method(resolve(load(name)), 12)
    encoder = method.tower(method.recipe.readout.towers[0])
    found = method.readout(*padded([[1, 2, 3], [4]], filler=5, extra=2))
    assert torch.allclose(found[0], encoder.words.weight[1:4].mean(0), atol=1e-7)
    assert torch.equal(found[1], encoder.words.weight[4])


def test_word_vectors_begin_as_those_of_word2vec():
    method = Method(resolve(load("skipgram")), 500)
    source, output = (method.tower(name).words.weight for name in ("input", "output"))
    assert 0.0049 < source.abs().max() <= 0.005 and not output.any()


def test_common_words_are_left_out_by_their_share():
    method = Method(resolve(load("skipgram")), 2, frequency=torch.tensor([0.001, 0.999]))
    assert method.tower("input").keep_V[0].item() == pytest.approx(0.1)
    assert Table(2, subsample=0.0, frequency=torch.ones(2)).keep_V.tolist() == [1, 1]


@pytest.mark.parametrize("name", ["nce", "nce-log-bilinear"])
def test_a_new_model_of_noise_starts_as_the_unigrams_and_nearly_normalised(name):
    counted = Counted(torch.tensor([70.0, 20, 0]), 9.0)
    method = Method(resolve(load(name, ["encoder.initial=0"])), 3, counted=counted)
    scores = method.tower("f").outputs.weight[:, -1]
    assert scores.exp().tolist() == pytest.approx([0.7, 0.2, 0.01, 0.09])
    assert scores.logsumexp(0).item() == pytest.approx(0, abs=1e-6)
