"""
Every table that travels between stages: its columns, their types and units, and the key it is sorted by.

A piece is one stage's Parquet file for one shard. Pieces are written sorted, because polars' unordered operations give
other bytes from run to run, and then digests mean nothing. `tokens` and `sentences` are row-aligned within a shard.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl


class TableError(ValueError):
    """A frame that does not keep its table's contract."""


@dataclass(frozen=True)
class Column:
    """A column's type, and what stands in it."""

    type: pl.DataType
    about: str
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """A table's contract; `sort` is empty where the order itself is the content."""

    name: str
    columns: dict[str, Column]
    sort: tuple[str, ...] = ()

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """
        The same frame with the declared columns, in the declared order, sorted.

        Raises:
            TableError: a column is missing, or has another type.
        """
        wanted = [name for name, column in self.columns.items() if name in frame.columns or not column.optional]
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise TableError(f"table {self.name}: no column {', '.join(missing)}; got {', '.join(frame.columns)}")
        for name in wanted:
            got, right = frame.schema[name], self.columns[name].type
            if got != right:
                raise TableError(f"table {self.name}: column {name} is {got}, should be {right}")
        frame = frame.select(wanted)
        return frame.sort(self.sort, maintain_order=True) if self.sort else frame

    def empty(self) -> pl.DataFrame:
        """No rows, the columns that are always there."""
        return pl.DataFrame(schema={name: column.type for name, column in self.columns.items() if not column.optional})


def schema(table: Table, names: Iterable[str]) -> dict[str, pl.DataType]:
    """Types of some of a table's columns."""
    return {name: table.columns[name].type for name in names}


U8, U32, U64 = pl.UInt8(), pl.UInt32(), pl.UInt64()
STRING, FLAG, IDS = pl.String(), pl.Boolean(), pl.List(pl.Int32())

DOCUMENTS = Table(
    "documents",
    {
        "document": Column(U64, "digest of `id`"),
        "place": Column(U32, "number of this record in its document, from 0, quarantined ones counted"),
        "source": Column(STRING, "file it was read from, relative to the corpus"),
        "row": Column(U64, "line or row of the file, from 1"),
        "id": Column(STRING, "what tells documents apart"),
        "title": Column(STRING, "heading, name of the function, ...; empty: none"),
        "language": Column(STRING, "ISO 639 code"),
        "held_out": Column(FLAG, "kept for evaluation, never trained on"),
        "label": Column(U8, "of an answer: 1 right, 0 wrong; null: a question", optional=True),
        "text": Column(STRING, "one record: a paragraph, a line, a value of the text column"),
    },
    sort=("document", "place"),
)

QUARANTINE = Table(
    "quarantine",
    {
        "source": Column(STRING, "file, relative to the corpus"),
        "row": Column(U64, "line or row of the file, from 1"),
        "reason": Column(STRING, "why it cannot be used, and the remedy"),
        "excerpt": Column(STRING, "its first characters, printable"),
    },
    sort=("source", "row", "reason"),
)

SENTENCES = Table(
    "sentences",
    {
        "document": Column(U64, "as in documents"),
        "place": Column(U32, "number of the sentence in its document; a gap where something was quarantined"),
        "record": Column(U32, "`place` of the record in documents that holds it"),
        "held_out": Column(FLAG, "as in documents"),
        "language": Column(STRING, "ISO 639 code"),
        "group": Column(U64, "digest of the normalised text: texts of a group are never each other's negatives"),
        "label": Column(U8, "as in documents", optional=True),
        "text": Column(STRING, "the sentence"),
    },
    sort=("document", "place"),
)

TOKENS = Table("tokens", {"tokens": Column(IDS, "vocabulary numbers, row-aligned with sentences")})

PAIRS = Table(
    "pairs",
    {
        "anchor": Column(U32, "row in the shard's sentences"),
        "positive": Column(U32, "row in the shard's sentences"),
        "distance": Column(pl.Int8(), "sentences from anchor to positive; negative: before it"),
        "negative": Column(U32, "row in the shard's sentences: the anchor's own hard negative", optional=True),
        "wrong": Column(pl.List(U32), "rows in the shard's sentences: the anchor's wrong answers", optional=True),
        "members": Column(pl.List(U32), "rows in the shard's sentences: all texts of the group", optional=True),
    },
    sort=("anchor", "distance"),
)

NEGATIVES = Table(
    "negatives",
    {
        "anchor": Column(U32, "row in the shard's sentences"),
        "candidate": Column(U64, "text, as in batches"),
        "score": Column(pl.Float32(), "the miner's, or the judge's"),
        "rank": Column(U32, "among the texts that groups and score rules leave, from 0; drawn ones behind all others"),
        "why": Column(STRING, "the miner; `random`: drawn because it found too few"),
    },
    sort=("anchor", "rank"),
)

NEAREST = Table(
    "nearest",
    {
        "anchor": Column(U32, "row in the shard's sentences"),
        "right": Column(pl.Float32(), "score of its right answer, of several the lowest; NaN: no scores"),
        "text": Column(pl.List(U64), "texts that the miner found, nearest first"),
        "group": Column(pl.List(U64), "their groups, each once"),
        "score": Column(pl.List(pl.Float32()), "the miner's"),
    },
    sort=("anchor",),
)

RARITY = Table(
    "rarity",
    {
        "word": Column(U32, "number that the word is hashed to"),
        "texts": Column(U32, "how many of the counted texts have it"),
    },
    sort=("word",),
)

CENTRES = Table(
    "centres", {"vector": Column(pl.List(pl.Float32()), "mean of the vectors of a cell, in the order they were found")}
)

AUGMENTED = Table(
    "augmented",
    {
        "text": Column(U64, "as in batches"),
        "view": Column(U8, "which template or augmentation"),
        "tokens": Column(IDS, "vocabulary numbers"),
        "split": Column(U32, "source length of a packed row", optional=True),
    },
    sort=("text", "view"),
)

ANCHOR, CANDIDATE, BOTH, FILLER = 1, 2, 0, 3

BATCHES = Table(
    "batches",
    {
        "text": Column(U64, "shard number in the upper 32 bits, row in its sentences in the lower"),
        "tokens": Column(IDS, "vocabulary numbers"),
        "side": Column(U8, "0 anchor and candidate, 1 anchor, 2 candidate, 3 filler (in no pool and no count)"),
        "group": Column(U64, "texts that must not be each other's negatives"),
        "answers": Column(pl.List(pl.UInt16()), "row numbers of the right answers in this batch"),
        "view": Column(U8, "which of its example's rows this is, from 0", optional=True),
        "hard": Column(pl.List(pl.UInt16()), "row numbers of this anchor's own hard negatives", optional=True),
        "document": Column(U64, "as in sentences", optional=True),
        "place": Column(U32, "as in sentences", optional=True),
        "target": Column(IDS, "clean vocabulary numbers of the row's answer; fillers: []", optional=True),
        "teacher": Column(pl.List(pl.Float32()), "a teacher's vector of the row's clean text alone", optional=True),
        "guide": Column(pl.List(pl.Float32()), "a guide's vector, likewise", optional=True),
    },
)

CONTRASTS = Table(
    "contrasts",
    {
        "batch": Column(U32, "number in its epoch, from 0"),
        "term": Column(U8, "number in the recipe, from 0"),
        "stage": Column(STRING, "what has left candidates out: nothing, groups, or groups and guide"),
        "anchors": Column(U32, "of the term in this batch"),
        "wrong": Column(U64, "pairs of an anchor and a wrong candidate that it is told apart from"),
        "likely": Column(U64, "those that the guide scores as high as the right answer, or higher"),
    },
    sort=("batch", "term"),
)

VECTORS = Table(
    "vectors",
    {
        "row": Column(U32, "row in the shard's sentences"),
        "vector": Column(pl.List(pl.Float32()), "the readout"),
    },
    sort=("row",),
)

KIN = Table(
    "kin",
    {
        "document": Column(U64, "a group of similar texts that shares a text with another one, as in sentences"),
        "group": Column(U64, "the number that all these have in batches"),
    },
    sort=("document",),
)

NUMBERS = Table("numbers", {"document": Column(U64, "of a shard's documents, each once")}, sort=("document",))

TEXTS = Table(
    "texts",
    {
        "group": Column(U64, "as in sentences"),
        "document": Column(U64, "one of a shard in which that text stands, each once"),
    },
    sort=("group", "document"),
)

ALIKE = Table(
    "alike",
    {
        "one": Column(U64, "the lesser group of two whose texts are near repeats"),
        "other": Column(U64, "the greater one"),
        "share": Column(pl.Float32(), "pieces of characters that both have, of those that either has, 0 to 1"),
    },
    sort=("one", "other"),
)

ANSWERED = Table(
    "answered",
    {
        "one": Column(U64, "the lesser group of two texts of a shard of which one is a right answer of the other"),
        "other": Column(U64, "the greater one"),
    },
    sort=("one", "other"),
)

JOINED = Table(
    "joined",
    {
        "group": Column(U64, "a text's group, as in sentences; where documents are groups, a document's number in kin"),
        "joined": Column(U64, "the number that all of its class have in batches: the least of their groups"),
    },
    sort=("group",),
)

LEFT_OUT = Table(
    "left_out",
    {
        "group": Column(U64, "group of texts that are never trained on"),
        "reason": Column(STRING, "why; a text's first reason alone"),
        "first": Column(U64, "the text of that group that stays, as in batches; null: none", optional=True),
    },
    sort=("group",),
)

OCCURRENCES = Table(
    "occurrences",
    {
        "group": Column(U64, "as in sentences, each once in a shard"),
        "documents": Column(U32, "documents of the shard in which it stands"),
        "texts": Column(U32, "its training sentences in the shard"),
        "row": Column(U32, "row in the shard's sentences of the first of these; null: all are held out"),
    },
    sort=("group",),
)

HELD_OUT = Table("held_out", {"group": Column(U64, "groups of held-out texts, each once")}, sort=("group",))

SCORES = Table(
    "scores",
    {
        "document": Column(U64, "of the query"),
        "place": Column(U32, "of the query"),
        "query": Column(U64, "group of the query"),
        "target": Column(U64, "group of the right answer"),
        "rank_model": Column(U32, "of the right answer, from 1, ties against it"),
        "rank_bm25": Column(U32, "the same by BM25"),
    },
    sort=("document", "place"),
)

SIMILARITIES = Table(
    "similarities",
    {
        "evaluation": Column(STRING, "its name: `stsb-dev` of figure sts.stsb-dev.spearman"),
        "source": Column(STRING, "file of rated pairs, relative to the evaluation's path"),
        "row": Column(U64, "line or row of the file, from 1"),
        "left": Column(U64, "group of the text"),
        "right": Column(U64, "group of the text"),
        "gold": Column(pl.Float64(), "people's score, on the file's own scale"),
        "cosine": Column(pl.Float64(), "of the model's vectors, -1 to 1"),
        "overlap": Column(pl.Float64(), "cosine of the word counts, 0 to 1"),
        "longer": Column(U32, "words by which one text is longer than the other"),
    },
    sort=("evaluation", "source", "row"),
)

PREDICTIONS = Table(
    "predictions",
    {
        "evaluation": Column(STRING, "its name: `mr` of figure probe.mr.accuracy"),
        "source": Column(STRING, "file of labelled texts, relative to the evaluation's path"),
        "row": Column(U64, "line or row of the file, from 1"),
        "text": Column(U64, "group of the text"),
        "label": Column(STRING, "its class"),
        "fold": Column(U32, "the fold that was tried when it was, from 0; 0 with a test part"),
        "model": Column(STRING, "class by the probe on the model's vectors"),
        "bag": Column(STRING, "class by the probe on counts of words"),
        "words": Column(STRING, "class by the probe on mean word vectors; null: none were given"),
        "most_common": Column(STRING, "the class that most texts have, of those trained on where there is a test part"),
    },
    sort=("evaluation", "source", "row"),
)

RANKINGS = Table(
    "rankings",
    {
        "evaluation": Column(STRING, "its name: `wikiqa` of figure ranking.wikiqa.map"),
        "source": Column(STRING, "file of answers, relative to the evaluation's path; empty: the held-out documents"),
        "row": Column(U64, "line or row of the file, from 1; among the held-out texts, from 0"),
        "question": Column(U32, "number of the question in the evaluation, from 0"),
        "query": Column(U64, "group of the question"),
        "target": Column(U64, "group of the answer"),
        "label": Column(U8, "1 right, 0 wrong"),
        "model": Column(pl.Float64(), "the model's score; higher is better"),
        "bm25": Column(pl.Float64(), "that of BM25"),
        "vectors": Column(pl.Float64(), "cosine of the mean word vectors; null: none were given"),
    },
    sort=("evaluation", "source", "row"),
)
