"""Near repeats, against every pair of texts compared in the plainest way."""

import random
import time
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from corpora import Document, sentences

from pipeline import near
from pipeline.corpus import normal
from pipeline.manifest import Manifest
from pipeline.store import Piece, Store
from pipeline.tables import SENTENCES

WORDS = [f"{a}{b}{c}" for a in ("br", "k", "st", "w") for b in "aeiou" for c in ("ndle", "rt", "lm", "sh")]


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def varied(count: int, seed: int) -> list[str]:
    """Sentences, each with variants of which some words differ."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(8, 16))
        for changed in range(4):
            other = list(words)
            for place in draw.sample(range(len(words)), changed):
                other[place] = draw.choice(WORDS)
            found.append(" ".join(other))
    return found


def plain_share(one: str, other: str, size: int) -> float:
    parts = lambda text: {text[at : at + size] for at in range(max(1, len(text) - size + 1))}
    return len(parts(one) & parts(other)) / len(parts(one) | parts(other))


def written(store: Store, texts: list[str], number: int = 0) -> Piece:
    frame = sentences([Document(texts)], first=1000 * number)
    return store.write(SENTENCES, f"shard{number}", frame, started=time.time())


def sketched(store: Store, shards: dict[int, Piece], threshold: float = 0.8) -> Manifest:
    """Sketches of a corpus that grew shard by shard: one that is missing alone is made in this process."""
    for number in shards:
        made = near.sketches(store, {n: piece for n, piece in shards.items() if n <= number}, 5, threshold)
        assert made.new == 1
    return made


def test_how_alike_two_texts_are_is_what_counting_their_pieces_says():
    texts = [*varied(5, 0), "Ab", "ab!", "", "Straße und Mauer", "strasse und mauer", "東京 大阪 京都", "東京 大阪"]
    one_P, other_P = np.array(list(combinations(range(len(texts)), 2))).T
    found = near.shares(pl.Series(texts), 5, one_P, other_P)
    forms = normal(pl.Series(texts)).to_list()
    assert found.tolist() == pytest.approx(
        [plain_share(forms[a], forms[b], 5) for a, b in zip(one_P, other_P, strict=True)], abs=1e-12
    )


@pytest.mark.parametrize("threshold", [0.6, 0.8])
def test_near_repeats_of_all_shards_are_found_and_nothing_else(store, threshold):
    shards = {number: written(store, varied(60, number) + varied(20, 9), number) for number in range(2)}
    found = store.read(near.alike(store, shards, 5, threshold, sketched(store, shards, threshold)))
    rows = pl.concat(store.read(piece) for piece in shards.values()).unique("group").sort("group")
    forms, groups = normal(rows["text"]).to_list(), rows["group"].to_list()
    right = {
        (groups[a], groups[b])
        for a, b in combinations(range(len(rows)), 2)
        if plain_share(forms[a], forms[b], 5) >= threshold
    }
    got = set(found.select("one", "other").iter_rows())
    assert len(right) > 50
    assert got <= right
    assert len(got) >= 0.98 * len(right)


def test_exact_repeats_in_many_shards_are_one_text(store):
    shards = {number: written(store, [f"the very same sentence {number % 2}"], number) for number in range(6)}
    found = near.candidates(store, sketched(store, shards))
    assert len(found) == 1


def test_a_grown_corpus_sketches_its_new_shards_alone(store):
    shards = {number: written(store, varied(4, number), number) for number in range(3)}
    assert len(sketched(store, shards).pieces) == 3


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_a_pair_at_the_threshold_with_the_stated_probability(threshold):
    count, width = near.bands(threshold)
    assert count * width <= near.DRAWS
    assert 1 - (1 - threshold**width) ** count >= near.FOUND


def test_a_corpus_without_text_has_no_near_repeats(store):
    assert len(near.candidates(store, near.sketches(store, {}, 5, 0.8))) == 0
