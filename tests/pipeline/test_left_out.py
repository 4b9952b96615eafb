"""Texts that are left out of training, and classes of groups that are never each other's wrong answers."""

import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from corpora import Document, source, story

from flows.summary import drops
from models import candidates
from models.recipe import Batches
from pipeline import ngrams
from pipeline.batches import BatchesError, Source, epoch, plan_key
from pipeline.corpus import group
from pipeline.examples import Examples
from pipeline.groups import Known
from pipeline.manifest import Manifest
from pipeline.reader import Epoch
from pipeline.store import Piece, Store
from pipeline.tables import FILLER, JOINED, LEFT_OUT

SMALL = Batches(rows=4, run=4)
SHARDS = {number: [Document(story(10 * number + d, 6)) for d in range(3)] for number in (0, 1)}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def digest(text: str) -> int:
    return int(group(pl.Series([text]))[0])


def left_out(store: Store, reasons: dict[str, str]) -> Piece:
    frame = pl.DataFrame(
        {"group": [digest(text) for text in reasons], "reason": list(reasons.values())},
        schema=LEFT_OUT.empty().schema,
    )
    return store.write(LEFT_OUT, "made", frame, started=time.time())


def joined(store: Store, classes: list[list[str]]) -> Piece:
    rows = [(digest(text), min(map(digest, texts))) for texts in classes for text in texts]
    return store.write(JOINED, "made", pl.DataFrame(rows, JOINED.empty().schema, orient="row"), started=time.time())


def rows(store: Store, made: Source, settings: Batches = SMALL) -> pl.DataFrame:
    frame = store.read(epoch(store, settings, 0, 0, made)).with_row_index("at")
    return frame.filter(pl.col("side") != FILLER).with_columns(batch=pl.col("at") // settings.rows)


def text(made: Source, store: Store, number: int) -> str:
    return str(store.read(made.sentences[number >> 32])["text"][number % 2**32])


def test_a_text_that_is_left_out_stands_in_no_batch_and_is_counted_by_its_reason(store):
    made = source(store, SHARDS)
    out = {SHARDS[0][1].texts[2]: "boilerplate", SHARDS[1][0].texts[5]: "boilerplate", SHARDS[1][2].texts[0]: "other"}
    made = replace(made, left_out=left_out(store, out))
    piece = epoch(store, SMALL, 0, 0, made)
    assert len(rows(store, made)) == 36 - 3
    assert not {digest(one) for one in out} & set(rows(store, made)["group"])
    assert {name: times for name, times in piece.counts.items() if "left_out" in name} == {
        "left_out.boilerplate": 2,
        "left_out.other": 1,
    }
    assert piece.counts["repeats_of_held_out"] == 0


def test_the_scoreboard_says_why_texts_are_left_out(store):
    made = source(store, SHARDS)
    made = replace(made, left_out=left_out(store, {SHARDS[0][1].texts[2]: "boilerplate"}))
    nothing = Manifest("none", "", {})
    batches = Manifest("batches", "", {0: epoch(store, SMALL, 0, 0, made)})
    assert drops([nothing] * 6 + [batches]) == {"sentences out of training: boilerplate": 1}


def test_what_repeats_a_held_out_text_is_counted_as_that_alone(store):
    secret = [Document(SHARDS[0][0].texts, held_out=True)]
    made = source(store, {**SHARDS, 2: secret})
    made = replace(made, left_out=left_out(store, {SHARDS[0][0].texts[0]: "boilerplate"}))
    counts = epoch(store, SMALL, 0, 0, made).counts
    assert counts["repeats_of_held_out"] == 6
    assert "left_out.boilerplate" not in counts


def test_an_example_with_a_text_that_is_left_out_is_none(store):
    made = source(store, SHARDS)
    made = replace(
        made, examples=Examples(2, kind="pairs"), left_out=left_out(store, {SHARDS[0][1].texts[2]: "boilerplate"})
    )
    piece = epoch(store, SMALL, 0, 0, made)
    assert digest(SHARDS[0][1].texts[2]) not in set(rows(store, made)["group"].to_list())
    assert piece.counts["left_out.boilerplate"] == 1
    assert piece.counts["repeats_of_held_out"] == 0


def test_what_is_counted_in_place_of_batches_is_left_out_too(store):
    made = source(store, SHARDS)
    whole = ngrams.counts(store, made, 1, 100)
    made = replace(made, left_out=left_out(store, {SHARDS[0][1].texts[2]: "boilerplate"}))
    less = ngrams.counts(store, made, 1, 100)
    assert less.key != whole.key
    assert whole.count("texts") - less.count("texts") == less.count("left_out.boilerplate") == 1


def test_groups_of_a_class_have_its_number_and_are_no_negatives_of_each_other(store):
    made = source(store, SHARDS)
    alike = [SHARDS[0][0].texts[0], SHARDS[1][1].texts[3]]
    made = replace(made, examples=Examples(1), joined=joined(store, [alike]))
    settings = Batches(rows=36)
    frame = rows(store, made, settings)
    number = min(map(digest, alike))
    places = frame.filter(pl.col("group") == number)["at"].to_list()
    assert sorted(text(made, store, frame["text"][at]) for at in places) == sorted(alike)
    found = Epoch(store, epoch(store, settings, 0, 0, made))[0].rows
    right = torch.arange(36)[:, None]
    both = replace(found, answers_BP=right)
    shift_AC = candidates.batch(both, torch.arange(36), torch.zeros(36, 2)).shift_AC
    assert shift_AC is not None
    assert shift_AC[places[0], places[1]] == shift_AC[places[1], places[0]] == -torch.inf


def test_without_tables_a_training_set_keeps_its_key(store):
    made = source(store, SHARDS)
    assert made.keys() == (
        *(f"{n}:{made.sentences[n].key}:{made.tokens[n].key}:{made.pairs[n].key}" for n in (0, 1)),
        made.held_out.key,
    )
    with_both = replace(made, left_out=left_out(store, {}), joined=joined(store, []))
    assert len({plan_key(SMALL, 0, one) for one in (made, with_both, replace(made, left_out=with_both.left_out))}) == 3


def test_a_corpus_that_is_left_out_whole_says_why(store):
    made = source(store, {0: [Document(["Oak.", "Elm.", "Ash."])]})
    made = replace(made, left_out=left_out(store, {"Oak.": "boilerplate", "Elm.": "boilerplate"}))
    with pytest.raises(BatchesError, match="2 sentences stay out: boilerplate"):
        epoch(store, SMALL, 0, 0, made)


def test_numbers_of_classes_are_looked_up_as_a_dictionary_would():
    draw = np.random.default_rng(0)
    known = np.unique(draw.integers(0, 1000, 200, dtype=np.uint64))
    table = pl.DataFrame({"group": known, "joined": draw.integers(0, 50, len(known), dtype=np.uint64)})
    wanted = pl.Series("group", draw.integers(0, 1000, 500, dtype=np.uint64))
    by_group = dict(table.iter_rows())
    held_out = pl.Series([], dtype=pl.UInt64)
    assert Known(held_out, table).classes(wanted).to_list() == [by_group.get(one, one) for one in wanted]
    assert Known(held_out, JOINED.empty()).classes(wanted).to_list() == wanted.to_list()
