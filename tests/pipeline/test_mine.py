"""Hard negatives mined from all shards: who they may be, how lists grow with the corpus, how they reach batches."""

import json
import time
from types import SimpleNamespace

import corpora
import numpy as np
import polars as pl
import pytest
from runs import job_of

from models.folder import load as opened
from models.folder import save
from models.recipe import Choice, Negatives, RecipeError, load
from models.resolving import resolve
from pipeline import mine, miners
from pipeline.batches import Source, epoch, held_out
from pipeline.corpus import group
from pipeline.examples import completed, planned
from pipeline.groups import kindred
from pipeline.miners import MINERS
from pipeline.pairs import PAIRINGS
from pipeline.run import build
from pipeline.store import Store
from pipeline.tables import CANDIDATE, FILLER, JOINED, LEFT_OUT, PAIRS, SENTENCES, TOKENS, VECTORS

RULES = Negatives(count=2, last=6)


def shard(store, number, documents, kind="pairs", secret=()):
    """Pieces of one shard: documents are lists of texts, numbered from 100 times the shard's number."""
    rows = [
        (100 * number + at, place, place, at in secret, "en", 0, text)
        for at, texts in enumerate(documents)
        for place, text in enumerate(texts)
    ]
    frame = pl.DataFrame(rows, schema=SENTENCES.empty().schema, orient="row")
    frame = frame.with_columns(group=group(frame["text"]))
    lengths = frame.select(tokens=pl.concat_list(pl.col("text").str.len_chars().cast(pl.Int32)))
    tables = ((SENTENCES, frame), (TOKENS, lengths), (PAIRS, PAIRINGS[kind](frame)))
    return [
        store.write(table, f"{kind}{number}-{len(rows)}", content, started=time.time()) for table, content in tables
    ]


def made_up(store, shards, kind="pairs", secret=None):
    """Sentences, tokens and pairs by shard number."""
    secret = secret or {}
    pieces = {n: shard(store, n, documents, kind, secret.get(n, ())) for n, documents in shards.items()}
    return SimpleNamespace(
        **{
            name: {n: three[i] for n, three in pieces.items()}
            for i, name in enumerate(("sentences", "tokens", "pairs"))
        }
    )


def vectors(store, tables, width=8):
    """A vector for each text, which its words alone decide."""
    found = {}
    for number, piece in tables.sentences.items():
        texts = store.read(piece)["text"].to_list()
        drawn = [np.random.default_rng(list(text.encode())).standard_normal(width).astype(np.float32) for text in texts]
        frame = pl.DataFrame(
            {"row": np.arange(len(texts), dtype=np.uint32), "vector": drawn}, schema=VECTORS.empty().schema
        )
        found[number] = store.write(VECTORS, f"v{piece.key}", frame, started=time.time())
    return found


def stories(number, count):
    """Pairs of sentences of few words, some of which repeat."""
    return [corpora.story(1000 * number + at, 2) for at in range(count)]


def mined(store, tables, rules=RULES, kind="dense", options=None, pairs="pairs", **more):
    """Tables `nearest` and `negatives` by shard number, made in this process."""
    choice = Choice(kind=kind, options=options or {})
    corpus = mine.Corpus(pairs, tables.sentences, tables.pairs)
    if kind == "dense":
        corpus = mine.Corpus(pairs, tables.sentences, tables.pairs, vectors(store, tables))
    if kind == "bm25":
        choice = Choice(kind=kind, options={"k1": 1.2, "b": 0.75, "refresh": 0})
        manifest = mine.Manifest("sentences", "", tables.sentences)
        corpus = mine.Corpus(pairs, tables.sentences, tables.pairs, {}, mine._rarity(store, "trees", choice, manifest))
    kin = kindred(store, tables.sentences) if pairs == "groups" else None
    barred, lists, chosen = mine.Barred(held_out(store, tables.sentences), kin, **more), {}, {}
    for number in tables.sentences:
        name = f"{kind}{number}-{len(store.names('nearest/'))}-{len(store.names('negatives/'))}"
        lists[number] = mine.make_nearest(corpus, choice, rules, f"how-{kind}", store, name, number)
        chosen[number] = mine.make_negatives(corpus, rules, kind, barred, store, name, (number, lists[number]))
    return SimpleNamespace(lists=lists, negatives=chosen, corpus=corpus)


def texts(store, tables):
    """All sentences, with the text's number."""
    parts = [
        store.read(piece).with_row_index("row").with_columns(text_number=pl.col("row").cast(pl.UInt64) + (n << 32))
        for n, piece in tables.sentences.items()
    ]
    return pl.concat(parts)


def plainly(store, tables, number, rules):
    """Of each anchor of a shard what a loop over all texts chooses: lists of candidates' numbers."""
    whole, vector_of = texts(store, tables), {}
    for n, piece in vectors(store, tables).items():
        for row, vector in enumerate(store.read(piece)["vector"].to_list()):
            vector_of[(n << 32) + row] = np.array(vector) / np.linalg.norm(vector)
    answering = set()
    for n, piece in tables.pairs.items():
        answering |= {(n << 32) + row for row in store.read(piece)["positive"].to_list()}
    known = {row["text_number"]: row for row in whole.to_dicts()}
    secret = {row["group"] for row in known.values() if row["held_out"]}
    pairs, found = store.read(tables.pairs[number]), {}
    for anchor in sorted(set(pairs["anchor"].to_list())):
        own = (number << 32) + anchor
        if known[own]["held_out"]:
            continue
        right = [(number << 32) + row for row in pairs.filter(pl.col("anchor") == anchor)["positive"].to_list()]
        groups = {known[text]["group"] for text in [own, *right]}
        least = min(vector_of[own] @ vector_of[text] for text in right)
        scored, seen = [], set()
        for text in sorted(answering, key=lambda text: (-np.float32(vector_of[own] @ vector_of[text]), text)):
            row = known[text]
            if row["held_out"] or row["group"] in groups | seen | secret:
                continue
            seen.add(row["group"])
            scored.append((text, vector_of[own] @ vector_of[text]))
        kept = [
            text
            for text, score in scored[: rules.last]
            if rules.relative_margin is None or score <= least - rules.relative_margin * abs(least)
        ]
        found[anchor] = kept[rules.first :][: rules.count]
    return found


def by_anchor(store, piece):
    rows = store.read(piece).group_by("anchor", maintain_order=True).agg("candidate")
    return dict(rows.iter_rows())


def in_text(store, tables, lists):
    """Candidates by what they say, for a text that repeats may be named by either of its places."""
    known = dict(texts(store, tables).select("text_number", "text").iter_rows())
    return {anchor: [known[text] for text in found] for anchor, found in lists.items()}


@pytest.mark.parametrize("rules", [RULES, Negatives(count=2, last=9, first=1, relative_margin=0.05)])
def test_negatives_are_those_that_a_loop_over_all_texts_chooses(tmp_path, rules):
    store = Store.at(tmp_path)
    tables = made_up(store, {0: stories(0, 20), 1: stories(1, 15), 5: stories(5, 10)}, secret={1: (0, 1, 2)})
    found = mined(store, tables, rules)
    for number in tables.sentences:
        right = {anchor: chosen for anchor, chosen in plainly(store, tables, number, rules).items() if chosen}
        assert in_text(store, tables, by_anchor(store, found.negatives[number])) == in_text(store, tables, right)


@pytest.mark.parametrize("kind", ["dense", "bm25", "same-document", "random"])
@pytest.mark.parametrize("pairs", ["pairs", "triples", "groups", "single"])
def test_no_negative_is_of_its_anchor_s_group_or_an_answer_s_or_held_out(tmp_path, kind, pairs):
    store = Store.at(tmp_path)
    draw = np.random.default_rng(3)
    some = [corpora.story(at, 1)[0] for at in range(200 if pairs == "groups" else 30)]  # so few that many repeat
    shards = {n: [draw.choice(some, 3).tolist() for _ in range(12)] for n in range(3)}
    tables = made_up(store, shards, pairs, secret={2: (0, 1)})
    found = mined(store, tables, Negatives(count=3, last=20, short="random"), kind, pairs=pairs)
    whole = texts(store, tables)
    known = {row["text_number"]: row for row in whole.to_dicts()}
    secret = {row["group"] for row in known.values() if row["held_out"]}
    times = 0
    for number, piece in found.negatives.items():
        rows = store.read(tables.pairs[number])
        for anchor, candidates in by_anchor(store, piece).items():
            own = known[(number << 32) + anchor]
            right = rows.filter(pl.col("anchor") == anchor)["positive"].to_list()
            barred = {own["group"], *(known[(number << 32) + row]["group"] for row in right)} | secret
            if pairs == "groups":
                barred |= set(whole.filter(pl.col("document") == own["document"])["group"])
            assert not barred & {known[text]["group"] for text in candidates}
            assert len({known[text]["group"] for text in candidates}) == len(candidates) <= 3
            times += len(candidates)
    assert times > 20 or kind == "same-document"


def test_none_is_of_a_class_with_its_anchor_or_an_answer_or_left_out(tmp_path):
    store = Store.at(tmp_path)
    tables = made_up(store, {n: stories(n, 12) for n in range(2)})
    whole = texts(store, tables)
    group = whole["group"].unique().sort()
    joined = pl.DataFrame({"group": group, "joined": group.gather((pl.int_range(len(group), eager=True) // 4) * 4)})
    reason = pl.Series("reason", ["boilerplate"] * len(group[::5]))
    more = {
        "joined": store.write(JOINED, "j", joined, started=0.0),
        "left_out": store.write(LEFT_OUT, "l", pl.DataFrame([group[::5], reason]), started=0.0),
    }
    found = mined(store, tables, Negatives(count=3, last=20), **more)
    number_of, out = dict(joined.iter_rows()), set(group[::5])
    group_of, times = dict(whole.select("text_number", "group").iter_rows()), 0
    for number, piece in found.negatives.items():
        pairs = store.read(tables.pairs[number])
        for anchor, candidates in by_anchor(store, piece).items():
            right = [anchor, *pairs.filter(pl.col("anchor") == anchor)["positive"].to_list()]
            barred = {number_of[group_of[(number << 32) + row]] for row in right}
            there = [group_of[text] for text in candidates]
            assert not out & set(there) and not barred & {number_of[one] for one in there}
            times += len(there)
    assert times > 20


def test_a_grown_corpus_searches_only_what_is_new_and_finds_what_a_whole_search_finds(tmp_path, monkeypatch):
    store, other = Store.at(tmp_path / "grown"), Store.at(tmp_path / "whole")
    shards = {0: stories(0, 20), 1: stories(1, 15)}
    mined(store, made_up(store, shards))
    shards[2] = stories(2, 12)
    asked = []
    search = miners.Dense.nearest
    monkeypatch.setattr(miners.Dense, "nearest", lambda *a: asked.append((len(a[1]), a[2])) or search(*a))
    grown = mined(store, made_up(store, shards))
    assert asked == [(20, 2), (15, 2), (12, 0), (12, 1), (12, 2)]
    whole = mined(other, made_up(other, shards))
    for number in shards:
        one, two = store.read(grown.lists[number]), other.read(whole.lists[number])
        assert one.select("anchor", "text", "group").equals(two.select("anchor", "text", "group"))
        assert np.allclose(one["score"].explode(), two["score"].explode(), atol=1e-6)


def test_a_corpus_that_lost_a_shard_is_searched_anew(tmp_path):
    store, other = Store.at(tmp_path / "shrunk"), Store.at(tmp_path / "whole")
    shards = {0: stories(0, 20), 1: stories(1, 15)}
    mined(store, made_up(store, shards))
    del shards[1]
    left, whole = mined(store, made_up(store, shards)), mined(other, made_up(other, shards))
    assert store.read(left.lists[0]).equals(other.read(whole.lists[0]))


def test_words_are_scored_as_bm25s_scores_them(tmp_path):
    import bm25s

    store = Store.at(tmp_path)
    tables = made_up(store, {0: stories(0, 30)})
    found = mined(store, tables, Negatives(count=1, last=50), "bm25")
    whole = texts(store, tables)
    index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    index.index([miners.words(text) for text in whole["text"]], show_progress=False)
    lists = store.read(found.lists[0])
    for anchor, numbers, scores in lists.select("anchor", "text", "score").iter_rows():
        asked = [word for word in miners.words(whole["text"][anchor]) if word in index.vocab_dict]
        right = index.get_scores(asked)[np.array(numbers)]
        assert np.allclose(scores, right, rtol=1e-4)


def test_the_rarity_of_words_stays_what_it_was_when_the_corpus_grows(tmp_path):
    store = Store.at(tmp_path)
    shards = {0: stories(0, 20)}
    first = mined(store, made_up(store, shards), kind="bm25").corpus.rarity
    shards[1] = stories(1, 20)
    assert mined(store, made_up(store, shards), kind="bm25").corpus.rarity == first


def test_the_nearest_places_of_the_document_come_first(tmp_path):
    store = Store.at(tmp_path)
    tables = made_up(store, {0: [[f"{name} {place}." for place in range(8)] for name in ("oak", "elm")]})
    found = mined(store, tables, Negatives(count=3, last=9), "same-document")
    known = dict(texts(store, tables).select("text_number", "text").iter_rows())
    assert [known[text] for text in by_anchor(store, found.negatives[0])[2]] == ["oak 1.", "oak 5.", "oak 7."]


def test_too_few_are_filled_up_by_drawn_texts_that_say_so(tmp_path):
    store = Store.at(tmp_path)
    tables = made_up(store, {0: stories(0, 20), 1: stories(1, 20)})
    few = mined(store, tables, Negatives(count=3, last=6, ceiling=0.2), "dense").negatives[0]
    full = mined(store, tables, Negatives(count=3, last=6, ceiling=0.2, short="random"), "dense").negatives[0]
    assert few.counts["short"] == full.counts["short"] > 0
    assert full.counts["drawn"] == full.rows - few.rows > 0
    rows = store.read(full)
    assert set(rows.group_by("anchor").len()["len"]) == {3}
    assert rows.filter(pl.col("why") == "random")["rank"].min() >= 6
    assert rows.filter(pl.col("why") == "dense").equals(store.read(few))
    assert rows.select("anchor", "candidate").n_unique() == len(rows)


def test_cells_find_nearly_what_the_whole_search_finds():
    pytest.importorskip("faiss")
    from pipeline.mine_search import by_cells, centres, exact, unit

    draw = np.random.default_rng(0)
    middle_MD = draw.standard_normal((50, 16))
    near = lambda count: unit(
        (middle_MD[draw.integers(0, 50, count)] + 0.4 * draw.standard_normal((count, 16))).astype(np.float32)
    )
    text_ND, query_QD = near(3000), near(100)
    right_QK, found_QK = exact(query_QD, text_ND, 10)[1], by_cells(query_QD, text_ND, centres(text_ND), 10)[1]
    share = np.mean([len(set(one) & set(other)) / 10 for one, other in zip(right_QK, found_QK, strict=True)])
    assert share > 0.9


# In batches


def batches(store, tables, rules, pairs="pairs", rows=12, kind="dense", overrides=()):
    found = mined(store, tables, rules, kind, pairs=pairs)
    recipe = load("quick-thoughts-bag", [f"pairs={{kind='{pairs}'}}", f"batches.rows={rows}", *overrides])
    recipe = recipe.model_copy(update={"negatives": rules})
    texts = {"pairs": ("a", "b"), "triples": ("a", "b", "c"), "groups": ("a",)}.get(pairs, ())
    recipe = recipe.model_copy(update={"corpus": recipe.corpus.model_copy(update={"texts": texts, "document": ("d",)})})
    made_of = completed(recipe, lambda: ("", ""))
    kin = kindred(store, tables.sentences) if pairs == "groups" else None
    source = Source(
        tables.sentences,
        tables.tokens,
        tables.pairs,
        held_out(store, tables.sentences),
        made_of,
        kin=kin,
        negatives=found.negatives,
    )
    piece = epoch(store, recipe.batches, 0, 0, source)
    return SimpleNamespace(frame=store.read(piece), piece=piece, found=found)


@pytest.mark.parametrize("pairs", ["pairs", "triples", "groups", "single"])
def test_an_anchor_s_negatives_stand_behind_its_example_and_in_its_hard_column(tmp_path, pairs):
    store = Store.at(tmp_path)
    shards = {n: [corpora.story(100 * n + at, 3 if pairs == "triples" else 2) for at in range(14)] for n in range(2)}
    tables = made_up(store, shards, pairs)
    views = 3 if pairs == "triples" else 2
    found = batches(store, tables, RULES, pairs, rows=(views + 2) * 3)
    negatives = {
        (number << 32) + anchor: candidates
        for number, piece in found.found.negatives.items()
        for anchor, candidates in by_anchor(store, piece).items()
    }
    lengths = dict(texts(store, tables).select("text_number", pl.col("text").str.len_chars()).iter_rows())
    seen = 0
    for batch in found.frame.iter_slices((views + 2) * 3):
        for at, row in enumerate(batch.to_dicts()):
            if row["side"] == FILLER:
                continue
            assert row["tokens"] == [lengths[row["text"]]]  # the right text's, from whichever shard
            if row["view"] == 0:
                hard = [batch.row(other, named=True) for other in row["hard"]]
                assert [one["text"] for one in hard[views - 2 :]] == negatives.get(row["text"], [])
                assert [one["view"] for one in hard] == list(range(2, 2 + len(hard)))
                assert {one["side"] for one in hard} <= {CANDIDATE}
                assert row["answers"] == [at + 1]
                seen += len(hard)
            elif row["view"] > 1:
                assert row["hard"] == row["answers"] == []
    assert seen > 20


def test_what_is_missing_is_a_filler_and_counted(tmp_path):
    store = Store.at(tmp_path)
    found = batches(store, made_up(store, {0: stories(0, 14)}), Negatives(count=2, last=6, ceiling=0.1))
    missing = found.piece.counts["negatives_missing"]
    assert missing == 14 * 2 - found.found.negatives[0].rows > 0
    assert found.frame.filter(pl.col("side") == FILLER)["text"].to_list().count(0) >= missing


def test_an_example_with_too_few_is_dropped_where_the_recipe_says_so(tmp_path):
    store = Store.at(tmp_path)
    rules = Negatives(count=2, last=6, ceiling=0.4, short="drop")
    found = batches(store, made_up(store, {0: stories(0, 40)}), rules, rows=8)
    dropped = found.piece.counts["negatives_too_few"]
    assert 0 < dropped == found.found.negatives[0].counts["short"] < 40
    assert found.piece.counts["negatives_missing"] == 0


def test_no_negatives_no_other_keys(tmp_path):
    source = corpora.source(Store.at(tmp_path), {0: [corpora.Document(corpora.story(1, 4))]})
    assert not any("negatives" in key for key in source.keys())  # noqa: SIM118
    assert "mined" not in planned(load("simcse-unsup", ["encoder.path="])).record()


# The whole road


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("miner") / "model"
    save(path, build(job_of(made)), made.vocabulary.tokenizer, {}, "")
    return path


SETTINGS = ["pairs={kind='qa', most=1}", "corpus.texts=['question', 'answer']", "corpus.label=label"]
SETTINGS += ["corpus.labels=right", "batches.rows=24", "tokenizer.size=60", "encoder.width=8", "corpus.held_out=0.2"]
SETTINGS += ["corpus.shard_bytes=100000", "terms.0.candidates={kind='own'}"]


def walked(place, *overrides):
    story = corpora.story(7, 200)
    rows = [
        {"question": f"{story[n]} {n}?", "answer": story[n + k], "label": int(k < 2)}
        for n in range(0, 195, 5)
        for k in range(1, 5)
    ]
    (place / "qa.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    recipe = resolve(load("quick-thoughts-bag", [*SETTINGS, *overrides]))
    road = mine_road(place, recipe)
    sentences = road.sentences(road.documents(road.numbered()))
    pairs, tokens = road.pairs(sentences), road.tokens(sentences, road.vocabulary(sentences))
    negatives = road.negatives(sentences, pairs)
    source = road.source(sentences, tokens, pairs, negatives=negatives)
    table = road.batches(source)
    read = lambda found: road.store.read(found.pieces[0])
    return SimpleNamespace(
        negatives=negatives, batches=read(table), table=table, sentences=read(sentences), rows=read(negatives)
    )


def mine_road(place, recipe):
    from pipeline.road import Road

    return Road(Store.at(place / "store"), recipe, str(place / "qa.jsonl"))


def test_questions_have_their_mined_answers_behind_their_own_wrong_ones(tmp_path, folder):
    found = walked(tmp_path, f"negatives={{count=3, miner={{kind='dense', model='{folder}'}}}}")
    text = found.sentences["text"]
    mined = {a: [text[c] for c in cs] for a, cs in found.rows.group_by("anchor").agg("candidate").iter_rows()}
    asked = 0
    for batch in found.batches.iter_slices(24):
        for row in batch.filter(pl.col("hard").list.len() > 0).to_dicts():
            said = [text[batch["text"][at] & 0xFFFFFFFF] for at in row["hard"]]
            assert set(said[1:]) <= set(mined[row["text"] & 0xFFFFFFFF])
            assert 1 < len(said) <= 4
            asked += 1
    assert asked > 20
    right = opened(str(folder)).encode([text[0], text[int(found.rows["candidate"][0])]])
    cosine = right[0] @ right[1] / np.linalg.norm(right[0]) / np.linalg.norm(right[1])
    if found.rows["anchor"][0] == 0:
        assert found.rows["score"][0] == pytest.approx(cosine, abs=1e-5)


def test_a_second_run_mines_nothing(tmp_path):
    first, second = (walked(tmp_path, "negatives={count=2}") for _ in range(2))
    assert (second.negatives.cached, second.table.cached) == (True, True)
    assert first.negatives.key == second.negatives.key


def test_without_given_wrong_answers_there_are_the_mined_ones(tmp_path):
    found = walked(tmp_path, "negatives={count=2}", "pairs.most=0")
    assert set(found.batches.filter(pl.col("answers").list.len() > 0)["hard"].list.len()) == {2}


def refused(*overrides):
    with pytest.raises(RecipeError) as told:
        mine.check(load("quick-thoughts-bag", ["pairs={kind='pairs'}", "corpus.texts=['a', 'b']", *overrides]))
    return str(told.value)


def test_what_cannot_be_mined_is_refused_before_any_work(tmp_path):
    assert 'negatives.miner.kind is "near"; known: bm25, dense, random, same-document' in refused(
        "negatives={miner='near'}"
    )
    assert "negatives.miner needs the option model" in refused("negatives={miner='dense'}")
    assert "is no model folder" in refused("negatives={miner={kind='dense', model='nowhere'}}")
    assert 'about scores, and miner "random" gives none' in refused("negatives={miner='random', ceiling=0.5}")
    assert 'pairs.kind "neighbours" makes runs' in refused("negatives={}", "pairs={kind='neighbours'}")
    assert 'negatives.judge is "nowhere": no config.json' in refused("negatives={judge='nowhere'}")
    assert set(MINERS) == {"bm25", "dense", "same-document", "random"}


def test_negatives_that_no_term_reads_are_refused():
    settings = ["pairs={kind='pairs'}", "corpus.texts=['a', 'b']", "batches.rows=12", "negatives={}"]
    with pytest.raises(RecipeError, match="negatives are mined, but no term has them among its candidates"):
        planned(load("quick-thoughts-bag", [*settings, "terms.0.candidates={kind='other-view'}"]))
