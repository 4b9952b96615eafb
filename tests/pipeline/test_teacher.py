"""A frozen model that a recipe learns from: its vectors beside the rows of batches."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import corpora
import numpy as np
import pytest
from runs import job_of

from models.folder import load as opened
from models.folder import save
from models.recipe import RecipeError, Teacher, load
from models.resolving import resolve
from pipeline import frozen, teacher
from pipeline.embed import matrix
from pipeline.road import Road
from pipeline.run import build
from pipeline.store import Store
from pipeline.tables import FILLER

SETTINGS = ["pairs={kind='pairs'}", "corpus.texts=['left', 'right']", "batches.rows=12", "tokenizer.kind=wordpiece"]
SETTINGS += ["tokenizer.size=60", "encoder.width=8", "corpus.held_out=0.2", "augment=[{kind='noise', chance=1.0}]"]


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A model folder with words of its own, 12 numbers a vector."""
    path = tmp_path_factory.mktemp("teacher") / "model"
    save(path, build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    return path


def road(place: Path, folder: Path) -> Road:
    story = corpora.story(7, 40)
    pairs = [dict(zip(("left", "right"), story[n : n + 2], strict=True)) for n in range(0, 40, 2)]
    (place / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    recipe = load("quick-thoughts-bag", SETTINGS).model_copy(update={"teacher": Teacher(model=str(folder))})
    return Road(Store.at(place / "store"), recipe, str(place / "pairs.jsonl"))


def walked(road: Road) -> SimpleNamespace:
    sentences = road.sentences(road.documents(road.numbered()))
    tokens = road.tokens(sentences, road.vocabulary(sentences))
    vectors = road.teacher(sentences)
    source = road.source(sentences, tokens, road.pairs(sentences), vectors)
    batches = road.batches(source)
    read = lambda table: road.store.read(next(iter(table.pieces.values())))
    return SimpleNamespace(
        sentences=read(sentences), batches=read(batches), source=source, vectors=vectors, table=batches
    )


def test_a_row_has_the_teacher_s_vector_of_its_clean_text_and_a_filler_has_none(tmp_path, folder):
    found = walked(road(tmp_path, folder))
    real = found.batches["side"] != FILLER
    rows, texts = found.batches.filter(real), found.sentences["text"]
    right = opened(str(folder)).encode(texts.gather(rows["text"]).to_list())
    assert np.abs(matrix(rows["teacher"]) - right).max() < 1e-6
    assert right.shape[1] != 8  # another width than the recipe's encoder
    assert found.batches.filter(~real)["teacher"].to_list() == [[]] * int((~real).sum())
    assert not real.all()


def test_a_second_run_embeds_nothing_and_makes_no_batches(tmp_path, folder):
    first, second = walked(road(tmp_path, folder)), walked(road(tmp_path, folder))
    assert (second.vectors.cached, second.table.cached, second.vectors.new) == (True, True, 0)
    assert second.table.key == first.table.key


def test_another_teacher_is_another_training_set_and_none_is_the_one_before(tmp_path, folder):
    found = walked(road(tmp_path, folder))
    bare = replace(found.source, teacher=None)
    assert bare.keys() == tuple(key for key in found.source.keys() if key in bare.keys())  # noqa: SIM118  no mapping
    assert len(found.source.keys()) == len(bare.keys()) + 1
    assert {"teacher"} == set(found.batches.columns) - {"text", "tokens", "side", "group", "answers", "view"}


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_teacher_is_known_by_what_decides_its_vectors_not_by_its_path_or_lineage(tmp_path, folder):
    moved, other = copied(folder, tmp_path / "moved"), copied(folder, tmp_path / "other")
    (moved / "lineage.json").write_text('{"corpus": "elsewhere"}')
    (other / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    assert frozen.key(str(moved)) == frozen.key(str(folder)) != frozen.key(str(other))


# What is refused before any work


def refused(folder: Path) -> str:
    with pytest.raises(RecipeError) as told:
        teacher.check(road(folder.parent, folder).recipe)
    return str(told.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    message = refused(tmp_path / "nobody")
    assert "nobody" in message
    assert "is no model folder: no recipe.json, tokenizer.json, weights.safetensors; give the folder" in message


def test_a_folder_without_weights_is_refused(tmp_path, folder):
    place = copied(folder, tmp_path / "half")
    (place / "weights.safetensors").unlink()
    assert "is no model folder: no weights.safetensors" in refused(place)


def test_a_model_that_counts_is_refused(tmp_path, folder):
    place = copied(folder, tmp_path / "counts")
    (place / "recipe.json").write_text(resolve(load("ngram")).model_dump_json())
    assert "recipe ngram counts words and has no vectors; give a trained model" in refused(place)


def test_a_whole_folder_and_a_recipe_without_a_teacher_pass(tmp_path, folder):
    teacher.check(road(tmp_path, folder).recipe)
    teacher.check(load("quick-thoughts"))
