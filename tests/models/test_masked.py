"""Masked words: which are chosen, what stands in their place, and the loss of telling them."""

import math

import pytest
import torch
from scipy.stats import chisquare
from tiny import SPECIAL, WORDS, build, drawn_examples, number, padded, tower, words

from models.encoding import Setup
from models.gathering import World
from models.masked import hide, told
from models.recipe import RecipeError
from models.step import step_gradient

MASK = WORDS.index("[MASK]")


@pytest.fixture(scope="module")
def encoder():
    return tower(name="mlm")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def many(count=2000, length=10):
    draw = torch.Generator().manual_seed(1)
    return torch.randint(len(SPECIAL), len(WORDS), (count, length), generator=draw), torch.full((count,), length)


def agree(found, expected):
    """Counts are those of the expected shares, as far as chance allows."""
    total = sum(found)
    return chisquare(found, [total * share for share in expected]).pvalue > 0.001


def test_so_many_tokens_are_chosen(encoder):
    for rate in (0.15, 0.4):
        chosen = hide(encoder, *many(), rate=rate).chosen_LT
        assert agree([chosen.sum().item(), (~chosen).sum().item()], [rate, 1 - rate])


def test_of_ten_chosen_eight_are_hidden_one_is_changed_and_one_stays(encoder):
    ids, lengths = many()
    hidden = hide(encoder, ids, lengths)
    there = hidden.id_LT[hidden.chosen_LT]
    as_mask, same = (there == MASK).sum().item(), (there == hidden.target_N).sum().item()
    other = len(there) - as_mask - same
    chance = 1 / len(WORDS)  # that a changed word is the mask word, or the one that stood there
    assert agree([as_mask, same, other], [0.8 + 0.1 * chance, 0.1 + 0.1 * chance, 0.1 * (1 - 2 * chance)])


def test_a_changed_word_may_be_any(encoder):
    ids, lengths = many(6000)
    hidden = hide(encoder, ids, lengths, rate=0.5)
    there = hidden.id_LT[hidden.chosen_LT]
    changed = there[(there != MASK) & (there != hidden.target_N)]
    others = [at for at in range(5) if at != MASK]  # never there before, so not thinned out
    assert all((changed == at).any() for at in range(len(WORDS)) if at != MASK)
    assert agree([(changed == at).sum().item() for at in others], [0.25] * 4)


def test_what_is_not_chosen_stays(encoder):
    ids, lengths = many()
    hidden = hide(encoder, ids, lengths)
    assert torch.equal(hidden.id_LT[~hidden.chosen_LT], ids[~hidden.chosen_LT])
    assert torch.equal(hidden.target_N, ids[hidden.chosen_LT])


def test_fillers_are_never_chosen(encoder):
    ids, _ = many()
    lengths = torch.arange(len(ids)) % 10 + 1
    chosen = hide(encoder, ids, lengths, rate=0.9).chosen_LT
    assert not chosen[torch.arange(10) >= lengths[:, None]].any()


def test_the_words_around_a_text_are_neither_hidden_nor_told(encoder):
    ids, lengths = padded([number("river", "sing"), number("owl")])
    seen = []
    handle = encoder.body.embeddings.word_embeddings.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    everything = torch.tensor([[True, True], [True, False]])
    states = encoder.states_of(torch.full_like(ids, MASK), lengths, everything)
    handle.remove()
    assert len(states) == 3
    assert [[WORDS[at] for at in row] for row in seen[0].tolist()] == [
        ["[CLS]", "[MASK]", "[MASK]", "[SEP]"],
        ["[CLS]", "[MASK]", "[SEP]", "<unk>" if encoder.filler == 0 else "[PAD]"],
    ]


def test_pieces_of_a_word_are_chosen_together(encoder):
    ids, lengths = padded([number("river", "##s", "sing", "##ing", "##ly", "owl", "##s")] * 3000)
    chosen = hide(encoder, ids, lengths, whole_words=True).chosen_LT
    for word in ((0, 1), (2, 3, 4), (5, 6)):
        assert all(torch.equal(chosen[:, word[0]], chosen[:, piece]) for piece in word)
        times = chosen[:, word[0]].sum().item()
        assert agree([times, 3000 - times], [0.15, 0.85])
    assert not torch.equal(chosen[:, 0], chosen[:, 2])


def test_else_pieces_are_chosen_one_by_one(encoder):
    ids, lengths = padded([number("river", "##s")] * 300)
    chosen = hide(encoder, ids, lengths).chosen_LT
    assert not torch.equal(chosen[:, 0], chosen[:, 1])


def test_loss_is_what_a_plain_loop_sums(encoder):
    texts = [number("river", "sing", "owl"), number("baker")]
    ids, lengths = padded(texts)
    hidden = hide(encoder, ids, lengths, rate=0.7)
    assert hidden.chosen_LT.sum() >= 2
    total = 0.0
    for row, text in enumerate(texts):
        whole = [WORDS.index("[CLS]"), *hidden.id_LT[row, : len(text)].tolist(), WORDS.index("[SEP]")]
        scores = encoder.whole(input_ids=torch.tensor([whole])).logits[0].tolist()
        for place, word in enumerate(text):
            if hidden.chosen_LT[row, place]:
                line = scores[place + 1]
                total += math.log(sum(map(math.exp, line))) - line[word]
    found = told(encoder, hidden, lengths)
    assert found.dtype == torch.float64 and found.item() == pytest.approx(total, abs=1e-10)


def test_where_nothing_is_chosen_nothing_is_lost(encoder):
    hidden = hide(encoder, *padded([number("owl")]), rate=1e-9)
    assert told(encoder, hidden, torch.tensor([1])).item() == 0


def test_a_new_encoder_knows_nothing():
    """Small weights tell no word from another: the logarithm of their number for each."""
    method = build("mlm")
    texts = torch.Generator().manual_seed(0)
    loss = step_gradient(method, drawn_examples(texts, "none", 200), 0, Setup(0, 50, "fp64"), World())
    assert loss == pytest.approx(math.log(len(WORDS)), rel=0.02)


def test_a_second_terms_weight_multiplies_its_part():
    batch = drawn_examples(torch.Generator().manual_seed(0), "single")
    consert, half, whole = (
        step_gradient(build("consert-mlm", f"terms.1.weight={weight}"), batch, 0, Setup(0, 5, "fp64"), World())
        for weight in (0, 0.5, 1)
    )
    assert whole - consert == pytest.approx(2 * (half - consert), rel=1e-9) and whole > consert


@pytest.mark.parametrize("rate", [0, 1, -0.1])
def test_a_rate_that_is_no_chance_is_refused(encoder, rate):
    with pytest.raises(ValueError, match=rf"objective\.rate is {rate}; a chance between 0 and 1"):
        hide(encoder, *padded([number("owl")]), rate=rate)


def test_a_tokenizer_without_mask_word_is_refused(encoder):
    around = encoder.around
    without = words().from_str(words().to_str().replace("[MASK]", "[HIDE]"))
    encoder.around = type(around)(without, around.views, around.readout, around.masked)
    with pytest.raises(RecipeError, match=r"the tokenizer has no \[MASK\] or <mask>; use one that has"):
        encoder.mask_word()
    encoder.around = around
