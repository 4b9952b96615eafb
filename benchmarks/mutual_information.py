"""
What log N - L says of texts whose mutual information is known: here, of Gaussians.

    python benchmarks/mutual_information.py [--dimensions 4] [--steps 700] [--seeds 3]

x and c are Gaussian in d dimensions, each number of x correlated by rho with its own of c and with nothing else, so
they tell I = -d/2 log(1 - rho^2) nats of each other. A critic is trained by the project's softmax to find each c's x
among N, the N - 1 others being the x of other c, and measured on fresh draws. The log of p(x|c) / p(x) is quadratic in
x and c, which a bilinear form of the two alone cannot say; so each side is given its numbers, their squares and a 1,
and the form can be the best critic there is. Prints the mean of log N - L over seeds, the largest distance of a seed
from it, and in brackets what log p(x|c) / p(x) itself reaches on as many draws.
"""

import argparse
import math
import time

import torch
from torch import Tensor

from models.objectives import softmax
from models.similarity import Bilinear

NUMBERS = (2, 8, 64, 512)  # N
INFORMATION = (0.5, 2.0, 4.0, 8.0)  # nats
BATCH = 512  # contexts of a step; the candidates of N - 1 of them are shared
FRESH = 100  # batches to measure on


def main() -> None:
    """Train, measure, print."""
    options = arguments()
    torch.set_num_threads(1)
    started = time.perf_counter()
    print(f"{'I':>5} {'rho':>6} " + "".join(f"{f'N = {n}':>23}" for n in NUMBERS))
    print(f"{'log N':>5} {'':>6} " + "".join(f"{math.log(n):>23.3f}" for n in NUMBERS))
    for information in INFORMATION:
        rho = math.sqrt(1 - math.exp(-2 * information / options.dimensions))
        cells = []
        for count in NUMBERS:
            bounds = [estimate(rho, count, options.dimensions, options.steps, seed) for seed in range(options.seeds)]
            mean = sum(bounds) / len(bounds)
            torch.manual_seed(options.seeds)
            known = measured(best(rho, options.dimensions), rho, count, options.dimensions)
            cells.append(f"{mean:.3f} ± {max(abs(bound - mean) for bound in bounds):.3f} ({known:.3f})")
        print(f"{information:>5} {rho:>6.3f} " + "".join(f"{cell:>23}" for cell in cells), flush=True)
    print(f"{time.perf_counter() - started:.0f} s, {options.seeds} seeds, {options.dimensions} dimensions, one thread")


def estimate(rho: float, count: int, dimensions: int, steps: int, seed: int) -> float:
    """Bound in nats of a critic that was trained with `count` candidates an anchor."""
    torch.manual_seed(seed)
    width = 2 * dimensions + 1
    critic = Bilinear(widths=(width, width))
    with torch.no_grad():
        critic.weight.zero_()  # every candidate alike
    optimize = torch.optim.Adam(critic.parameters(), lr=0.2)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimize, steps)
    for _ in range(steps):
        optimize.zero_grad()
        loss(critic.weight, rho, count, dimensions).backward()
        optimize.step()
        falling.step()
    return measured(critic.weight, rho, count, dimensions)


@torch.no_grad()
def measured(weight: Tensor, rho: float, count: int, dimensions: int) -> float:
    """log N - L on fresh draws."""
    return math.log(count) - sum(loss(weight, rho, count, dimensions).item() for _ in range(FRESH)) / FRESH


def best(rho: float, dimensions: int) -> Tensor:
    """The form that says (rho c.x - rho^2 (c^2 + x^2) / 2) / (1 - rho^2), which is log p(x|c) / p(x) less a number."""
    weight = torch.zeros(2 * dimensions + 1, 2 * dimensions + 1)
    weight[:dimensions, :dimensions] = torch.eye(dimensions) * rho / (1 - rho**2)
    weight[dimensions:-1, -1] = weight[-1, dimensions:-1] = -(rho**2) / (2 * (1 - rho**2))
    return weight


def loss(weight: Tensor, rho: float, count: int, dimensions: int) -> Tensor:
    """Mean cross-entropy of fresh pairs in groups of `count`: a group's x are the candidates of each of its c."""
    context_BD = torch.randn(max(BATCH, count), dimensions)
    answer_BD = rho * context_BD + math.sqrt(1 - rho**2) * torch.randn_like(context_BD)
    own_N1 = torch.arange(count)[:, None]
    context_GND, answer_GND = (features(side).unflatten(0, (-1, count)) for side in (context_BD, answer_BD))
    turned_GND = torch.nn.functional.linear(context_GND, weight)
    score_BN = (turned_GND @ answer_GND.transpose(1, 2)).flatten(0, 1)  # the critic, of all groups at once
    nats, anchors = softmax(score_BN, own_N1.repeat(len(context_GND), 1))
    return nats / anchors


def features(side_BD: Tensor) -> Tensor:
    """Its numbers, their squares and a 1."""
    return torch.cat([side_BD, side_BD**2, torch.ones(len(side_BD), 1)], dim=1)


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, default=4, help="numbers of x and of c")
    parser.add_argument("--steps", type=int, default=700, help="of each training")
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
