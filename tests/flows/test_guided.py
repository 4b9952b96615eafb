"""A model guides the next one: the whole road, with what it leaves out and with its word alone."""

import json

import pytest
from made_up import outcome, stages

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]


def test_a_guide_leaves_likely_answers_out_and_its_word_alone_changes_no_weight(trained, corpus, store):
    first = json.loads(trained.stdout.splitlines()[-1])
    folder = f"guide.model={first['model_folder']}"
    guided = outcome(corpus, store, folder)
    names = [stage["name"] for stage in guided["stages"]]
    assert names[names.index("batches") - 1 : names.index("batches") + 2] == ["guide", "batches", "contrasts"]
    told = guided["false_negatives"]
    assert told["masked"] and told["none"]["likely"] >= told["groups"]["likely"] > told["guide"]["likely"] == 0
    assert guided["model_folder"] != first["model_folder"]
    bare = outcome(corpus, store, folder, "guide.mask=false")
    assert bare["model_folder"] == first["model_folder"] and stages(bare)["weights"]["cached"]
    assert bare["false_negatives"] == {**told, "masked": False}
    assert first["false_negatives"] is None
