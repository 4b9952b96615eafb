"""
Large corpora for measurements, made from a small one of real text by deterministic variation.

Copy k of a document has another id. Each of its words is replaced, with probability 1/8 unless said otherwise, by
another word of the corpus that is drawn from the number of the copy, so that hardly a sentence repeats another one, and
vocabulary and lengths stay those of real text.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

CHANGED = 1 / 8  # share of the words that a copy has others for


class Text:
    """Documents of running text: ids, and for each the words of its paragraphs."""

    def __init__(
        self, path: str, columns: list[str], column: str = "text", changed: float = CHANGED, most: float = float("inf")
    ) -> None:
        """Read the first `most` megabytes; copies have other words for a share `changed` of theirs."""
        rows = pl.read_parquet(path, columns=[*columns, column]).filter(pl.col(column).str.len_bytes() > 0)
        rows = rows.filter(pl.col(column).str.len_bytes().cast(pl.Int64).cum_sum() <= most * 1e6)
        named = rows.select(pl.concat_str(pl.col(columns).cast(pl.String), separator="/").alias("id"), column)
        paragraphs = [str(text).split() for text in named[column]]
        self.ids = named["id"].to_list()
        self.words = np.array([word for words in paragraphs for word in words], dtype=object)
        self.ends, self.changed = np.cumsum([0, *map(len, paragraphs)]), changed

    def copies(self, most: int, first: int = 0) -> Iterator[dict[str, str]]:
        """Rows of copy after copy, copy 0 unchanged, until they hold `most` bytes of text."""
        done, copy = 0, first
        while True:
            words = self._varied(copy) if copy else self.words
            for id, (start, stop) in zip(self.ids, pairwise(self.ends), strict=True):
                text = " ".join(words[start:stop])
                yield {"id": f"{id} {copy}", "text": text}
                done += len(text.encode())
                if done >= most:
                    return
            copy += 1

    def _varied(self, copy: int) -> np.ndarray:
        draw = np.random.default_rng(copy)
        changed = np.flatnonzero(draw.random(len(self.words)) < self.changed)
        words = self.words.copy()
        words[changed] = self.words[draw.integers(0, len(self.words), size=len(changed))]
        return words


def write_lines(text: Text, path: Path, megabytes: float, first: int = 0) -> Path:
    """One file of JSON lines; appended to what is there."""
    with path.open("a", encoding="utf-8") as file:
        for row in text.copies(int(megabytes * 1e6), first):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def write_files(text: Text, folder: Path, megabytes: float, count: int, first: int = 0) -> Path:
    """A folder of Parquet files of equal size, each of documents of its own."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rows = list(text.copies(int(megabytes * 1e6 / count), first + 1000 * number))
        pl.DataFrame(rows).write_parquet(folder / f"part{first}-{number:03d}.parquet", row_group_size=5_000)
    return folder
