"""Recipes: reading, overriding, refusing, naming."""

import pytest
from pydantic import ValidationError

from models.recipe import Recipe, RecipeError, digest, known, load, parse

PLAIN = {
    "name": "tiny",
    "encoder": {"kind": "bag"},
    "terms": [{"candidates": "batch", "similarity": {"kind": "dot", "temperature": 2.0}, "objective": "softmax"}],
}


def refused(tree, overrides=()):
    with pytest.raises(RecipeError) as caught:
        load(tree, overrides) if isinstance(tree, str) else parse(tree)
    return str(caught.value)


@pytest.mark.parametrize("name", known())
def test_every_installed_recipe_is_read(name):
    assert load(name).name == name


def test_a_recipe_is_read_by_path_and_named_after_its_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("encoder = 'bag'\n[[terms]]\ncandidates = 'batch'\nsimilarity = 'dot'\nobjective = 'softmax'\n")
    assert "encoder is 'bag'" in refused(str(path))
    path.write_text(path.read_text().replace("encoder = 'bag'", "encoder = {kind = 'bag'}"))
    assert load(str(path)).name == "mine"


def test_an_unknown_recipe_lists_the_known_ones():
    message = refused("quick-thought")
    assert message.startswith('no recipe "quick-thought"; known: ') and all(name in message for name in known())


def test_what_is_no_toml_names_file_and_line(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("name = 'a'\nencoder = = 1\n")
    assert str(path) in refused(str(path)) and "line 2" in refused(str(path))


def test_an_unknown_key_lists_the_known_ones():
    message = refused(PLAIN | {"training": {"rates": 1}})
    assert message.startswith('recipe tiny: unknown key "training.rates"; known: betas, cached') and "rate, " in message


def test_an_unknown_key_of_a_term_lists_the_known_ones():
    term = PLAIN["terms"][0] | {"wait": 2}
    assert refused(PLAIN | {"terms": [term]}) == (
        'recipe tiny: unknown key "terms.0.wait"; known: ahead, anchor, candidate, candidates, objective, reduce, '
        "similarity, weight"
    )


def test_a_wrong_term_is_named_once():
    message = refused(PLAIN | {"terms": [PLAIN["terms"][0] | {"weight": "heavy"}]})
    assert message.count(";") == 0 and message.startswith("recipe tiny: terms.0.weight is 'heavy': ")


def test_no_term_at_all_is_refused():
    assert "terms is []" in refused(PLAIN | {"terms": []})


def test_a_part_without_a_kind_says_so():
    assert 'key "terms.0.similarity.kind" is missing' in refused(
        PLAIN | {"terms": [PLAIN["terms"][0] | {"similarity": {"temperature": 1}}]}
    )


@pytest.mark.parametrize("towers", ["fg", [], ["f", "f"], 3])
def test_towers_that_are_no_list_of_names_are_refused(towers):
    message = refused(PLAIN | {"encoder": {"kind": "bag", "towers": towers}})
    assert (
        message == f'recipe tiny: encoder.towers is {towers!r}; should be a list of different names, as in ["f", "g"]'
    )


@pytest.mark.parametrize(
    ("part", "where"), [({"readout": {"towers": ["h"]}}, "readout.towers"), ({"anchor": "h"}, "terms.0.anchor")]
)
def test_an_unknown_tower_lists_the_known_ones(part, where):
    tree = PLAIN | (part if "readout" in part else {"terms": [PLAIN["terms"][0] | part]})
    assert refused(tree) == f'recipe tiny: {where} is "h"; towers of encoder: f'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0, -1, "fast"])
def test_a_rate_that_is_no_positive_number_is_refused(value):
    assert refused(PLAIN | {"training": {"rate": value}}).startswith(f"recipe tiny: training.rate is {value!r}: ")


def test_all_faults_are_told_at_once():
    message = refused(PLAIN | {"batches": {"rows": 1}, "training": {"epochs": 0}, "extra": 1})
    assert all(part in message for part in ("batches.rows is 1", "training.epochs is 0", 'unknown key "extra"'))


def test_overrides_reach_into_groups_lists_and_parts():
    recipe = load("quick-thoughts", ["training.epochs=2", "terms.0.weight=0.5", "pairs.context_size=3", "name=other"])
    assert recipe.training.epochs == 2 and recipe.terms[0].weight == 0.5
    assert recipe.pairs.options == {"context_size": 3} and recipe.name == "other"


def test_overrides_reach_what_the_file_leaves_at_its_default():
    assert load("quick-thoughts", ["evaluation.0.most=7"]).evaluation[0].options == {"most": 7}


def test_overrides_reach_a_table_that_the_recipe_does_without():
    recipe = load("simcse-unsup", ["dedup.near=0.8", "guide.model=here", "guide.margin=0.1", "encoder.path=''"])
    assert recipe.dedup.near == 0.8 and (recipe.guide.model, recipe.guide.margin) == ("here", 0.1)


def test_overrides_reach_one_tower():
    encoder = load("quick-thoughts", ["encoder.f.width=3"]).encoder
    assert encoder.tower("f")["width"] == 3 and encoder.tower("g")["width"] == 600


def test_the_last_override_wins():
    assert load("quick-thoughts", ["training.epochs=2", "training.epochs=3"]).training.epochs == 3


@pytest.mark.parametrize("override", ["training.epochs", "=3", ""])
def test_an_override_without_key_or_value_is_refused(override):
    assert refused("quick-thoughts", [override]) == f'"{override}" is not KEY=VALUE, as in training.epochs=2'


@pytest.mark.parametrize(
    ("override", "index"), [("terms.5.weight=1", "5"), ("terms.x=1", "x"), ("terms.-1.weight=1", "-1")]
)
def test_an_override_of_an_entry_that_is_not_there_is_refused(override, index):
    assert refused("quick-thoughts", [override]).startswith(
        f'"{override}": {index} should be the number of an entry, from 0 to 0;'
    )


def test_an_override_below_a_value_is_refused():
    assert refused("quick-thoughts", ["training.rate.warm=1"]) == (
        '"training.rate.warm=1": rate is the value 0.0005, not a group of settings'
    )


def test_an_override_with_an_unknown_key_is_refused():
    assert 'unknown key "batches.row"' in refused("quick-thoughts", ["batches.row=3"])


@pytest.mark.parametrize("key", ["name", "encoder"])
def test_a_recipe_is_frozen(key):
    with pytest.raises(ValidationError, match="frozen"):
        setattr(parse(PLAIN), key, "other")


@pytest.mark.parametrize("name", known())
def test_a_recipe_survives_being_written(name):
    recipe = load(name)
    assert parse(recipe.model_dump(mode="json")) == recipe == Recipe.model_validate_json(recipe.model_dump_json())


def test_a_digest_is_the_same_on_every_day_and_machine():
    """The first digits that sha256sum gives for ["a",[1,2.5,null],{"b":"ä"}]."""
    assert digest("a", [1, 2.5, None], {"b": "ä"}) == "c08dbfa9253b402c"


def test_a_digest_knows_no_order_of_keys():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


@pytest.mark.parametrize("other", [["a", 2], ["a", "1"], ["a"], ["a", 1, None], [["a", 1]], ["b", 1]])
def test_a_digest_sees_every_change(other):
    assert digest(*other) != digest("a", 1)


def test_a_digest_sees_each_setting_of_a_recipe():
    changed = ("training.seed=1", "batches.rows=399", "terms.0.candidates.self='zero'", "encoder.g.width=599")
    names = {digest(load("quick-thoughts", [override])) for override in changed}
    assert len(names | {digest(load("quick-thoughts"))}) == 5
