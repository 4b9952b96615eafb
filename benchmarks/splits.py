"""
How a recipe scores beside BM25 on several splits into training and held-out documents.

    python benchmarks/splits.py RECIPE CORPUS --store DIR [--splits 0 1 2] [--set KEY=VALUE ...]

One line a split, ready for the table in docs/results.md; a run that was interrupted goes on where it stopped.
"""

import argparse

from flows.retrain import retrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("corpus")
    parser.add_argument("--store", required=True)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    heads = ("split", "candidates", "queries", "MRR", "BM25", "chance", "over BM25 (95 %)")
    heads += ("hit@10", "BM25", "chance", "steps, rows/s")
    print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
    for split in arguments.splits:
        sets = [*arguments.overrides, f"corpus.split={split}"]
        result = retrain(arguments.recipe, arguments.corpus, arguments.store, sets, arguments.workers)
        print(row(split, result), flush=True)


def row(split: int, result: dict) -> str:
    """A run as a line of Markdown."""
    score = {name.removeprefix("neighbours."): value for name, value in result["scores"].items()}
    training = result["training"]
    cells = [
        split,
        f"{score['candidates']:,.0f}",
        f"{score['queries']:,.0f}",
        *(f"{score[f'{side}mrr']:.4f}" for side in ("", "bm25.", "random.")),
        f"{score['mrr_over_bm25.low']:+.4f} to {score['mrr_over_bm25.high']:+.4f}",
        *(f"{score[f'{side}hit@10']:.4f}" for side in ("", "bm25.", "random.")),
        f"{training['steps']}, {training['rows_per_second']:,.0f}",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
