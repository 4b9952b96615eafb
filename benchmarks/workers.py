"""
Does the number of workers change what is trained? The loss series of whole Ray Train runs, side by side.

    python benchmarks/workers.py CORPUS --workers 1 2 [--recipe quick-thoughts] [--set KEY=VALUE ...]

Prints the largest relative difference of the loss over the steps, for fp32 and fp64, dropout on.
"""

import argparse
import tempfile

from flows.retrain import retrain


def losses(recipe: str, corpus: str, overrides: list[str], workers: int) -> list[float]:
    """Loss of every step of a run in a store of its own."""
    with tempfile.TemporaryDirectory() as store:
        result = retrain(recipe, corpus, store, [*overrides, "training.log_steps=1"], workers)
        return result["training"]["loss"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--recipe", default="quick-thoughts")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp64"])
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    for precision in arguments.precision:
        sets = [f"training.steps={arguments.steps}", f"training.precision={precision}", "encoder.dropout=0.3"]
        series = [losses(arguments.recipe, arguments.corpus, sets + arguments.overrides, n) for n in arguments.workers]
        for workers, other in zip(arguments.workers[1:], series[1:], strict=True):
            far = max(abs(a - b) / abs(a) for a, b in zip(series[0], other, strict=True))
            compared = f"{workers} against {arguments.workers[0]} workers, {len(other)} steps"
            print(f"{arguments.recipe} {precision}: {compared}: {far:.1e}", flush=True)


if __name__ == "__main__":
    main()
