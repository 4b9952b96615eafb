"""The queue of a momentum encoder: what it holds, how the slow encoder follows, and the order within a step."""

import pytest
import torch
from tiny import build, drawn_examples, padded

from models.encoding import Setup
from models.gathering import World
from models.optimizer import optimizer
from models.queue import Queue
from models.reduction import trainable
from models.step import step_gradient

SIZE = "terms.0.candidates.queue=13"


def method_of(name="esimcse", *overrides):
    return build(name, SIZE, *overrides).train()


def batch(seed):
    return drawn_examples(torch.Generator().manual_seed(seed), "single", 20, repeated=True)


class _Plain(torch.nn.Module):
    """One number that is the encoder."""

    width = 1

    def __init__(self, value):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor([value], dtype=torch.float64))

    def share_head(self, other):
        """It has none."""

    @classmethod
    def queue(cls, size, momentum=0.995):
        return Queue(cls(1.0), size, momentum).double()


def rows(first):
    return torch.tensor([[first], [first + 1]], dtype=torch.float64)


def test_the_newest_stay_in_order():
    queue = _Plain.queue(5)
    held = []
    for at in range(4):
        queue.push(rows(10 * at), torch.tensor([at, at]))
        held.append(queue.memory().vector_MD.flatten().tolist())
    assert held == [[0, 1], [0, 1, 10, 11], [1, 10, 11, 20, 21], [11, 20, 21, 30, 31]]
    assert queue.memory().group_M.tolist() == [1, 2, 2, 3, 3]


def test_more_than_it_holds_leaves_the_last():
    queue = _Plain.queue(1)
    queue.push(rows(3), torch.tensor([5, 6]))
    assert queue.memory().vector_MD.tolist() == [[4]] and queue.memory().group_M.tolist() == [6]


def test_a_new_queue_holds_nothing():
    assert _Plain.queue(5).memory() is None


def test_the_slow_encoder_follows():
    queue, found = _Plain.queue(1), []
    for online in (2.0, 3.0, 2.5):
        queue.follow(_Plain(online))
        found.append(queue.slow.value.item())
    assert found == pytest.approx([1.005, 1.014975, 1.022400], abs=5e-7)


def test_what_is_left_after_a_thousand_steps():
    queue = _Plain.queue(1)
    for _ in range(1000):
        queue.follow(_Plain(0.0))
    assert queue.slow.value.item() == pytest.approx(0.006654, abs=5e-7)


TEXTS = padded([[20, 21, 22], [23], [24, 25]])


@pytest.mark.parametrize("name", ["esimcse", "esimcse-prompt", "promptbert-sup"])
def test_a_new_slow_encoder_equals_the_trained_one(name):
    method = method_of(name).eval()
    view = torch.tensor([0, 1, 0])
    assert torch.equal(method.queue(0).encode(*TEXTS, view), method.encode("f", *TEXTS, None, view))


def test_started_again_it_equals_the_weights_that_were_loaded():
    method = method_of()
    with torch.no_grad():
        for weight in method.towers.parameters():
            weight.add_(0.1)
    method.start_queues()
    assert torch.equal(method.eval().queue(0).encode(*TEXTS, None), method.encode("f", *TEXTS))


@pytest.mark.parametrize("name", ["esimcse", "promptbert-sup"])
def test_the_head_is_shared_and_nothing_else(name):
    method = method_of(name)
    trained, slow = method.tower("f"), method.queue(0).slow
    head = trained._transform() if trained.head_kind == "transform" else trained.head
    own = {id(weight) for weight in slow.parameters()} & {id(weight) for weight in trained.parameters()}
    assert own == {id(weight) for weight in head.parameters()} and own


def test_only_the_trained_encoder_moves_by_gradient():
    method = method_of()
    step_gradient(method, batch(0), 0, Setup(0, 6, "fp64"), World())
    trained = {id(weight) for weight in method.towers.parameters()}
    assert {id(weight) for weight in trainable(method)} == trained
    assert all(weight.grad is None for weight in method.queues.parameters() if id(weight) not in trained)


def test_entries_are_drawn_without_dropout_and_dropout_goes_on_after():
    method = method_of("esimcse", "encoder.dropout=0.5")
    queue = method.queue(0)
    assert torch.equal(queue.encode(*TEXTS, None), queue.encode(*TEXTS, None))
    assert all(module.training for module in queue.modules())


def stepped(method, seeds):
    moving = list(trainable(method))
    optimize, losses = optimizer(moving, method.recipe.training.model_copy(update={"rate": 0.01})), []
    for step, seed in enumerate(seeds):
        losses.append(step_gradient(method, batch(seed), step, Setup(0, 6, "fp64"), World()))
        optimize.step()
    return losses


def test_the_first_step_meets_an_empty_queue():
    assert stepped(method_of(), [0]) == stepped(build("esimcse", "terms.0.candidates.queue=0").train(), [0])


def test_the_second_step_meets_the_first_ones_entries():
    with_queue, without = method_of(), build("esimcse", "terms.0.candidates.queue=0").train()
    assert stepped(with_queue, [0, 1])[1] > stepped(without, [0, 1])[1]


def test_a_steps_first_views_enter_in_batch_order():
    """9 texts a batch, of 13 places; the slow encoder is then that of before the step, moved by the weights then."""
    method = method_of()
    stepped(method, [0])
    held = method.queue(0).memory()
    expected = build("esimcse", SIZE).encode("f", *batch(0).padded(torch.arange(0, 18, 2)))
    assert torch.allclose(held.vector_MD, expected, atol=1e-12)
    assert held.group_M.tolist() == batch(0).rows.group_B[0:18:2].tolist()


def test_the_slow_encoder_follows_the_weights_of_before_the_step():
    method, before = method_of("esimcse", "terms.0.candidates.momentum=0"), build("esimcse")
    stepped(method, [0])
    slow = dict(method.queue(0).slow.body.named_parameters())
    assert all(torch.allclose(slow[name], weight) for name, weight in before.tower("f").body.named_parameters())


def test_a_text_that_comes_again_does_not_meet_its_own_entry():
    """Fed with one batch over and over, a text's candidates from the queue are all others'."""
    method = method_of()
    stepped(method, [0, 0])
    rows = batch(0).rows
    vectors = torch.zeros(20, 16, dtype=torch.float64)
    term = method.summands[0]
    pool = term.candidates(rows, term.anchors(rows), vectors, memory=method.queue(0).memory())
    held = method.queue(0).memory().group_M
    out = pool.shift_AC[:, 20:].isneginf()
    assert torch.equal(out, rows.group_B[term.anchors(rows)][:, None] == held)


def test_a_queue_is_part_of_a_runs_state():
    method = method_of()
    stepped(method, [0, 1])
    again = build("esimcse", SIZE, seed=5).train()
    again.load_state_dict(method.state_dict())
    found = [step_gradient(each, batch(2), 2, Setup(0, 6, "fp64"), World()) for each in (method, again)]
    assert found[0] == found[1]
