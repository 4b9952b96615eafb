"""Similar pairs through the whole road: a model that matches and writes, and one that learns from what it can do."""

import json

import made_up
import pytest
from transformers import BertForMaskedLM


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a little BERT in `base`, and pairs of sentences of one topic: two of the 82 are one text twice."""
    folder = tmp_path_factory.mktemp("similar")
    made_up.write_base(folder / "base", BertForMaskedLM)
    said = [text for topic in made_up.TOPICS for text in made_up.sentences(topic, 40, "pairs")]
    pairs = [("Twice.", "Twice."), ("Once more.", "once more."), *zip(said[::2], said[1::2], strict=True)]
    lines = (json.dumps({"left": left, "right": right}) for left, right in pairs)
    (folder / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def retrained(place, recipe, *settings):
    """`firth retrain` of the pairs, in the folder's store; what it says in people's words, and at its end."""
    shared = ['corpus.texts=["left","right"]', "corpus.held_out=0.2", "encoder.path=base", "batches.rows=16"]
    shared += ["batches.lane_rows=8", "tokenizer.most_tokens=20", "training.rate=0.01", "training.steps=4"]
    chosen = [part for setting in (*shared, "training.epochs=9", *settings) for part in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        corpus = ["--corpus", place / "pairs.jsonl", "--store", place / "store"]
        done = made_up.firth("retrain", recipe, *corpus, *chosen, "--json")
    assert done.exit_code == 0, done.output
    *said, last = done.output.strip().splitlines()
    return "\n".join(said), json.loads(last)


@pytest.fixture(scope="module")
def first(place, prefect_server):
    """SimBERT."""
    return retrained(place, "simbert")


@pytest.fixture(scope="module")
def learning(place, first):
    """Settings of a recipe whose teacher SimBERT is, and whose second texts it wrote."""
    folder = first[1]["model_folder"]
    return [
        "encoder.rotary=false",
        f"teacher.model={folder}",
        f'augment=[{{kind="none"}},{{kind="paraphrase",model="{folder}",count=2}}]',
    ]


@pytest.fixture(scope="module")
def second(place, learning):
    """RoFormer-Sim's second stage, after SimBERT."""
    return retrained(place, "roformer-sim-2", *learning)


def test_a_model_that_matches_and_writes_goes_the_whole_road(first):
    _, told = first
    assert told["training"]["steps"] == 4 and len(told["training"]["loss"]) > 0
    assert told["scores"]["neighbours.queries"] > 0
    assert told["dropped"]["pairs of texts that say the same"] == 2


def test_another_learns_from_its_vectors_and_from_what_it_wrote(second):
    _, told = second
    stages = {one["name"]: one for one in told["stages"]}
    assert stages["augmented"]["rows"] > 0 and not stages["augmented"]["cached"]
    assert stages["teacher"]["rows"] == stages["sentences"]["rows"]


def test_a_second_run_writes_and_embeds_nothing(place, second, learning):
    stages = {one["name"]: one for one in retrained(place, "roformer-sim-2", *learning)[1]["stages"]}
    assert stages["augmented"]["cached"] and stages["teacher"]["cached"] and stages["weights"]["cached"]
    assert stages["augmented"]["key"] == {one["name"]: one for one in second[1]["stages"]}["augmented"]["key"]
