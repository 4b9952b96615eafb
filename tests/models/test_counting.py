"""N-gram counts and probabilities: values worked out by hand, and a slower, plainer way."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.counting import Counts, Formula, windows

WORDS = ["the", "cat", "sat", "ran", "a"]
END, START = len(WORDS), len(WORDS) + 1
TEXTS = ["the cat sat", "the cat ran", "a cat sat"]
SMOOTHINGS = ["mle", "add-k", "interpolated", "backoff"]


def grams(texts, order, end):
    """Rows of `windows` of texts that are lists of numbers."""
    id_N = np.array([word for text in texts for word in text], dtype=np.uint32)
    return windows(id_N, np.array([len(text) for text in texts], dtype=np.int64), order, end)


def counted(texts, order, end):
    return Counts(*np.unique(grams(texts, order, end), axis=0, return_counts=True), end + 1)


def numbered(text):
    return [WORDS.index(word) for word in text.split()]


def number(word):
    return {"<s>": START, "</s>": END}.get(word, WORDS.index(word) if word in WORDS else None)


@pytest.fixture(scope="module")
def cats():
    return counted([numbered(text) for text in TEXTS], 2, END)


def p(counts, context, word, smoothing="mle"):
    """Probability of a word after one word."""
    return counts.probability(np.array([[number(context), number(word)]], dtype=np.uint32), Formula(smoothing))[0]


def log_p(counts, text, smoothing="mle"):
    """Logarithms of a text's words and end."""
    return np.log(counts.probability(grams([numbered(text)], counts.order, END), Formula(smoothing)))


@pytest.mark.parametrize(
    ("context", "word", "share"),
    [("<s>", "the", 2 / 3), ("the", "cat", 1), ("cat", "sat", 2 / 3), ("sat", "</s>", 1), ("cat", "the", 0)],
)
def test_the_share_of_a_words_followers_is_its_probability(cats, context, word, share):
    assert p(cats, context, word) == pytest.approx(share, abs=1e-12)


def test_the_training_texts_have_the_likelihood_and_perplexity_worked_out_by_hand(cats):
    total = np.concatenate([log_p(cats, text) for text in TEXTS])
    assert len(total) == 12
    assert total.sum() == pytest.approx(-3.819085, abs=1e-6)
    assert np.exp(-total.mean()) == pytest.approx(1.374730, abs=1e-6)


def test_a_text_that_was_never_seen_is_made_of_pairs_that_were(cats):
    assert np.exp(log_p(cats, "a cat ran").sum()) == pytest.approx(1 / 9, abs=1e-12)


def test_the_four_texts_that_pairs_of_words_can_make_sum_to_one(cats):
    texts = [f"{first} cat {last}" for first in ("the", "a") for last in ("sat", "ran")]
    assert sum(np.exp(log_p(cats, text).sum()) for text in texts) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("smoothing", "seen", "unseen", "perplexity"),
    [
        ("add-k", 1 / 3, 1 / 9, 3.166480),
        ("interpolated", 0.516667, 0.05, 1.774009),
        ("backoff", 0.5, 0.074074, 2.098230),
    ],
)
def test_smoothing_gives_the_values_worked_out_by_hand(cats, smoothing, seen, unseen, perplexity):
    assert p(cats, "cat", "sat", smoothing) == pytest.approx(seen, abs=1.5e-6)
    assert p(cats, "cat", "the", smoothing) == pytest.approx(unseen, abs=1.5e-6)
    logs = np.concatenate([log_p(cats, text, smoothing) for text in TEXTS])
    assert np.exp(-logs.mean()) == pytest.approx(perplexity, abs=1.5e-6)


def test_counts_are_what_gradient_ascent_on_the_likelihood_would_end_at():
    """d log-likelihood / d theta = N(w) - N p(w) for log p = log-softmax(theta): none at the counts' share."""
    count_V = torch.tensor([2.0, 1.0], dtype=torch.float64)
    gradient = lambda theta_V: torch.autograd.grad((count_V @ theta_V.log_softmax(0)), theta_V)[0]
    away_V = gradient(torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True))
    assert away_V.tolist() == pytest.approx([0.132622, -0.132622], abs=1e-6)
    counts = counted([[0], [0], [1]], 2, 2)
    share_V = counts.probability(np.array([[3, 0], [3, 1]], dtype=np.uint32), Formula("mle"))
    assert gradient(torch.tensor(np.log(share_V), requires_grad=True)).abs().max() < 1e-12


def test_an_unseen_context_has_no_share_at_all(cats):
    with np.errstate(divide="raise"):
        assert p(cats, "</s>", "the") == 0


def test_windows_look_back_to_the_texts_start_and_no_further():
    rows = grams([[0, 1], [2]], 3, 9)
    assert rows.tolist() == [[10, 10, 0], [0, 10, 1], [1, 0, 9], [10, 10, 2], [2, 10, 9]]


def test_a_text_without_words_is_its_end_alone():
    assert grams([[], [4], []], 2, 9).tolist() == [[10, 9], [10, 4], [4, 9], [10, 9]]


class Plain:
    """Probabilities by the definitions, one at a time, from a dictionary."""

    def __init__(self, texts, order, end):
        self.order, self.words, self.seen = order, range(end + 1), Counter()
        for text in texts:
            padded = [*[end + 1] * (order - 1), *text, end]
            for at in range(order - 1, len(padded)):
                for length in range(order):
                    self.seen[tuple(padded[at - length : at]), padded[at]] += 1

    def p(self, context, word, smoothing):
        count, total = self.seen[context, word], sum(self.seen[context, other] for other in self.words)
        if smoothing == "mle":
            return count / total if total else 0
        if smoothing == "add-k":
            return (count + 1) / (total + len(self.words))
        shorter = lambda other: self.p(context[1:], other, smoothing) if context else 1 / len(self.words)
        if total == 0:
            return shorter(word)
        if smoothing == "interpolated":
            return 0.7 * count / total + 0.3 * shorter(word)
        unseen = [other for other in self.words if not self.seen[context, other]]
        if not unseen:
            return count / total
        if count:
            return (count - 0.5) / total
        rest = 0.5 / total * (len(self.words) - len(unseen))
        return rest * shorter(word) / sum(shorter(other) for other in unseen)


corpora = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=8)
contexts = st.lists(st.integers(0, 4).filter(lambda word: word != 3), max_size=3)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(texts=corpora, context=contexts)
def test_probabilities_are_those_of_the_definitions(smoothing, texts, context):
    order, end = len(context) + 1, 3
    row = [*reversed(context)]
    rows = np.array([[*row, word] for word in range(end + 1)], dtype=np.uint32)
    found = counted(texts, order, end).probability(rows, Formula(smoothing))
    plain = Plain(texts, order, end)
    assert found.tolist() == pytest.approx([plain.p(tuple(context), word, smoothing) for word in plain.words], abs=1e-9)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(texts=corpora, context=contexts)
def test_probabilities_after_any_context_sum_to_one(smoothing, texts, context):
    rows = np.array([[*reversed(context), word] for word in range(4)], dtype=np.uint32)
    total = counted(texts, len(context) + 1, 3).probability(rows, Formula(smoothing)).sum()
    assert total == pytest.approx(1, abs=1e-9) or (smoothing == "mle" and total == 0)


def test_a_context_and_a_word_beyond_sixteen_bits_are_told_apart():
    """Numbers whose low halves are equal."""
    counts = counted([[5, 5 + (1 << 16)], [5 + (1 << 17), 5]], 3, 1 << 20)
    rows = np.array([[5, (1 << 20) + 1, 5 + (1 << 16)], [5, (1 << 20) + 1, 5]], dtype=np.uint32)
    assert counts.probability(rows, Formula("mle")).tolist() == [1, 0]


def test_single_words_are_counted_with_their_end(cats):
    assert cats.word_counts.tolist() == [2, 3, 2, 1, 1, 3]
