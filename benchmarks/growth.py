"""
What a corpus costs that did not change, and one that grew by a hundredth.

    python benchmarks/growth.py TEXT.parquet --document book chapter [--megabytes 100]

Two corpora of that size are made by variation (see varied.py), a folder of Parquet files and one file of JSON lines.
The stages before `batches`, `batches` and the rest are timed for a new store, for the same corpus again, and with 1 %
more text: as a new file, and as rows appended to the JSON lines.
"""

import argparse
import tempfile
import time
from pathlib import Path

from data_stages import idle, walked
from varied import Text, write_files, write_lines

from models.recipe import load
from models.resolving import resolve
from pipeline.cluster import map_shards, processors, session, start
from pipeline.road import Road
from pipeline.store import Store

PARTS = ("read", "documents", "sentences", "vocabulary", "tokens", "pairs", "merged", "batches")


def walk(road: Road) -> dict[str, tuple[float, str]]:
    """Seconds of each part of the road, and its shards: new, same, gone."""
    found: dict[str, tuple[float, str]] = {}

    def timed(name, function):
        started = time.perf_counter()
        made = function()
        shards = (
            f"{made.new}/{len(made.pieces) - made.new}/{made.gone}" if hasattr(made, "gone") and name != "read" else ""
        )
        found[name] = (time.perf_counter() - started, shards)
        return made

    walked(road, timed)
    return found


def told(name: str, found: dict[str, tuple[float, str]], full: float | None = None) -> float:
    """Print a line; returns the seconds before `batches`."""
    before = sum(found[part][0] for part in PARTS[:-1])
    share = f" = {before / full:.1%} of the full time" if full else ""
    print(f"  {name}: {before:.2f} s before batches{share}, batches {found['batches'][0]:.2f} s")
    print("    " + ", ".join(f"{part} {found[part][0]:.2f} {found[part][1]}".rstrip() for part in PARTS), flush=True)
    return before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--document", nargs="+", required=True)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--recipe", default="quick-thoughts")
    arguments = parser.parse_args()
    text, more = Text(arguments.text, arguments.document), arguments.megabytes / 100
    recipe = resolve(load(arguments.recipe, []))
    with tempfile.TemporaryDirectory() as folder, session():
        place = Path(folder)
        files = write_files(text, place / "files", arguments.megabytes, 20)
        lines = write_lines(text, place / "rows.jsonl", arguments.megabytes)
        start()
        map_shards(idle, list(range(2 * processors())))
        for name, corpus in (("files", files), ("lines", lines)):
            print(f"{name}, {arguments.megabytes:.0f} MB of text; shards new/same/gone", flush=True)
            road = Road(Store.at(place / f"store-{name}"), recipe, str(corpus))
            full = told("new", walk(road))
            told("unchanged", walk(road), full)
            if name == "files":
                write_files(text, files, more, 1, first=1_000_000)
            else:
                write_lines(text, lines, more, first=1_000_000)
            told("1 % more", walk(road), full)


if __name__ == "__main__":
    main()
