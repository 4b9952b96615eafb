"""
What the data stages cost: seconds and memory at one size of a corpus and at a multiple, then unchanged, then grown.

    python benchmarks/data_stages.py CORPUS.parquet --document book chapter [--times 4]

The multiple is made by deterministic variation: copy k of a document has another id, and each of its texts begins with
a number of its own, so no text repeats. Memory is the sum of the proportional set sizes (PSS) of this process and all
that it started, less what the same processes hold before the first stage.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psutil

from models.recipe import load
from models.resolving import resolve
from pipeline.cluster import map_shards, processors, session, start
from pipeline.road import Road
from pipeline.store import Store


def tree_megabytes() -> float:
    """Proportional set size of this process and its descendants."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


@contextmanager
def peak_megabytes(every_seconds: float = 0.2) -> Iterator[list[float]]:
    """The largest `tree_megabytes` while the block runs, as the list's only entry."""
    highest, stop = [tree_megabytes()], threading.Event()

    def watch() -> None:
        while not stop.wait(every_seconds):
            highest[0] = max(highest[0], tree_megabytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield highest
    finally:
        stop.set()
        thread.join()


def grown(path: str, columns: list[str], times: int, into: Path) -> Path:
    """The corpus `times` over, as one file a copy; no two texts are the same."""
    folder = into / f"times{times}"
    folder.mkdir()
    rows = pl.read_parquet(path)
    for copy in range(times):
        varied = rows.with_columns(
            pl.format("{} copy {}", pl.col(columns[0]), pl.lit(copy)).alias(columns[0]),
            pl.format("{} {}", pl.int_range(pl.len()) * times + copy, pl.col("text")).alias("text"),
        )
        varied.write_parquet(folder / f"copy{copy}.parquet")
    return folder


def stages(road: Road) -> dict[str, float]:
    """Seconds of each stage from documents to batches."""
    seconds: dict[str, float] = {}

    def timed(name: str, function):
        started = time.perf_counter()
        made = function()
        seconds[name] = time.perf_counter() - started
        return made

    tables = walked(road, timed)
    seconds["batches"] += seconds.pop("merged")
    seconds["sentences made"] = tables["sentences"].rows
    seconds["batches made"] = tables["batches"].rows / road.recipe.batches.rows
    return seconds


def walked(road: Road, timed: Callable[[str, Callable[[], Any]], Any]) -> dict[str, Any]:
    """
    Sentences and batches, at the end of all stages from files to the first epoch.

    Args:
        timed: is given each stage's name and what makes it, and returns what it makes.
    """
    source = timed("read", road.numbered)
    documents = timed("documents", lambda: road.documents(source))
    sentences = timed("sentences", lambda: road.sentences(documents))
    words = timed("vocabulary", lambda: road.vocabulary(sentences))
    tokens = timed("tokens", lambda: road.tokens(sentences, words))
    pairs = timed("pairs", lambda: road.pairs(sentences))
    merged = timed("merged", lambda: road.source(sentences, tokens, pairs))
    return {"sentences": sentences, "batches": timed("batches", lambda: road.batches(merged))}


def idle(_: int) -> int:
    """What a data worker imports, and nothing else."""
    import pipeline.road  # noqa: F401

    time.sleep(1)
    return os.getpid()


def measure(name: str, corpus: Path, columns: list[str], recipe: str, store: Path) -> None:
    road = Road(Store.at(store), resolve(load(recipe, [f"corpus.document={columns}"])), str(corpus))
    with session():
        start()
        map_shards(idle, list(range(2 * processors())))
        before = tree_megabytes()
        with peak_megabytes() as highest:
            first = stages(road)
        again = stages(road)
    data = sum(v for k, v in first.items() if not k.endswith("made"))
    parts = ", ".join(f"{k} {v:.1f}" for k, v in first.items() if not k.endswith("made"))
    size = sum(file.stat().st_size for file in corpus.rglob("*.parquet")) if corpus.is_dir() else corpus.stat().st_size
    print(f"{name}: {size / 1e6:.0f} MB of Parquet, {first['sentences made']:,.0f} sentences")
    print(f"  {data:.1f} s ({parts}); memory {highest[0] - before:.0f} MB over the idle {before:.0f} MB")
    print(f"  unchanged: {sum(v for k, v in again.items() if not k.endswith('made')):.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--document", nargs="+", required=True)
    parser.add_argument("--recipe", default="quick-thoughts")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for times in arguments.times:
            corpus = grown(arguments.corpus, arguments.document, times, Path(folder))
            store = Path(folder) / f"store{times}"
            measure(f"{times} x", corpus, arguments.document, arguments.recipe, store)


if __name__ == "__main__":
    main()
