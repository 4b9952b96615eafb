"""What rows generate and what a teacher says of them, from files to batches; in English and Chinese."""

import json
from pathlib import Path

import polars as pl
import pytest

from models.recipe import load
from pipeline import targets
from pipeline.lexicon import Lexicon
from pipeline.road import Road
from pipeline.store import Store

TERMS = "terms=[{candidates={kind='batch'}, similarity={kind='cosine'}, objective={kind='softmax'}}, "
TERMS += "{objective={kind='generation'}}]"
PAIRS = [
    ("Where do the swifts sleep?", "In what place do swifts sleep at night?"),
    ("The tide is low.", "The sea has gone out."),
    ("A heron stands in the reeds.", "There is a heron among the reeds."),
    ("It rains.", "Rain is falling on the roof and on the road."),
]
CHINESE = [
    ("\u660e\u5929\u4f1a\u4e0b\u96e8\u5417\uff1f", "\u660e\u5929\u6709\u96e8\u5417\uff1f"),
    (
        "\u8fd9\u672c\u4e66\u5f88\u597d\u3002\u6211\u559c\u6b22\u3002",
        "\u6211\u559c\u6b22\u8fd9\u672c\u597d\u4e66\u3002",
    ),
    ("\u706b\u8f66\u7ad9\u5728\u54ea\u91cc\uff1f", "\u53bb\u706b\u8f66\u7ad9\u600e\u4e48\u8d70\uff1f"),
    ("\u6c34\u592a\u51b7\u4e86\u3002", "\u8fd9\u6c34\u5f88\u51b7\u3002"),
]
LENGTHEN = "augment=[{kind='noise', chance=1.0, whole_words=0.0, infilling=0.5, mean_span=0.5}]"


def recipe(*overrides: str):
    settings = ["pairs={kind='pairs'}", "corpus.texts=['left', 'right']", "corpus.held_out=0", "batches.rows=4"]
    settings += ["encoder.path=", "encoder.positions=40", "tokenizer.kind=wordpiece", "tokenizer.size=150", TERMS]
    return load("simcse-unsup", ["batches.lane_rows=4", *settings, *overrides])


def road(place: Path, pairs: list[tuple[str, str]], *overrides: str) -> Road:
    file = place / "pairs.jsonl"
    file.write_text("\n".join(json.dumps({"left": one, "right": two}) for one, two in pairs), encoding="utf-8")
    return Road(Store.at(place / "store"), recipe(*overrides), str(file))


def walked(road: Road) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    """Batches, the sentences' tokens, and the counts of batches."""
    sentences = road.sentences(road.documents(road.numbered()))
    tokens = road.tokens(sentences, road.vocabulary(sentences))
    batches = road.batches(road.source(sentences, tokens, road.pairs(sentences)))
    read = lambda table: road.store.read(next(iter(table.pieces.values())))
    return read(batches), read(tokens), batches.counts()


# Targets


def test_a_row_generates_the_tokens_of_its_answer(tmp_path):
    batches, tokens, counts = walked(road(tmp_path, PAIRS))
    for text, target, tokens_of in batches.select("text", "target", "tokens").rows():
        assert tokens_of == tokens["tokens"][text].to_list()
        assert target == tokens["tokens"][text ^ 1].to_list()
    assert counts["targets_cut"] == 0


def test_a_noised_source_leaves_the_target_clean(tmp_path):
    batches, tokens, _ = walked(road(tmp_path, PAIRS, "augment=[{kind='noise', chance=1.0, masking=0.5}]"))
    clean = tokens["tokens"].to_list()
    assert all(row["target"] == clean[row["text"] ^ 1] for row in batches.to_dicts())
    assert all(row["tokens"] != clean[row["text"]] for row in batches.to_dicts())


@pytest.mark.parametrize("augment", ["augment=[]", LENGTHEN])
def test_source_and_target_have_room_with_their_three_special_words_and_cuts_are_counted(tmp_path, augment):
    batches, tokens, counts = walked(road(tmp_path, PAIRS, "encoder.positions=14", augment))
    cut = 0
    for row in batches.to_dicts():
        whole = tokens["tokens"][row["text"] ^ 1].to_list()
        right = whole[: max(0, 11 - len(row["tokens"]))]
        assert row["target"] == right
        cut += len(right) < len(whole)
    assert counts["targets_cut"] == cut > 0


def test_a_recipe_without_generation_has_no_targets(tmp_path):
    one = "terms=[{candidates={kind='batch'}, similarity={kind='cosine'}, objective={kind='softmax'}}]"
    assert "target" not in walked(road(tmp_path, PAIRS, one))[0].columns


def test_fillers_and_hard_negatives_generate_nothing(tmp_path):
    made = road(tmp_path, PAIRS, "batches.rows=6")
    batches, _, _ = walked(made)
    assert batches.tail(4)["target"].to_list() == [[]] * 4
    triples = [{"a": one, "b": two, "c": f"No {n}."} for n, (one, two) in enumerate(PAIRS)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, triples)), encoding="utf-8")
    settings = ("pairs={kind='triples'}", "corpus.texts=['a', 'b', 'c']", "batches.rows=6")
    batches, tokens, _ = walked(Road(made.store, recipe(*settings), str(tmp_path / "t.jsonl")))
    for row in batches.to_dicts():
        other = {0: 1, 1: -1}.get(row["view"])
        assert row["target"] == ([] if other is None else tokens["tokens"][row["text"] + other].to_list())


def test_targets_of_no_rows_are_none():
    empty = pl.Series("tokens", [], dtype=pl.List(pl.Int32))
    held, times = targets.cut(empty, empty, 9)
    assert (len(held), times) == (0, 0)


@pytest.mark.parametrize(
    ("config", "room"),
    [
        ({"model_type": "bert", "max_position_embeddings": 64}, 61),
        ({"model_type": "roberta", "max_position_embeddings": 66, "pad_token_id": 1}, 61),
        ({"model_type": "roformer", "max_position_embeddings": 1536}, 1533),
    ],
)
def test_the_room_is_that_of_the_encoder_s_folder(tmp_path, config, room):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert targets.room(recipe(f"encoder.path={tmp_path}")) == room


# Chinese


def test_chinese_pairs_go_the_whole_way_with_a_word_for_each_character(tmp_path):
    noise = "augment=[{kind='noise', chance=1.0, whole_words=0.4, permutation=1.0}]"
    made = road(tmp_path, CHINESE, "corpus.language=zh", noise)
    batches, tokens, counts = walked(made)
    assert len(batches) == 8
    assert counts["anchors"] == 8
    sentences = made.sentences(made.documents(made.numbered()))
    rows = made.store.read(next(iter(sentences.pieces.values())))
    texts = rows["text"].to_list()
    assert sorted(texts) == sorted(text for pair in CHINESE for text in pair)
    assert rows["language"].unique().to_list() == ["zh"]
    assert [len(row) for row in tokens["tokens"]] == [len(text) for text in texts]
    lexicon = Lexicon.of(made.vocabulary(sentences).tokenizer)
    for row in batches.to_dicts():
        clean = tokens["tokens"][row["text"]].to_list()
        assert not lexicon.continues_V[clean].any()
        assert row["target"] == tokens["tokens"][row["text"] ^ 1].to_list()
        assert len(row["tokens"]) == len(clean)
    hidden = sum(row.count(lexicon.mask) for row in batches["tokens"].to_list())
    assert 0 < hidden < sum(map(len, texts))


def test_chinese_sentences_are_permuted_behind_their_full_stops(tmp_path):
    noise = "augment=[{kind='noise', chance=1.0, whole_words=0.0, permutation=1.0}]"
    made = road(tmp_path, CHINESE, "corpus.language=zh", noise)
    found = set()
    for epoch in range(6):
        sentences = made.sentences(made.documents(made.numbered()))
        words = made.vocabulary(sentences)
        source = made.source(sentences, made.tokens(sentences, words), made.pairs(sentences))
        batches = made.store.read(next(iter(made.batches(source, epoch).pieces.values())))
        at = made.store.read(next(iter(sentences.pieces.values())))["text"].to_list().index(CHINESE[1][0])
        names = {number: word for word, number in words.words().items()}
        found |= {"".join(names[n] for n in row["tokens"]) for row in batches.to_dicts() if row["text"] == at}
    one, two = (f"{part}\u3002" for part in CHINESE[1][0].split("\u3002")[:2])
    assert found == {one + two, two + one}
