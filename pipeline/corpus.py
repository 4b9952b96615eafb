"""
The first two stages: records to documents, and documents to sentences.
"""

from collections.abc import Collection
from itertools import chain

import polars as pl
import sentencex
import xxhash

from models.recipe import Corpus
from pipeline import tables

DOCUMENTS_VERSION = 1
SENTENCES_VERSION = 1
HELD_OUT_SEED = 1  # another digest of the id than `document`, so that the two are independent


def documents(records: pl.DataFrame, corpus: Corpus, forgotten: Collection[int] = ()) -> pl.DataFrame:
    """
    Records with the number of their document and its flag; those of forgotten documents are left out.

    Args:
        records: as `pipeline.sources.read` returns them.
        corpus: `held_out` is the share of documents that is never trained on.
        forgotten: digests of ids of documents that must be in no table.
    """
    ids = records["id"].unique(maintain_order=True)
    if forgotten:
        ids = ids.filter([document_digest(id) not in forgotten for id in ids])
    known = pl.DataFrame(
        {
            "id": ids,
            "document": [document_digest(id) for id in ids],
            "held_out": [held_out(id, corpus.held_out, corpus.split) for id in ids],
        },
        schema={"id": pl.String(), "document": pl.UInt64(), "held_out": pl.Boolean()},
    )
    return tables.DOCUMENTS.check(records.join(known, on="id", how="inner", maintain_order="left"))


def sentences(documents: pl.DataFrame, whole: bool = False) -> pl.DataFrame:
    """
    Sentences of each record, white space collapsed.

    A piece without letter or digit is dropped and leaves a gap in `place`; so does a record that is missing from its
    document. Only sentences whose places follow each other are neighbours.

    Args:
        documents: table `documents`.
        whole: each record is one sentence and keeps its place, as the texts of labelled examples do.
    """
    if whole:
        more = [name for name in ("label",) if name in documents.columns]
        records = documents.select("document", "place", "held_out", "language", "text", *more, record="place")
        texts = _collapsed(records["text"])
        return tables.SENTENCES.check(records.with_columns(texts, group=group(texts)))
    records = documents.select("document", "held_out", "language", record="place", lost=_records_lost_before())
    cut = list(map(sentencex.segment, documents["language"], documents["text"]))
    lengths = pl.Series([len(texts) for texts in cut], dtype=pl.UInt32())
    texts = _collapsed(pl.Series("text", list(chain.from_iterable(cut)), dtype=pl.String()))
    pieces = records[_repeated(lengths)].with_columns(texts).filter(pl.col("text") != "")
    place = (pl.int_range(pl.len()).over("document") + pl.col("lost")).cast(pl.UInt32())
    pieces = pieces.with_columns(place=place).filter(pl.col("text").str.contains(r"[\p{L}\p{N}]"))
    return tables.SENTENCES.check(pieces.with_columns(group=group(pieces["text"])))


def group(texts: pl.Series) -> pl.Series:
    """
    Digest of each text's normal form; texts of equal groups say the same, so they are never each other's negatives.

    Normal form: Unicode NFKC, lower case, white space collapsed, punctuation at both ends removed.
    """
    return pl.Series("group", [xxhash.xxh3_64_intdigest(text.encode()) for text in normal(texts)], dtype=pl.UInt64())


def normal(texts: pl.Series) -> pl.Series:
    """Normal form of texts: NFKC, lower case, white space collapsed, punctuation at both ends removed."""
    form = _collapsed(texts.str.normalize("NFKC").str.to_lowercase())
    return form.str.replace_all(r"^[\p{P}\s]+|[\p{P}\s]+$", "")


def document_digest(id: str) -> int:
    """A document's number: 64 bits of the digest of its id."""
    return xxhash.xxh3_64_intdigest(id.encode())


def held_out(id: str, share: float, split: int = 0) -> bool:
    """Whether a document is kept for evaluation: decided by its id alone, so that growth changes no earlier choice."""
    return xxhash.xxh3_64_intdigest(id.encode(), seed=HELD_OUT_SEED + split) < share * 2.0**64


def _records_lost_before() -> pl.Expr:
    """Records missing from the document before this one: quarantined ones."""
    return pl.col("place").cast(pl.Int64()) - pl.int_range(pl.len()).over("document")


def _collapsed(texts: pl.Series) -> pl.Series:
    """Each run of white space as one space; single spaces do not match, which is six times faster."""
    return texts.str.replace_all(r"\s{2,}|[^\S ]", " ").str.strip_chars()


def _repeated(lengths: pl.Series) -> pl.Series:
    """Each row's number, as often as its length says."""
    return pl.int_range(len(lengths), eager=True).repeat_by(lengths).explode(empty_as_null=False)
