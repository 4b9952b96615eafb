"""Views inside the encoder: exact counts, what is left alone, and the words of a template."""

import pytest
import torch
from tiny import WORDS, number, padded, words

from models.recipe import RecipeError
from models.views import Frame, dropout, feature_cutoff, frame, framed, shuffle, split, token_cutoff

LENGTHS = torch.tensor([7, 3, 10, 1])
MOST = 10


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_a_shuffle_orders_real_places_anew_and_leaves_fillers():
    for _ in range(20):
        for length, place_T in zip(LENGTHS.tolist(), shuffle(LENGTHS, MOST).tolist(), strict=True):
            assert sorted(place_T[:length]) == list(range(length)) and place_T[length:] == list(range(length, MOST))


def test_a_shuffle_reaches_every_order():
    found = {tuple(row) for row in shuffle(torch.full((300,), 3), 3).tolist()}
    assert len(found) == 6


def test_a_token_cut_leaves_out_whole_tokens_an_exact_number_of_times():
    keep_LT1 = token_cutoff(LENGTHS, MOST, 5, rate=0.2)
    assert keep_LT1.shape == (4, MOST, 1)
    assert (~keep_LT1).sum(dim=(1, 2)).tolist() == [1, 0, 2, 0]  # int(7 * 0.2), int(3 * 0.2), ..


def test_a_feature_cut_leaves_out_the_same_columns_of_all_tokens():
    keep_L1D = feature_cutoff(LENGTHS, MOST, 768, rate=0.2)
    assert keep_L1D.shape == (4, 1, 768) and (~keep_L1D).sum(dim=2).flatten().tolist() == [153] * 4


def test_a_feature_cut_is_drawn_for_each_text():
    first, second, *_ = feature_cutoff(LENGTHS, MOST, 768, rate=0.2)
    assert not torch.equal(first, second)


def test_a_dropout_view_leaves_out_an_exact_number_of_real_numbers():
    keep_LTD = dropout(LENGTHS, MOST, 6, rate=0.2)
    assert (~keep_LTD).sum(dim=(1, 2)).tolist() == [int(n * 6 * 0.2) for n in LENGTHS.tolist()]


@pytest.mark.parametrize("cut", [token_cutoff, dropout])
def test_no_filler_is_ever_left_out(cut):
    for _ in range(20):
        keep = cut(LENGTHS, MOST, 6, rate=0.9).expand(4, MOST, 6)
        assert all(row[length:].all() for row, length in zip(keep, LENGTHS.tolist(), strict=True))


@pytest.mark.parametrize("cut", [token_cutoff, feature_cutoff, dropout])
def test_every_place_is_left_out_now_and_then(cut):
    keeps = torch.stack([cut(torch.tensor([5]), 5, 5, rate=0.4).expand(1, 5, 5) for _ in range(60)])
    assert not keeps.all(dim=0).any()


@pytest.mark.parametrize("cut", [token_cutoff, feature_cutoff, dropout])
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_that_is_no_share_is_refused(cut, rate):
    with pytest.raises(ValueError, match=rf"view\.rate is {rate}; it is a share to leave out"):
        cut(LENGTHS, MOST, 6, rate=rate)


def test_a_template_is_split_at_its_slot():
    assert split('so "[X]" means [MASK].') == ('so "', '" means [MASK].')


@pytest.mark.parametrize(("text", "slots", "masks"), [("a [MASK]", 0, 1), ("[X]", 1, 0), ("[X] [X] [MASK]", 2, 1)])
def test_a_template_has_one_slot_and_one_mask(text, slots, masks):
    with pytest.raises(ValueError, match="should have one of each, as in 'This sentence : ") as caught:
        split(text)
    assert str(caught.value).startswith(f'template "{text}" has {slots} [X] and {masks} [MASK]; ')


def named(found):
    return [[WORDS[at] for at in part] for part in (found.before, found.behind)]


def test_without_a_template_the_first_and_last_word_stand_around():
    assert named(frame(None, words())) == [["[CLS]"], ["[SEP]"]]


def test_a_templates_words_stand_around():
    found = frame('This sentence of "[X]" means [MASK].', words())
    assert named(found) == [["[CLS]", "this", "sentence", "of", '"'], ['"', "means", "[MASK]", ".", "[SEP]"]]
    assert (*found.before, *found.behind)[found.mask] == number("[MASK]")[0] and len(found) == 10


def test_the_mask_word_may_stand_before_the_text():
    found = frame("[MASK] means [X].", words())
    assert named(found) == [["[CLS]", "[MASK]", "means"], [".", "[SEP]"]] and found.mask == 1


def test_what_a_tokenizer_fills_texts_up_with_is_no_part_of_a_template():
    filling = words()
    filling.enable_padding(length=9, pad_id=1, pad_token="[PAD]")
    assert frame("this [X] means [MASK].", filling) == frame("this [X] means [MASK].", words())


def test_a_tokenizer_may_name_its_special_words_as_roberta_does():
    tokenizer = words().from_str(words().to_str().replace("[CLS]", "<s>").replace("[SEP]", "</s>"))
    tokenizer = tokenizer.from_str(tokenizer.to_str().replace("[MASK]", "<mask>"))
    assert frame("this [X] means [MASK].", tokenizer) == frame("this [X] means [MASK].", words())


def test_a_tokenizer_without_mask_word_is_refused():
    without = words().from_str(words().to_str().replace("[MASK]", "[HIDE]"))
    with pytest.raises(RecipeError) as caught:
        frame("[X] means [MASK].", without)
    assert str(caught.value) == (
        "the tokenizer has no [MASK] or <mask>; use one that has, as tokenizer.kind=wordpiece makes it"
    )


FRAMES = [Frame((2,), (3,)), Frame((2, 5, 6), (7, 4, 3), 4), Frame((2, 4), (8, 3), 1)]


def slow_framed(text, around, filler, most):
    whole = [*around.before, *text, *around.behind]
    return whole + [filler] * (most - len(whole))


def test_texts_are_framed_as_plain_lists_are():
    texts, view = [[20, 21, 22], [23], [24, 25], [26, 27, 28, 29]], [0, 1, 2, 1]
    ids, lengths = padded(texts, filler=39)
    found, whole, mask = framed(ids, lengths, torch.tensor(view), FRAMES, 1)
    most = max(len(text) + len(FRAMES[at]) for text, at in zip(texts, view, strict=True))
    assert found.tolist() == [slow_framed(text, FRAMES[at], 1, most) for text, at in zip(texts, view, strict=True)]
    assert whole.tolist() == [len(text) + len(FRAMES[at]) for text, at in zip(texts, view, strict=True)]
    assert [found[row, place].item() for row, place in enumerate(mask.tolist())] == [2, 4, 4, 4]
