"""
A packed training step, one pass to match and to write, beside the same two losses of two passes.

    python benchmarks/packed.py [--layers 4] [--width 256] [--pairs 64] [--tokens 30] [--rounds 7] [--device cpu]

All three are recipe `simbert` at one size: whole, its comparing term alone (a pass over the texts), and its generating
term alone (a pass over texts and answers). In turns, each round a step of each on the same pairs of made-up words, of
5 to `--tokens` tokens, gradient and AdamW included; prints the median milliseconds, and the two passes over the one.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from models.batch import Batch
from models.candidates import Rows
from models.encoding import Setup
from models.gathering import World
from models.method import Method
from models.optimizer import optimizer
from models.recipe import load
from models.reduction import trainable
from models.resolving import resolve
from models.step import step_gradient

VOCABULARY = 16_000
COMPARED = (
    "terms=[{candidates={kind='batch'}, similarity={kind='cosine', temperature=0.0333}, objective={kind='softmax'}}]"
)
WRITTEN = "terms=[{objective={kind='generation'}}]"


def main() -> None:
    """Measure, in turns."""
    options = arguments()
    torch.set_num_threads(options.threads)
    batch = pairs(options.pairs, options.tokens)
    alone = replace(batch, target_ids=None, target_length_B=None)
    steps = {
        "one pass, packed": step(options, batch),
        "a pass to match": step(options, alone, COMPARED),
        "a pass to write": step(options, batch, WRITTEN),
    }
    for take in steps.values():
        take()  # warm up
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, take in steps.items():
            taken[name].append(seconds(take, options.device))
    packed, match, write = (statistics.median(times) for times in taken.values())
    for name, times in taken.items():
        print(f"{name:18} {1000 * statistics.median(times):9.1f} ms", *(f"{1000 * one:.0f}" for one in times))
    ratios = [(m + w) / p for p, m, w in zip(*taken.values(), strict=True)]
    print(f"two passes over one: {(match + write) / packed:.3f} of the medians, {min(ratios):.3f} to {max(ratios):.3f}")


def step(options: argparse.Namespace, batch: Batch, *overrides: str) -> Callable[[], float]:
    """A whole step of the recipe: gradient, then AdamW."""
    size = [f"encoder.{name}={getattr(options, name)}" for name in ("layers", "width", "heads")]
    recipe = resolve(load("simbert", ["encoder.path=''", *size, f"batches.lane_rows={options.lane_rows}", *overrides]))
    torch.manual_seed(0)
    world = World(device=torch.device(options.device))
    method = Method(recipe, VOCABULARY).to(world.device).train()
    setup = Setup(0, recipe.batches.lane_rows, options.precision)
    moves, number = optimizer(list(trainable(method)), recipe.training), iter(range(10**9))

    def take() -> float:
        loss = step_gradient(method, batch, next(number), setup, world)
        moves.step()
        return loss

    return take


def pairs(count: int, most: int) -> Batch:
    """Pairs of texts, each the other's answer."""
    draw = torch.Generator().manual_seed(0)
    rows = 2 * count
    length_B = torch.randint(5, most + 1, (rows,), generator=draw)
    flat = torch.randint(VOCABULARY, (int(length_B.sum()),), generator=draw)
    answer_B = torch.arange(rows) ^ 1
    texts = flat.split(length_B.tolist())
    table = Rows(torch.zeros(rows, dtype=torch.uint8), torch.arange(rows), answer_B[:, None])
    return Batch(flat, length_B, table, torch.cat([texts[at] for at in answer_B.tolist()]), length_B[answer_B])


def seconds(take: Callable[[], float], device: str) -> float:
    """How long a step takes; it ends with the loss as a number, so nothing is left to wait for but the optimizer."""
    started = time.perf_counter()
    take()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A packed step beside two passes.")
    for name, value in (("layers", 4), ("width", 256), ("heads", 4), ("pairs", 64), ("tokens", 30), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lane-rows", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
