"""Classes of texts, against a plain search; and that no two of one class are told apart in any batch of any kind."""

import random
import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest
import torch
from corpora import Document, sentences

from models import candidates
from models.candidates import Rows
from models.recipe import Batches, Dedup, load
from pipeline import batches, groups, joining
from pipeline.batches import Source, epoch
from pipeline.corpus import group, normal
from pipeline.examples import Examples
from pipeline.manifest import Manifest
from pipeline.pairs import PAIRINGS, VIEWS
from pipeline.reader import Epoch
from pipeline.store import Piece, Store
from pipeline.tables import PAIRS, SENTENCES, TOKENS

WORDS = [f"{a}{b}{c}" for a in ("br", "k", "st", "w") for b in "aeiou" for c in ("ndle", "rt", "lm", "sh")]


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def digest(text: str) -> int:
    return int(group(pl.Series([text]))[0])


def recipe(kind: str, **rules):
    read = load("quick-thoughts")
    return read.model_copy(
        update={"pairs": read.pairs.model_copy(update={"kind": kind, "options": {}}), "dedup": Dedup(**rules)}
    )


class Shards:
    """A corpus that grows: each new shard is written, and the classes of all there are until then are found."""

    def __init__(self, store: Store, kind: str, **rules) -> None:
        self.store, self.recipe = store, recipe(kind, **rules)
        self.pieces: dict[str, dict[int, Piece]] = {"sentences": {}, "tokens": {}, "pairs": {}}
        self.piece: Piece | None = None

    def add(self, documents: list[Document], labels: list[int | None] | None = None) -> "Shards":
        number, kind = len(self.pieces["sentences"]), self.recipe.pairs.kind
        frame = sentences(documents, first=1000 * number)
        if labels is not None:
            frame = frame.with_columns(label=pl.Series(labels, dtype=pl.UInt8))
        lengths = frame.select(tokens=pl.concat_list(pl.col("text").str.len_chars().cast(pl.Int32)))
        for table, content in ((SENTENCES, frame), (TOKENS, lengths), (PAIRS, PAIRINGS[kind](frame))):
            made = self.store.write(table, f"shard{number}", content, started=time.time())
            self.pieces[table.name][number] = made
        self.piece = joining.joined(self.store, self.recipe, self.table("sentences"), self.table("pairs"))
        return self

    def table(self, name: str) -> Manifest:
        return Manifest(name, "", dict(self.pieces[name]))

    def source(self, joined: bool = True) -> Source:
        kind, of = self.recipe.pairs.kind, self.pieces
        kin = groups.kindred(self.store, of["sentences"]) if kind == "groups" else None
        held_out = batches.held_out(self.store, of["sentences"])
        made = Source(of["sentences"], of["tokens"], of["pairs"], held_out, None, 0, kin)
        if kind == "qa":
            made = replace(made, examples=Examples(VIEWS[kind], most=3, kind=kind))
        elif kind != "neighbours":
            made = replace(made, examples=Examples(VIEWS[kind], kind=kind if kind in ("pairs", "groups") else ""))
        return replace(made, joined=self.piece if joined else None)

    def classes(self) -> set[frozenset[int]]:
        assert self.piece
        rows = self.store.read(self.piece).group_by("joined").agg("group")
        return {frozenset(members) for members in rows["group"]}


def texts(*classes: str) -> set[frozenset[int]]:
    return {frozenset(map(digest, one.split())) for one in classes}


def test_texts_in_reach_of_one_another_have_the_least_number_of_them():
    draw = np.random.default_rng(0)
    edges = draw.integers(0, 2**63, 300, dtype=np.uint64)[draw.integers(0, 300, (140, 2))]
    number_N, least_N = joining.classes(edges[:, 0], edges[:, 1])
    beside: dict[int, set[int]] = {}
    for one, other in edges.tolist():
        beside.setdefault(one, {one}).add(other)
        beside.setdefault(other, {other}).add(one)
    assert number_N.tolist() == sorted(beside)
    for number, least in zip(number_N.tolist(), least_N.tolist(), strict=True):
        reach, waiting = set(), [number]
        while waiting:
            if (one := waiting.pop()) not in reach:
                reach.add(one)
                waiting += beside[one]
        assert least == min(reach)


def test_positives_are_one_class_through_any_number_of_steps_and_shards(store):
    shards = Shards(store, "pairs").add([Document(["oak", "elm"]), Document(["fir", "yew"])])
    shards.add([Document(["Elm!", "ash"])]).add([Document(["ash", "pine"])])
    assert shards.classes() == texts("oak elm ash pine", "fir yew")
    assert dict(shards.piece.counts) == {"crowded": 0, "classes": 2, "texts": 6, "largest": 4}


def test_questions_with_one_right_answer_are_a_class_and_wrong_answers_join_nobody(store):
    shards = Shards(store, "qa").add([Document(["why", "because", "never"])], [None, 1, 0])
    shards.add([Document(["wherefore", "because", "nowhere"])], [None, 1, 0])
    assert shards.classes() == texts("why because wherefore")


def test_a_hard_negative_joins_nobody(store):
    shards = Shards(store, "triples").add([Document(["oak", "elm", "yew"]), Document(["yew", "fir", "oak"])])
    assert shards.classes() == texts("oak elm", "yew fir")


def test_a_text_in_too_many_pairs_joins_nobody_and_is_counted(store):
    yes = [Document([f"question{number}", "yes"]) for number in range(3)]
    shards = Shards(store, "pairs", partners=2).add([*yes, Document(["question0", "oak"])])
    assert shards.classes() == texts("question0 oak")
    assert shards.piece.counts["crowded"] == 1
    assert len(Shards(store, "pairs", partners=3).add([*yes, Document(["question0", "oak"])]).classes()) == 1


def test_held_out_pairs_join_nobody(store):
    secret = Document(["oak", "elm"], held_out=True)
    assert Shards(store, "pairs").add([secret, Document(["elm", "fir"])]).classes() == texts("elm fir")


def test_near_repeats_and_answers_join_together(store):
    long = "the quick brown fox jumps over the lazy dog and away"
    shards = Shards(store, "pairs", near=0.7).add([Document(["oak", long])])
    shards.add([Document([f"{long}!", "elm"]), Document([long.replace("away", "awry"), "fir"])])
    whole = {digest(one) for one in ("oak", "elm", "fir", long, long.replace("away", "awry"))}
    assert shards.classes() == {frozenset(whole)}


def test_groups_with_near_repeats_are_joined_by_their_numbers(store):
    long = "the quick brown fox jumps over the lazy dog and away"
    shards = Shards(store, "groups", near=0.7).add([Document(["oak", long]), Document(["elm", "fir"])])
    shards.add([Document([long.replace("away", "awry"), "yew"]), Document(["yew", "ash"])])
    assert shards.classes() == {frozenset({0, 1000})}  # 1001 shares a text with 1000, so that is its number in kin


def test_a_recipe_without_rules_or_answers_joins_nothing(store):
    made = Shards(store, "pairs").add([Document(["oak", "elm"])])
    bare = made.recipe.model_copy(update={"dedup": None})
    of = lambda one: joining.joined(store, one, made.table("sentences"), made.table("pairs"))
    assert of(made.recipe) is not None
    assert of(bare) is of(recipe("pairs", positives=False)) is of(recipe("neighbours")) is of(recipe("single")) is None


def test_a_second_call_reads_and_a_new_shard_makes_its_own_pieces_alone(store):
    shards = Shards(store, "pairs", near=0.8).add([Document(["oak", "elm"])]).add([Document(["fir", "yew"])])
    before = set(store.names(""))
    again = joining.joined(store, shards.recipe, shards.table("sentences"), shards.table("pairs"))
    assert again == shards.piece
    assert set(store.names("")) == before
    shards.add([Document(["pine", "ash"])])
    made = [name for name in set(store.names("")) - before if name.endswith(".json") and name.split("/")[1] != "joined"]
    assert sorted(name.split("/")[0] for name in made if name.split("/")[0] in ("answered", "sketches")) == [
        "answered",
        "sketches",
    ]


# In batches


def family(draw: random.Random) -> list[str]:
    """A sentence and two that differ from it by a word."""
    words = draw.choices(WORDS, k=12)
    found = [" ".join(words)]
    for _ in range(2):
        other = list(words)
        other[draw.randrange(12)] = draw.choice(WORDS)
        found.append(" ".join(other))
    return found


def grown(store: Store, kind: str, seed: int) -> Shards:
    """Three shards of examples whose texts come again, exactly or nearly, in other ones."""
    draw = random.Random(seed)
    pool = [text for _ in range(120) for text in family(draw)]
    shards = Shards(store, kind, near=0.6)
    for _ in range(3):
        if kind == "qa":
            asked = [[draw.choice(pool) for _ in range(draw.randint(3, 6))] for _ in range(8)]
            labels = [[None, 1, *(draw.randint(0, 1) for _ in one[3:]), 0] for one in asked]
            shards.add([Document(one) for one in asked], [label for one in labels for label in one])
        else:
            size = {"pairs": 2, "triples": 3, "groups": 3}.get(kind, 6)
            shards.add([Document([draw.choice(pool) for _ in range(size)]) for _ in range(36 // size)])
    return shards


def plain_classes(shards: Shards) -> dict[int, set[int]]:
    """Of each text, by its digest, all that are in its class: pair by pair, until no class changes."""
    kind, read = shards.recipe.pairs.kind, shards.store.read
    frames = {number: read(piece) for number, piece in shards.pieces["sentences"].items()}
    text = {g: normal(pl.Series([t]))[0] for f in frames.values() for g, t in f.select("group", "text").iter_rows()}
    runs = {g: {t[at : at + 5] for at in range(max(1, len(t) - 4))} for g, t in text.items()}
    share = lambda a, b: len(runs[a] & runs[b]) / len(runs[a] | runs[b])
    links = {(a, b) for a, b in combinations(text, 2) if share(a, b) >= 0.6}
    for number, frame in frames.items():
        of = frame["group"].to_list()
        if kind in ("pairs", "triples", "qa"):
            links |= {(of[a], of[b]) for a, b in read(shards.pieces["pairs"][number], ["anchor", "positive"]).rows()}
        if kind == "groups":
            links |= {(of[at], of[other]) for at, other in combinations(range(len(of)), 2) if at // 3 == other // 3}
    found = {g: {g} for g in text}
    for a, b in links:
        if found[a] is not found[b]:
            found[a] |= found[b]
            for other in found[b]:
                found[other] = found[a]
    return found


def pools(kind: str, rows: Rows, workers: int):
    """What each worker's anchors are told apart from, for all kinds of candidates that the examples have."""
    asked = {"pairs": ["batch", "other-view"], "triples": ["batch", "other-view", "hard"], "qa": ["batch", "own"]}
    for name in asked.get(kind, ["batch"]):
        anchor_A = candidates.anchors("other-view" if name == "hard" else name, rows)
        for part_A in anchor_A.tensor_split(workers):
            blank_BD = torch.zeros(len(rows.side_B), 1)
            if name == "own":
                pool = candidates.own(rows, part_A, blank_BD, count=9)
            elif name == "batch":
                pool = candidates.batch(rows, part_A, blank_BD)
            else:
                pool = candidates.other_view(rows, part_A, blank_BD, hard=name == "hard")
            kept_AC = torch.ones(len(part_A), len(blank_BD), dtype=torch.bool)
            yield part_A, pool.answer_AP, kept_AC if pool.shift_AC is None else pool.shift_AC > -torch.inf


def told_apart(shards: Shards, joined: bool, workers: int = 1) -> tuple[int, int]:
    """Pairs of an anchor and a wrong candidate in two epochs, and how many of these are of one class."""
    apart = alike = 0
    same, kind = plain_classes(shards), shards.recipe.pairs.kind
    settings, made = Batches(rows=18, run=6), shards.source(joined)
    groups_of = {n: shards.store.read(piece)["group"].to_list() for n, piece in made.sentences.items()}
    for number in range(2):
        opened = Epoch(shards.store, epoch(shards.store, settings, 0, number, made))
        for at in range(opened.batches):
            text_B = [groups_of[int(text) >> 32][int(text) % 2**32] for text in opened.texts(at)]
            for anchor_A, answer_AP, kept_AC in pools(kind, opened[at].rows, workers):
                for anchor, answers, kept in zip(anchor_A.tolist(), answer_AP.tolist(), kept_AC, strict=True):
                    right = set().union(*(same[text_B[row]] for row in [anchor, *answers] if row >= 0))
                    wrong = [row for row in kept.nonzero().flatten().tolist() if row not in answers]
                    apart += len(wrong)
                    alike += sum(text_B[row] in right for row in wrong)
    return apart, alike


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", ["neighbours", "single", "pairs", "triples", "groups", "qa"])
def test_no_two_of_a_class_are_told_apart_in_any_batch_by_any_worker(store, kind, seed):
    shards = grown(store, kind, seed)
    assert told_apart(shards, joined=False)[1] > 0
    for workers in (1, 3):
        apart, alike = told_apart(shards, joined=True, workers=workers)
        assert apart > 100
        assert alike == 0
