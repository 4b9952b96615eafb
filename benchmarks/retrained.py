"""What benchmarks of whole runs share: a `firth retrain` whose result is kept in a file, and tables over seeds."""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def arguments(about: str, store: str) -> argparse.ArgumentParser:
    """The command line that all have: `about` is the benchmark's docstring, `store` the default folder."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--store", type=Path, default=Path(store), help="folder for all that is made")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    return parser


def retrained(
    place: Path,
    name: str,
    seed: int,
    recipe: str,
    corpus: Path,
    store: Path,
    settings: Sequence[str],
    *,
    workers: int = 1,
    **about: Any,
) -> dict[str, Any]:
    """
    What one run says at its end, its own name, seed and settings included; done again only if the settings changed.

    Args:
        place: folder of the results, a JSON file each.
        about: what else is kept with it.
    """
    plain = re.sub(r"[^\w.]+", "-", name).strip("-")
    kept = place / f"{plain}-{seed}.json"
    settings = [*settings, f"training.seed={seed}"]
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["settings"] == settings:
            return dict(found)
    command = [sys.executable, "-m", "flows", "retrain", recipe, "--corpus", str(corpus), "--store", str(store)]
    command += ["--workers", str(workers), "--json", *(part for one in settings for part in ("--set", one))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    result |= {"settings": settings, "name": name, "seed": seed, **about}
    kept.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"{name}, seed {seed}: there", file=sys.stderr, flush=True)
    return dict(result)


def results(place: Path) -> list[dict[str, Any]]:
    """All that is kept, in order of the files' names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(place.glob("*.json"))]


def table(runs: Mapping[str, Sequence[Mapping[str, float]]], columns: Sequence[str], digits: int = 3) -> str:
    """A line a name: means over its runs, and the least and greatest where there are several."""
    lines = [f"| run | seeds | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for name, found in runs.items():
        cells = [spread([one[column] for one in found if column in one], digits) for column in columns]
        lines.append(f"| {name} | {len(found)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and range; a dash for what was not measured."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):,.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
