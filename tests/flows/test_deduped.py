"""Texts that repeat others: the whole road with classes, which change batches and what follows and nothing before."""

import json

import pytest
from made_up import retrain

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("prefect_server", "ray_session")]


def stages(result):
    return {stage["name"]: stage for stage in result["stages"]}


def run(corpus, store, *settings):
    found = retrain(corpus, store, *settings, options=["--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout.splitlines()[-1])


def test_classes_are_found_once_and_told(trained, corpus, store):
    first = json.loads(trained.stdout.splitlines()[-1])
    made = run(corpus, store, "dedup={near=0.7}")
    names = [stage["name"] for stage in made["stages"]]
    assert names[names.index("pairs") + 1 :][:2] == ["joined", "left_out"]
    assert made["classes"]["texts"] == stages(made)["joined"]["rows"] > made["classes"]["classes"] > 0
    assert [stages(made)[name]["cached"] for name in ("sentences", "tokens", "pairs", "joined", "batches")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert stages(run(corpus, store, "dedup={near=0.7}"))["joined"]["cached"]
    assert first["classes"] is None and "joined" not in stages(first)
    assert made["model_folder"] != first["model_folder"]
