"""Small corpora that tests make up: as files for the whole road, or as pieces for a single stage."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from models.recipe import load
from pipeline.batches import Source, held_out
from pipeline.corpus import group
from pipeline.pairs import neighbours
from pipeline.road import Road
from pipeline.store import Piece, Store
from pipeline.tables import PAIRS, SENTENCES, TOKENS

TREES = ["oak", "elm", "ash", "yew", "fir", "pine", "alder", "birch", "rowan", "hazel", "larch", "maple", "cedar"]


def story(number: int, sentences: int) -> list[str]:
    """Sentences of a few trees each, drawn from the number."""
    draw = random.Random(number)
    return [" ".join(draw.choices(TREES, k=draw.randint(3, 6))).capitalize() + "." for _ in range(sentences)]


def write(folder: Path, documents: Mapping[str, Sequence[str]]) -> Path:
    """A text file for each document, one paragraph of sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, sentences in documents.items():
        (folder / f"{name}.txt").write_text(" ".join(sentences) + "\n", encoding="utf-8")
    return folder


def stories(count: int, sentences: int = 5) -> dict[str, list[str]]:
    """So many documents, by name."""
    return {f"story{number:03d}": story(number, sentences) for number in range(count)}


def road(store: Path, corpus: Path, *overrides: str) -> Road:
    """The road of Quick-Thoughts over a folder, with batches of 8 rows."""
    settings = ["corpus.held_out=0.2", "batches.rows=8", "batches.run=8", "tokenizer.size=20", *overrides]
    return Road(Store.at(store), load("quick-thoughts", settings), str(corpus))


@dataclass(frozen=True)
class Document:
    """Texts of a document that stands in a shard; a text that is None was quarantined and leaves a gap."""

    texts: Sequence[str | None]
    held_out: bool = False


def sentences(documents: Sequence[Document], first: int = 0) -> pl.DataFrame:
    """Table `sentences`: documents numbered from `first`."""
    rows = [
        (first + number, place, place, document.held_out, "en", 0, text)
        for number, document in enumerate(documents)
        for place, text in enumerate(document.texts)
        if text is not None
    ]
    schema = SENTENCES.empty().schema
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return SENTENCES.check(frame.with_columns(group=group(frame["text"])))


def source(store: Store, shards: Mapping[int, Sequence[Document]], context_size: int = 1) -> Source:
    """Pieces of sentences, tokens (each text's length) and pairs for some shards, as the road would make them."""
    made: dict[str, dict[int, Piece]] = {"sentences": {}, "tokens": {}, "pairs": {}}
    for number, documents in shards.items():
        frame = sentences(documents, first=1000 * number)
        lengths = frame.select(tokens=pl.concat_list(pl.col("text").str.len_chars().cast(pl.Int32)))
        pairs = neighbours(frame, context_size=context_size)
        for table, content in ((SENTENCES, frame), (TOKENS, lengths), (PAIRS, pairs)):
            made[table.name][number] = store.write(table, f"shard{number}", content, started=time.time())
    return Source(made["sentences"], made["tokens"], made["pairs"], held_out(store, made["sentences"]))
