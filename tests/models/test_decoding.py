"""Answers drawn word by word: as the whole packed row would have told them, and by the chances that it tells."""

import pytest
import torch
from tiny import WORDS, build, number

from models.decoding import Drawing, Reading, answers, pick
from models.packed import pack

SOURCE, ANSWER = number("the", "old", "clock", "##s", "wait"), number("river", "sing", "owl", "baker")
KINDS = ["encoder.rotary=false", "encoder.rotary=true"]


def writer(kind, **given):
    encoder = build("simbert", kind, "encoder.layers=3", **given).tower("f")
    torch.manual_seed(0)
    for parameter in encoder.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    return encoder


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_by_what_was_kept_are_those_of_the_whole_row(kind):
    encoder = writer(kind)
    ids, size, answer, told = (torch.tensor(one) for one in ([SOURCE], [5], [ANSWER], [4]))
    rows = pack(ids, size, answer, told, ends=encoder.ends(), room=encoder.room(), filler=encoder.filler)
    _, whole_ND = encoder.packed(rows)
    reading, states = Reading(encoder, ids), []
    for word in [*ANSWER, None]:
        states.append(reading.state_ND[0])
        if word is not None:
            reading.read(torch.tensor([word]))
    assert torch.allclose(torch.stack(states), whole_ND, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_that_are_left_out_do_not_change_the_others(kind):
    encoder = writer(kind)
    alone = Reading(encoder, torch.tensor([SOURCE]))
    alone.read(torch.tensor(ANSWER[1:2]))
    many = Reading(encoder, torch.tensor([SOURCE, SOURCE[::-1]]))
    many.repeat(2)
    many.keep(torch.tensor([1, 3]))
    many.read(torch.tensor([ANSWER[1], ANSWER[2]]))
    assert torch.allclose(many.scores()[0], alone.scores()[0], atol=1e-10)


def drawn(top_k, top_p, times=20_000):
    chance = torch.tensor([0.1, 0.5, 0.0, 0.25, 0.15])
    draw_N = torch.arange(times) / times
    word_N = pick(chance.log().expand(times, 5), draw_N, Drawing(top_k, top_p))
    return (word_N.bincount(minlength=5) / times).tolist()


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (0, 1.0, [0.1, 0.5, 0, 0.25, 0.15]),
        (9, 1.0, [0.1, 0.5, 0, 0.25, 0.15]),
        (2, 1.0, [0, 2 / 3, 0, 1 / 3, 0]),
        (1, 1.0, [0, 1, 0, 0, 0]),
        (0, 0.5, [0, 1, 0, 0, 0]),
        (0, 0.51, [0, 2 / 3, 0, 1 / 3, 0]),
        (3, 0.6, [0, 2 / 3, 0, 1 / 3, 0]),
    ],
)
def test_words_come_by_their_chances_among_those_left(top_k, top_p, expected):
    assert drawn(top_k, top_p) == pytest.approx(expected, abs=2e-4)


def test_the_first_word_of_answers_comes_by_its_chance():
    encoder, never = writer(KINDS[1]), number("[CLS]", "[PAD]", "[MASK]", "<unk>")
    draw_BMU = torch.rand(1, 3000, 1, generator=torch.Generator().manual_seed(0))
    [rows] = answers(encoder, torch.tensor([SOURCE]), draw_BMU, never, Drawing(top_k=0, longest=1))
    with torch.no_grad():
        score_V = Reading(encoder, torch.tensor([SOURCE])).scores()[0]
    chance_V = score_V.index_fill(0, torch.tensor(never), -torch.inf).softmax(dim=0)
    chance_V[WORDS.index("[SEP]")], empty = 0, chance_V[WORDS.index("[SEP]")].item()
    found = torch.tensor([row[0] for row in rows if row]).bincount(minlength=len(WORDS)) / 3000
    assert (found - chance_V).abs().max() < 0.04
    assert sum(not row for row in rows) / 3000 == pytest.approx(empty, abs=0.04)


def test_special_words_never_come_and_the_last_one_ends():
    encoder, special = writer(KINDS[0]), number("[CLS]", "[PAD]", "[MASK]", "<unk>", "[SEP]")
    draw_BMU = torch.rand(1, 200, 6, generator=torch.Generator().manual_seed(0))
    [rows] = answers(encoder, torch.tensor([SOURCE]), draw_BMU, special[:4], Drawing(top_k=0, longest=6))
    assert not {word for row in rows for word in row} & set(special)
    assert {len(row) for row in rows} >= {5, 6} and max(map(len, rows)) == 6


def test_an_answer_does_not_depend_on_what_else_is_drawn():
    encoder = writer(KINDS[1])
    both = torch.tensor([SOURCE, SOURCE[::-1]])
    draw_BMU = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(0))
    together = answers(encoder, both, draw_BMU, [0], Drawing())
    for row in range(2):
        for time in range(3):
            alone = answers(encoder, both[[row]], draw_BMU[row, time][None, None], [0], Drawing())
            assert alone == [[together[row][time]]]


def test_an_answer_ends_where_the_model_does():
    encoder = writer("encoder.positions=12")
    draw_BMU = torch.rand(1, 20, 32, generator=torch.Generator().manual_seed(0))
    [rows] = answers(encoder, torch.tensor([SOURCE]), draw_BMU, number("[SEP]"), Drawing(top_k=0))
    assert {len(row) for row in rows} == {12 - 2 - 5 - 1}


@pytest.mark.parametrize("wrong", [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"longest": 0}])
def test_numbers_out_of_their_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is "):
        Drawing(**wrong)
