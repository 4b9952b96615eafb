"""Words told from windows: a lane and a step against plain loops, and what a saved model says of texts."""

import math

import numpy as np
import pytest
import torch
from test_folder import WORDS, words
from tiny import padded

from models.batch import Batch
from models.candidates import FILLER, Rows
from models.encoding import Setup
from models.folder import load, save
from models.gathering import World
from models.method import Method
from models.noise import Counted
from models.recipe import load as load_recipe
from models.reduction import trainable
from models.resolving import resolve
from models.step import step_gradient
from models.telling import Telling
from models.trouble import FolderError

TEXTS = ["the river waits", "a baker sings the clock", "owl", "the the the owl sleeps", ""]
SIZES = {
    "nplm": ["encoder.order=3", "encoder.word_width=4", "encoder.hidden=5"],
    "nce": ["encoder.order=2", "encoder.word_width=4", "encoder.hidden=5"],
    "nce-log-bilinear": ["encoder.word_width=4"],
    "skipgram": ["encoder.width=4", "encoder.subsample=0"],
}
COUNTED = Counted(torch.arange(len(WORDS)).double(), 7.0)


def small(name, *overrides):
    return resolve(load_recipe(name, [*SIZES[name], *overrides]))


def method_of(name, *overrides):
    """A method in float64 whose weights are not those of a start."""
    torch.manual_seed(0)
    method = Method(small(name, *overrides), len(WORDS), counted=COUNTED).double()
    with torch.no_grad():
        for weight in method.parameters():
            weight.add_(torch.randn(weight.shape, dtype=torch.float64), alpha=0.3)
    return method


def batch_of(texts, fillers=0):
    texts = [*texts, *[[0]] * fillers]
    side_B = torch.tensor([0] * (len(texts) - fillers) + [FILLER] * fillers, dtype=torch.uint8)
    rows = Rows(side_B, torch.arange(len(texts)), torch.full((len(texts), 1), -1))
    return Batch(torch.tensor([w for text in texts for w in text]), torch.tensor([len(t) for t in texts]), rows)


LISTS = [[8, 1, 6], [9, 2, 5, 8, 3], [4], [8, 8, 8, 4, 7]]


def gradients(method, batch, lane_rows=2, number=0, lazy=False):
    loss = step_gradient(method, batch, number, Setup(0, lane_rows, "fp64", lazy=lazy), World())
    return loss, [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in trainable(method)]


def plain_scores(method, context):
    """Scores of all words by the formula, weights taken apart."""
    encoder = method.tower("f")
    if method.recipe.encoder.kind == "log-bilinear":
        told = sum(encoder.place[at] @ encoder.words.weight[word] for at, word in enumerate(context))
        return encoder.rows.weight[:, :-1] @ told + encoder.rows.weight[:, -1]
    x = torch.cat([encoder.words.weight[word] for word in context])
    u, w, b = encoder.rows.weight.split([len(encoder.shift), len(x), 1], dim=1)
    return b[:, 0] + w @ x + u @ torch.tanh(encoder.shift + encoder.inner @ x)


def events(texts, order):
    """Context and word of each place, ends included."""
    mark = len(WORDS)
    for text in texts:
        whole = [mark] * (order - 1) + text + [mark]
        yield from ((whole[at - order + 1 : at], whole[at]) for at in range(order - 1, len(whole)))


def test_a_step_over_all_words_is_the_mean_over_words_and_ends():
    method = method_of("nplm")
    loss, _ = gradients(method, batch_of(LISTS))
    nll = [-plain_scores(method, context).log_softmax(0)[word].item() for context, word in events(LISTS, 3)]
    assert len(nll) == 14 + 4 and loss == pytest.approx(sum(nll) / len(nll), rel=1e-10)


@pytest.mark.parametrize("name", ["nce", "nce-log-bilinear"])
@pytest.mark.parametrize("log_z", ["fixed", "global"])
def test_a_step_over_noise_is_what_a_plain_loop_sums(name, log_z):
    method = method_of(name, f"terms.0.objective.log_z='{log_z}'", "terms.0.candidates.count=3")
    term, encoder = method.lane_terms[0].objective, method.tower("f")
    torch.manual_seed(5)
    drawn = term.draw(encoder, *padded(LISTS), 0)
    loss = term.told(encoder, encoder, drawn, torch.zeros(1)).item()
    times = torch.tensor([1.0, *range(1, len(WORDS)), 7])  # the word that never stands there counts once
    log_q, log_z = (times.double() / times.sum()).log(), term.log_z.item() if log_z == "global" else 0
    total = 0.0
    for (context, word), noise in zip(events(LISTS, encoder.order), drawn.noise, strict=True):
        a = plain_scores(method, context) - log_z - (math.log(3) + log_q)
        total -= a[word].sigmoid().log() + sum((-a[other]).sigmoid().log() for other in noise.tolist())
    assert loss == pytest.approx(total.item(), rel=1e-10)


@pytest.mark.parametrize("name", SIZES)
def test_fillers_and_padding_count_nothing(name):
    """One lane holds all texts; a filler in the same lane changes neither its noise nor its count."""
    alone, filled = (gradients(method_of(name), batch_of(LISTS, fillers), lane_rows=9) for fillers in (0, 3))
    assert alone[0] == pytest.approx(filled[0], rel=1e-12)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(alone[1], filled[1], strict=True))


@pytest.mark.parametrize("name", ["nplm", "nce", "nce-log-bilinear"])
def test_what_stands_behind_a_text_is_not_read(name):
    method = method_of(name)
    term, encoder = method.lane_terms[0].objective, method.tower("f")
    losses = []
    for filler, extra in ((0, 0), (6, 4)):
        torch.manual_seed(1)
        drawn = term.draw(encoder, *padded(LISTS, filler, extra), 0)
        losses.append(term.told(encoder, encoder, drawn, torch.zeros(1)).item())
    assert losses[0] == losses[1]


def test_the_size_of_a_lane_is_no_part_of_a_loss_without_chance():
    one, two = (gradients(method_of("nplm"), batch_of(LISTS), lane_rows)[0] for lane_rows in (4, 1))
    assert one == pytest.approx(two, rel=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_shared_noise_is_one_draw_for_all_lanes_of_a_step(shared):
    method = method_of("nce", f"terms.0.candidates.shared={str(shared).lower()}")
    term, encoder = method.lane_terms[0].objective, method.tower("f")
    lanes = [term.draw(encoder, *padded(texts), 7).noise.flatten()[:25] for texts in (LISTS[:2], LISTS[2:])]
    other = term.draw(encoder, *padded(LISTS), 8).noise.flatten()[:25]
    assert torch.equal(*lanes) is shared and not torch.equal(other, lanes[0])


@pytest.mark.parametrize("shared", [True, False])
def test_a_text_loses_the_same_in_every_lane_where_noise_is_shared(shared):
    method = method_of("nce", f"terms.0.candidates.shared={str(shared).lower()}")
    once, twice = (gradients(method, batch_of([[1, 2, 3]] * times), lane_rows=1)[0] for times in (1, 2))
    assert (once == pytest.approx(twice, rel=1e-12)) is shared


def test_two_steps_draw_other_noise():
    method = method_of("nce")
    losses = [gradients(method, batch_of(LISTS), number=number)[0] for number in (0, 1)]
    assert losses[0] != losses[1]


def test_a_sum_is_not_divided():
    mean, whole = (
        gradients(method_of("nce", f"terms.0.reduce='{how}'"), batch_of(LISTS))[0] for how in ("mean", "sum")
    )
    assert whole == pytest.approx(18 * mean, rel=1e-10)


@pytest.mark.parametrize("name", SIZES)
def test_only_words_of_a_batch_have_a_gradient_by_rows(name):
    """Its sum is that of the dense one, and no larger than the batch's words and noise."""
    dense, sparse = method_of(name), method_of(name)
    batch = batch_of([[1, 2], [3]])
    expected, found = gradients(dense, batch), gradients(sparse, batch, lazy=True)
    assert expected[0] == found[0]
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(expected[1], found[1], strict=True))
    inputs = next(iter(sparse.towers.values())).words.weight.grad
    assert inputs.is_sparse and set(inputs.coalesce().indices()[0].tolist()) <= {1, 2, 3, len(WORDS)}
    assert sparse.tower(sparse.lane_terms[0].candidate).outputs.weight.grad.is_sparse is (name != "nplm")


def test_a_log_z_of_each_context_is_that_of_the_word_before():
    method = method_of("nce", "terms.0.objective.log_z='per-context'")
    gradients(method, batch_of([[1, 2], [1]]))
    found = method.lane_terms[0].objective.log_z_of.weight.grad[:, 0].nonzero().flatten()
    assert found.tolist() == [1, 2, len(WORDS)]


def test_skipgram_takes_the_softmax_of_a_small_vocabulary():
    overrides = [
        "terms.0.candidates={kind='vocabulary'}",
        "terms.0.objective={kind='softmax'}",
        "terms.0.reduce='mean'",
    ]
    method = method_of("skipgram", "encoder.window=1", *overrides)
    loss, _ = gradients(method, batch_of(LISTS))
    source, output = (method.tower(name).words.weight for name in ("input", "output"))
    near = [
        (text[a], text[b]) for text in LISTS for a in range(len(text)) for b in (a - 1, a + 1) if 0 <= b < len(text)
    ]
    nll = [-(output @ source[a]).log_softmax(0)[b].item() for a, b in near]
    assert loss == pytest.approx(sum(nll) / len(nll), rel=1e-10)


def test_a_batch_without_pairs_loses_nothing():
    loss, found = gradients(method_of("skipgram"), batch_of([[1], [2]]))
    assert loss == 0 and not any(gradient.any() for gradient in found)


def saved(folder, name, *overrides):
    method = method_of(name, *overrides).float()
    save(folder, method, words().to_str(), {}, "")
    return method.double(), load(folder)


@pytest.mark.parametrize(("name", "order"), [("nplm", 3), ("nce", 2), ("nce-log-bilinear", 3)])
def test_a_saved_model_scores_each_word_and_end_of_a_text(tmp_path, name, order):
    method, model = saved(tmp_path / "model", name)
    ids = [words().encode(text).ids for text in TEXTS]
    found = model.token_scores(TEXTS)
    assert found.text_N.tolist() == [at for at, text in enumerate(ids) for _ in range(len(text) + 1)]
    score = [(plain_scores(method, context), word) for context, word in events(ids, order)]
    if name == "nplm":  # the softmax makes log Z part of the model
        score = [(s.log_softmax(0), word) for s, word in score]
    assert found.score_N.tolist() == pytest.approx([s[word].item() for s, word in score], abs=1e-5)
    assert found.log_z_N.tolist() == pytest.approx([s.logsumexp(0).item() for s, _ in score], abs=1e-5)


def test_log_chances_of_a_text_are_normalised_and_add_up(tmp_path):
    method, model = saved(tmp_path / "model", "nce")
    nats, counts = model.log_probability(TEXTS)
    assert counts.tolist() == [4, 6, 2, 6, 1]
    for text, nat in zip(TEXTS, nats, strict=True):
        ids = words().encode(text).ids
        steps = [plain_scores(method, context).log_softmax(0)[word].item() for context, word in events([ids], 2)]
        assert nat == pytest.approx(sum(steps), abs=1e-5)


def test_of_all_first_words_and_the_end_one_comes(tmp_path):
    found = saved(tmp_path / "model", "nplm")[1].token_scores(["zebra", *WORDS[1:], ""])
    first_N = np.arange(0, 2 * len(WORDS) + 1, 2)  # a text's end stands behind its word
    assert np.exp(found.log_p()[first_N]).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("log_z", ["global", "per-context"])
def test_a_trained_log_z_is_kept_and_taken_off(tmp_path, log_z):
    method, model = saved(tmp_path / "model", "nce", f"terms.0.objective.log_z='{log_z}'")
    term: Telling = method.lane_terms[0].objective
    ids = [words().encode(text).ids for text in TEXTS]
    found = model.token_scores(TEXTS)
    for at, (context, word) in enumerate(events(ids, 2)):
        own = term.log_z if log_z == "global" else term.log_z_of.weight[context[0], 0]
        score = plain_scores(method, context) - own
        assert found.score_N[at].item() == pytest.approx(score[word].item(), abs=1e-5)
        assert found.log_z_N[at].item() == pytest.approx(score.logsumexp(0).item(), abs=1e-5)
    assert np.allclose(model.normaliser(TEXTS), found.log_z_N)


def test_a_long_text_is_scored_whole(tmp_path):
    model = saved(tmp_path / "model", "nce", "tokenizer.most_tokens=4")[1]
    assert model.log_probability(["owl " * 30])[1].tolist() == [31]
    assert [len(text) for text in model.tokens(["owl " * 30])] == [30]
    assert model.log_probability([])[0].tolist() == []


def test_a_model_that_tells_no_next_word_says_so(tmp_path):
    model = saved(tmp_path / "model", "skipgram")[1]
    with pytest.raises(FolderError, match=r"model of recipe skipgram tells no next word; language models are those"):
        model.token_scores(TEXTS)
    with pytest.raises(TypeError, match=r"token_scores got one text, 'river'"):
        model.log_probability("river")


def test_under_a_softmax_a_number_on_all_scores_says_nothing(tmp_path):
    model = saved(tmp_path / "model", "nplm")[1]
    before = model.token_scores(TEXTS)
    with torch.no_grad():
        model.method.tower("f").outputs.weight[:, -1] += 5  # every word's bias
    after = model.token_scores(TEXTS)
    assert np.allclose(before.score_N, after.score_N, atol=1e-4) and np.allclose(after.log_z_N, 0, atol=1e-4)


def test_a_context_that_no_batch_has_keeps_its_log_z():
    method = method_of("nce", "terms.0.objective.log_z='per-context'")
    assert any(table is method.lane_terms[0].objective.log_z_of.weight for table in method.by_rows())
