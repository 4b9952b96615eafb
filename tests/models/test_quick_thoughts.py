"""
Quick-Thoughts put together from its parts, against numbers worked out by plain numpy in float64.

Logeswaran and Lee 2018, equations 1 and 2: f of a sentence finds g of its neighbours among the batch. Rows of F and G
are what the two encoders say of four consecutive sentences.
"""

import math

import pytest
import torch

from models.candidates import Rows, batch, scores
from models.objectives import binary, margin, softmax
from models.similarity import cosine, dot

F = [[1, 0.5, -0.5], [0.2, -1, 0.3], [-0.7, 0.4, 0.9], [0.6, 0.8, 0.1]]
G = [[0.9, 0.4, -0.6], [0.1, -0.8, 0.5], [-0.5, 0.6, 0.7], [0.7, 0.6, 0.3]]


def vectors():
    return [torch.tensor(side, dtype=torch.float64, requires_grad=True) for side in (F, G)]


def neighbours(context_size=1, documents=(0, 0, 0, 0), distances=None):
    """Right answers of each row: those at the given distances, by default both ways, in its own document."""
    found = []
    for i, document in enumerate(documents):
        at = [i + d for d in distances or range(-context_size, context_size + 1) if d]
        right = [j for j in at if 0 <= j < len(documents) and documents[j] == document]
        found.append(right + [-1] * (2 * context_size - len(right)))
    return found


def sentences(answers, group=None):
    return Rows(
        torch.zeros(len(answers), dtype=torch.uint8), torch.tensor(group or range(len(answers))), torch.tensor(answers)
    )


def lost(rows, f, g, anchors=None, similarity=dot, objective=softmax, **options):
    """Sum and count of the objective over some anchors, by default all."""
    anchors = rows.anchors() if anchors is None else anchors
    pool = batch(rows, anchors, g, **options)
    return objective(scores(pool, f[anchors], similarity), pool.answer_AP)


def mean(rows, f, g, **options):
    nats, anchors = lost(rows, f, g, **options)
    return nats / anchors


def printed(*values):
    return pytest.approx(values if len(values) > 1 else values[0], abs=1.5e-6)


@pytest.mark.parametrize(
    ("context_size", "own", "expected"), [(1, "zero", 1.540903), (1, "mask", 1.235229), (2, "zero", 1.719653)]
)
def test_loss_of_one_document(context_size, own, expected):
    assert mean(sentences(neighbours(context_size)), *vectors(), self=own).item() == printed(expected)


def test_gradient_when_the_own_score_is_zero():
    f, g = vectors()
    mean(sentences(neighbours()), f, g, self="zero").backward()
    assert f.grad[0].tolist() == printed(0.053277, 0.271680, -0.047431)


def test_gradients_when_the_own_row_is_left_out():
    f, g = vectors()
    mean(sentences(neighbours()), f, g).backward()
    assert f.grad[0].tolist() == printed(0.075684, 0.292198, -0.025228)
    assert g.grad[0].tolist() == printed(0.047385, 0.163593, 0.035048)


def test_a_neighbour_across_a_documents_border_is_no_answer():
    assert mean(sentences(neighbours(documents=(0, 0, 1, 1))), *vectors()).item() == printed(1.228979)


def test_next_sentences_alone_leave_three_anchors():
    rows = sentences(neighbours(distances=[1]))
    assert len(rows.anchors()) == 3
    assert mean(rows, *vectors()).item() == printed(1.281792)


def test_log_probabilities_of_all_neighbouring_pairs():
    pairs = [(i, [j]) for i, right in enumerate(neighbours()) for j in right if j >= 0]
    f, g = vectors()
    total = 0.0
    for i, right in pairs:
        rows = sentences([right if row == i else [-1] for row in range(4)])
        total -= lost(rows, f, g)[0].item()
    assert len(pairs) == 6
    assert total == printed(-6.920377)


def test_workers_sums_over_the_whole_batchs_count_are_the_whole_loss():
    rows = sentences(neighbours(documents=(0, 1, 1, 1)))
    f, g = vectors()
    shares = [rows.anchors()[rows.anchors() < 2], rows.anchors()[rows.anchors() >= 2]]
    parts = [lost(rows, f, g, anchors=share) for share in shares]
    assert [count.item() for _, count in parts] == [1, 2]
    assert (sum(nats for nats, _ in parts) / sum(count for _, count in parts)).item() == printed(1.061667)
    assert sum(nats / count for nats, count in parts).item() / 2 == printed(1.088725)  # what a mean of means would say


def test_whether_each_sentence_is_a_neighbour():
    nats, pairs = lost(sentences(neighbours()), *vectors(), objective=binary)
    assert ((nats / pairs).item(), nats.item(), pairs.item()) == (printed(0.745014), printed(8.940165), 12)


def test_neighbours_by_a_margin():
    lack, triples = lost(sentences(neighbours()), *vectors(), objective=margin)
    assert ((lack / triples).item(), triples.item()) == (printed(0.915000), 8)


def test_groups_of_their_own_change_nothing():
    rows = sentences(neighbours(), group=[40, -7, 12, 3])
    assert mean(rows, *vectors()).item() == printed(1.235229)


def test_a_repeat_of_an_anchor_or_answer_is_not_told_apart_from_it():
    f, g = vectors()
    rows = sentences(neighbours(), group=[0, 1, 2, 0])  # the last sentence repeats the first
    s = (f @ g.T).tolist()
    told_apart = {0: (1, 2), 1: (0, 2), 2: (1, 3), 3: (1, 2)}  # not: 0 from 3, 1 from 3, 2 from 0, 3 from 0
    plain = []
    for i, columns in told_apart.items():
        right = [j for j in neighbours()[i] if j >= 0]
        below = math.log(sum(math.exp(s[i][j]) for j in columns))
        plain.append(below - sum(s[i][j] for j in right) / len(right))
    assert mean(rows, f, g).item() == pytest.approx(sum(plain) / 4, abs=1e-12)


def test_loss_cannot_fall_below_that_of_knowing_all_neighbours():
    size = 12
    answers = neighbours(documents=(0,) * size)
    sure = torch.full((size, size), -1000.0)
    for i, right in enumerate(answers):
        sure[i, [j for j in right if j >= 0]] = 0.0
    rows = sentences(answers)
    assert mean(rows, sure, torch.eye(size)).item() == pytest.approx((size - 2) / size * math.log(2))


def test_one_rotation_of_both_towers_changes_nothing():
    f, g = vectors()
    turn = torch.linalg.qr(torch.tensor([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]], dtype=torch.float64)).Q
    rows = sentences(neighbours())
    assert mean(rows, f @ turn, g @ turn).item() == pytest.approx(mean(rows, f, g).item(), abs=1e-12)


def test_longer_vectors_change_the_loss():
    f, g = vectors()
    rows = sentences(neighbours())
    assert abs(mean(rows, 2 * f, g).item() - mean(rows, f, g).item()) > 0.01


def test_with_cosine_the_gradient_stands_upright_on_every_vector():
    f, g = vectors()
    mean(sentences(neighbours()), f, g, similarity=cosine).backward()
    for side in (f, g):
        assert (side * side.grad).sum(dim=1).abs().max().item() < 1e-15


def test_a_filler_changes_nothing():
    f, g = vectors()
    longer = [torch.cat([side, torch.full((1, 3), 9.0, dtype=torch.float64)]) for side in (f, g)]
    rows = Rows(
        torch.tensor([0, 0, 0, 0, 3], dtype=torch.uint8), torch.arange(5), torch.tensor([*neighbours(), [-1, -1]])
    )
    assert mean(rows, *longer).item() == printed(1.235229)
