"""
The training set in the order in which it will be read.

An epoch is made in two passes: every shard's documents are cut into runs of neighbouring sentences and scattered to
buckets, then each bucket is shuffled by runs and packed into batches of equal rows. An example, whose rows stand
together, is a run of its own; questions with their answers are packed whole, see `pipeline.questions`. Where a method
reads runs in order, no batch holds two runs of one document if that can be had (`pipeline.apart`). One bucket is in
memory at a time, and one file on disk belongs to each. Of questions, every one's rows, place and batch are in memory
too, and those whose batch is not whole yet. The order, and what augmentation draws, depends on the seed, the epoch, the
corpus and how `corpus.shard_bytes` cuts it, on `batches.rows`, `run` and `bucket_rows`, and on nothing else.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from models.recipe import Batches
from models.trouble import MendableError
from pipeline import apart, examples, merged, mined, questions
from pipeline.cluster import scratch
from pipeline.examples import Examples
from pipeline.gathered import gathered
from pipeline.groups import OUT, Known
from pipeline.runs import answered, fillers, shard_runs
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import FILLER, HELD_OUT

BATCHES_VERSION = 1
HELD_OUT_VERSION = 1
GROUP_ROWS = 6_000  # rows of a row group, about: groups of 64 rows cost 10 times the reading time
ANSWERED_ROWS = 48_000  # rows whose answers are looked up at once, about: fewer save no memory worth having
LEFT_OUT = {  # by what is counted
    "repeats_of_held_out": "sentences stay out because they repeat held-out ones",
    "equal_pairs": "pairs stay out because both texts say the same",
    "negatives_too_few": "examples have too few mined negatives",
    "groups_of_one": "groups have one text",
    "groups_of_one_text": "groups have texts that all say the same",
}
NOUNS = {2: "pairs", 3: "triples"}  # what an example is called, by its rows

Answer = Callable[[pl.DataFrame, int], pl.DataFrame]  # rows of whole batches and a batch's size -> table batches


class BatchesError(MendableError, ValueError):
    """A corpus that gives no batch."""


@dataclass(frozen=True)
class Source:
    """What batches are made of: for each shard number its sentences, tokens (row-aligned) and pairs; and how."""

    sentences: Mapping[int, Piece]
    tokens: Mapping[int, Piece]
    pairs: Mapping[int, Piece]
    held_out: Piece
    examples: Examples | None = None  # None: runs of neighbours
    ahead: int = 0  # sentences from a context to the farthest answer; 0: where a run's rows stand is nobody's concern
    kin: Piece | None = None  # groups that share a text, where documents are groups
    teacher: Mapping[int, Piece] | None = None  # for each shard number a teacher's vectors, row-aligned with sentences
    others: Mapping[int, Piece] | None = None  # for each shard number its texts in other words
    guide: Mapping[int, Piece] | None = None  # as `teacher`, by the model that says what may be right
    joined: Piece | None = None  # classes of groups, no two of which are each other's wrong answers
    left_out: Piece | None = None  # groups that are never trained on
    negatives: Mapping[int, Piece] | None = None  # for each shard number its anchors' mined negatives

    def keys(self) -> tuple[str, ...]:
        """Every piece that is read, with its shard's number."""
        rows = ((n, self.sentences[n], self.tokens[n], self.pairs[n]) for n in sorted(self.sentences))
        taught = (f"{n}:{piece.key}" for n, piece in sorted((self.teacher or {}).items()))
        said = (f"{n}:{piece.key}" for n, piece in sorted((self.others or {}).items()))
        guided = (f"guide:{n}:{piece.key}" for n, piece in sorted((self.guide or {}).items()))
        mined = (f"negatives:{n}:{piece.key}" for n, piece in sorted((self.negatives or {}).items()))
        small = (f"{name}:{piece.key}" for name in ("joined", "left_out") if (piece := getattr(self, name)))
        more = (*([self.kin.key] if self.kin else ()), *taught, *said, *guided, *small, *mined)
        return (*(f"{n}:{s.key}:{t.key}:{p.key}" for n, s, t, p in rows), self.held_out.key, *more)

    def known(self, store: Store) -> Known:
        """What is known of texts by their groups."""
        tables = (store.read(piece) if piece else None for piece in (self.joined, self.left_out, self.kin))
        return Known(store.read(self.held_out)["group"], *tables)


def held_out(store: Store, sentences: Mapping[int, Piece]) -> Piece:
    """The groups of all held-out texts: what repeats one of them leaves training."""
    inputs = tuple(sorted(piece.key for piece in sentences.values()))
    key = piece_key("held_out", HELD_OUT_VERSION, {}, inputs)
    return store.once(HELD_OUT, key, inputs, partial(_all_held_out, store, sentences))


def _all_held_out(store: Store, sentences: Mapping[int, Piece]) -> pl.DataFrame:
    pieces = merged.small(store, HELD_OUT, HELD_OUT_VERSION, sentences, shard_held_out)
    found = [HELD_OUT.empty(), *(rows.select("group").unique() for rows in merged.ranges(store, pieces, "group"))]
    return pl.concat(found)


def shard_held_out(store: Store, key: str, sentences: Piece) -> Piece:
    """The groups of a shard's held-out texts."""
    started, rows = time.time(), store.read(sentences, ["held_out", "group"])
    groups = rows.filter("held_out").select("group").unique()
    return store.write(HELD_OUT, key, groups, started=started, inputs=(sentences.key,))


def plan_key(settings: Batches, seed: int, source: Source) -> str:
    """The key that all epochs of a training set share; lanes are cut when the batches are read."""
    what = [settings.model_dump(exclude={"lane_rows"}), seed]
    if source.examples:
        what = [settings.model_dump(exclude={"lane_rows", "run"}), seed, source.examples.record()]
    what += ["ordered"] if source.ahead else []
    return piece_key("batches", BATCHES_VERSION, what, source.keys())


def epoch_key(plan: str, epoch: int) -> str:
    """The key of one epoch's batches."""
    return f"{plan}-{epoch:04d}"


def epoch(store: Store, settings: Batches, seed: int, number: int, source: Source) -> Piece:
    """
    The batches of one epoch as a piece; made if absent.

    Raises:
        BatchesError: fewer rows than a batch has, or none with a right answer; a question with more answers than rows.
        RecipeError: a batch does not hold whole examples.
    """
    key = epoch_key(plan_key(settings, seed, source), number)
    found = store.piece("batches", key)
    if found:
        return _far_enough(found, source.ahead)
    views, answer = source.examples.views if source.examples else 0, answered
    asks = bool(source.examples and source.examples.asks)
    if source.examples and not asks:
        examples.check_rows(settings.rows, source.examples.size)
        answer = partial(examples.answered, views=views, mined=source.examples.mined > 0)
    drawn: list[pl.DataFrame] = []
    with (
        store.part("batches", key, inputs=source.keys()) as part,
        _Writer(store.place(part.file), settings.rows) as writer,
        closing(
            _scattered(store, settings, seed, number, source, counts := {"repeats_of_held_out": 0}, drawn)
        ) as buckets,
    ):
        if asks:
            _write_questions(buckets, drawn, settings.rows, writer, counts)
        else:
            left = pl.DataFrame()
            for bucket in buckets:
                rows = bucket if left.is_empty() else pl.concat([left, bucket])
                rows = apart.apart(rows, settings.rows) if source.ahead else rows
                left = _pack(rows, settings.rows, answer, writer)
            _finish(left, settings.rows, answer, writer)
            _check(writer, len(left), settings.rows, views, counts, source.examples.size if source.examples else 1)
        part.rows, part.counts = writer.batches * settings.rows, {**counts, **writer.counts}
        part.group_rows, part.group_multiple = writer.group_batches * settings.rows, settings.rows
        part.facts = {"batches": writer.batches, "batch_rows": settings.rows, "group_batches": writer.group_batches}
        part.facts |= {"longest_run": writer.longest_run} if source.ahead else {}
    assert part.piece is not None
    return _far_enough(part.piece, source.ahead)


def _far_enough(piece: Piece, ahead: int) -> Piece:
    """A piece some of whose runs reach as far as the recipe looks."""
    longest = int(piece.facts.get("longest_run", 0))
    if ahead and longest <= ahead:
        raise BatchesError(
            f"a term looks {ahead} sentences ahead, but the longest run in a batch has {longest}; give longer "
            f"documents, raise batches.run, or take the term out"
        )
    return piece


def _write_questions(
    buckets: Iterator[pl.DataFrame],
    drawn: list[pl.DataFrame],
    rows: int,
    writer: "_Writer",
    counts: Mapping[str, int],
) -> None:
    """
    Args:
        drawn, counts: bucket, order and rows of each question, and why texts are left out; there once the first bucket
            is.
    """
    first = next(buckets, None)
    if first is None:
        why = [f"{times} have no {kind} answer" for kind in ("right", "wrong") if (times := counts.get(f"no_{kind}"))]
        if repeats := counts["repeats_of_held_out"]:
            why.append(f"{repeats} texts stay out because they repeat held-out ones")
        remedy = "give more questions, or answers of both kinds"
        raise BatchesError("; ".join(["no training question has both a right and a wrong answer", *why, remedy]))
    size_E = pl.concat(drawn).sort("bucket", "order", maintain_order=True)["size"].to_numpy()
    if size_E.max() > rows:
        raise BatchesError(
            f"a question takes {size_E.max()} rows with its answers, a batch has {rows}; set batches.rows to at least "
            f"{size_E.max()}, or pairs.most lower"
        )
    for batches in questions.packed(chain([first], buckets), size_E, rows):
        writer.write(batches)


def _check(writer: "_Writer", left: int, rows: int, views: int, counts: Mapping[str, int], size: int) -> None:
    if writer.batches == 0:
        remedy = f"set batches.rows to at most {left}, or give" if left > 1 else "give"
        out = "".join(f"; {times} {why}" for name, why in LEFT_OUT.items() if (times := counts.get(name)))
        out += "".join(
            f"; {times} sentences stay out: {name.removeprefix(OUT)}"
            for name, times in sorted(counts.items())
            if name.startswith(OUT)
        )
        if views < 2:
            raise BatchesError(
                f"the corpus has {left} training sentences, a batch has {rows} rows: {remedy} more text{out}"
            )
        noun = NOUNS[views]
        raise BatchesError(
            f"the corpus gives {left} training rows = {left // size} {noun}, a batch has {rows} rows = "
            f"{rows // size} {noun}: {remedy} more text{out}"
        )
    if writer.counts["anchors"] == 0 and views == 0:
        raise BatchesError(
            "no training sentence has a right answer in its batch; give documents of several sentences each, or raise "
            "batches.run"
        )


def _scattered(
    store: Store,
    settings: Batches,
    seed: int,
    number: int,
    source: Source,
    counts: dict[str, int],
    drawn: list[pl.DataFrame],
) -> Generator[pl.DataFrame, None, None]:
    """
    Pass one, then each bucket's rows in an order of runs that is drawn for it.

    Args:
        drawn: takes the rows of each question, and where it was put.
    """
    known = source.known(store)
    buckets = -(-_most_rows(source) // settings.bucket_rows)
    folder = Path(tempfile.mkdtemp(prefix="firth-batches-", dir=scratch()))
    try:
        waiting: list[pl.DataFrame] = []
        for shard in sorted(source.sentences):
            entropy = (seed, number, shard)
            draw = np.random.default_rng(entropy)
            runs = _whole(store, source, known, _shard(store, settings.run, source, known, entropy, draw, counts))
            if len(runs):
                waiting.append(_drawn(runs, buckets, draw))
                if "size" in runs.columns:
                    begins = waiting[-1].filter(pl.col("at") == 0)
                    drawn.append(begins.select("bucket", "order", "size"))
            if sum(map(len, waiting)) >= settings.bucket_rows:
                _scatter(waiting, folder)
                waiting = []
        _scatter(waiting, folder)
        for bucket in range(buckets):
            if (folder / str(bucket)).exists():
                yield _gathered(folder / str(bucket)).sort("order", maintain_order=True).drop("order")
    finally:
        shutil.rmtree(folder)


def _most_rows(source: Source) -> int:
    """Rows of an epoch, if none were held out; of questions, whose right answers count twice, about."""
    if source.examples is not None and source.examples.asks:
        parts = (source.sentences, source.pairs, source.negatives or {})
        return sum(piece.rows for pieces in parts for piece in pieces.values())
    paired = source.examples is not None and source.examples.views > 1
    pieces = source.pairs if paired else source.sentences
    return sum(piece.rows for piece in pieces.values()) * (source.examples.size if source.examples else 1)


def _shard(
    store: Store,
    run: int,
    source: Source,
    known: Known,
    entropy: tuple[int, int, int],
    draw: np.random.Generator,
    counts: dict[str, int],
) -> pl.DataFrame:
    """A shard's rows with their runs; the last of `entropy` is its number."""
    shard = entropy[-1]
    sentences = store.read(source.sentences[shard], ["document", "place", "held_out", "group"])
    sentences, out = known.barred(sentences, shard)
    for name, times in out.items():
        counts[name] = counts.get(name, 0) + times
    groups = known.held_out
    tokens = store.read(source.tokens[shard])
    if source.examples is None:
        pairs = store.read(source.pairs[shard], ["anchor", "positive"])
        runs = shard_runs(sentences, tokens, pairs, groups, shard, run, draw, bool(source.ahead))
        counts["repeats_of_held_out"] += int((~sentences["held_out"]).sum()) - len(runs)
        return runs
    pairs = store.read(source.pairs[shard])
    found = None
    if source.negatives:
        found = mined.rows(store, source.negatives[shard], source.sentences, source.tokens, known.kin)
    if source.examples.asks:
        labels = store.read(source.sentences[shard], ["label"])
        sentences = sentences.with_columns(labels["label"])
        whole = source.examples.mined if source.examples.whole else 0
        most = source.examples.most
        rows, dropped = questions.shard_rows(most, sentences, tokens, pairs, groups, entropy, found, whole)
    else:
        others = store.read(source.others[shard]) if source.others else None
        rows, dropped = examples.shard_rows(
            store, source.examples, sentences, tokens, pairs, groups, entropy, known.kin, others, found
        )
    for name, times in dropped.items():
        counts[name] = counts.get(name, 0) + times
    return rows


def _whole(store: Store, source: Source, known: Known, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with their classes' numbers and the vectors of whoever teaches or guides."""
    rows = rows.with_columns(known.classes(rows["group"]))
    given = {name: pieces for name, pieces in (("teacher", source.teacher), ("guide", source.guide)) if pieces}
    return rows.with_columns(
        gathered(store, pieces, "vector", rows["text"]).alias(name) for name, pieces in given.items() if len(rows)
    )


def _drawn(runs: pl.DataFrame, buckets: int, draw: np.random.Generator) -> pl.DataFrame:
    """Each run's bucket, and its order there."""
    count = cast(int, runs["run"].max()) + 1
    order = pl.Series(draw.integers(0, 1 << 62, size=count), dtype=pl.UInt64)
    bucket = pl.Series(draw.integers(0, buckets, size=count), dtype=pl.UInt32)
    return runs.with_columns(order=order.gather(runs["run"]), bucket=bucket.gather(runs["run"])).drop("run")


def _scatter(waiting: list[pl.DataFrame], folder: Path) -> None:
    """Append rows to their buckets' files; of many shards at once, so that files and writes stay few and large."""
    if not waiting:
        return
    for (number,), part in pl.concat(waiting).partition_by("bucket", as_dict=True, include_key=False).items():
        with (folder / str(number)).open("ab") as file:
            part.write_ipc_stream(file, compression="lz4")


def _gathered(path: Path) -> pl.DataFrame:
    """All that was appended to a bucket's file: streams, one behind the other."""
    parts = []
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            parts.append(pl.DataFrame(pa.ipc.open_stream(file).read_all()))
    return pl.concat(parts)


def _pack(rows: pl.DataFrame, size: int, answer: Answer, writer: "_Writer") -> pl.DataFrame:
    """Write all whole batches of some rows; returns the rows that are left."""
    whole, step = len(rows) // size * size, max(1, ANSWERED_ROWS // size) * size
    for start in range(0, whole, step):
        writer.write(answer(rows.slice(start, min(step, whole - start)), size))
    return rows.slice(whole)


def _finish(left: pl.DataFrame, size: int, answer: Answer, writer: "_Writer") -> None:
    """The last batch, filled up, so that all epochs have equally many; left out where it would be the only one."""
    if left.is_empty() or writer.batches == 0:
        return
    batch = answer(left, size)
    writer.write(pl.concat([batch, fillers(batch.columns, size - len(batch))]))


class _Writer:
    """Appends whole batches to one Parquet file whose row groups hold whole batches."""

    def __init__(self, place: tuple[fs.FileSystem | None, str], rows: int) -> None:
        system, path = place
        self._open = lambda schema: pq.ParquetWriter(
            path, schema, filesystem=system, compression="zstd", compression_level=1
        )
        self._file: pq.ParquetWriter | None = None
        self.rows, self.group_batches = rows, max(1, GROUP_ROWS // rows)
        self.batches, self.longest_run = 0, 0
        self.counts = {"anchors": 0, "fillers": 0}
        self._waiting: list[pl.DataFrame] = []

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._group(pl.concat(self._waiting))
        finally:
            if self._file:
                self._file.close()

    def write(self, batches: pl.DataFrame) -> None:
        self.batches += len(batches) // self.rows
        self.counts["anchors"] += int((batches["answers"].list.len() > 0).sum())
        self.counts["fillers"] += int((batches["side"] == FILLER).sum())
        if "document" in batches.columns:
            beside = apart.beside(batches, self.rows)
            self.counts["beside_their_document"] = self.counts.get("beside_their_document", 0) + beside
            self.longest_run = max(self.longest_run, apart.longest(batches, self.rows))
        self._waiting.append(batches)
        size = self.group_batches * self.rows
        rows = pl.concat(self._waiting)
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            self._group(rows.slice(start, size))
        self._waiting = [rows.slice(whole)]

    def _group(self, rows: pl.DataFrame) -> None:
        if rows.is_empty():
            return
        table = rows.to_arrow()
        self._file = self._file or self._open(table.schema)
        self._file.write_table(table, row_group_size=len(rows))
