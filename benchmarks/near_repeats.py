"""
Near repeats among a million sentences, and beside two libraries on fewer; recall and precision against exact Jaccard.

    python benchmarks/near_repeats.py TEXT.parquet --document book chapter [--sentences 1000000 --few 100000]

Text is made by variation (see varied.py), one word in 40 replaced, so that near repeats are many. All ways look
for texts of which .8 of the runs of five characters are the same, with bands of equal count and width, and each runs in
a process of its own: `ours` is the stage's work on a store, sketches of shards by two Ray workers, candidates, and each
candidate counted; the libraries, `rensa` and `datasketch`, sketch and look up, by one process, and take what a band
holds to be alike. Memory is the largest sum of the proportional set sizes of the process and all that it started, less
what these held before. The truth is the share of runs that each of some texts has in common with every other one,
counted by a product of sparse matrices.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from data_stages import idle, peak_megabytes, tree_megabytes
from scipy import sparse
from varied import Text, write_lines

from models.recipe import load
from models.resolving import resolve
from pipeline import near
from pipeline.cluster import map_shards, processors, session, start
from pipeline.corpus import normal
from pipeline.manifest import Manifest
from pipeline.road import Road
from pipeline.store import Store

SIZE, THRESHOLD = 5, 0.8
CHANGED = 1 / 40  # share of words
SENTENCE, REPEATED, BASE = 145, 2, 1 / 4  # bytes of one; text for one that no other equals; share that is no copy
WAYS = ("ours", "rensa", "datasketch")
ASKED = 2_000  # texts whose near repeats are counted
BLOCK = 50_000  # texts that they are compared with at once


def road_of(folder: Path) -> Road:
    """The corpus of a folder."""
    return Road(Store.at(str(folder / "store")), resolve(load("quick-thoughts", [])), str(folder / "rows.jsonl"))


def sentences_of(folder: Path) -> tuple[Road, Manifest]:
    """Its sentences; made where they are not there."""
    road = road_of(folder)
    return road, road.sentences(road.documents(road.numbered()))


def texts_of(folder: Path) -> pl.DataFrame:
    """Groups and texts of a corpus, each text once."""
    road, made = sentences_of(folder)
    rows = pl.concat(road.store.read(piece, ["group", "text"]) for piece in made.pieces.values())
    return rows.unique("group", keep="first", maintain_order=True)


def ours(folder: Path) -> tuple[pl.DataFrame, dict[str, float]]:
    """Table `alike` of a store that has no sketches yet."""
    with session():
        start()
        road, made = sentences_of(folder)
        map_shards(idle, list(range(2 * processors())))
        before = tree_megabytes()
        with peak_megabytes() as highest:
            began = time.perf_counter()
            found = near.found(road.store, made, SIZE, THRESHOLD)
            seconds = time.perf_counter() - began
        return road.store.read(found).select("one", "other"), {"seconds": seconds, "peak": highest[0] - before}


def library(folder: Path, way: str) -> tuple[pl.DataFrame, dict[str, float]]:
    """What a library holds to be alike; its runs of characters are cut before the clock starts."""
    rows = texts_of(folder)
    forms = normal(rows["text"]).to_list()
    parts = [[form[at : at + SIZE] for at in range(max(1, len(form) - SIZE + 1))] for form in forms]
    count, width = near.bands(THRESHOLD)
    look = {"rensa": by_rensa, "datasketch": by_datasketch}[way]
    before = tree_megabytes()
    with peak_megabytes() as highest:
        began = time.perf_counter()
        found = look(parts, count, width)
        seconds = time.perf_counter() - began
    groups = rows["group"].to_numpy()
    pairs = np.array([(one, other) for one, others in enumerate(found) for other in others if other > one])
    one, other = groups[pairs.reshape(-1, 2)].T
    frame = pl.DataFrame({"one": np.minimum(one, other), "other": np.maximum(one, other)})
    return frame, {"seconds": seconds, "peak": highest[0] - before}


def by_rensa(parts: list[list[str]], count: int, width: int) -> list[list[int]]:
    """For each text those that share a band, itself included."""
    from rensa import RMinHash, RMinHashLSH

    made = RMinHash.from_token_sets(parts, count * width, 1)
    index = RMinHashLSH(THRESHOLD, count * width, count)
    index.insert_pairs(list(enumerate(made)))
    return index.query_all(made)


def by_datasketch(parts: list[list[str]], count: int, width: int) -> list[list[int]]:
    """The same."""
    from datasketch import MinHash, MinHashLSH

    made = list(MinHash.generator([[part.encode() for part in text] for text in parts], num_perm=count * width))
    index = MinHashLSH(num_perm=count * width, params=(count, width))
    with index.insertion_session() as inserting:
        for number, one in enumerate(made):
            inserting.insert(number, one, check_duplication=False)
    return [index.query(one) for one in made]


def truth(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Some texts, drawn by chance, and all pairs that are alike and of which one is among them: asked, found."""
    rows = rows.sample(len(rows), shuffle=True, seed=0)
    held, first_N = near._sets(rows["text"], SIZE)
    known, column = np.unique(held, return_inverse=True)
    whole = sparse.csr_matrix((np.ones(len(held), np.int32), column, first_N), shape=(len(rows), len(known)))
    count_N, asked = np.diff(first_N), whole[:ASKED]
    groups, found = rows["group"].to_numpy(), []
    for begin, end in pairwise([*range(0, len(rows), BLOCK), len(rows)]):
        both = (asked @ whole[begin:end].T).tocoo()
        one, other = both.row, both.col + begin
        near_P = (both.data >= THRESHOLD * (count_N[one] + count_N[other] - both.data)) & (one != other)
        found.append(pl.DataFrame({"asked": groups[one[near_P]], "found": groups[other[near_P]]}))
    return pl.concat(found), pl.Series(groups[:ASKED])


def told(found: pl.DataFrame, right: pl.DataFrame, asked: pl.Series) -> dict[str, float]:
    """Share of the right pairs and of the texts that have one that are found; and of what is found, the right."""
    both = pl.concat([found, found.select(one="other", other="one")]).rename({"one": "asked", "other": "found"})
    both = both.filter(pl.col("asked").is_in(asked.implode())).unique()
    hits = both.join(right, on=["asked", "found"], how="semi")
    texts = hits["asked"].n_unique() / max(1, right["asked"].n_unique())
    return {"recall": len(hits) / max(1, len(right)), "texts": texts, "precision": len(hits) / max(1, len(both))}


def measured(folder: Path, ways: list[str], rows: pl.DataFrame) -> None:
    """A line a way."""
    right, asked = truth(rows)
    for way in ways:
        command = [sys.executable, __file__, str(folder), "--way", way]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures = json.loads((folder / f"{way}.json").read_text())
        figures |= told(pl.read_parquet(folder / f"{way}.parquet"), right, asked)
        shares = " | ".join(f"{figures[name]:.4f}" for name in ("recall", "texts", "precision"))
        print(
            f"| {way} | {len(rows):,} | {figures['seconds']:.1f} | {figures['peak']:,.0f} | {figures['pairs']:,.0f} "
            f"| {shares} |",
            flush=True,
        )


def made(arguments: argparse.Namespace, folder: Path, most: int) -> pl.DataFrame:
    """A corpus of about so many different sentences, their texts."""
    folder.mkdir()
    megabytes = most * SENTENCE / 1e6
    text = Text(arguments.text, arguments.document, changed=CHANGED, most=megabytes * BASE)
    write_lines(text, folder / "rows.jsonl", megabytes * REPEATED)
    with session():
        return texts_of(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--document", nargs="+", default=[])
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=100_000, help="sentences for all ways")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        folder = Path(arguments.text)
        found, figures = ours(folder) if arguments.way == "ours" else library(folder, arguments.way)
        found.unique().write_parquet(folder / f"{arguments.way}.parquet")
        (folder / f"{arguments.way}.json").write_text(json.dumps(figures | {"pairs": found.n_unique()}))
        return
    print("| way | texts | seconds | peak MB | pairs | of the right pairs | of their texts | right of those found |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        for size, ways in ((arguments.few, list(WAYS)), (arguments.sentences, ["ours"])):
            folder = Path(place) / str(size)
            measured(folder, ways, made(arguments, folder, size))


if __name__ == "__main__":
    main()
