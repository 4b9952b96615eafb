"""Texts that stay out of training: what evaluations read, near repeats of it, boilerplate and repeats."""

import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from corpora import Document, sentences, source, story

from flows.order import planned
from models.recipe import Batches, Choice, Dedup, Recipe, RecipeError, load
from pipeline import decontaminated, leaving, near, ngrams, occurrences
from pipeline.batches import Source, epoch, plan_key
from pipeline.corpus import group
from pipeline.examples import Examples
from pipeline.mine import Barred
from pipeline.store import Piece, Store
from pipeline.tables import FILLER, SENTENCES

WORDS = [f"{a}{b}{c}" for a in ("br", "k", "st", "w") for b in "aeiou" for c in ("ndle", "rt", "lm", "sh")]
LONG = [" ".join(random.Random(number).choices(WORDS, k=14)) for number in range(40)]


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def digest(text: str) -> int:
    return int(group(pl.Series([text]))[0])


def recipe(*evaluation: Choice, watched: Sequence[Choice] = (), texts: Sequence[str] = (), **dedup: object) -> Recipe:
    plain = load("quick-thoughts")
    parts: dict[str, object] = {"evaluation": evaluation, "dedup": Dedup.model_validate(dedup)}
    parts["watch"] = plain.watch.model_copy(update={"evaluation": tuple(watched)})
    parts["corpus"] = plain.corpus.model_copy(update={"texts": tuple(texts)})
    return plain.model_copy(update=parts)


def choice(kind: str, path: Path, **options: object) -> Choice:
    return Choice(kind=kind, options={"path": str(path), **options})


def shards(store: Store, documents: Mapping[int, Sequence[Document]]) -> dict[int, Piece]:
    made = {}
    for number, texts in documents.items():
        frame = sentences(texts, first=1000 * number)
        made[number] = store.write(SENTENCES, f"shard{number}", frame, started=time.time())
    return made


def reasons(store: Store, piece: Piece | None) -> dict[int, str]:
    assert piece is not None
    return dict(store.read(piece, ["group", "reason"]).iter_rows())


def changed(text: str, words: int) -> str:
    """The same text with some last words replaced."""
    kept = text.split()
    return " ".join([*kept[: len(kept) - words], *["brolm"] * words])


STS = "sentence1,sentence2,score\nOak and elm.,Ash and yew.,1\nFir.,Pine.,2\nRowan!,Hazel!,3\nNobody,rated it,\n"
PROBE = "text,label\n" + "".join(f"Text {n}.,{n % 2}\n" for n in range(20))
RANKING = "question,answer,label\nWho sings?,The lark.,1\nWho sings?,The stone.,0\n"
WORD_PAIRS = "word1,word2,score\ntiger,cat,7\ncup,mug,8\nking,cabbage,0.2\n"
FILES = {
    "sts": (STS, ["Oak and elm.", "Ash and yew.", "Fir.", "Pine.", "Rowan!", "Hazel!"]),
    "probe": (PROBE, [f"Text {n}." for n in range(20)]),
    "ranking": (RANKING, ["Who sings?", "The lark.", "The stone."]),
    "perplexity": ("text\nthe lark sings\nthe stone is still\n", ["the lark sings", "the stone is still"]),
    "words": (WORD_PAIRS, []),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("watched", [False, True])
def test_texts_of_each_kind_of_evaluation_file_stay_out(tmp_path, store, kind, watched):
    text, right = FILES[kind]
    (tmp_path / "file.csv").write_text(text, encoding="utf-8")
    one = choice(kind, tmp_path / "file.csv")
    asked = recipe(watched=[one]) if watched else recipe(one)
    piece = leaving.left_out(store, asked, shards(store, {0: [Document(["Oak."])]}))
    found = reasons(store, piece) if right else {}
    assert (piece is None) == (not right)
    assert found == {digest(text): "evaluated" for text in right}


def test_a_probe_s_test_texts_stay_out_beside_those_it_is_trained_on(tmp_path, store):
    (tmp_path / "train.csv").write_text(PROBE, encoding="utf-8")
    (tmp_path / "test.csv").write_text("text,label\nTried.,0\nAnother.,1\n", encoding="utf-8")
    asked = recipe(choice("probe", tmp_path / "train.csv", test=str(tmp_path / "test.csv")))
    found = reasons(store, leaving.left_out(store, asked, {}))
    assert set(found) == {digest(text) for text in [*FILES["probe"][1], "Tried.", "Another."]}


def test_evaluations_of_held_out_texts_leave_nothing_out(store):
    asked = recipe(*(Choice(kind=kind) for kind in ("neighbours", "perplexity", "ranking")))
    assert leaving.left_out(store, asked, shards(store, {0: [Document(["Oak."])]})) is None


def test_case_width_and_punctuation_at_the_ends_hide_no_evaluated_text(tmp_path, store):
    (tmp_path / "sts.csv").write_text(STS, encoding="utf-8")
    found = reasons(store, leaving.left_out(store, recipe(choice("sts", tmp_path / "sts.csv")), {}))
    assert all(digest(text) in found for text in ("ROWAN", "  rowan?", "Oak   and elm", "ＦＩＲ"))
    assert digest("Oak and elms.") not in found


@pytest.mark.parametrize(("texts", "cut"), [((), True), (("question", "answer"), False)])
def test_running_text_is_compared_with_the_sentences_of_evaluated_texts_too(tmp_path, store, texts, cut):
    (tmp_path / "lm.txt").write_text("The oak fell. Nobody saw it.\n", encoding="utf-8")
    asked = recipe(choice("perplexity", tmp_path / "lm.txt"), texts=texts)
    found = reasons(store, leaving.left_out(store, asked, {}))
    parts = ["The oak fell.", "Nobody saw it."] if cut else []
    assert set(found) == {digest(text) for text in ["The oak fell. Nobody saw it.", *parts]}


def test_without_the_table_of_the_recipe_nothing_is_left_out(tmp_path, store):
    (tmp_path / "sts.csv").write_text(STS, encoding="utf-8")
    asked = recipe(choice("sts", tmp_path / "sts.csv"))
    assert leaving.left_out(store, asked.model_copy(update={"dedup": None}), {}) is None
    assert leaving.left_out(store, recipe(choice("sts", tmp_path / "sts.csv"), decontaminate=False), {}) is None


def write_sts(path: Path, *pairs: tuple[str, str, float]) -> Choice:
    rows = [json.dumps({"sentence1": left, "sentence2": right, "score": score}) for left, right, score in pairs]
    path.write_text("\n".join(rows), encoding="utf-8")
    return choice("sts", path)


def test_near_repeats_of_evaluated_and_held_out_texts_stay_out_and_others_do_not(tmp_path, store):
    pairs = [(LONG[0], LONG[1], 1.0), (LONG[2], LONG[3], 2.0), (LONG[4], LONG[5], 3.0)]
    asked = recipe(write_sts(tmp_path / "sts.jsonl", *pairs), near=0.6, shingle=5)
    training = [changed(LONG[0], 1), changed(LONG[3], 2), changed(LONG[10], 1), changed(LONG[5], 8), *LONG[20:30]]
    made = shards(
        store, {0: [Document(training[:2]), Document(LONG[10:12], held_out=True)], 3: [Document(training[2:])]}
    )
    for shard in made:  # what misses one piece makes it in this process
        near.sketches(store, {n: piece for n, piece in made.items() if n <= shard}, 5, 0.6)
    found = reasons(store, leaving.left_out(store, asked, made))
    right = {digest(text): "evaluated" for text in LONG[:6]}
    right |= {digest(training[0]): "near an evaluated one", digest(training[1]): "near an evaluated one"}
    right |= {digest(training[2]): "near a held-out one"}
    assert found == right


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9])
def test_near_repeats_of_known_texts_are_those_that_comparing_all_finds(tmp_path, store, threshold):
    draw = random.Random(1)
    held_out, files = LONG[:15], LONG[15:30]
    training = [changed(text, draw.randint(1, 7)) for text in LONG[:30] for _ in range(4)]
    made = shards(
        store, {0: [Document(held_out, held_out=True), Document(training[:60])], 1: [Document(training[60:])]}
    )
    for shard in made:
        near.sketches(store, {n: piece for n, piece in made.items() if n <= shard}, 5, threshold)
    pairs = [(left, right, float(at)) for at, (left, right) in enumerate(zip(files[::2], files[1::2], strict=False))]
    asked = recipe(write_sts(tmp_path / "sts.jsonl", *pairs, (files[-1], files[0], 9.0)), near=threshold)
    found = {g for g, reason in reasons(store, leaving.left_out(store, asked, made)).items() if reason != "evaluated"}
    runs = lambda text: {text[at : at + 5] for at in range(len(text) - 4)}
    share = lambda one, other: len(runs(one) & runs(other)) / len(runs(one) | runs(other))
    near_ones = {text for text in training if any(share(text, known) >= threshold for known in LONG[:30])}
    right = {digest(text) for text in near_ones}
    assert len(right) > 5
    assert found <= right
    assert len(found) >= 0.97 * len(right)


def test_many_held_out_repeats_in_a_band_hide_no_evaluated_text(tmp_path, store):
    made = shards(store, {n: [Document([LONG[0]], held_out=True)] for n in range(7)} | {8: [Document([LONG[1]])]})
    for shard in made:
        near.sketches(store, {n: piece for n, piece in made.items() if n <= shard}, 5, 0.8)
    known = decontaminated._known(
        store,
        near.sketches(store, made, 5, 0.8),
        group(pl.Series([LONG[0] + "!"])),
        near.sketch(pl.Series([LONG[0]]), 5, 0.8)[:, 0],
        "band0",
    )
    assert known["text"].to_list()[0] == [decontaminated.FILES << 32]


def dropped(store: Store, made: Mapping[int, Piece], **dedup: object) -> dict[int, tuple[str, int | None]]:
    piece = leaving.left_out(store, recipe(**dedup), made)
    assert piece is not None
    return {number: (reason, first) for number, reason, first in store.read(piece).iter_rows()}


LINES = {
    0: [Document(["Subscribe!", "Oak.", "Oak."]), Document(["subscribe", "Elm.", "Ash."], held_out=True)],
    2: [Document(["Subscribe", "Oak.", "Elm."]), Document(["Subscribe.", "Yew.", "Yew."]), Document(["Fir."])],
}


@pytest.mark.parametrize(
    ("least", "share", "right"),
    [
        (2, 0.0, ["Subscribe", "Oak", "Elm"]),
        (3, 0.0, ["Subscribe"]),
        (4, 0.0, ["Subscribe"]),
        (5, 0.0, []),
        (2, 0.8, ["Subscribe"]),
        (2, 0.81, []),
        (2, 0.4, ["Subscribe", "Oak", "Elm"]),
    ],
)
def test_boilerplate_stands_in_so_many_documents_and_in_such_a_share_of_all(store, least, share, right):
    found = dropped(store, shards(store, LINES), boilerplate=least, boilerplate_share=share)
    assert found == {digest(text): ("boilerplate", None) for text in right}


def test_of_equal_training_texts_the_first_stays(store):
    found = dropped(store, shards(store, LINES), repeats="drop")
    assert found == {
        digest("Subscribe"): ("repeat", 0),
        digest("Oak"): ("repeat", 1),
        digest("Yew"): ("repeat", (2 << 32) + 4),
    }


def test_boilerplate_is_no_repeat_whose_first_stays(store):
    found = dropped(store, shards(store, LINES), repeats="drop", boilerplate=4)
    assert found[digest("Subscribe")] == ("boilerplate", None)
    assert found[digest("Oak")] == ("repeat", 1)


def batched(store: Store, made: Source) -> Counter[int]:
    rows = store.read(epoch(store, Batches(rows=2, run=2), 0, 0, made))
    return Counter(rows.filter(pl.col("side") != FILLER)["text"].to_list())


def test_repeats_stand_in_batches_once_and_the_others_are_counted(store):
    made = replace(source(store, LINES), examples=Examples(1))
    piece = leaving.left_out(store, recipe(repeats="drop"), made.sentences)
    made = replace(made, left_out=piece)
    # of the held-out document's texts nothing is trained on, so Elm and the Subscribes are not either
    assert batched(store, made) == Counter([1, (2 << 32) + 4, (2 << 32) + 6])
    counts = epoch(store, Batches(rows=2, run=2), 0, 0, made).counts
    assert counts["left_out.repeat"] == 3
    assert counts["repeats_of_held_out"] == 4


def test_a_repeated_text_may_become_a_negative_and_boilerplate_may_not(store):
    made = source(store, LINES)
    piece = leaving.left_out(store, recipe(repeats="drop", boilerplate=4), made.sentences)
    held_out = [digest(text) for text in ("Subscribe", "Elm", "Ash")]
    found = Barred(made.held_out, left_out=piece).groups(store)
    assert sorted(found) == sorted([*held_out, digest("Subscribe")])
    assert sorted(Barred(made.held_out).groups(store)) == sorted(held_out)


def test_repeats_are_counted_into_n_grams_once(store):
    made = source(store, {3: [Document(["Oak.", "Elm.", "oak"]), Document(["OAK", "Ash."])]})
    whole = ngrams.counts(store, made, 1, 100)
    made = replace(made, left_out=leaving.left_out(store, recipe(repeats="drop"), made.sentences))
    less = ngrams.counts(store, made, 1, 100)
    assert (whole.count("texts"), less.count("texts"), less.count("left_out.repeat")) == (5, 3, 2)


def test_the_first_reason_of_a_text_alone_is_told(tmp_path, store):
    (tmp_path / "lm.txt").write_text("Subscribe\n", encoding="utf-8")
    asked = recipe(choice("perplexity", tmp_path / "lm.txt"), boilerplate=2, repeats="drop")
    found = reasons(store, leaving.left_out(store, asked, shards(store, LINES)))
    assert found[digest("Subscribe")] == "evaluated"
    assert found[digest("Oak")] == "boilerplate"
    assert found[digest("Yew")] == "repeat"


def test_a_grown_corpus_counts_its_new_shards_alone(store):
    made = shards(store, LINES)
    dropped(store, {0: made[0]}, boilerplate=2)
    dropped(store, made, boilerplate=2)
    parts = store.names("occurrences/")
    keys = {name for name in parts if name.endswith(".json")}
    assert len(keys) == 2


def test_an_evaluation_file_that_changes_changes_what_is_left_out_and_the_batches_alone(tmp_path, store):
    made = source(store, LINES)
    keys = []
    for texts in ("Oak.\nElm.\n", "Elm.\nOak.\n", "Oak.\n"):
        (tmp_path / "lm.txt").write_text(texts, encoding="utf-8")
        piece = leaving.left_out(store, recipe(choice("perplexity", tmp_path / "lm.txt")), made.sentences)
        assert piece is not None
        keys.append((piece.key, plan_key(Batches(), 0, replace(made, left_out=piece))))
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[2][0]
    assert keys[0][1] != keys[2][1]


def test_evaluated_texts_have_one_key_however_the_corpus_grows(tmp_path, store):
    (tmp_path / "lm.txt").write_text("Oak.\n", encoding="utf-8")
    asked, made = recipe(choice("perplexity", tmp_path / "lm.txt")), shards(store, LINES)
    one, other = (leaving.left_out(store, asked, some) for some in ({0: made[0]}, made))
    assert one == other


def test_each_setting_has_a_key_of_its_own(store):
    made = shards(store, LINES)
    settings = [
        {"boilerplate": 2},
        {"boilerplate": 3},
        {"boilerplate": 2, "boilerplate_share": 0.5},
        {"repeats": "drop"},
    ]
    pieces = [leaving.left_out(store, recipe(**one), made) for one in settings]
    numbers = leaving.left_out(store, recipe(repeats="drop"), {0: made[2], 2: made[0]})
    assert len({piece.key for piece in [*pieces, numbers] if piece}) == 5


def test_settings_that_decide_other_things_alone_leave_nothing_out(store):
    assert leaving.left_out(store, recipe(positives=False, partners=3), shards(store, LINES)) is None


def test_what_is_left_out_is_looked_up_a_range_of_digests_at_a_time(store, monkeypatch):
    made = shards(store, {number: [Document(story(number, 30))] for number in range(3)})
    whole = occurrences.often(store, made, 2, 0.0, True)
    monkeypatch.setattr("pipeline.merged.RANGE_ROWS", 8)
    monkeypatch.setattr(occurrences.merged.ranges, "__defaults__", (8,))
    parts = occurrences.often(store, made, 2, 0.0, True)
    assert len(whole) == 1 < len(parts)
    assert pl.concat(parts).sort("group").equals(whole[0].sort("group"))


@pytest.mark.parametrize("kind", ["neighbours", "pairs", "triples", "groups", "qa"])
def test_repeats_of_what_belongs_together_are_not_dropped(kind):
    asked = recipe(repeats="drop").model_copy(update={"pairs": Choice(kind=kind)})
    with pytest.raises(RecipeError, match=f'pairs.kind is "{kind}", whose texts belong together; leave it at "keep"'):
        leaving.check(asked)


@pytest.mark.parametrize("kind", ["none", "single"])
def test_repeats_of_sentences_that_stand_alone_can_be_dropped(kind):
    leaving.check(recipe(repeats="drop").model_copy(update={"pairs": Choice(kind=kind)}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("dedup={boilerplate=1}", "dedup.boilerplate is 1, and every sentence is in a document; 2 or more"),
        ("dedup={boilerplate_share=0.5}", "dedup.boilerplate_share is 0.5, but dedup.boilerplate is 0"),
        ("dedup={repeats='drop'}", 'dedup.repeats is "drop", but pairs.kind is "neighbours"'),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_read(settings, message):
    with pytest.raises(RecipeError, match=message):
        planned("quick-thoughts", [settings])
