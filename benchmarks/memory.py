"""
Memory and time of the data stages as a corpus grows.

    python benchmarks/memory.py TEXT.parquet --document book chapter [--megabytes 100 1000 3000]

For each size a file of JSON lines is made by variation (see varied.py), and all stages to `batches` are run in a
process of their own and its Ray. Memory is the largest sum of the proportional set sizes (PSS) of that process and all
that it started, less what they hold idle, each with what a data worker imports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from data_stages import idle, peak_megabytes, tree_megabytes
from growth import walk
from varied import Text, write_lines

from models.recipe import load
from models.resolving import resolve
from pipeline.cluster import map_shards, processors, session, start
from pipeline.road import Road
from pipeline.store import Store


def measured(corpus: str, recipe: str, store: str) -> dict[str, float]:
    """Peak megabytes over the idle stack, and seconds of each part."""
    road = Road(Store.at(store), resolve(load(recipe, [])), corpus)
    with session():
        start()
        map_shards(idle, list(range(2 * processors())))
        before = tree_megabytes()
        with peak_megabytes() as highest:
            seconds = {name: took for name, (took, _) in walk(road).items()}
    return {"idle": before, "peak": highest[0] - before, **seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--document", nargs="+", default=[])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100, 1000, 3000])
    parser.add_argument("--recipe", default="quick-thoughts")
    parser.add_argument("--measure", metavar="STORE", help=argparse.SUPPRESS)  # of the process that is measured
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.text, arguments.recipe, arguments.measure)))
        return
    text, first = Text(arguments.text, arguments.document), None
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            corpus = write_lines(text, Path(folder) / "rows.jsonl", megabytes)
            command = [
                sys.executable,
                __file__,
                str(corpus),
                "--measure",
                f"{folder}/store",
                "--recipe",
                arguments.recipe,
            ]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        idle_, peak = found.pop("idle"), found.pop("peak")
        rate = sum(found.values()) / megabytes * 1000
        first = first or (peak, rate)
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.items())
        print(
            f"{megabytes:,.0f} MB of text: {peak:.0f} MB over the idle {idle_:.0f}, {peak / first[0]:.2f} x the first"
        )
        print(f"  {rate:.0f} s a GB, {rate / first[1]:.2f} x the first ({parts})", flush=True)


if __name__ == "__main__":
    main()
