"""A guide on its way: vectors beside the rows of every kind of batches, and what it says of false negatives."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import corpora
import numpy as np
import polars as pl
import pytest
from runs import job_of

from models.folder import load as opened
from models.folder import save
from models.recipe import Guide, RecipeError, load
from models.resolving import resolve
from pipeline import contrasts, teacher
from pipeline.embed import matrix
from pipeline.gathered import gathered
from pipeline.reader import Epoch
from pipeline.road import Road
from pipeline.run import Job, build
from pipeline.store import Store
from pipeline.tables import FILLER, TOKENS

SMALL = ["tokenizer.kind=wordpiece", "tokenizer.size=60", "encoder.width=8", "corpus.held_out=0"]
RUNS = [*SMALL, "batches.rows=16", "batches.run=4", "batches.lane_rows=8"]
PAIRS = [*SMALL, "pairs={kind='pairs'}", "corpus.texts=['left', 'right']", "batches.rows=12"]
PAIRS += ["augment=[{kind='noise', chance=1.0}]"]
ASKED = [*SMALL, "pairs={kind='qa', most=3}", "corpus.texts=['question', 'answer']", "corpus.label=label"]
ASKED += ["corpus.labels=right", "batches.rows=14"]
ASKED += ["terms=[{candidates={kind='own'}, similarity={kind='cosine'}, objective={kind='softmax'}}]"]


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A model folder with words of its own, 12 numbers a vector."""
    path = tmp_path_factory.mktemp("guide") / "model"
    save(path, build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    return path


def rows_of(kind: str) -> list[dict[str, object]]:
    story = corpora.story(7, 60)
    if kind == "pairs":
        return [{"left": story[n], "right": story[n + 1]} for n in range(0, 40, 2)]
    if kind == "asked":
        return [{"question": story[n // 5], "answer": story[20 + n], "label": int(n % 5 == 0)} for n in range(40)]
    return [{"id": n, "text": " ".join(story[6 * n : 6 * n + 6])} for n in range(10)]


def road(place: Path, folder: Path, kind: str, /, *overrides: str, **guide) -> Road:
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows_of(kind))), encoding="utf-8")
    settings = {"runs": RUNS, "pairs": PAIRS, "asked": ASKED}[kind]
    recipe = load("quick-thoughts-bag", [*settings, *overrides])
    recipe = resolve(recipe.model_copy(update={"guide": Guide(model=str(folder), **guide)}))
    return Road(Store.at(place / "store"), recipe, str(place / "rows.jsonl"))


def walked(road: Road) -> SimpleNamespace:
    """The way to the batches and the estimate, as the flow goes it."""
    sentences = road.sentences(road.documents(road.numbered()))
    vocabulary = road.vocabulary(sentences)
    tokens = road.tokens(sentences, vocabulary)
    vectors = road.guide(sentences) if road.recipe.guide.mask else None
    source = road.source(sentences, tokens, road.pairs(sentences), guide=vectors)
    table = road.batches(source)
    told = contrasts.contrasts(road.store, road.recipe, source, table.pieces[0])
    return SimpleNamespace(
        sentences=sentences,
        vocabulary=vocabulary,
        source=source,
        table=table,
        batches=road.store.read(table.pieces[0]),
        told=told,
        estimate=contrasts.estimate(road.store, road.recipe, told),
        vectors=vectors,
    )


def texts(road: Road, found: SimpleNamespace) -> dict[int, str]:
    """Each text by its number."""
    return {
        (number << 32) + row: text
        for number, piece in found.sentences.pieces.items()
        for row, text in enumerate(road.store.read(piece, ["text"])["text"])
    }


SHARDS = "corpus.shard_bytes=600"


@pytest.mark.parametrize(("kind", "overrides"), [("runs", [SHARDS]), ("runs", []), ("pairs", [SHARDS]), ("asked", [])])
def test_a_row_has_the_guide_s_vector_of_its_clean_text_and_a_filler_has_none(tmp_path, folder, kind, overrides):
    way = road(tmp_path, folder, kind, *overrides)
    found = walked(way)
    assert len(found.sentences.pieces) == 1 if not overrides else len(found.sentences.pieces) > 1
    real, said = found.batches["side"] != FILLER, texts(way, found)
    rows = found.batches.filter(real)
    right = opened(str(folder)).encode([said[text] for text in rows["text"]])
    assert np.abs(matrix(rows["guide"]) - right).max() < 1e-6
    assert right.shape[1] != 8  # another width than the recipe's encoder
    assert found.batches.filter(~real)["guide"].to_list() == [[]] * int((~real).sum())
    guide_BE = Epoch(way.store, found.table.pieces[0])[0].rows.guide_BE
    assert guide_BE.shape == (way.recipe.batches.rows, right.shape[1])


def test_columns_are_gathered_from_any_shard_in_any_order(tmp_path):
    store = Store.at(tmp_path)
    frame = lambda n: pl.DataFrame({"tokens": [[n, r] for r in range(4)]}, schema={"tokens": pl.List(pl.Int32)})
    pieces = {n: store.write(TOKENS, f"s{n}", frame(n), started=0) for n in (0, 3, 7)}
    text = pl.Series([(7 << 32) + 3, 2, (3 << 32) + 1, (7 << 32), 2], dtype=pl.UInt64)
    assert gathered(store, pieces, "tokens", text).to_list() == [[7, 3], [0, 2], [3, 1], [7, 0], [0, 2]]


# Keys


def keys(road: Road, found: SimpleNamespace, recipe=None) -> str:
    return Job(road.store.root, recipe or road.recipe, found.source, found.vocabulary).key


def test_a_guide_that_only_tells_leaves_batches_and_weights_as_they_were(tmp_path, folder):
    way = road(tmp_path, folder, "runs", mask=False)
    found = walked(way)
    bare = way.recipe.model_copy(update={"guide": None})
    assert found.source == replace(found.source, guide=None) and "guide" not in found.batches.columns
    assert keys(way, found) == keys(way, found, bare)


def test_a_guide_that_leaves_out_makes_other_batches_and_weights(tmp_path, folder):
    way = road(tmp_path, folder, "runs")
    found = walked(way)
    bare = replace(found.source, guide=None)
    assert [key for key in found.source.keys() if key not in bare.keys()] == [  # noqa: SIM118  no mapping
        f"guide:0:{found.vectors.pieces[0].key}"
    ]
    swapped = replace(bare, teacher=found.source.guide)
    assert len({source.keys() for source in (found.source, bare, swapped)}) == 3


@pytest.mark.parametrize(
    ("change", "same"), [({"margin": 0.1}, False), ({"kind": "relative"}, False), ({"sample": 5}, True)]
)
def test_margin_and_kind_decide_weights_and_no_batches(tmp_path, folder, change, same):
    one, other = (road(tmp_path, folder, "runs", **more) for more in ({}, change))
    first, second = walked(one), walked(other)
    assert second.table.key == first.table.key and second.table.cached and second.vectors.cached
    assert (keys(one, first) == keys(other, second)) is same


def test_a_second_run_estimates_nothing_anew(tmp_path, folder):
    first, second = (walked(road(tmp_path, folder, "runs")) for _ in range(2))
    assert not first.told.cached and second.told.cached
    assert second.estimate == first.estimate


# The estimate


def cosines(left, right):
    return float(np.dot(left, right) / np.linalg.norm(left) / np.linalg.norm(right))


def slow_estimate(road: Road, found: SimpleNamespace, margin=0.0):
    """Pair by pair, from the table and the texts."""
    said, size = texts(road, found), road.recipe.batches.rows
    vectors = opened(road.recipe.guide.model).encode(list(said.values()))
    vector = dict(zip(said, vectors, strict=True))
    sums = {stage: [0, 0] for stage in contrasts.STAGES}
    for start in range(0, len(found.batches), size):
        rows = found.batches.slice(start, size).to_dicts()
        for at, row in enumerate(rows):
            answers = row["answers"]
            if not answers or row["side"] > 1:
                continue
            own = road.recipe.terms[0].candidates.kind == "own"
            others = row["hard"] if own else range(size)
            groups = {rows[n]["group"] for n in [at, *answers]}
            score = lambda n, row=row, rows=rows: cosines(vector[row["text"]], vector[rows[n]["text"]])
            best = max(map(score, answers))
            for n in others:
                if n == at or n in answers or rows[n]["side"] not in (0, 2):
                    continue
                likely, grouped = score(n) >= best - 1e-6, rows[n]["group"] in groups
                guided = grouped or score(n) >= best + margin - 1e-6
                for stage, out in zip(contrasts.STAGES, (False, grouped, guided), strict=True):
                    sums[stage][0] += not out
                    sums[stage][1] += likely and not out
    return {stage: tuple(sums[stage]) for stage in contrasts.STAGES}


def sums_of(estimate):
    return {stage: (estimate[stage]["wrong"], estimate[stage]["likely"]) for stage in contrasts.STAGES}


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(("kind", "margin"), [("runs", 0.0), ("pairs", 0.05), ("asked", -0.1)])
def test_a_plain_loop_estimates_the_same(tmp_path, folder, kind, margin, mask):
    way = road(tmp_path, folder, kind, SHARDS if kind == "runs" else "corpus.split=0", margin=margin, mask=mask)
    found = walked(way)
    slow = slow_estimate(way, found, margin)
    assert sums_of(found.estimate) == slow
    assert slow["none"][1] > 0 and found.estimate["masked"] is mask
    assert (slow["guide"][1] > 0) is (margin > 0)


def test_a_text_that_stands_twice_is_a_false_negative_until_its_group_is_left_out(tmp_path, folder):
    """Of four pairs two have the same left text: to each left one the other is as right as can be."""
    way = road(tmp_path, folder, "pairs", "batches.rows=8", "augment=[]")
    story = corpora.story(3, 8)
    rows = [{"left": story[min(n, 2)], "right": story[4 + n]} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = walked(way).estimate
    assert found["none"]["likely"] - found["groups"]["likely"] >= 2
    assert found["none"]["wrong"] == 8 * 6 and found["groups"]["wrong"] == 8 * 6 - 4
    assert found["guide"]["likely"] == 0
    assert found["none"]["share"] == found["none"]["likely"] / 48


def test_the_sample_bounds_the_batches_that_are_looked_at(tmp_path, folder):
    few = walked(road(tmp_path, folder, "runs", sample=33))
    looked_at = Store.at(tmp_path / "store").read(few.told.pieces[0])["batch"]
    assert len(few.batches) == 4 * 16 and few.estimate["batches"] == 2
    assert sorted(set(looked_at)) == [0, 3]
    assert walked(road(tmp_path, folder, "runs", sample=1)).estimate["batches"] == 1
    assert walked(road(tmp_path, folder, "runs", sample=900)).estimate["batches"] == 4


def test_only_texts_of_the_sample_are_embedded_where_nothing_is_left_out(tmp_path, folder):
    way = road(tmp_path, folder, "runs", mask=False, sample=16)
    found = walked(way)
    assert found.vectors is None and not way.store.names("vectors/")
    assert found.estimate["batches"] == 1 and found.estimate["none"]["wrong"] > 0


# What is refused before any work


def test_a_guide_that_is_not_there_or_counts_is_refused(tmp_path, folder):
    with pytest.raises(RecipeError, match=r'guide\.model is ".*nobody", which is no model folder: no recipe\.json'):
        teacher.check(road(tmp_path, tmp_path / "nobody", "runs").recipe)
    counts = tmp_path / "counts"
    counts.mkdir()
    for file in folder.iterdir():
        (counts / file.name).write_bytes(file.read_bytes())
    (counts / "recipe.json").write_text(resolve(load("ngram")).model_dump_json())
    with pytest.raises(RecipeError, match=r'guide\.model is ".*": recipe ngram counts words and has no vectors'):
        teacher.check(road(tmp_path, counts, "runs").recipe)


def test_a_whole_folder_passes(tmp_path, folder):
    teacher.check(road(tmp_path, folder, "runs").recipe)
