"""
What mined negatives give: a chooser of answers trained on WikiQA's right answers alone, without and with them.

    python benchmarks/mined.py --data FOLDER --store FOLDER [--only dense] [--seeds 3] [--table]

FOLDER of the data holds wikiqa. All runs are recipe `cosineqa` over frozen word vectors, a softmax over all answers
of a batch; they differ in the negatives that stand beside a question's right answer. Wrong answers that people marked
are never told to a run, but stand among the texts that miners choose from. Figures are of the development part, after
the last epoch; the model that `dense` asks is the run without negatives of the same seed.
"""

import argparse
import json
from pathlib import Path

from answers import SETS
from retrained import arguments, results, retrained, table

SEEDS = (0, 1, 2)
SOFTMAX = "{candidates={kind='batch'}, similarity={kind='cosine', temperature=0.1}, objective={kind='softmax'}}"
ALONE = (
    "pairs={kind='qa', most=0}",
    f"terms=[{SOFTMAX}]",
    "batches.rows=320",
    "batches.lane_rows=160",
    "training.epochs=25",
    "encoder.dropout=0.1",
)
RUNS = {  # what [negatives] says
    "random": "miner='random', count=4",
    "bm25": "miner='bm25', count=4, relative_margin=0.05",
    "bm25, no margin": "miner='bm25', count=4",
    "dense": "miner={{kind='dense', model='{model}'}}, count=4, relative_margin=0.05",
    "dense, no margin": "miner={{kind='dense', model='{model}'}}, count=4",
    "dense, from rank 5": "miner={{kind='dense', model='{model}'}}, count=4, first=5, relative_margin=0.05",
}
WITHOUT = "without"
COLUMNS = ("mrr", "map", "p@1", "mined")


def main() -> None:
    """Make all runs; or print what there is."""
    options = arguments(str(__doc__), ".firth-mined").parse_args()
    place = options.store / "mined"
    place.mkdir(parents=True, exist_ok=True)
    if not options.table:
        for seed in SEEDS[: options.seeds]:
            model = one(options, place, WITHOUT, seed, ())
            for name, rules in RUNS.items():
                if options.only in name:
                    one(options, place, name, seed, [f"negatives={{{rules.format(model=model)}}}"])
    runs: dict[str, list[dict[str, float]]] = {}
    for result in results(place):
        found = {name: result["scores"][f"ranking.dev.{name}"] for name in COLUMNS[:3]}
        stage = next(stage for stage in result["stages"] if stage["name"] == "negatives")
        found |= {"mined": float(stage["rows"])}
        runs.setdefault(result["name"], []).append(found)
    order = [WITHOUT, *RUNS]
    print(table(dict(sorted(runs.items(), key=lambda item: order.index(item[0]))), COLUMNS))


def one(options: argparse.Namespace, place: Path, name: str, seed: int, negatives: tuple[str, ...] | list[str]) -> str:
    """A run; its model folder."""
    wikiqa = SETS["wikiqa"]
    dev = f'{{kind="ranking", path={json.dumps(str(options.data / wikiqa.dev))}, {wikiqa.reading()}, name="dev"}}'
    settings = [*ALONE, *wikiqa.corpus(), "corpus.name=mined", *negatives, f"evaluation=[{dev}]"]
    result = retrained(place, name, seed, "cosineqa", options.data / wikiqa.train, options.store, settings)
    return str(result["model_folder"])


if __name__ == "__main__":
    main()
