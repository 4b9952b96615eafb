"""
Hard negatives for the anchors of each shard from the whole corpus: stage `negatives`.

A shard's lists of nearest texts are kept (table `nearest`), with a note of the shards that were searched for them.
Where the corpus has grown, only what is new is searched and merged, and new anchors alone search everything. What the
recipe chooses from the lists, and whom groups bar, is decided anew each time, which only reads.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from models.parts import complete
from models.recipe import Choice, Negatives, Recipe, RecipeError, digest
from pipeline import frozen, groups, judge, miners
from pipeline.cluster import Progress, silent
from pipeline.embed import listed, matrix, vectors
from pipeline.gathered import gathered
from pipeline.manifest import Manifest, Stage, run
from pipeline.merged import among
from pipeline.mine_choice import chosen, may_be_right
from pipeline.mine_search import Lists, again, centres
from pipeline.mine_search import listed as as_lists
from pipeline.miners import MINERS, SCORED
from pipeline.ragged import Flags
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import CENTRES, NEAREST, NEGATIVES, RARITY

NEAREST_VERSION = 1
NEGATIVES_VERSION = 1
SPARE = 8  # texts that a list holds beyond those looked at, for the anchor's group and its answers'
MEMBERS = 4  # texts of a group of similar ones that are near an anchor together, about; of a list one is left
MOST_RIGHT = 16  # members of a group whose scores are asked
COUNTED_SHARDS = 64  # whose words are counted
DRAWN_SHARDS = 16  # that a shard's random texts are drawn from
SEARCHED = "searched"  # notes of what was searched

Same = Callable[[NDArray[np.uint64]], NDArray[np.uint64]]


@dataclass(frozen=True)
class Corpus:
    """What mining reads, by shard number; `rarity` and `vectors` where the miner asks for them."""

    kind: str
    sentences: Mapping[int, Piece]
    pairs: Mapping[int, Piece]
    vectors: Mapping[int, Piece] = field(default_factory=dict)
    rarity: Piece | None = None
    is_exact: bool = True

    def key(self, number: int) -> str:
        """Of all that is read of a shard."""
        read = (self.sentences, self.pairs, self.vectors)
        return digest([pieces[number].key for pieces in read if number in pieces])


@dataclass(frozen=True)
class Barred:
    """
    What says which texts may be right, and which may not be read.

    Args:
        held_out: groups of held-out texts, which never become negatives.
        kin: table `kin`, where documents are groups.
        joined: table `joined`, where groups have classes.
        left_out: table `left_out`, of groups that are not trained on.
    """

    held_out: Piece
    kin: Piece | None = None
    joined: Piece | None = None
    left_out: Piece | None = None

    def classes(self, store: Store) -> Same:
        """What gives numbers of texts that of their classes, in which alone they are compared."""
        kin = store.read(self.kin) if self.kin else None
        known = groups.Known(pl.Series(dtype=pl.UInt64), store.read(self.joined) if self.joined else None)
        plain = lambda number: pl.Series(groups.classes(number, kin), dtype=pl.UInt64)
        return lambda number: known.classes(plain(number)).to_numpy()

    def groups(self, store: Store) -> pl.Series:
        """Groups that never become negatives; of what is left out but for its first text, that one may."""
        out = [store.read(self.left_out)] if self.left_out else []
        whole = (rows.filter(pl.col("first").is_null()) if "first" in rows.columns else rows for rows in out)
        return pl.concat(rows["group"] for rows in (store.read(self.held_out), *whole))


def check(recipe: Recipe) -> None:
    """
    Find out before any work whether a recipe's negatives can be mined.

    Raises:
        RecipeError: an unknown miner or option; no pairs that have anchors; rules about scores that there are not; a
            model that is not there.
    """
    rules = recipe.negatives
    if rules is None:
        return
    choice = complete(MINERS, rules.miner, "negatives.miner")
    if recipe.pairs.kind in ("neighbours", "none"):
        raise RecipeError(
            f'negatives are mined for examples, but pairs.kind "{recipe.pairs.kind}" makes runs; use pairs, triples, '
            "groups, single or qa"
        )
    asked = [name for name in ("absolute_margin", "relative_margin", "floor", "ceiling") if _given(rules, name)]
    if asked and choice.kind not in SCORED and not rules.judge:
        raise RecipeError(
            f'negatives.{asked[0]} is about scores, and miner "{choice.kind}" gives none; leave it out, or use '
            f"{' or '.join(SCORED)}, or a negatives.judge"
        )
    if choice.kind == "dense":
        frozen.encoding("negatives.miner.model", choice.options["model"])
    if rules.judge:
        judge.check(rules.judge)


def _given(rules: Negatives, name: str) -> bool:
    return getattr(rules, name) is not None


def negatives(
    store: Store,
    recipe: Recipe,
    name: str,
    sentences: Manifest,
    pairs: Manifest,
    barred: Barred,
    progress: Progress = silent,
) -> Manifest:
    """
    Table `negatives` of all shards, for a recipe that has negatives.

    Args:
        name: of the corpus, by which words are counted once.
    """
    rules = recipe.negatives
    assert rules
    choice = complete(MINERS, rules.miner, "negatives.miner")
    corpus = _corpus(store, recipe, rules, choice, name, sentences, pairs, progress)
    lists = nearest(store, corpus, choice, rules, progress)
    what = rules.model_dump(exclude={"miner", "exact"}) | {"kind": choice.kind, "judge": judge.key(rules.judge)}
    stage = Stage("negatives", NEGATIVES_VERSION, partial(make_negatives, corpus, rules, choice.kind, barred), what)
    more = tuple(piece.key for piece in vars(barred).values() if piece)
    numbers = digest({number: corpus.key(number) for number in corpus.sentences})
    items = {n: ((piece.key, str(n), numbers, *more), (n, piece)) for n, piece in lists.pieces.items()}
    return run(store, stage, items, progress)


def _corpus(
    store: Store,
    recipe: Recipe,
    rules: Negatives,
    choice: Choice,
    name: str,
    sentences: Manifest,
    pairs: Manifest,
    progress: Progress,
) -> Corpus:
    made = Corpus(recipe.pairs.kind, sentences.pieces, pairs.pieces, is_exact=sentences.rows <= rules.exact)
    if choice.kind == "dense":
        model = choice.options["model"]
        found = vectors(store, frozen.key(model), model, sentences, progress=progress)
        return Corpus(made.kind, made.sentences, made.pairs, found.pieces, None, made.is_exact)
    if choice.kind == "bm25":
        return Corpus(made.kind, made.sentences, made.pairs, {}, _rarity(store, name, choice, sentences), made.is_exact)
    return made


def _rarity(store: Store, name: str, choice: Choice, sentences: Manifest) -> Piece:
    """Words counted when this corpus was first mined, so that a score stays what it is when the corpus grows."""
    note = f"rarities/{name}-{choice.options['refresh']}.json"
    known = store.get(note)
    found = store.piece("rarity", known["key"]) if known else None
    if found:
        return found
    pieces = list(sentences.pieces.values())
    pieces = pieces[:: -(-len(pieces) // COUNTED_SHARDS)]
    inputs = tuple(piece.key for piece in pieces)
    started, parts, total = time.time(), [], [0, 0.0]
    for piece in pieces:
        texts = store.read(piece, ["text", "held_out"]).filter(~pl.col("held_out"))["text"].to_list()
        frame, mean = miners.rarity(texts)
        parts.append(frame)
        total = [total[0] + len(texts), total[1] + mean * len(texts)]
    whole = pl.concat(parts).group_by("word").agg(pl.col("texts").sum())
    facts = {"texts": total[0], "mean": total[1] / max(1, total[0])}
    key = piece_key("rarity", NEAREST_VERSION, [name, choice.options["refresh"]], inputs)
    made = store.piece("rarity", key) or store.write(RARITY, key, whole, started=started, inputs=inputs, facts=facts)
    if not store.create(note, {"key": made.key}):
        store.put(note, {"key": made.key})  # the piece that it named is gone
    return made


def nearest(store: Store, corpus: Corpus, choice: Choice, rules: Negatives, progress: Progress = silent) -> Manifest:
    """Table `nearest` of all shards: of each anchor the texts that the miner finds, wherever they stand."""
    how: dict[str, Any] = {"miner": {**choice.model_dump(), "model": ""}, "kind": corpus.kind, "last": rules.last}
    how |= {"exact": corpus.is_exact} if choice.kind == "dense" else {}
    how |= {"seed": rules.seed} if choice.kind == "random" else {}
    how |= {"rarity": corpus.rarity.key} if corpus.rarity else {}
    stage = Stage("nearest", NEAREST_VERSION, partial(make_nearest, corpus, choice, rules, digest(how)), how)
    keys = {number: corpus.key(number) for number in corpus.sentences}
    whole = "" if choice.kind == "same-document" else digest(keys)
    items = {number: ((keys[number], str(number), whole), number) for number in corpus.sentences}
    return run(store, stage, items, progress)


def make_nearest(
    corpus: Corpus, choice: Choice, rules: Negatives, how: str, store: Store, key: str, number: int
) -> Piece:
    """Worker's part of stage `nearest`: one shard's anchors."""
    started, k = time.time(), rules.last + SPARE
    anchors = asked(store, corpus, number)
    if choice.kind in SCORED:
        lists, right_Q = _searched(store, corpus, choice, how, number, anchors, k)
    else:
        right_Q = np.full(len(anchors.row_Q), np.nan, np.float32)
        lists = _beside(store, corpus, number, anchors, k)
        lists = _drawn(store, corpus, number, anchors, k, rules.seed) if choice.kind == "random" else lists
    piece = store.write(
        NEAREST, key, _frame(anchors.row_Q, lists, right_Q), started=started, inputs=(corpus.key(number),)
    )
    if choice.kind in SCORED:
        there = {str(n): corpus.key(n) for n in corpus.sentences}
        store.put(f"{SEARCHED}/{_own(corpus, how, number)}.json", {"key": piece.key, "shards": there})
    return piece


@dataclass(frozen=True)
class Anchors:
    """
    A shard's anchors, and the answers that each must not meet as negatives.

    Args:
        row_Q: rows in the shard's sentences, ascending.
        group_Q: their groups.
        at_P, row_P, group_P: of each answer its anchor's place, ascending, its row and its group.
    """

    row_Q: NDArray[np.int64]
    group_Q: NDArray[np.uint64]
    at_P: NDArray[np.int64]
    row_P: NDArray[np.int64]
    group_P: NDArray[np.uint64]


def asked(store: Store, corpus: Corpus, number: int) -> Anchors:
    """The training anchors of a shard."""
    rows, pairs = _sentences(store, corpus, number), store.read(corpus.pairs[number])
    if corpus.kind == "groups":
        member = pairs.select(row="members", positive=pl.col("members").list.head(MOST_RIGHT)).explode("row")
        found = member.explode("positive").filter(pl.col("row") != pl.col("positive"))
    else:
        found = pairs.select(row="anchor", positive="positive")
    found = found.select(pl.all().cast(pl.Int64)).unique().sort("row", "positive")
    held_R = rows["held_out"].to_numpy()
    found = found.filter(~pl.Series(held_R[found["row"].to_numpy()], dtype=pl.Boolean))
    row_P, group_R = found["row"].to_numpy(), rows["number"].to_numpy()
    row_Q, at_P = np.unique(row_P, return_inverse=True)
    positive_P = found["positive"].to_numpy()
    return Anchors(row_Q, group_R[row_Q], at_P, positive_P, group_R[positive_P])


def candidates(store: Store, corpus: Corpus, number: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """
    Rows of a shard that may become negatives, each text once, and their groups: all training texts that answer.

    Of questions and answers these are the answers, right and wrong, of pairs the second texts and of triples the third
    too, and of anything else all texts.
    """
    rows = _sentences(store, corpus, number).with_row_index("row").filter(~pl.col("held_out"))
    if corpus.kind == "qa":
        rows = rows.filter(pl.col("label").is_not_null())
    elif corpus.kind in ("pairs", "triples"):
        pairs = store.read(corpus.pairs[number])
        names = ("positive", "negative")[: 1 + (corpus.kind == "triples")]
        answers = pl.concat([pairs[name].alias("row") for name in names]).unique()
        rows = rows.filter(pl.col("row").is_in(answers.implode()))
    once = rows.unique("group", keep="first", maintain_order=True)
    return once["row"].to_numpy().astype(np.int64), once["number"].to_numpy()


def _sentences(store: Store, corpus: Corpus, number: int) -> pl.DataFrame:
    """Sentences with `number`, by which texts are told apart: of groups of similar texts, the group's."""
    wanted = ["document", "place", "held_out", "group", *(["label"] if corpus.kind == "qa" else [])]
    rows = store.read(corpus.sentences[number], wanted)
    return rows.with_columns(number="document" if corpus.kind == "groups" else "group")


def _texts(row_N: NDArray[np.int64], shard: int) -> NDArray[np.uint64]:
    """Numbers of a shard's texts."""
    return row_N.astype(np.uint64) + np.uint64(shard << 32)


def _own(corpus: Corpus, how: str, number: int) -> str:
    return digest("searched", how, number, corpus.key(number))


def _searched(
    store: Store, corpus: Corpus, choice: Choice, how: str, number: int, anchors: Anchors, k: int
) -> tuple[Lists, NDArray[np.float32]]:
    """Lists over all shards: those of the last time and what is new, if all that was searched then is there still."""
    cells = None if corpus.is_exact else partial(_centres, store, corpus)
    given = {"vectors": corpus.vectors, "cells": cells, "rarity": corpus.rarity}
    miner = miners.miner_of(choice, store, corpus.sentences, given)
    queries = miner.ask(number, anchors.row_Q)
    lists, left = Lists.none(len(anchors.row_Q)), {n: corpus.key(n) for n in corpus.sentences}
    note = store.get(f"{SEARCHED}/{_own(corpus, how, number)}.json")
    known = {int(n): key for n, key in note["shards"].items()} if note else {}
    piece = store.piece("nearest", note["key"]) if note else None
    if piece and known.items() <= left.items():
        lists = _lists(store.read(piece), k)
        left = {n: key for n, key in left.items() if n not in known}
    for other in sorted(left):
        row_N, group_N = candidates(store, corpus, other)
        if len(row_N) and len(anchors.row_Q):
            found = miner.nearest(queries, other, row_N, k * (MEMBERS if corpus.kind == "groups" else 1))
            lists = lists.merged(as_lists(*found, _texts(row_N, other), group_N), k)
    score_P = (
        miner.right(queries, anchors.at_P, number, anchors.row_P) if len(anchors.row_P) else np.zeros(0, np.float32)
    )
    right_Q = np.full(len(anchors.row_Q), np.inf, np.float32)
    np.minimum.at(right_Q, anchors.at_P, score_P)
    return lists, right_Q


def _centres(store: Store, corpus: Corpus, number: int, text_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Centres of a shard's cells, found once."""
    inputs = (corpus.key(number),)
    key = piece_key("centres", NEAREST_VERSION, {}, inputs)
    piece = store.once(CENTRES, key, inputs, lambda: pl.DataFrame({"vector": listed(centres(text_ND))}))
    return matrix(store.read(piece)["vector"])


def _beside(store: Store, corpus: Corpus, number: int, anchors: Anchors, k: int) -> Lists:
    """Texts of the anchors' own documents."""
    rows, (row_N, group_N) = _sentences(store, corpus, number), candidates(store, corpus, number)
    document_R, place_R = rows["document"].to_numpy(), rows["place"].to_numpy().astype(np.int64)
    found = miners.beside(document_R[anchors.row_Q], place_R[anchors.row_Q], document_R[row_N], place_R[row_N], k)
    return as_lists(*found, _texts(row_N, number), group_N)


def _drawn(store: Store, corpus: Corpus, number: int, anchors: Anchors, k: int, seed: int) -> Lists:
    """Texts drawn from some shards of the corpus, each of a list once; no score."""
    draw = np.random.default_rng([seed, number, len(corpus.sentences)])
    shards = sorted(corpus.sentences)
    some = sorted(draw.choice(shards, size=min(DRAWN_SHARDS, len(shards)), replace=False).tolist())
    parts = [(n, *candidates(store, corpus, n)) for n in some]
    text_N = np.concatenate([_texts(row_N, n) for n, row_N, _ in parts])
    group_N = np.concatenate([group_N for _, _, group_N in parts])
    if not len(text_N):
        return Lists.none(len(anchors.row_Q))
    row_QK = draw.integers(0, len(text_N), size=(len(anchors.row_Q), k))
    lists = as_lists(np.zeros(row_QK.shape, np.float32), row_QK, text_N, group_N)
    return lists.once()


def _frame(row_Q: NDArray[np.int64], lists: Lists, right_Q: NDArray[np.float32]) -> pl.DataFrame:
    count_Q = (lists.score_QK > -np.inf).sum(axis=1)
    inside_QK = np.arange(lists.score_QK.shape[1]) < count_Q[:, None]
    ends = pa.array(np.concatenate([[0], np.cumsum(count_Q)]), pa.int64())
    cut = lambda part_QK: pl.Series(pa.LargeListArray.from_arrays(ends, pa.array(part_QK[inside_QK])))
    return pl.DataFrame(
        {
            "anchor": pl.Series(row_Q, dtype=pl.UInt32),
            "right": pl.Series(right_Q, dtype=pl.Float32),
            "text": cut(lists.text_QK),
            "group": cut(lists.group_QK),
            "score": cut(lists.score_QK),
        }
    )


def _lists(frame: pl.DataFrame, k: int) -> Lists:
    count_Q = frame["score"].list.len().to_numpy()
    inside_QK = np.arange(k) < count_Q[:, None]

    def part(name: str, fill: Any) -> NDArray[Any]:
        part_QK = np.full(inside_QK.shape, fill)
        part_QK[inside_QK] = frame[name].explode(empty_as_null=False).to_numpy()
        return part_QK

    return Lists(part("score", np.float32(-np.inf)), part("text", np.uint64(0)), part("group", np.uint64(0)))


def make_negatives(
    corpus: Corpus,
    rules: Negatives,
    why: str,
    tables: Barred,
    store: Store,
    key: str,
    item: tuple[int, Piece],
) -> Piece:
    """Worker's part of stage `negatives`: one shard."""
    started, (number, piece) = time.time(), item
    frame, anchors = store.read(piece), asked(store, corpus, number)
    same, held = tables.classes(store), tables.groups(store)
    lists, right_Q = _lists(frame, rules.last + SPARE), frame["right"].to_numpy()
    barred = lambda found: _barred(store, corpus, anchors, found, held, same)
    barred_QK = barred(lists)
    if rules.judge:
        lists, right_Q = judge.judged(store, corpus.sentences, rules, number, anchors, lists, barred_QK)
        barred_QK = barred(lists)
    found = chosen(lists, barred_QK, right_Q, rules, np.random.default_rng([rules.seed, number, 1]))
    rows = _picked(anchors.row_Q, lists, found.place_QC, found.rank_QK, why)
    counts = dict(found.counts)
    if rules.short == "random" and counts["short"]:
        drawn = _drawn(store, corpus, number, anchors, 4 * rules.count + SPARE, rules.seed + 1)
        more = _filled(anchors.row_Q, lists, found.place_QC, drawn, barred(drawn), rules)
        counts["drawn"] = len(more)
        rows = pl.concat([rows, more])
    counts["anchors"] = len(anchors.row_Q)
    return store.write(NEGATIVES, key, rows, started=started, inputs=(piece.key,), counts=counts)


def _barred(store: Store, corpus: Corpus, anchors: Anchors, lists: Lists, held: pl.Series, same: Same) -> Flags:
    """Listed texts that could be right, of a group that the list has already, or that say what a held-out text does."""
    flat = lists.group_QK.ravel()
    group_QK = same(flat).reshape(lists.group_QK.shape)
    barred_QK = may_be_right(group_QK, same(anchors.group_Q), anchors.at_P, same(anchors.group_P)) | again(group_QK)
    if corpus.kind == "groups" and len(flat):
        there = lists.score_QK.ravel() > -np.inf
        if there.any():
            texts = pl.Series(lists.text_QK.ravel()[there])
            flat = flat.copy()
            flat[there] = gathered(store, corpus.sentences, "group", texts).to_numpy()
    repeats = among(pl.Series(flat, dtype=pl.UInt64), held).to_numpy()
    return barred_QK | repeats.reshape(barred_QK.shape)


def _picked(
    row_Q: NDArray[np.int64], lists: Lists, place_QC: NDArray[np.int64], rank_QK: NDArray[np.int64], why: str
) -> pl.DataFrame:
    """Table `negatives` of places in lists."""
    query_N, nth_N = (place_QC >= 0).nonzero()
    at = (query_N, place_QC[query_N, nth_N])
    return pl.DataFrame(
        {
            "anchor": row_Q[query_N].astype(np.uint32),
            "candidate": lists.text_QK[at],
            "score": lists.score_QK[at].astype(np.float32),
            "rank": rank_QK[at].astype(np.uint32),
            "why": pl.repeat(why, len(query_N), dtype=pl.String, eager=True),
        }
    )


def _filled(
    row_Q: NDArray[np.int64],
    lists: Lists,
    place_QC: NDArray[np.int64],
    drawn: Lists,
    barred_QK: Flags,
    rules: Negatives,
) -> pl.DataFrame:
    """Drawn texts for anchors that have too few; none says what one of the chosen does."""
    has_QC = place_QC >= 0
    group_QC = np.take_along_axis(lists.group_QK, place_QC.clip(min=0), axis=1) if lists.group_QK.size else place_QC
    twice_QK = ((drawn.group_QK[:, :, None] == group_QC[:, None, :]) & has_QC[:, None, :]).any(axis=2)
    good_QK = (drawn.score_QK > -np.inf) & ~barred_QK & ~twice_QK
    rank_QK = np.where(good_QK, np.cumsum(good_QK, axis=1) - 1, -1)
    good_QK &= rank_QK < (rules.count - has_QC.sum(axis=1))[:, None]
    place_QK = np.where(good_QK, np.arange(good_QK.shape[1]), -1)
    return _picked(row_Q, drawn, place_QK, rank_QK + rules.last, "random")
