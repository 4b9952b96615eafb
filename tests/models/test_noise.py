"""
Noise-contrastive estimation on a vocabulary of four words, through the very terms that training uses.

A scorer without context and without hidden numbers has nothing but biases, so the scores are whatever a test says.
Expectations over texts and noise are sums over all words: a loss adds up over noise words, so one noise word that
counts k times has the expectation of k.
"""

import math

import pytest
import torch
from scipy.stats import chisquare
from tiny import A, B, C

from models.noise import EveryWord, Noise, NoiseWords, Normalised, Unnormalised
from models.objectives import softmax
from models.scorers import NPLM, Table
from models.similarity import dot
from models.telling import Telling, Told
from models.windows import Windows, keep_chances

S = torch.tensor([1, 0.2, -0.5, 0.3], dtype=torch.float64)
DATA = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64)
COUNTS = torch.tensor([4.0, 3, 2, 1])
Q = COUNTS.double() / 10
LOG_Z = S.logsumexp(0)


def biases(scores):
    """A scorer of len(scores) words, the last of which is the end."""
    encoder = NPLM(len(scores) - 1, order=1, word_width=1, hidden=0, direct=False).double()
    with torch.no_grad():
        encoder.rows.weight[:, 0] = torch.as_tensor(scores, dtype=torch.float64)
    return encoder


def lane(targets, noise):
    target_P = torch.tensor(targets)
    return Told(Windows(torch.zeros(len(target_P), 0, dtype=torch.int64), target_P), torch.tensor(noise))


def noisy(count, correct=True, log_z="fixed", shared=False):
    """A term of so many noise words; where shared, one is drawn."""
    words = NoiseWords(count=count, correct=correct, shared=shared, drawn=int(shared))
    return Telling(words, Unnormalised(log_z=log_z), COUNTS).double()


def population(encoder, term, data=DATA):
    """-J: the expected loss of a word, summed over all words of a text and all noise words."""
    total = torch.zeros((), dtype=torch.float64)
    for noise, chance in enumerate(Q):
        for word, share in enumerate(data):
            total = total + chance * share * term.told(encoder, encoder, lane([word], [noise]), torch.zeros(1))
    return total


def plain_objective(log_u, data, k):
    """J by its formula."""
    a = log_u - (k * Q).log()
    return (data * a.sigmoid().log()).sum() + k * (Q * (-a).sigmoid().log()).sum()


def j_and_gradient(scores, k, data=DATA):
    encoder = biases(scores)
    minus_j = population(encoder, noisy(k, shared=True), data)
    minus_j.backward()
    return -minus_j.item(), -encoder.rows.weight.grad.to_dense()[:, 0]


def by_softmax(scores, times):
    """Mean loss of the softmax over all words where each word stands so often, and its gradient to the scores."""
    encoder, term = biases(scores), Telling(EveryWord(), Normalised(), torch.tensor(times))
    encoder.rows.sparse = False
    targets = [word for word, often in enumerate(times) for _ in range(often)]
    windows = Windows(torch.zeros(len(targets), 0, dtype=torch.int64), torch.tensor(targets))
    loss = term.told(encoder, encoder, Told(windows, None), torch.zeros(1))
    loss.backward()
    return loss.item() / len(targets), encoder.rows.weight.grad[:, 0] / len(targets)


MLE = (0.038967, 0.042845, 0.047130, -0.128942)


def test_maximum_likelihood_moves_scores_by_data_less_model():
    loss, gradient = by_softmax(S, (10, 5, 3, 2))
    assert loss == pytest.approx(1.269287, abs=1.5e-6)
    assert (-gradient).tolist() == pytest.approx(MLE, abs=1.5e-6)
    assert (-gradient).tolist() == pytest.approx((DATA - S.softmax(0)).tolist(), abs=1e-12)


def test_the_ratio_of_counts_is_where_the_likelihood_is_greatest():
    _, gradient = by_softmax((0.3, -0.2), (2, 1))
    assert (-3 * gradient).tolist() == pytest.approx([0.132622, -0.132622], abs=1.5e-6)
    _, gradient = by_softmax((math.log(2 / 3), math.log(1 / 3)), (2, 1))
    assert gradient.tolist() == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize(("k", "j"), [(1, -1.400632), (10, -3.383559), (100, -5.647934), (1000, -7.946658)])
def test_the_objective_of_a_normalised_model(k, j):
    found, _ = j_and_gradient(S - LOG_Z, k)
    assert found == pytest.approx(j, abs=1e-5)
    assert found == pytest.approx(plain_objective(S - LOG_Z, DATA, k).item(), abs=1e-10)


@pytest.mark.parametrize(
    ("k", "gradient"),
    [(1, (0.018103, 0.025344, 0.031122, -0.039199)), (10, (0.034940, 0.040077, 0.044824, -0.104921))],
)
def test_the_gradient_of_a_normalised_model(k, gradient):
    assert j_and_gradient(S - LOG_Z, k)[1].tolist() == pytest.approx(gradient, abs=1.5e-6)


@pytest.mark.parametrize(
    ("k", "most"), [(1, 0.089743), (10, 0.024021), (100, 0.002886), (1000, 0.000295), (10**6, 3e-7)]
)
def test_with_more_noise_the_gradient_nears_that_of_maximum_likelihood(k, most):
    gradient = j_and_gradient(S - LOG_Z, k)[1]
    assert (gradient - (DATA - S.softmax(0))).abs().max().item() == pytest.approx(most, abs=1.5e-6)
    if k >= 1000:
        assert most * k == pytest.approx(0.2952, abs=0.005)


def test_of_a_model_whose_z_is_not_one_the_limit_is_another():
    expected = (-2.218267, -0.971399, -0.456529, -1.249842)
    gradient = j_and_gradient(S, 10**6)[1]
    assert gradient.tolist() == pytest.approx(expected, abs=5e-6)
    assert gradient.tolist() == pytest.approx((DATA - S.exp()).tolist(), abs=1e-4)


@pytest.mark.parametrize(("k", "j"), [(1, -1.374868), (10, -3.330239), (1000, None)])
def test_the_best_scores_are_the_logarithms_of_the_data_whatever_the_noise(k, j):
    found, gradient = j_and_gradient(DATA.log(), k)
    assert gradient.abs().max() < 1e-12
    assert j is None or found == pytest.approx(j, abs=5e-6)


@pytest.mark.parametrize(("k", "at_zero"), [(1, 0.691754), (5, 2.132331)])
def test_a_learned_log_z_rests_where_it_normalises(k, at_zero):
    for log_z, expected in ((0.0, at_zero), (LOG_Z.item(), 0.0)):
        term = noisy(k, log_z="global", shared=True)
        with torch.no_grad():
            term.log_z.fill_(log_z)
        population(biases(S), term, S.softmax(0)).backward()
        assert -term.log_z.grad.item() == pytest.approx(expected, abs=1.5e-6)


def test_the_sampled_loss_of_a_word():
    encoder = biases(S)
    loss = noisy(3).told(encoder, encoder, lane([0], [[1, 1, 3]]), torch.zeros(1))
    loss.backward()
    assert loss.item() == pytest.approx(3.785192, abs=1.5e-6)
    found = encoder.rows.weight.grad.to_dense()[:, 0].tolist()
    assert found == pytest.approx([-0.306257, 1.151505, 0, 0.818166], abs=1.5e-6)


def test_of_two_words_the_whole_bracket_is_divided_by_two():
    encoder, drawn = biases(S), lane([0, 2], [[1, 1, 3], [0, 2, 3]])
    loss = noisy(3).told(encoder, encoder, drawn, torch.zeros(1)) / drawn.count
    assert loss.item() == pytest.approx(4.029755, abs=1.5e-6)


def test_negative_sampling_is_the_same_loss_without_the_correction():
    encoder = biases(S)
    loss = noisy(3, correct=False).told(encoder, encoder, lane([0], [[1, 1, 3]]), torch.zeros(1))
    assert loss.item() == pytest.approx(2.763895, abs=1.5e-6)
    shifted = biases(S + (3 * Q).log())  # what the correction would take off
    again = noisy(3).told(shifted, shifted, lane([0], [[1, 1, 3]]), torch.zeros(1))
    assert again.item() == pytest.approx(loss.item(), abs=1e-12)


def test_the_posterior_of_being_no_noise():
    """A word that is told from itself as noise loses -log P - k log(1 - P)."""
    shares = [0.294118, 0.217391, 0.2, 0.25]
    encoder, term = biases(DATA.log()), noisy(3, shared=True)
    for word, p in enumerate(shares):
        loss = term.told(encoder, encoder, lane([word], [word]), torch.zeros(1)).item()
        assert loss == pytest.approx(-math.log(p) - 3 * math.log(1 - p), abs=5e-6)


def test_how_sure_parts_of_the_loss_move_a_score():
    """d log P = k q / (u + k q), and d log (1 - P) = -u / (u + k q), for a step of log u."""
    encoder = biases(S)
    term = noisy(3, shared=True)
    term.told(encoder, encoder, lane([0], [1]), torch.zeros(1)).backward()
    right, wrong = encoder.rows.weight.grad.to_dense()[:2, 0].tolist()
    assert -right == pytest.approx(0.306257, abs=1.5e-6) and -wrong / 3 == pytest.approx(-0.575752, abs=1.5e-6)


def test_the_mean_of_many_sampled_losses_is_the_objective():
    torch.manual_seed(0)
    encoder, term, times = biases(S), noisy(5), 40_000
    words = torch.multinomial(DATA, times, replacement=True)
    windows = Windows(torch.zeros(times, 0, dtype=torch.int64), words)
    found = term.told(encoder, encoder, Told(windows, term.noise.draw(times, 5)), torch.zeros(1)) / times
    assert found.item() == pytest.approx(-plain_objective(S, DATA, 5).item(), rel=0.01)


def test_noise_that_all_share_is_expected_to_lose_the_same():
    torch.manual_seed(0)
    encoder, words = biases(S), [0, 1, 1, 3]
    wide = Telling(NoiseWords(count=5, shared=True, drawn=50_000), Unnormalised(), COUNTS).double()
    drawn = Told(lane(words, [0]).windows, wide.noise.draw(50_000))
    found = wide.told(encoder, encoder, drawn, torch.zeros(1)) / len(words)
    shares = torch.bincount(torch.tensor(words), minlength=4) / len(words)
    assert found.item() == pytest.approx(-plain_objective(S, shares, 5).item(), rel=0.01)


def test_shared_noise_of_as_many_words_is_the_same_loss():
    encoder = biases(S)
    shared = Telling(NoiseWords(count=3, shared=True), Unnormalised(), COUNTS).double()
    one, each = lane([0, 2], [1, 1, 3]), lane([0, 2], [[1, 1, 3], [1, 1, 3]])
    found = shared.told(encoder, encoder, one, torch.zeros(1)), noisy(3).told(encoder, encoder, each, torch.zeros(1))
    assert found[0].item() == pytest.approx(found[1].item(), abs=1e-12)


def test_the_softmax_over_all_words_is_that_of_a_pool_that_holds_them_all():
    """A language model is InfoNCE whose candidates are the whole vocabulary."""
    encoder = NPLM(5, order=3, word_width=2, hidden=3).double()
    windows = encoder.windows(torch.tensor([[0, 3, 1]]), torch.tensor([3]))
    found = Telling(EveryWord(), Normalised(), torch.ones(6)).told(
        encoder, encoder, Told(windows, None), torch.zeros(1)
    )
    score = dot(encoder.anchors(windows.input), encoder.outputs.weight)
    assert found.item() == pytest.approx(softmax(score, windows.target_P[:, None])[0].item(), abs=1e-12)


def pair_of_tables(one, other):
    towers = []
    for rows in (one, other):
        table = Table(len(rows), width=3).double()
        with torch.no_grad():
            table.words.weight.copy_(torch.tensor(rows, dtype=torch.float64))
        towers.append(table)
    return towers


def test_negative_sampling_of_word_vectors():
    source, output = pair_of_tables(A[:1], [B[0], C[0], C[1]])
    term = Telling(NoiseWords(count=2, correct=False), Unnormalised(), torch.ones(3)).double()
    drawn = Told(Windows(torch.tensor([0]), torch.tensor([0]), torch.tensor([0])), torch.tensor([[1, 2]]))
    loss = term.told(source, output, drawn, torch.zeros(1))
    loss.backward()
    assert loss.item() == pytest.approx(1.784709, abs=1.5e-6)
    assert source.words.weight.grad[0].tolist() == pytest.approx([-0.186466, 0.594851, -0.044886], abs=1.5e-6)


def test_shared_noise_counts_for_each_word_that_an_anchor_tells():
    source, output = pair_of_tables(A[:2], [B[0], C[0], C[1]])
    windows = Windows(torch.tensor([0, 1]), torch.tensor([0, 2, 1]), torch.tensor([0, 0, 1]))
    losses = []
    for shared, noise in ((True, [1, 2]), (False, [[1, 2]] * 3)):
        words = NoiseWords(count=2, correct=False, shared=shared)
        term = Telling(words, Unnormalised(), torch.ones(3)).double()
        losses.append(term.told(source, output, Told(windows, torch.tensor(noise)), torch.zeros(1)).item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_softmax_of_word_vectors():
    source, output = pair_of_tables(A[:1], B)
    drawn = Told(Windows(torch.tensor([0]), torch.tensor([0]), torch.tensor([0])), None)
    loss = Telling(EveryWord(), Normalised(), torch.ones(4)).told(source, output, drawn, torch.zeros(1))
    assert loss.item() == pytest.approx(0.621382, abs=1.5e-6)


def test_noise_goes_by_a_power_of_the_counts():
    noise = Noise(torch.tensor([100.0, 50, 10, 1]), power=0.75)
    assert noise.log_q_V.exp().tolist() == pytest.approx([0.554307, 0.329593, 0.098571, 0.017529], abs=1.5e-6)


def test_common_words_are_kept_less_often():
    assert 1 - keep_chances(torch.tensor([1e-3, 1e-5, 1e-7, 0]), 1e-5).numpy() == pytest.approx(
        [0.9, 0, 0, 0], abs=1e-6
    )
    assert keep_chances(torch.tensor([0.5]), 0).item() == 1


@pytest.mark.parametrize("power", [0, 0.75, 1])
@pytest.mark.parametrize("seed", [None, 3])
def test_noise_is_drawn_as_often_as_it_should(power, seed):
    torch.manual_seed(0)
    counts = torch.cat([torch.arange(1, 20.0), torch.tensor([0, 500.0])])
    noise = Noise(counts, power=power)
    drawn = torch.bincount(noise.draw(300, 100, seed=seed).flatten(), minlength=len(counts))
    assert chisquare(drawn.numpy(), (noise.log_q_V.exp() * 30_000).numpy()).pvalue > 0.001


def test_a_word_that_the_corpus_lacks_counts_as_one():
    assert Noise(torch.tensor([0.0, 1, 2])).log_q_V.exp().tolist() == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("counts", [[1e30, 1.0, 0.0], [math.nan, 1.0]])
def test_a_word_that_noise_would_never_bring_is_refused(counts):
    with pytest.raises(ValueError, match=r"noise gives word \d, .* every word that can occur needs one above 0"):
        Noise(torch.tensor(counts), power=12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, r"candidates\.count is 0; how many noise words"),
        ({"drawn": 7}, r"candidates\.drawn is 7; above 0 only where candidates\.shared"),
    ],
)
def test_noise_words_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        NoiseWords(**options)


@pytest.mark.parametrize(("candidates", "objective"), [(EveryWord(), Unnormalised()), (NoiseWords(), Normalised())])
def test_candidates_and_objectives_that_do_not_go_together_are_refused(candidates, objective):
    with pytest.raises(ValueError, match=r'noise goes with objective\.kind = "logistic"'):
        Telling(candidates, objective, COUNTS)
