import json
import time
from pathlib import Path

import pytest
from corpora import road, stories, story, write

from models.recipe import RecipeError
from pipeline.manifest import Manifest
from pipeline.road import Road, make_documents, make_pairs, make_sentences, make_tokens
from pipeline.sources import SourceError
from pipeline.store import Piece

DATA = ("documents", "sentences", "tokens", "pairs", "batches")


def walk(road: Road) -> dict[str, Manifest]:
    """All data stages, by name."""
    documents = road.documents(road.numbered())
    sentences = road.sentences(documents)
    tokens, pairs = road.tokens(sentences, road.vocabulary(sentences)), road.pairs(sentences)
    batches = road.batches(road.source(sentences, tokens, pairs))
    return {table.name: table for table in (documents, sentences, tokens, pairs, batches)}


def bytes_of(made: dict[str, Manifest]) -> dict[str, list[str]]:
    return {name: [piece.sha256 for piece in table.pieces.values()] for name, table in made.items()}


def keys(made: dict[str, Manifest]) -> dict[str, list[str]]:
    return {name: [piece.key for piece in table.pieces.values()] for name, table in made.items()}


def new(made: dict[str, Manifest]) -> list[int]:
    """New pieces of the stages before batches."""
    return [made[name].new for name in DATA[:4]]


@pytest.fixture(scope="module")
def sixty(tmp_path_factory, ray_session) -> tuple[Path, Path]:
    """A corpus of 60 files, and a store in which its road has been walked; tests grow and change copies of neither."""
    place = tmp_path_factory.mktemp("sixty")
    write(place / "corpus", stories(60))
    walk(road(place / "store", place / "corpus"))
    return place / "corpus", place / "store"


pytestmark = pytest.mark.ray


# A corpus that changes; these tests run in order on one corpus of 60 files


def test_a_second_run_makes_nothing(sixty):
    corpus, store = sixty
    made = walk(road(store, corpus))
    assert [made[name].cached for name in DATA] == [True] * 5
    assert new(made) == [0, 0, 0, 0]


def test_one_more_file_makes_only_its_own_pieces(sixty):
    corpus, store = sixty
    write(corpus, {"another": story(100, 5)})
    made = walk(road(store, corpus))
    assert new(made) == [1, 1, 1, 1]
    assert list(made["documents"].pieces) == list(range(61))
    assert made["batches"].new == 1


def test_a_changed_file_makes_only_its_own_pieces_and_gets_a_new_number(sixty):
    corpus, store = sixty
    write(corpus, {"story007": story(107, 5)})
    made = walk(road(store, corpus))
    assert new(made) == [1, 1, 1, 1]
    assert list(made["documents"].pieces)[-1] == 61
    assert len(made["documents"].pieces) == 61
    assert made["documents"].gone == 1


def test_a_removed_file_is_counted_and_makes_nothing(sixty):
    corpus, store = sixty
    (corpus / "story007.txt").unlink()
    made = walk(road(store, corpus))
    assert new(made) == [0, 0, 0, 0]
    assert made["documents"].gone == 1
    assert walk(road(store, corpus))["documents"].gone == 0


def test_the_number_of_a_shard_that_is_gone_is_given_to_no_other(sixty):
    corpus, store = sixty
    write(corpus, {"yet another": story(101, 5)})
    numbers = list(walk(road(store, corpus))["documents"].pieces)
    assert numbers[-1] == 62
    assert 61 not in numbers


def test_a_shard_that_comes_back_has_its_old_number_and_pieces(sixty):
    corpus, store = sixty
    write(corpus, {"story007": story(107, 5)})
    made = walk(road(store, corpus))
    assert new(made) == [0, 0, 0, 0]
    assert 61 in made["documents"].pieces


# The same bytes


def test_every_stage_built_twice_has_the_same_bytes_in_one_process_or_in_many(tmp_path, ray_session):
    corpus = write(tmp_path / "corpus", stories(12))
    many = walk(road(tmp_path / "many", corpus))
    assert all(piece.rows for name in DATA for piece in many[name].pieces.values())
    again = walk(road(tmp_path / "again", corpus))
    assert bytes_of(again) == bytes_of(many)
    alone = alone_and_backwards(road(tmp_path / "alone", corpus), many)
    assert {name: bytes_of(many)[name] for name in alone} == alone


def alone_and_backwards(road: Road, keys: dict[str, Manifest]) -> dict[str, list[str]]:
    """Digests of the stages over shards, made in this process from the last shard to the first."""
    store, numbers = road.store, sorted(keys["documents"].pieces, reverse=True)
    source = road.numbered()
    made: dict[str, dict[int, Piece]] = {name: {} for name in DATA[:4]}
    key = lambda name, number: keys[name].pieces[number].key
    for n in numbers:
        item = (source.shards[n], road.recipe.corpus, ())
        made["documents"][n] = make_documents(store, key("documents", n), item)
        made["sentences"][n] = make_sentences(store, key("sentences", n), made["documents"][n])
    words = road.vocabulary(Manifest("sentences", "", dict(sorted(made["sentences"].items()))))
    store.create("tokenizers/x.json", words.tokenizer)
    for n in numbers:
        sentences = made["sentences"][n]
        most = road.recipe.tokenizer.most_tokens
        made["tokens"][n] = make_tokens(store, key("tokens", n), (sentences, "tokenizers/x.json", most))
        made["pairs"][n] = make_pairs(store, key("pairs", n), (sentences, road.recipe.pairs))
    return {name: [piece.sha256 for _, piece in sorted(pieces.items())] for name, pieces in made.items()}


# Keys: what changes what


@pytest.fixture(scope="module")
def small(tmp_path_factory, ray_session) -> tuple[Path, Path, dict[str, Manifest]]:
    place = tmp_path_factory.mktemp("small")
    write(place / "corpus", stories(4, 8))
    return place / "store", place / "corpus", walk(road(place / "store", place / "corpus"))


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("training.rate=0.1", None),
        ("encoder.width=8", None),
        ("batches.lane_rows=3", None),
        ("batches.rows=10", "batches"),
        ("batches.bucket_rows=9", "batches"),
        ("training.seed=1", "batches"),
        ("corpus.held_out=0.5", "documents"),
        ("corpus.language='de'", "documents"),
    ],
)
def test_a_setting_changes_the_keys_of_the_stages_from_where_it_counts(small, change, first):
    store, corpus, before = small
    after = keys(walk(road(store, corpus, change)))
    changed = [name for name in DATA if after[name] != keys(before)[name]]
    assert changed == ([] if first is None else list(DATA[DATA.index(first) :]))


@pytest.mark.parametrize(
    ("change", "stage"), [("tokenizer.most_tokens=3", "tokens"), ("pairs.context_size=2", "pairs")]
)
def test_tokens_and_pairs_do_not_depend_on_each_other(small, change, stage):
    store, corpus, before = small
    after = keys(walk(road(store, corpus, change)))
    assert [name for name in DATA if after[name] != keys(before)[name]] == [stage, "batches"]


def test_a_run_over_nothing_new_is_quick(small):
    store, corpus, _ = small
    began = time.monotonic()
    assert walk(road(store, corpus))["documents"].cached
    assert time.monotonic() - began < 3


# Examples

SINGLE = "pairs={kind='single'}"


@pytest.mark.parametrize("unit", ["word", "subword"])
def test_the_tokenizer_is_known_to_batches_where_words_are_repeated(small, unit):
    store, corpus, _ = small
    way = road(store, corpus, SINGLE, f"augment=['none', {{kind='repeat', unit='{unit}'}}]")
    sentences = way.sentences(way.documents(way.numbered()))
    tokens = way.tokens(sentences, way.vocabulary(sentences))
    source = way.source(sentences, tokens, way.pairs(sentences))
    assert source.examples is not None
    assert bool(source.examples.tokenizer) == (unit == "word")
    assert unit != "word" or way.store.get(source.examples.tokenizer) == way.vocabulary(sentences).tokenizer
    assert way.batches(source).rows > 0


def test_augmentation_changes_batches_alone(small):
    store, corpus, _ = small
    plain, repeated = (keys(walk(road(store, corpus, SINGLE, f"augment={a}"))) for a in ("[]", "['none', 'repeat']"))
    assert [name for name in DATA if plain[name] != repeated[name]] == ["batches"]


def test_every_kind_of_example_walks_the_road(small):
    store, corpus, _ = small
    for kind, rows in (("none", 8), ("single", 8)):
        made = walk(road(store, corpus, f"pairs={{kind='{kind}'}}", f"batches.rows={rows}"))
        assert made["batches"].rows >= rows


@pytest.mark.parametrize(("kind", "texts"), [("pairs", ["left", "right"]), ("triples", ["left", "right", "wrong"])])
def test_labelled_texts_walk_the_road(tmp_path, kind, texts):
    rows = [{name: f"{name} {number} says oak." for name in texts} for number in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = (f"corpus.texts={texts}", f"pairs={{kind='{kind}'}}", f"batches.rows={2 * len(texts)}")
    assert walk(road(tmp_path / "store", tmp_path / "rows.jsonl", *settings))["batches"].rows >= 2 * len(texts)


# What cannot be used


def test_quarantine_holds_source_row_reason_and_excerpt(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"id": 1, "text": "Oak elm."}\n{"id": 2, "text": \n')
    way = road(tmp_path / "store", corpus, "corpus.held_out=0")
    made = way.documents(way.numbered())
    piece = way.store.piece("quarantine", made.pieces[0].key)
    assert piece is not None
    (row,) = way.store.read(piece).to_dicts()
    assert (row["source"], row["row"], row["excerpt"]) == ("a.jsonl", 2, '{"id": 2, "text": ')
    assert "JSON" in row["reason"]
    assert (made.count("quarantined"), made.row()["quarantined"]) == (1, 1)


def test_a_corpus_without_usable_text_is_refused_each_time(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("\n \n")
    for _ in range(2):
        way = road(tmp_path / "store", corpus)
        with pytest.raises(SourceError, match="no usable text; 1 records are in quarantine"):
            way.documents(way.numbered())


def test_a_document_in_two_shards_is_refused_each_time_with_both_names(tmp_path, ray_session):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in "ab":
        (corpus / f"{name}.jsonl").write_text('{"id": "same", "text": "Oak elm."}\n')
    for _ in range(2):
        way = road(tmp_path / "store", corpus)
        with pytest.raises(SourceError, match=r'document "same" lies in a\.jsonl and in b\.jsonl; .*put its rows'):
            way.documents(way.numbered())


def test_an_unknown_pairing_is_refused_with_the_known_ones(small):
    store, corpus, _ = small
    way = road(store, corpus, "pairs.kind='cousins'")
    with pytest.raises(RecipeError, match=r'pairs.*"cousins"; known: .*neighbours'):
        way.pairs(way.sentences(way.documents(way.numbered())))
