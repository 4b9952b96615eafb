import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from corpora import Document, sentences, source
from scipy.stats import chisquare

from flows.summary import drops
from models import candidates
from models.recipe import Batches, load
from pipeline import groups
from pipeline.batches import BatchesError, Source, epoch
from pipeline.examples import Examples
from pipeline.manifest import Manifest
from pipeline.pairs import PAIRINGS
from pipeline.reader import Epoch
from pipeline.road import Road
from pipeline.store import Store
from pipeline.tables import FILLER, PAIRS

TREES = ["Oak.", "Elm.", "Ash.", "Yew.", "Fir.", "Pine.", "Alder.", "Birch."]


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def made_of(store: Store, shards: dict[int, list[Document]]) -> Source:
    made, pairs = source(store, shards), {}
    for number, documents in shards.items():
        frame = PAIRINGS["groups"](sentences(documents, first=1000 * number))
        pairs[number] = store.write(PAIRS, f"groups{number}", frame, started=time.time())
    kin = groups.kindred(store, made.sentences)
    return replace(made, pairs=pairs, examples=Examples(2, kind="groups"), kin=kin)


def rows(store: Store, made: Source, size: int = 4, number: int = 0) -> pl.DataFrame:
    frame = store.read(epoch(store, Batches(rows=size), 0, number, made)).with_row_index("at")
    return frame.filter(pl.col("side") != FILLER).with_columns(batch=pl.col("at") // size)


def pairs_of(store: Store, made: Source, size: int = 4, number: int = 0) -> list[tuple[int, int]]:
    texts = rows(store, made, size, number)["text"].to_list()
    return list(zip(texts[::2], texts[1::2], strict=True))


def group(name: str, members: int) -> Document:
    return Document([f"{name} {tree}" for tree in TREES[:members]])


THREE = {0: [group("Red", 5), group("Blue", 2)], 1: [group("Green", 8)]}


def test_each_group_gives_a_pair_of_two_different_members_in_each_epoch(store):
    made = made_of(store, THREE)
    green = 1 << 32
    for number in range(10):
        found = sorted(pairs_of(store, made, 2, number))
        kinds = [set(range(5)), {5, 6}, set(range(green, green + 8))]
        assert len(found) == 3
        for pair, kind in zip(found, kinds, strict=True):
            assert set(pair) <= kind
            assert pair[0] != pair[1]


def test_every_epoch_draws_anew_and_the_same_epoch_the_same_again(store, tmp_path):
    made = made_of(store, THREE)
    assert len({tuple(sorted(pairs_of(store, made, 2, number))) for number in range(10)}) == 10
    other = Store.at(tmp_path / "other")
    assert pairs_of(other, made_of(other, THREE), 2, 3) == pairs_of(store, made, 2, 3)


def test_every_ordered_pair_of_members_is_equally_likely():
    frame = pl.concat([sentences([group(f"G{n}", 4)], first=n) for n in range(12_000)])
    found = groups.drawn(PAIRINGS["groups"](frame), np.zeros(len(frame), bool), np.random.default_rng(0))
    pairs = Counter(map(tuple, (found % 4).tolist()))
    assert len(pairs) == 12
    assert chisquare(list(pairs.values())).pvalue > 0.001


def test_what_is_drawn_of_a_group_depends_on_no_other():
    def second(first: Document) -> list[list[int]]:
        frame = sentences([first, group("Blue", 8)])
        barred, drawn = np.zeros(len(frame), bool), []
        for seed in range(20):
            found = groups.drawn(PAIRINGS["groups"](frame), barred, np.random.default_rng(seed))
            drawn.append((found[-1] - len(first.texts)).tolist())
        return drawn

    assert second(group("Red", 3)) == second(group("Red", 7))


def test_members_of_a_group_have_one_number_and_are_right_or_left_out_of_no_other_s_negatives(store):
    made = made_of(store, {0: [group(name, 3) for name in ("Red", "Blue", "Green")]})
    piece = epoch(store, Batches(rows=6), 0, 0, made)
    found = Epoch(store, piece)[0].rows
    assert len(set(found.group_B.tolist())) == 3
    shift_AC = candidates.batch(found, found.anchors(), torch.zeros(6, 2)).shift_AC
    left_out = torch.eye(6, dtype=torch.bool)  # itself; its one answer stays
    assert shift_AC is None or ((shift_AC == -torch.inf) == left_out).all()


def test_groups_that_share_a_text_are_one_wherever_they_stand_and_so_are_those_between(store):
    shards = {
        0: [Document(["Oak.", "Elm."]), Document(["Fir.", "Yew."])],
        1: [Document(["elm!", "Ash."]), Document(["Ash", "Pine."])],
    }
    made = made_of(store, shards)
    number = {row["text"]: row["group"] for row in rows(store, made, 8).to_dicts()}
    one, two = {number[0], number[1]}, {number[(1 << 32) + at] for at in range(4)}
    assert one == two
    assert len(one) == 1
    assert {number[2], number[3]} == {1}  # its own: the number of its document
    assert store.read(made.kin).rows() == [(0, 0), (1000, 0), (1001, 0)]


def test_groups_without_a_pair_are_counted(store):
    shards = {0: [group("Red", 3), group("Blue", 1), Document(["Oak.", "oak", "OAK!"]), group("Green", 2)]}
    made = made_of(store, shards)
    assert len(pairs_of(store, made)) == 2
    counts = epoch(store, Batches(rows=4), 0, 0, made).counts
    assert (counts["groups_of_one"], counts["groups_of_one_text"]) == (1, 1)


def test_a_member_that_repeats_a_held_out_text_is_never_drawn(store):
    secret = Document(["Red Oak.", "Blue Oak."], held_out=True)
    made = made_of(store, {0: [secret, group("Red", 3), group("Blue", 2), group("Green", 2)]})
    for number in range(8):
        pairs = sorted(tuple(sorted(pair)) for pair in pairs_of(store, made, 2, number))
        assert pairs == [(3, 4), (7, 8)]  # of Red the other two; of Blue one is left, which is no pair
    assert epoch(store, Batches(rows=2), 0, 0, made).counts["repeats_of_held_out"] == 2


def test_a_corpus_of_groups_of_one_is_refused_with_their_number(store):
    with pytest.raises(BatchesError, match=r"0 training rows = 0 pairs, .*; 3 groups have one text"):
        epoch(store, Batches(rows=4), 0, 0, made_of(store, {0: [group(name, 1) for name in TREES[:3]]}))


def test_groups_of_one_another_are_in_the_keys(store):
    made = made_of(store, THREE)
    assert made.kin is not None
    assert made.keys()[-1] == made.kin.key
    assert replace(made, kin=None).keys() == made.keys()[:-1]


# From a file


def road(place: Path, records: list[dict[str, str]], *overrides: str) -> Road:
    (place / "groups.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    settings = ["pairs={kind='groups'}", "corpus.texts=['text']", "corpus.document=['group']", "corpus.held_out=0"]
    settings += ["batches.rows=4", "tokenizer.size=60", *overrides]
    return Road(Store.at(place / "store"), load("quick-thoughts", settings), str(place / "groups.jsonl"))


def test_texts_of_a_table_stay_whole_and_their_column_names_groups(tmp_path):
    lines = [
        ("a", "Where is it? I want to know."),
        ("a", "Tell me where it is."),
        ("b", "Go away."),
        ("c", "Come. Now."),
    ]
    lines += [("c", "Come at once!"), ("d", "  "), ("d", "Stay.")]
    made = road(tmp_path, [{"group": name, "text": text} for name, text in lines])
    documents = made.documents(made.numbered())
    sentences = made.sentences(documents)
    tokens = made.tokens(sentences, made.vocabulary(sentences))
    pairs = made.pairs(sentences)
    batches = made.batches(made.source(sentences, tokens, pairs))
    texts = made.store.read(next(iter(sentences.pieces.values())))["text"].to_list()
    assert set(texts) == {text for _, text in lines if text.strip()}
    assert [len(row) for row in made.store.read(next(iter(pairs.pieces.values())))["members"]] == [2, 2]
    empty = Manifest("", "", {})
    left_out = drops([documents, sentences, tokens, pairs, empty, empty, batches])
    assert left_out["groups of one text"] == 2
    assert batches.rows == 4
