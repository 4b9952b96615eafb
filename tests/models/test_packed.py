"""A text and its answer in one row: what stands where, what sees what, and what neither changes."""

import pytest
import torch
from tiny import WORDS, number, padded, tower

from models.generation import matched_and_told, told
from models.masked import surprise
from models.packed import fitting, pack, sees, telling

CLS, SEP, PAD = number("[CLS]", "[SEP]", "[PAD]")
TEXTS = [number("the", "old", "owl"), number("a", "baker"), number("red", "river", "sing", "##s", "slow")]
ANSWERS = [number("an", "owl"), number("the", "new", "baker", "wait", "##s"), []]


@pytest.fixture(scope="module", params=["first", "mean"])
def encoder(request):
    return tower(f"encoder.pooling='{request.param}'", name="simbert")


def packed(texts, answers, room=30):
    return pack(*padded(texts, 9), *padded(answers, 8), ends=(CLS, SEP), room=room, filler=PAD)


def test_a_row_is_a_text_and_its_answer_between_special_words():
    rows = packed([[7, 8], [7]], [[9], [8, 9, 7]])
    assert rows.id_LS.tolist() == [[CLS, 7, 8, SEP, 9, SEP, PAD], [CLS, 7, SEP, 8, 9, 7, SEP]]
    assert rows.whole_L.tolist() == [6, 7]


def test_segment_zero_goes_up_to_and_with_the_first_end():
    rows = packed([[7, 8], [7]], [[9], [8, 9, 7]])
    assert rows.segment_LS[0, :6].tolist() == [0, 0, 0, 0, 1, 1] and rows.segment_LS[1].tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
        1,
    ]


def test_what_is_told_is_the_answer_and_its_end():
    rows = packed([[7, 8], [7]], [[9], [8, 9, 7]])
    assert rows.tells().nonzero().tolist() == [[0, 3], [0, 4], [1, 2], [1, 3], [1, 4], [1, 5]]
    assert rows.told().tolist() == [9, SEP, 8, 9, 7, SEP]


def test_a_text_without_an_answer_stands_alone_and_tells_nothing():
    rows = packed([[7, 8], [7]], [[], [9]])
    assert rows.id_LS[0].tolist() == [CLS, 7, 8, SEP, PAD] and rows.told().tolist() == [9, SEP]
    assert not len(packed([[7, 8]], [[]]).told())


def test_a_text_is_seen_whole_and_an_answer_up_to_its_own_place():
    expected = ["11100", "11100", "11100", "11110", "11111"]
    found = sees(torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([5]))
    assert ["".join(map(str, row)) for row in found[0, 0].long().tolist()] == expected


def test_what_fills_is_seen_by_none():
    found = sees(torch.tensor([[0, 0, 0, 1, 1]]), torch.tensor([4]))
    assert not found[0, 0, :, 4].any() and found.any(dim=-1).all()


def test_an_answer_is_cut_to_what_its_text_leaves():
    """Of ten places beside first and last word: a text of five, one more end, an answer of four."""
    rows = packed([[7] * 5, [7] * 9, [7] * 12], [[8] * 6, [8], [8]], room=10)
    assert rows.whole_L.tolist() == [12, 11, 12]
    assert rows.told().tolist() == [8, 8, 8, 8, SEP]


def test_how_many_are_told_is_known_from_the_lengths():
    texts, answers = [[7] * size for size in (1, 3, 5, 9, 10, 12)], [[8] * size for size in (3, 0, 6, 1, 1, 2)]
    lengths = padded(texts)[1], padded(answers)[1]
    assert telling(fitting(*lengths, 10)).sum() == len(packed(texts, answers, room=10).told()) == 4 + 5


def test_loss_of_words_whose_scores_are_known():
    score_SV = torch.tensor([[2, 1, 0, -1], [0.5, 0.5, 0.5, 0.5], [0, 3, 1, 0], [1, 1, 2, 0]], dtype=torch.float64)
    score_SV.requires_grad_()
    next_S, tells_S = torch.tensor([0, 2, 1, 2]), torch.tensor([False, False, True, True])
    loss = surprise(score_SV[tells_S], next_S[tells_S]) / 2
    loss.backward()
    assert loss.item() == pytest.approx(0.418760, abs=1.5e-6)
    expected = (score_SV.detach().softmax(dim=1) - torch.eye(4)[next_S]) / 2 * tells_S[:, None]
    torch.testing.assert_close(score_SV.grad, expected)


def test_the_vector_is_that_of_the_text_alone(encoder):
    vector_LD, _ = matched_and_told(encoder, *padded(TEXTS), *padded(ANSWERS))
    torch.testing.assert_close(vector_LD, encoder(*padded(TEXTS)), atol=1e-6, rtol=0)


def test_the_vector_is_that_of_the_text_alone_where_the_answer_was_cut(encoder):
    long, answers = [[9] * 58, [9] * 61, [9] * 62, [9] * 70], [number("owl") * 20] * 4
    assert encoder.room() == 62
    vector_LD, _ = matched_and_told(encoder, *padded(long), *padded(answers))
    torch.testing.assert_close(vector_LD, encoder(*padded(long)), atol=1e-6, rtol=0)


def test_an_answer_is_told_word_by_word(encoder):
    """Each from a row that ends where it would stand: nothing behind it can have been read."""
    _, nats = matched_and_told(encoder, *padded(TEXTS), *padded(ANSWERS))
    expected = 0.0
    for text, answer in zip(TEXTS, ANSWERS, strict=True):
        for count, word in enumerate([*answer, SEP] if answer else []):
            ids = [CLS, *text, SEP, *answer[:count]]
            segment_S = torch.tensor([[0] * (len(text) + 2) + [1] * count])
            mask_SS = sees(segment_S, torch.tensor([len(ids)]))
            state = encoder.body(
                input_ids=torch.tensor([ids]), attention_mask=mask_SS, token_type_ids=segment_S
            ).last_hidden_state[0, -1:]
            expected -= encoder.words_at(state).log_softmax(dim=1)[0, word].item()
    assert nats.item() == pytest.approx(expected, abs=1e-9)
    assert told(encoder, padded(TEXTS)[1], padded(ANSWERS)[1]) == 3 + 6


def test_what_an_answer_tells_depends_on_the_text(encoder):
    of_text = lambda text: matched_and_told(encoder, *padded([text]), *padded(ANSWERS[:1]))[1].item()
    assert abs(of_text(TEXTS[0]) - of_text(TEXTS[1])) > 1e-6


def test_columns_that_fill_change_nothing(encoder):
    narrow = matched_and_told(encoder, *padded(TEXTS), *padded(ANSWERS))
    wide = matched_and_told(encoder, *padded(TEXTS, 5, extra=4), *padded(ANSWERS, 6, extra=7))
    for one, other in zip(narrow, wide, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_the_mask_reaches_attention_as_it_is(encoder):
    """The library makes its own of two dimensions, and passes one of four on."""
    seen, rows = [], packed(TEXTS, ANSWERS, encoder.room())
    part = encoder.body.encoder.layer[0].attention.self
    hook = part.register_forward_pre_hook(
        lambda _, args, given: seen.append((*args, *given.values())), with_kwargs=True
    )
    encoder.packed(rows)
    hook.remove()
    assert any(
        isinstance(one, torch.Tensor) and one.dtype == torch.bool and torch.equal(one, rows.sees()) for one in seen[0]
    )


def test_without_telling_only_the_vector_is_made(encoder):
    vector_LD, nats = matched_and_told(encoder, *padded(TEXTS), *padded(ANSWERS), telling=False)
    torch.testing.assert_close(vector_LD, encoder(*padded(TEXTS)))
    assert nats.item() == 0


def test_words_that_no_answer_holds_are_told_to_be_likely_as_any():
    """Scores that are all alike tell nothing apart: log V a token."""
    flat = tower(name="simbert")
    with torch.no_grad():
        for weight in flat.whole.cls.parameters():
            weight.zero_()
    _, nats = matched_and_told(flat, *padded(TEXTS), *padded(ANSWERS))
    assert nats.item() / 9 == pytest.approx(torch.tensor(float(len(WORDS))).log().item(), abs=1e-6)
