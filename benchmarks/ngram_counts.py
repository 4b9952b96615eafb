"""
What counting n-grams costs: seconds and memory of the stage that counts and of the merge, from tokens that are there.

    python benchmarks/ngram_counts.py CORPUS.parquet --document book chapter [--orders 3 5]

Memory is as in data_stages.py: what this process and all that it started hold, and how much of that is above what the
same processes hold before.
"""

import argparse
import tempfile
import time
from pathlib import Path

from data_stages import idle, peak_megabytes, tree_megabytes

from models.ngram import Ngram
from models.recipe import load
from models.resolving import resolve
from pipeline import batches, ngrams
from pipeline.cluster import map_shards, processors, session, start
from pipeline.road import Road
from pipeline.store import Store


def prepared(road: Road) -> tuple[batches.Source, int]:
    """All that comes before counting, and the words of the vocabulary."""
    sentences = road.sentences(road.documents(road.numbered()))
    words = road.vocabulary(sentences)
    tokens = road.tokens(sentences, words)
    held_out = batches.held_out(road.store, sentences.pieces)
    print(f"{sentences.rows:,} sentences, {tokens.count('tokens'):,} tokens, {len(tokens.pieces)} shards", flush=True)
    return batches.Source(sentences.pieces, tokens.pieces, {}, held_out), words.size


def measure(road: Road, source: batches.Source, words: int, order: int, file: Path) -> None:
    before = tree_megabytes()
    started = time.perf_counter()
    with peak_megabytes() as highest:
        made = ngrams.counts(road.store, source, order, words)
        counted = time.perf_counter()
        rows = ngrams.merge(road.store, made, order, road.recipe.batches.bucket_rows, file)
    ended = time.perf_counter()
    size = file.stat().st_size / 1e6
    print(f"order {order}: {made.count('predicted'):,} predicted, {rows:,} different n-grams, {size:.0f} MB")
    print(f"  {ended - started:.1f} s (count {counted - started:.1f}, merge {ended - counted:.1f})")
    print(f"  memory {highest[0]:.0f} MB, {highest[0] - before:.0f} over the idle {before:.0f}")
    started, before = time.perf_counter(), tree_megabytes()
    with peak_megabytes() as highest:
        Ngram(words, order=order).read(file)
    print(f"  read as a model: {time.perf_counter() - started:.1f} s, {highest[0] - before:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--document", nargs="+", required=True)
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, session():
        start()
        recipe = resolve(load("ngram", [f"corpus.document={arguments.document}"]))
        road = Road(Store.at(Path(folder) / "store"), recipe, arguments.corpus)
        source, words = prepared(road)
        map_shards(idle, list(range(2 * processors())))
        for order in arguments.orders:
            measure(road, source, words, order, Path(folder) / f"{order}.parquet")


if __name__ == "__main__":
    main()
