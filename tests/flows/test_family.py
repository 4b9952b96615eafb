"""A transformer through the whole road by the command: base by a relative path, queue, rated pairs, model folder."""

import json

import made_up
import numpy as np
import pytest
from transformers import BertConfig, BertModel

from models.folder import load


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a little BERT in `base`, and pairs of sentences that somebody rated."""
    folder = tmp_path_factory.mktemp("family")
    made_up.write_base(folder / "base", BertModel)
    pairs = [f"{sea}\tA {other}.\t{gold}" for sea, other, gold in (("A wave.", "salt", 4), ("A moon.", "coal", 1))]
    pairs.append("An owl.\tA star.\t3")
    (folder / "rated.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *pairs]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def result(place, corpus, prefect_server):
    """What `firth retrain` says, run in that folder."""
    settings = ["encoder.path=base", 'evaluation=[{kind="sts", path="rated.tsv"}]', "batches.rows=64"]
    settings += ["terms.0.candidates.queue=40", "tokenizer.most_tokens=20", "training.rate=0.01", "training.steps=4"]
    settings += ["watch.steps=2", "watch.best=sts.rated.spearman"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        chosen = [part for setting in settings for part in ("--set", setting)]
        return made_up.firth("retrain", "esimcse", "--corpus", corpus, "--store", place / "store", *chosen, "--json")


def test_a_transformer_goes_the_whole_road_from_a_relative_path(result):
    assert result.exit_code == 0, result.output
    told = json.loads(result.output.strip().splitlines()[-1])
    assert told["training"]["steps"] == 4 and -100 <= told["scores"]["sts.rated.spearman"] <= 100


def test_it_is_measured_on_the_way_by_a_relative_path_and_ends_with_its_best_step(result):
    told = json.loads(result.output.strip().splitlines()[-1])
    figures = {one["step"]: one["sts.rated.spearman"] for one in told["training"]["watched"]}
    assert list(figures) == [0, 2, 4]
    assert told["training"]["best_step"] == (2 if figures[2] >= figures[4] else 4)
    assert told["scores"]["sts.rated.spearman"] == max(figures[2], figures[4])


def test_its_folder_encodes_where_the_base_is_gone(result, place):
    (place / "base").rename(place / "elsewhere")
    model = load(json.loads(result.output.strip().splitlines()[-1])["model_folder"])
    assert np.isfinite(model.encode(["The wave.", ""])).all()


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_damaged_base_is_told_before_any_work(tmp_path, corpus, broken):
    folder = tmp_path / "base"
    BertModel(BertConfig(vocab_size=60, max_position_embeddings=40, **made_up.SIZES)).save_pretrained(folder)
    (folder / broken).write_bytes((folder / broken).read_bytes()[:20])
    store = tmp_path / "store"
    said = made_up.firth(
        "retrain", "simcse-unsup", "--corpus", corpus, "--store", store, "--set", f"encoder.path={folder}"
    )
    assert (said.exit_code, len(said.output.strip().splitlines())) == (2, 1)
    assert f"the model in {folder} cannot be read" in said.output and "copy it anew" in said.output
    assert not (store / "documents").exists()


def test_a_recipe_is_shown_though_its_base_is_not_here(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = made_up.firth("describe", "promptbert")
    assert said.exit_code == 0 and json.loads(said.output)["encoder"]["path"] == "bert-base-uncased"
