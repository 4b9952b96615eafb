"""Parts by name and their options."""

from typing import Literal

import pytest

from models.parts import bind, complete, options
from models.recipe import Choice, RecipeError


def scale(value, *, by: float = 2.0, mode: Literal["up", "down"] = "up", words: object = None):
    return value * by if mode == "up" else value / by


def need(value, *, key: int):
    return value + key


PARTS = {"scale": scale, "need": need}


def test_options_are_the_keyword_only_parameters_but_those_the_builder_hands_over():
    assert list(options(scale)) == ["by", "mode"]


def test_every_option_is_filled_in():
    assert complete(PARTS, Choice(kind="scale"), "x") == Choice(kind="scale", options={"by": 2.0, "mode": "up"})


def test_completing_twice_changes_nothing():
    once = complete(PARTS, Choice(kind="scale", options={"by": 3}), "x")
    assert complete(PARTS, once, "x") == once


def test_a_whole_number_becomes_what_the_option_is():
    assert repr(complete(PARTS, Choice(kind="scale", options={"by": 3}), "x").options["by"]) == "3.0"


def test_a_bound_part_has_its_options():
    assert bind(PARTS, Choice(kind="scale", options={"by": 4, "mode": "down"}))(8) == 2


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(kind="scales"), 'x.kind is "scales"; known: need, scale'),
        (Choice(kind="scale", options={"buy": 1}), 'x has no option "buy"; options of scale: by, mode'),
        (Choice(kind="scale", options={"words": 1}), 'x has no option "words"; options of scale: by, mode'),
        (Choice(kind="need"), "x needs the option key"),
        (Choice(kind="scale", options={"mode": "left"}), "x.mode is 'left': Input should be 'up' or 'down'"),
        (Choice(kind="scale", options={"by": {"a": 1}}), "x.by is {'a': 1}: Input should be a valid number"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(choice, message):
    with pytest.raises(RecipeError) as caught:
        complete(PARTS, choice, "x")
    assert str(caught.value) == message
