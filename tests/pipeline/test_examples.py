import pickle
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
import torch
from corpora import Document, sentences, source, story
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from models.recipe import Batches, Choice, RecipeError, load
from pipeline import batches, examples
from pipeline.batches import BATCHES_VERSION, BatchesError, Source, epoch, plan_key
from pipeline.examples import Examples
from pipeline.pairs import PAIRINGS, VIEWS
from pipeline.reader import Epoch
from pipeline.store import Store, piece_key
from pipeline.tables import BOTH, CANDIDATE, FILLER, PAIRS, TOKENS

SIX = Batches(rows=6, bucket_rows=20)
SHARDS = {number: [Document(story(10 * number + d, 6)) for d in range(5)] for number in (0, 1, 2)}
LONG = {number: [Document(story(10 * number + d, 6)) for d in range(30)] for number in (0, 1)}
REPEAT = Choice(kind="repeat", options={"rate": 0.32, "rule": "paper", "unit": "subword"})
NONE = Choice(kind="none")
KINDS = ("none", "single", "pairs", "triples")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(tmp_path / "store")


def differing(kind: str) -> str:
    return kind if kind in examples.DIFFERING else ""


def made_of(
    store: Store, shards: Mapping[int, Sequence[Document]], kind: str, augment: Sequence[Choice] = (), words: str = ""
) -> Source:
    """Examples of a kind; a sentence's tokens are 12 numbers of its own."""
    made = source(store, shards)
    pairs, tokens = {}, {}
    for number, documents in shards.items():
        frame = sentences(documents, first=1000 * number)
        ids = [[1000 * row + at for at in range(12)] for row in range(len(frame))]
        numbers = pl.DataFrame({"tokens": ids}, schema={"tokens": pl.List(pl.Int32)})
        pairs[number] = store.write(PAIRS, f"{kind}{number}", PAIRINGS[kind](frame), started=time.time())
        tokens[number] = store.write(TOKENS, f"numbers{number}", numbers, started=time.time())
    return replace(
        made, pairs=pairs, tokens=tokens, examples=Examples(VIEWS[kind], tuple(augment), words, kind=differing(kind))
    )


def rows(store: Store, made: Source, settings: Batches = SIX, seed: int = 0, number: int = 0) -> pl.DataFrame:
    frame = store.read(epoch(store, settings, seed, number, made)).with_row_index("at")
    return frame.with_columns(batch=pl.col("at") // settings.rows, row=pl.col("at") % settings.rows)


def real(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("side") != FILLER)


def found(frame: pl.DataFrame, views: int) -> list[tuple[int, ...]]:
    """Texts of each example, in the order in which they are read."""
    texts = real(frame)["text"].to_list()
    return [tuple(texts[at : at + views]) for at in range(0, len(texts), views)]


def wanted(shards: Mapping[int, Sequence[Document]], kind: str) -> list[tuple[int, ...]]:
    """Texts of every example, found one by one."""
    views, result = VIEWS[kind], []
    for shard, documents in shards.items():
        frame = sentences(documents, first=1000 * shard)
        row_of = {key: row for row, key in enumerate(frame.select("document", "place").iter_rows())}
        for (document, place), row in row_of.items():
            member = [row_of.get((document, place + step)) for step in range(views)]
            if kind in ("none", "single"):
                result.append(((shard << 32) + row,) * views)
            elif place % views == 0 and None not in member:
                result.append(tuple((shard << 32) + int(at or 0) for at in member))
    return sorted(result)


# What an epoch holds


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_stands_in_an_epoch_once_and_whole(store, kind):
    frame = rows(store, made_of(store, SHARDS, kind))
    views = VIEWS[kind]
    assert sorted(found(frame, views)) == wanted(SHARDS, kind)
    assert real(frame)["view"].to_list() == list(range(views)) * (len(real(frame)) // views)
    for _, batch in real(frame).group_by("batch"):
        assert len(batch) % views == 0


@pytest.mark.parametrize("kind", ["single", "pairs", "triples"])
def test_the_first_two_rows_of_an_example_answer_each_other(store, kind):
    for view, row, answers in real(rows(store, made_of(store, SHARDS, kind))).select("view", "row", "answers").rows():
        assert answers == {0: [row + 1], 1: [row - 1], 2: []}[view]


def test_the_third_row_of_a_triple_is_a_candidate_and_the_first_one_s_hard_negative(store):
    for view, row, side, hard in (
        real(rows(store, made_of(store, SHARDS, "triples"))).select("view", "row", "side", "hard").rows()
    ):
        assert hard == ([row + 2] if view == 0 else [])
        assert side == (CANDIDATE if view == 2 else BOTH)


@pytest.mark.parametrize("kind", ["none", "single", "pairs"])
def test_without_negatives_there_is_no_such_column_and_all_are_anchors_and_candidates(store, kind):
    frame = real(rows(store, made_of(store, SHARDS, kind)))
    assert "hard" not in frame.columns
    assert set(frame["side"]) == {BOTH}


def test_sentences_without_pairs_have_no_answers_and_are_not_refused(store):
    made = made_of(store, SHARDS, "none")
    frame = rows(store, made)
    assert frame["answers"].list.len().sum() == 0
    assert epoch(store, SIX, 0, 0, made).counts["anchors"] == 0


def test_tokens_and_group_of_a_row_are_those_of_its_sentence(store):
    frame = real(rows(store, made_of(store, SHARDS, "triples")))
    groups = {shard: sentences(documents, first=1000 * shard)["group"] for shard, documents in SHARDS.items()}
    for text, tokens, group in frame.select("text", "tokens", "group").iter_rows():
        shard, row = divmod(text, 1 << 32)
        assert (tokens, group) == ([1000 * row + at for at in range(12)], groups[shard][row])


@pytest.mark.parametrize(
    ("kind", "size", "examples", "fillers"),
    [("none", 4, 10, 2), ("single", 6, 10, 4), ("pairs", 4, 5, 2), ("triples", 6, 3, 3)],
)
def test_the_last_batch_is_filled_up_with_rows_in_no_pool_and_no_count(store, kind, size, examples, fillers):
    made = made_of(store, {0: [Document(story(0, 10))]}, kind)
    frame = rows(store, made, Batches(rows=size))
    assert len(frame) == examples * VIEWS[kind] + fillers
    assert frame["side"].to_list()[-fillers:] == [FILLER] * fillers
    assert frame["side"].to_list().count(FILLER) == fillers
    negatives = {"hard": []} if kind == "triples" else {}
    for record in frame.tail(fillers).drop("at", "batch", "row").iter_rows(named=True):
        assert record == {"text": 0, "tokens": [0], "side": FILLER, "group": 0, "answers": [], "view": 0} | negatives
    counts = epoch(store, Batches(rows=size), 0, 0, made).counts
    assert (counts["fillers"], counts["anchors"]) == (fillers, 0 if kind == "none" else 2 * examples)


def test_a_held_out_text_and_what_repeats_it_takes_its_whole_example_out(store):
    secret = Document(["Birch rowan.", "Cedar cedar!", "Hazel."], held_out=True)
    kept = ["Oak elm.", "Fir yew.", "Ash."]
    spoiled = ["Larch.", "birch  ROWAN", "Pine.", "Elm elm.", "Maple.", "hazel."]
    made = made_of(store, {0: [secret, Document([*kept, *spoiled])], 1: [Document([*kept, "Alone."])] * 3}, "triples")
    frame = rows(store, made)
    second = 1 << 32
    assert sorted(found(frame, 3)) == [
        (3, 4, 5),
        *((second + at, second + at + 1, second + at + 2) for at in (0, 4, 8)),
    ]
    counts = epoch(store, SIX, 0, 0, made).counts
    assert counts["repeats_of_held_out"] == 6
    assert counts["in_no_example"] == 3


def test_a_pair_of_equal_texts_is_left_out_and_counted(store):
    secret = Document(["Birch."], held_out=True)
    texts = ["Oak elm.", "oak  ELM!", "Fir.", "Yew.", "Birch.", "birch"]  # equal; a pair; equal and held out
    made = made_of(store, {0: [secret, Document(texts)]}, "pairs")
    assert found(rows(store, made, Batches(rows=2)), 2) == [(3, 4)]
    counts = epoch(store, Batches(rows=2), 0, 0, made).counts
    assert (counts["equal_pairs"], counts["repeats_of_held_out"]) == (1, 2)


def test_a_corpus_of_equal_pairs_is_refused_with_their_number(store):
    made = made_of(store, {0: [Document(["Oak elm.", "oak elm"] * 3)]}, "pairs")
    with pytest.raises(BatchesError, match=r"gives 0 training rows = 0 pairs, .*; 3 pairs stay out because both texts"):
        epoch(store, SIX, 0, 0, made)


def test_triples_of_equal_texts_and_sentences_that_are_their_own_pair_stay(store):
    texts = {0: [Document(["Oak elm.", "oak  ELM!", "Fir."])]}
    assert len(found(rows(store, made_of(store, texts, "triples"), Batches(rows=3)), 3)) == 1
    assert len(found(rows(store, made_of(store, texts, "single"), Batches(rows=2)), 2)) == 3


def test_an_example_of_one_sentence_twice_counts_the_sentence_once(store):
    secret = Document(["Birch."], held_out=True)
    made = made_of(store, {0: [secret, Document(["birch", "Oak.", "Elm.", "Fir."])]}, "single")
    assert epoch(store, SIX, 0, 0, made).counts["repeats_of_held_out"] == 1


DOCUMENTS = st.lists(
    st.builds(
        Document, st.lists(st.sampled_from(["Oak.", "Elm oak.", "Ash yew.", "Fir.", None]), max_size=7), st.booleans()
    ),
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=3), st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 12))
def test_any_corpus_gives_each_whole_example_without_a_held_out_text_once(shards, kind, size, bucket):
    views = VIEWS[kind]
    numbered = dict(enumerate(shards))
    known = {
        (shard << 32) + row: record
        for shard, documents in numbered.items()
        for row, record in enumerate(sentences(documents, first=1000 * shard).iter_rows(named=True))
    }
    secret = {record["group"] for record in known.values() if record["held_out"]}
    groups_of = lambda texts: {known[text]["group"] for text in texts}
    right = [texts for texts in wanted(numbered, kind) if not groups_of(texts) & secret]
    right = [texts for texts in right if kind != "pairs" or len(groups_of(texts)) == 2]
    with tempfile.TemporaryDirectory() as place:
        store = Store.at(place)
        settings = Batches(rows=max(2, size * views), bucket_rows=bucket)
        try:
            frame = rows(store, made_of(store, numbered, kind), settings)
        except BatchesError:
            assert len(right) * views < settings.rows
            return
        assert sorted(found(frame, views)) == right


# Order


def test_examples_are_shuffled_across_shards_and_documents(store):
    frame = rows(store, made_of(store, SHARDS, "pairs"))
    order = found(frame, 2)
    assert order != sorted(order)
    together = sum(second[0] == first[0] + 2 for first, second in pairwise(order))
    assert together < 10  # of 30 in the corpus
    shards = real(frame).group_by("batch").agg((pl.col("text") // 2**32).n_unique())["text"]
    assert shards.mean() > 1.3


def test_the_order_in_which_shards_are_named_changes_nothing(store, tmp_path):
    augment = (NONE, REPEAT)
    one = epoch(store, SIX, 0, 0, made_of(store, SHARDS, "single", augment))
    other = Store.at(tmp_path / "other")
    two = epoch(other, SIX, 0, 0, made_of(other, dict(reversed(SHARDS.items())), "single", augment))
    assert (one.key, one.sha256) == (two.key, two.sha256)


def test_all_epochs_have_equally_many_batches_and_each_an_order_of_its_own(store):
    made = made_of(store, SHARDS, "triples")
    pieces = [epoch(store, SIX, 0, number, made) for number in range(4)]
    assert {(piece.rows, piece.counts["anchors"]) for piece in pieces} == {(90, 60)}
    assert len({tuple(found(rows(store, made, number=number), 3)) for number in range(4)}) == 4


def test_no_more_rows_are_loaded_at_once_than_a_bucket_has(store):
    made = made_of(store, LONG, "single")
    buckets = list(
        batches._scattered(store, Batches(rows=6, bucket_rows=90), 0, 0, made, {"repeats_of_held_out": 0}, [])
    )
    assert (len(buckets), sum(map(len, buckets))) == (8, 720)
    assert max(map(len, buckets)) < 2 * 90


# Augmentation


def changed(frame: pl.DataFrame) -> dict[tuple[int, int], list[int]]:
    return {(text, view): tokens for text, view, tokens in real(frame).select("text", "view", "tokens").rows()}


def test_a_view_is_augmented_by_its_own_entry(store):
    frame = changed(rows(store, made_of(store, SHARDS, "single", [NONE, REPEAT])))
    plain = changed(rows(store, made_of(store, SHARDS, "single")))
    assert {key: tokens for key, tokens in frame.items() if key[1] == 0} == {
        key: tokens for key, tokens in plain.items() if key[1] == 0
    }
    assert {key: sorted(set(tokens)) for key, tokens in frame.items()} == plain
    assert sum(len(tokens) > 12 for (_, view), tokens in frame.items() if view) > 40  # of 90


def test_views_with_the_same_augmentation_differ(store):
    frame = changed(rows(store, made_of(store, SHARDS, "single", [REPEAT, REPEAT])))
    same = sum(frame[text, 0] == frame[text, 1] for text, view in frame if view == 0)
    assert same < 20  # of 90; both may double nothing


def test_repetition_is_fresh_each_epoch_and_the_same_again_for_the_same_epoch(store, tmp_path):
    made = made_of(store, SHARDS, "single", [NONE, REPEAT])
    first, second = (changed(rows(store, made, number=number)) for number in (0, 1))
    assert sum(first[key] != second[key] for key in first if key[1]) > 60  # of 90
    other = Store.at(tmp_path / "other")
    again = made_of(other, SHARDS, "single", [NONE, REPEAT])
    assert changed(rows(other, again, number=1)) == second
    assert changed(rows(other, again, seed=1, number=1)) != second


def test_other_batches_or_buckets_draw_the_same_repetition(store):
    made = made_of(store, SHARDS, "single", [NONE, REPEAT])
    assert changed(rows(store, made)) == changed(rows(store, made, Batches(rows=10, bucket_rows=1000)))


def test_shards_draw_apart(store):
    frame = changed(rows(store, made_of(store, LONG, "single", [NONE, REPEAT])))
    same = sum(frame[row, 1] == frame[(1 << 32) + row, 1] for row in range(180))  # tokens of both are alike
    assert same < 60


def test_the_order_of_examples_does_not_depend_on_their_augmentation(store):
    one, other = (rows(store, made_of(store, SHARDS, "single", augment)) for augment in ((), (NONE, REPEAT)))
    assert one["text"].to_list() == other["text"].to_list()


def test_words_are_doubled_whole_with_the_tokenizer_of_the_store(store):
    words = Choice(kind="repeat", options={"rate": 0.9, "rule": "paper", "unit": "word"})
    vocabulary = {f"##{n}" if n % 2 else f"w{n}": n for n in range(12)}
    store.create("tokenizers/x.json", Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="w0")).to_str())
    shards = {0: [Document(["Only one sentence."])]}
    made = made_of(store, shards, "single", [words, words], "tokenizers/x.json")
    frame = changed(rows(store, made, Batches(rows=2)))
    for tokens in frame.values():
        assert all((one, other) == (one, one + 1) for one, other in zip(tokens[::2], tokens[1::2], strict=True))
    assert max(map(len, frame.values())) > 12


# Keys


def test_the_key_of_neighbours_knows_nothing_of_examples(store):
    made = source(store, {0: [Document(story(0, 6))]})
    what = {"rows": 8, "run": 4, "bucket_rows": 20}
    assert plan_key(Batches(**what), 3, made) == piece_key("batches", BATCHES_VERSION, [what, 3], made.keys())


def test_what_came_later_enters_no_key_of_examples_without_it():
    record = {"views": 2, "augment": [], "tokenizer": ""}
    assert Examples(2).record() == record
    assert Examples(2, kind="pairs", room=9).record() == record | {"kind": "pairs", "room": 9}


def test_views_augmentation_and_tokenizer_enter_the_key(store):
    made = made_of(store, {0: [Document(story(0, 6))]}, "single")
    key = lambda *parts: plan_key(SIX, 0, replace(made, examples=Examples(*parts)))
    other = Choice(kind="repeat", options={**REPEAT.options, "rate": 0.3})
    several = [(2,), (3,), (2, (NONE, REPEAT)), (2, (REPEAT, NONE)), (2, (NONE, other)), (2, (NONE, REPEAT), "x")]
    assert len({plan_key(SIX, 0, replace(made, examples=None)), *(key(*parts) for parts in several)}) == 7


def test_the_length_of_runs_enters_no_key_of_examples(store):
    made = made_of(store, {0: [Document(story(0, 6))]}, "single")
    keys = {plan_key(Batches(rows=6, run=run), 0, made) for run in (4, 5)}
    assert len(keys) == 1
    assert len({plan_key(Batches(rows=6, run=run), 0, replace(made, examples=None)) for run in (4, 5)}) == 2


def test_a_source_of_examples_travels_to_workers(store):
    made = made_of(store, {0: []}, "single", [NONE, REPEAT])
    assert pickle.loads(pickle.dumps(made)) == made
    assert len(pickle.dumps(made.examples)) < 2000


# Readers


def test_a_reader_hands_views_and_negatives_on(store):
    made = made_of(store, SHARDS, "triples")
    piece = epoch(store, SIX, 0, 0, made)
    table = store.read(piece)
    for number in range(piece.facts["batches"]):
        batch, here = Epoch(store, piece)[number].rows, table.slice(6 * number, 6)
        assert batch.view_B is not None
        assert batch.hard_BH is not None
        assert (batch.view_B.dtype, batch.hard_BH.dtype) == (torch.uint8, torch.int64)
        assert batch.view_B.tolist() == here["view"].to_list()
        assert [[at for at in row if at >= 0] for row in batch.hard_BH.tolist()] == here["hard"].to_list()
        assert batch.anchors().tolist() == [0, 1, 3, 4]


def test_a_reader_of_pairs_has_views_and_no_negatives(store):
    batch = Epoch(store, epoch(store, SIX, 0, 0, made_of(store, SHARDS, "pairs")))[0].rows
    assert batch.view_B is not None
    assert batch.view_B.tolist() == [0, 1] * 3
    assert batch.hard_BH is None


def test_a_reader_of_sentences_has_no_anchor(store):
    batch = Epoch(store, epoch(store, SIX, 0, 0, made_of(store, SHARDS, "none")))[0].rows
    assert batch.view_B is not None
    assert batch.view_B.tolist() == [0] * 6
    assert batch.answers_BP.tolist() == [[-1]] * 6
    assert not len(batch.anchors())


# What is refused


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("triples", 30, r"gives 18 training rows = 6 triples, a batch has 30 rows = 10 triples: .*to at most 18, or"),
        ("pairs", 30, r"gives 18 training rows = 9 pairs, a batch has 30 rows = 15 pairs: .*to at most 18, or"),
        ("single", 40, r"gives 36 training rows = 18 pairs, a batch has 40 rows = 20 pairs: .*to at most 36, or"),
        ("none", 20, r"has 18 training sentences, a batch has 20 rows: .*to at most 18, or"),
    ],
)
def test_a_batch_larger_than_the_corpus_is_refused_in_rows(store, kind, size, message):
    made = made_of(store, {0: [Document(story(d, 6)) for d in range(3)]}, kind)
    with pytest.raises(BatchesError, match=message):
        epoch(store, Batches(rows=size), 0, 0, made)
    assert store.names("batches/") == []


def test_a_corpus_without_a_whole_example_is_refused(store):
    made = made_of(store, {0: [Document(story(d, 2)) for d in range(9)]}, "triples")
    with pytest.raises(BatchesError, match=r"0 training rows = 0 triples, a batch has 6 rows = 2 triples: give more"):
        epoch(store, SIX, 0, 0, made)


def test_batches_of_parts_of_examples_are_refused(store):
    made = made_of(store, SHARDS, "triples")
    with pytest.raises(RecipeError, match=r"batches\.rows is 8; .*multiple of 3, an example's rows, such as 6 or 9"):
        epoch(store, Batches(rows=8), 0, 0, made)
    with pytest.raises(RecipeError, match=r"batches\.rows is 2; .*such as 3$"):
        examples.check_rows(2, 3)


def recipe(*overrides: str):
    return load("quick-thoughts", ["batches.rows=12", *overrides])


SINGLE = "pairs={kind='single'}"
GENERATION = "terms=[{objective={kind='generation'}}]"


def test_a_recipe_of_neighbours_has_no_examples():
    assert examples.planned(recipe()) is None


@pytest.mark.parametrize(("kind", "views"), [("none", 1), ("single", 2), ("pairs", 2), ("triples", 3)])
def test_views_are_those_of_the_recipe_s_pairs(kind, views):
    texts = f"corpus.texts={['left', 'right', 'wrong'][:views]}" if kind in ("pairs", "triples") else "corpus.texts=[]"
    assert examples.planned(recipe(f"pairs={{kind='{kind}'}}", texts)) == Examples(views, kind=differing(kind))


def test_augmentations_are_completed_and_nothing_but_none_is_none():
    both = examples.planned(recipe(SINGLE, "augment=[{kind='none'}, {kind='repeat', rule='paper'}]"))
    assert both == Examples(2, (NONE, REPEAT))
    assert not both.reads_words
    assert examples.planned(recipe(SINGLE, "augment=['none', 'none']")) == Examples(2)


def test_one_augmentation_is_every_view_s():
    once = "{kind='repeat', rule='paper'}"
    assert examples.planned(recipe(SINGLE, f"augment=[{once}]")) == Examples(2, (REPEAT, REPEAT))
    assert examples.planned(recipe(SINGLE, f"augment=[{once}, {once}]")) == Examples(2, (REPEAT, REPEAT))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [SINGLE, "augment=['repeat', 'none', 'none']"],
            r'augment has 3 entries; .* "single" has 2 views: should be 1, for all, or 2, one a view, or left out',
        ),
        (["augment=['repeat']"], r'augment has 1 entries; .* "neighbours" has 0 views: leave it out'),
        ([SINGLE, "augment=['none', 'shout']"], r'augment\.1\.kind is "shout"; known: noise, none, paraphrase, repeat'),
        ([SINGLE, "augment=['none', {kind='repeat', rate=2}]"], r"augment\.1\.rate is 2: "),
        ([SINGLE, "batches.rows=13"], r"batches\.rows is 13; should be a multiple of 2, .*such as 12 or 14"),
        (["pairs={kind='single', context_size=1}"], r'pairs has no option "context_size"; options of single: none'),
        (
            [SINGLE, "augment=['noise']"],
            r'augment\.0 hides words, .* kind "word-level", has no \[MASK\] or <mask>; use',
        ),
        ([GENERATION], r'a term generates a row.s answer, of which pairs\.kind "neighbours" has not one; use'),
        ([GENERATION, "pairs={kind='none'}"], r'pairs\.kind "none" has not one; use pairs\.kind = "pairs"'),
        (
            ["pairs={kind='groups'}", "corpus.texts=['a', 'b']"],
            r'"groups" wants one text a row; corpus\.texts names 2 columns: name one, and that of the group in',
        ),
        (
            ["pairs={kind='pairs'}", "corpus.texts=['a']", "corpus.document=['b']"],
            r'"pairs" wants 2 texts a row; corpus\.texts names one column, of groups: set pairs\.kind = "groups"',
        ),
        (
            ["pairs={kind='cousins'}"],
            r'pairs\.kind is "cousins"; known: groups, neighbours, none, pairs, qa, single, triples',
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_what_can(overrides, message):
    with pytest.raises(RecipeError, match=message):
        examples.planned(recipe(*overrides))


def test_every_pairing_says_how_many_views_it_has():
    assert set(VIEWS) == set(PAIRINGS)
