"""Texts that repeat others: the whole road with classes, which change batches and what follows and nothing before."""

import json

import pytest
from made_up import outcome, stages

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]


def test_classes_are_found_once_and_told(trained, corpus, store):
    first = json.loads(trained.stdout.splitlines()[-1])
    made = outcome(corpus, store, "dedup={near=0.7}")
    names = [stage["name"] for stage in made["stages"]]
    assert names[names.index("pairs") + 1 :][:2] == ["joined", "left_out"]
    assert made["classes"]["texts"] == stages(made)["joined"]["rows"] > made["classes"]["classes"] > 0
    assert [stages(made)[name]["cached"] for name in ("sentences", "tokens", "pairs", "joined", "batches")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert stages(outcome(corpus, store, "dedup={near=0.7}"))["joined"]["cached"]
    assert first["classes"] is None and "joined" not in stages(first)
    assert made["model_folder"] != first["model_folder"]
