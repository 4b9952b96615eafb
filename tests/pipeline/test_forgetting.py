"""Forgetting a document, on a corpus of three shards: what is made anew, and what is left of the text."""

import json
from pathlib import Path

import corpora
import polars as pl
import pytest

from pipeline import cleaning, forgetting, inventory
from pipeline.corpus import document_digest
from pipeline.forgetting import ForgetError
from pipeline.store import Store

SECRET = "Zanzibar elephants whisper."  # in one document, and in a row beside it that cannot be used


@pytest.fixture
def texts(tmp_path):
    """Three files of rows with ids; the first holds the document that will be forgotten, and a bad row."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(3):
        rows = [{"id": f"{number}-{n}", "text": " ".join(corpora.story(10 * number + n, 5))} for n in range(6)]
        rows += [{"id": "secret", "text": SECRET}] if number == 0 else []
        lines = [json.dumps(row) for row in rows]
        lines += [json.dumps({"id": "secret", "text": f"{SECRET}\0"})] if number == 0 else []
        (folder / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def made(tmp_path, texts):
    """Tables of a run."""
    road = corpora.road(tmp_path / "store", texts, "corpus.name=mine")
    documents = road.documents(road.numbered())
    sentences = road.sentences(documents)
    tokens = road.tokens(sentences, road.vocabulary(sentences))
    source = road.source(sentences, tokens, road.pairs(sentences))
    return {"documents": documents, "sentences": sentences, "tokens": tokens, "batches": road.batches(source)}


def holds(store, text):
    """Objects of a store in which a text stands, as bytes or as a value of a table."""
    found = []
    for name in store.names(""):
        data = Path(store.path(name)).read_bytes()
        values = data.decode(errors="replace")
        if name.endswith(".parquet"):
            values += "\n".join(json.dumps(row, default=str) for row in pl.read_parquet(store.path(name)).to_dicts())
        if text in values:
            found.append(name)
    return found


@pytest.fixture
def forgotten(tmp_path, texts, ray_session):
    """Tables before and after, and the store."""
    before, store = made(tmp_path, texts), Store.at(tmp_path / "store")
    keys = forgetting.forget(store, "mine", ["secret"])
    return before, keys, made(tmp_path, texts), store


pytestmark = pytest.mark.ray


def test_only_the_shard_that_holds_the_document_is_made_anew(forgotten):
    before, keys, after, _ = forgotten
    same = lambda name: [before[name].pieces[n].key == after[name].pieces[n].key for n in range(3)]
    assert [sorted(same(name)) for name in ("documents", "sentences", "tokens")] == [[False, True, True]] * 3
    assert after["documents"].new == 1
    assert keys == {p.key for n, p in before["documents"].pieces.items() if not same("documents")[n]}


def test_the_next_run_and_a_clean_up_carry_the_text_out_of_every_object(forgotten):
    _, _, after, store = forgotten
    stages = {name.split("/")[0] for name in holds(store, SECRET.rstrip("."))}
    assert stages == {"documents", "sentences", "quarantine"}
    cleaning.clean(store, ())
    assert holds(store, SECRET.rstrip(".")) == holds(store, "secret") == []
    assert {name.split("/")[0] for name in holds(store, str(document_digest("secret")))} == {"forgotten"}
    assert [table.rows for table in after.values()] == [
        sum(len(store.read(piece)) for piece in table.pieces.values()) for table in after.values()
    ]


def test_what_was_made_of_the_text_goes_however_young_and_registered_models_stay_to_be_named(forgotten):
    before, _, _, store = forgotten
    lineage = {"sentences": [piece.key for piece in before["sentences"].pieces.values()]}
    for key in ("known", "unknown"):
        store.put(f"weights/{key}-1/lineage.json", lineage)
        store.put(f"weights/{key}.json", {"folder": f"weights/{key}-1", "training": {}})
    made_of = inventory.look(store).made_of(forgetting.touched(store))
    assert {"known", "unknown", before["batches"].pieces[0].key} <= made_of
    cleaning.clean(store, {"known"})
    assert store.names("weights/") == ["weights/known-1/lineage.json", "weights/known.json"]
    assert store.piece("batches", before["batches"].key) is None


def test_after_a_clean_up_the_next_run_finds_everything_made(forgotten, tmp_path, texts):
    _, _, after, store = forgotten
    cleaning.clean(store, ())
    again = made(tmp_path, texts)
    assert [table.cached for table in again.values()] == [True] * 4
    assert [table.key for table in again.values()] == [table.key for table in after.values()]


def test_a_shard_that_comes_later_is_searched_too(forgotten, tmp_path, texts):
    (texts / "3.jsonl").write_text(json.dumps({"id": "new", "text": "Oak and elm. Ash and yew."}), encoding="utf-8")
    rows = (texts / "0.jsonl").read_text(encoding="utf-8")
    (texts / "0.jsonl").write_text(f"{rows}\n{json.dumps({'id': 'secret', 'text': SECRET})}", encoding="utf-8")
    later = made(tmp_path, texts)
    ids = pl.concat([forgotten[3].read(piece, ["id"]) for piece in later["documents"].pieces.values()])["id"]
    assert later["documents"].new == 2
    assert ("new" in ids, "secret" in ids) == (True, False)


def test_a_document_or_corpus_that_is_not_there_is_named_and_nothing_is_remembered(tmp_path, texts, ray_session):
    made(tmp_path, texts)
    store = Store.at(tmp_path / "store")
    with pytest.raises(ForgetError, match='document "secrte" is not in corpus "mine"'):
        forgetting.forget(store, "mine", ["secret", "secrte"])
    for name in ("yours", "/not/there//", "s3://bucket/none", ""):
        with pytest.raises(ForgetError, match=rf'corpus "{name}" is not in store .* URI as it was given'):
            forgetting.forget(store, name, ["secret"])
    assert forgetting.forgotten(store, "mine") == frozenset()


def test_a_corpus_without_a_name_is_known_by_its_uri(tmp_path, texts, ray_session):
    road = corpora.road(tmp_path / "store", texts)
    road.documents(road.numbered())
    forgetting.forget(road.store, str(texts), ["secret"])
    assert forgetting.forgotten(road.store, road.corpus_name) == {document_digest("secret")}
