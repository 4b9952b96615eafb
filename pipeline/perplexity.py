"""
Perplexity: texts to predict, and what a model's scores of their words come to.

It also tells which words a vocabulary knows, which evaluations of single words ask.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from models.tokens_scored import TokenScores
from pipeline import files, table_files
from pipeline.shard import SourceError
from pipeline.vocabulary import unknown

MUCH = 0.5  # share of unknown words above which figures say little


@dataclass
class Found:
    """Figures and counts by name, and what to beware of."""

    values: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def figures(scored: TokenScores, ids: list[list[int]], lacking: int, word_counts: np.ndarray | None) -> Found:
    """
    Perplexity, exp of the mean of -log p over predicted tokens, of which each text's end is one.

    `normalised` is of probabilities that sum to 1; `as_trained` takes log Z to be what the model was trained with;
    `log_z_mean` and `log_z_spread` (standard deviation) say how far off that is, in nats; `unknown_share` is of words
    that the vocabulary lacks, 0 to 1; `unigram.normalised` is the perplexity of (N(w) + 1) / (N + V'), training counts
    of single words, which no model that reads what is before a word should exceed.

    Args:
        scored, ids: what a model says of texts, and these as the vocabulary numbers that it was asked of.
        lacking: the number of what the vocabulary lacks.
        word_counts: how often each word was predicted in training, the end symbol last; None: no such baseline.
    Returns:
        A perplexity that is infinite is left out, with a note.
    """
    word_N = np.array([word for text in ids for word in text], dtype=np.int64)
    share = float((word_N == lacking).mean()) if len(word_N) else 0.0
    found = Found(counts={"tokens": len(scored.score_N), "unseen": int(np.isneginf(scored.log_p()).sum())})
    for name, log_N in (("normalised", scored.log_p()), ("as_trained", scored.score_N)):
        if np.isfinite(log_N).all():
            found.values[name] = float(np.exp(-log_N.mean()))
    if found.counts["unseen"]:
        found.notes.append(
            f"the perplexity is infinite: {found.counts['unseen']:,} of {found.counts['tokens']:,} tokens never "
            "followed their context in training, so their p is 0; use another encoder.smoothing"
        )
    found.values |= {"log_z_mean": float(scored.log_z_N.mean()), "log_z_spread": float(scored.log_z_N.std())}
    found.values["unknown_share"] = share
    if word_counts is not None:
        end_T = np.full(len(ids), len(word_counts) - 1)
        p_V = (word_counts + 1) / (word_counts.sum() + len(word_counts))
        found.values["unigram.normalised"] = float(np.exp(-np.log(p_V[np.concatenate([word_N, end_T])]).mean()))
    if share > MUCH:
        found.notes.append(f"{100 * share:.0f} % of the words are unknown to the vocabulary, and easily told")
    return found


def known_pairs(tokenizer: Tokenizer, pairs: pl.DataFrame) -> list[bool]:
    """Whether a vocabulary has every part of both words of a pair."""
    lacking, asked = unknown(tokenizer), dict.fromkeys([*pairs["left"], *pairs["right"]])
    entries = tokenizer.encode_batch_fast(list(asked), add_special_tokens=False)
    known = {word: bool(entry.ids) and lacking not in entry.ids for word, entry in zip(asked, entries, strict=True)}
    return [known[left] and known[right] for left, right in zip(pairs["left"], pairs["right"], strict=True)]


def read(path: str, column: str) -> list[str]:
    """
    Texts of text files, a line each, blank ones passed over; where there are none, of a table's column.

    Raises:
        SourceError: no file, one that cannot be read, or no text in it.
    """
    plain = _plain(path)
    if plain:
        texts = [line for file in plain for line in _lines(file)]
    else:
        texts = [row.text(column) for row in table_files.rows(path, table_files.Columns((column,), "text"))]
    if not texts:
        raise SourceError(f"{path}: no text; give a file with a text a line, or a table with a column {column}")
    return texts


def digests(path: str) -> list[str]:
    """Digests of the files' bytes; none for no path."""
    if not path:
        return []
    plain = _plain(path)
    if not plain:
        return [table_files.digest(path)]
    return [f"{file.relative} {hashlib.sha256(files.content(file.uri)).hexdigest()}" for file in plain]


def _plain(path: str) -> list[files.File]:
    _, found = files.listing(path)
    plain = [file for file in found if file.kind == "text"]
    tables = [file for file in found if file.kind in table_files.KINDS]
    if plain and tables:
        raise SourceError(
            f"{path}: text, as {plain[0].relative}, beside tables, as {tables[0].relative}; give files of one kind, as "
            "with a glob"
        )
    if refused := [file for file in plain if file.refused]:
        raise SourceError(f"{refused[0].relative}: {refused[0].refused}")
    return plain


def _lines(file: files.File) -> list[str]:
    data = files.unpack(file.uri, files.content(file.uri))
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{file.relative}, line {line}: not UTF-8; convert the file, as with iconv -t UTF-8"
        ) from None
    return [" ".join(line.split()) for line in lines if not line.isspace() and line]
