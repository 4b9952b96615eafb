"""
Time of a step of the word-level recipes against the size of the vocabulary, and words a second of `skipgram`.

    python benchmarks/words.py [THREADS]

Sentences are made up, of 5 to 35 words drawn by Zipf's law. Seconds are those of the processor, the fastest of a few
rounds over the same batches. `nplm` scores all words, so its time grows with their number; that of noise should not.
"""

import sys
import time

import torch

from models.batch import Batch
from models.candidates import Rows
from models.encoding import Setup
from models.gathering import World
from models.method import Method
from models.noise import Counted
from models.optimizer import optimizer
from models.recipe import load
from models.reduction import trainable
from models.resolving import resolve
from models.step import step_gradient

SIZES = (5_000, 20_000, 80_000)
STEPS, ROUNDS = 10, 3
MODELS = (
    ("nplm", ()),
    ("nce", ()),
    ("nce", ("terms.0.candidates.shared=true",)),
    ("nce-log-bilinear", ()),
)
SUBSAMPLES = (1e-3, 1e-4, 1e-5)


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(f"{'milliseconds a step':40}", *(f"{size:>8}" for size in SIZES), "last over first")
    for name, overrides in MODELS:
        times = [fastest(Steps(name, overrides, size)) * 1e3 for size in SIZES]
        ratio = f"{times[-1] / times[0]:8.2f}"
        print(f"{' '.join((name, *overrides)):40}", *(f"{each:8.1f}" for each in times), ratio, flush=True)
    for share in SUBSAMPLES:
        steps = Steps("skipgram", (f"encoder.subsample={share}",), 50_000)
        print(f"skipgram, subsample {share:g}: {steps.words / STEPS / fastest(steps):,.0f} words/s", flush=True)


class Steps:
    """Some steps of a recipe over made-up sentences, as often as called."""

    def __init__(self, name, overrides, size):
        recipe = resolve(load(name, overrides))
        share = 1 / torch.arange(1, size + 1).double()
        share /= share.sum()
        torch.manual_seed(0)
        self.method = Method(recipe, size, {}, share.float(), counted=Counted(share * 2e6, 1e5)).train()
        self.optimize = optimizer(list(trainable(self.method)), recipe.training)
        self.setup = Setup(0, recipe.batches.lane_rows, "fp32", lazy=recipe.training.lazy)
        draw = torch.Generator().manual_seed(0)
        self.batches = [made_up(recipe.batches.rows, share, draw) for _ in range(STEPS)]
        self.words = sum(int(batch.length_B.sum()) for batch in self.batches)

    def __call__(self):
        for number, batch in enumerate(self.batches):
            step_gradient(self.method, batch, number, self.setup, World())
            self.optimize.step()


def made_up(rows, share, draw):
    lengths = torch.randint(5, 36, (rows,), generator=draw)
    ids = torch.multinomial(share, int(lengths.sum()), replacement=True, generator=draw)
    nothing = Rows(torch.zeros(rows, dtype=torch.uint8), torch.arange(rows), torch.full((rows, 1), -1))
    return Batch(ids, lengths, nothing)


def fastest(steps):
    """Processor seconds of a step."""
    steps()
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        steps()
        rounds.append((time.process_time() - started) / STEPS)
    return min(rounds)


if __name__ == "__main__":
    main()
