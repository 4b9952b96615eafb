"""Similarities: vectors of anchors and candidates to a score for each pair of them."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from models.hyperbolic import distances

SMALLEST_NORM = 1e-12  # a vector of zeros has cosine 0 with everything, not NaN


def dot(anchor_AD: Tensor, candidate_CD: Tensor, *, temperature: float = 1.0) -> Tensor:
    """
    Inner product of every anchor with every candidate.

        score[a, c] = sum over d of anchor[a, d] candidate[c, d] / temperature

    Args:
        anchor_AD: vectors, no unit.
        candidate_CD: vectors of the same width.
        temperature: positive, no unit; smaller sharpens the softmax that follows.
    Returns:
        Scores [A, C], unbounded; unchanged when both sides are turned by one rotation.
    Raises:
        ValueError: the temperature is not positive.
    Source:
        Logeswaran and Lee 2018, section 3: the classifier is an inner product and nothing else.
    """
    _check(temperature)
    return (anchor_AD / temperature) @ candidate_CD.T  # dividing [A, D] is cheaper than dividing [A, C]


def cosine(anchor_AD: Tensor, candidate_CD: Tensor, *, temperature: float = 1.0) -> Tensor:
    """
    Cosine of the angle between every anchor and every candidate.

        score[a, c] = anchor[a] . candidate[c] / ( |anchor[a]| |candidate[c]| temperature )

    Args:
        anchor_AD: vectors, any length.
        candidate_CD: vectors of the same width.
        temperature: positive, no unit; smaller sharpens the softmax that follows.
    Returns:
        Scores [A, C] from -1 / temperature to 1 / temperature; 0 where a vector is all zeros.
    Raises:
        ValueError: the temperature is not positive.
    Source:
        Gao, Yao and Chen 2021 (SimCSE), equation 1.
    """
    return dot(_unit(anchor_AD), _unit(candidate_CD), temperature=temperature)


def poincare(anchor_AD: Tensor, candidate_CD: Tensor, *, temperature: float = 1.0) -> Tensor:
    """
    Less the distance in the Poincaré ball of every anchor to every candidate.

        score[a, c] = -arcosh( 1 + 2 |x - y|^2 / ((1 - |x|^2) (1 - |y|^2)) ) / temperature

    where x is anchor[a], and y candidate[c].

    Args:
        anchor_AD: points of the ball: vectors shorter than 1. Best in float64: near the edge the rounding of float32
            moves a point by a good part of what tells it from others.
        candidate_CD: points of the same width.
        temperature: positive, no unit.
    Returns:
        Scores [A, C] below 0, float64 whatever comes in; unchanged when both sides are turned by one rotation or
        moved by one Möbius translation. Score and gradient are finite everywhere, see `models.hyperbolic`.
    Raises:
        ValueError: the temperature is not positive.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA), the distance of question and answer; Nickel and Kiela 2017, equation 1.
    """
    _check(temperature)
    return -distances(anchor_AD, candidate_CD) / temperature


class Bilinear(nn.Module):
    """
    A learned bilinear form between anchors and candidates, whose widths may differ.

        score[a, c] = candidate[c] . W anchor[a] / temperature

    Args:
        temperature: positive, no unit.
        widths: numbers of an anchor's and of a candidate's vector. W starts evenly from -1 / sqrt(anchor's) to that.
    Raises:
        ValueError: the temperature is not positive.
    Source:
        van den Oord, Li and Vinyals 2018 (CPC), equation 3: W of each step ahead.
    """

    def __init__(self, *, temperature: float = 1.0, widths: tuple[int, int]) -> None:
        super().__init__()
        _check(temperature)
        anchor, candidate = widths
        bound = 1 / math.sqrt(anchor)
        self.temperature = temperature
        self.weight = nn.Parameter(torch.empty(candidate, anchor).uniform_(-bound, bound))

    def forward(self, anchor_AD: Tensor, candidate_CE: Tensor) -> Tensor:
        """Scores [A, C], unbounded."""
        return dot(
            nn.functional.linear(anchor_AD, self.weight.to(anchor_AD.dtype)), candidate_CE, temperature=self.temperature
        )


class Energy(nn.Module):
    """
    Less an energy that is learned from one number for each pair: smaller energies are better answers.

        e[a, c] = w d[a, c] + b,   score = -e / temperature        d: distance in the Poincaré ball
        e[a, c] = -(w cos[a, c] + b)                               of = cosine

    Args:
        of: `poincare`, between points of the ball, or `cosine`, between any vectors.
        free: w may have any sign; else it is the softplus of what is trained, and above 0. It starts at 1, b at 0.
        temperature: positive, no unit.
        widths: numbers of an anchor's and of a candidate's vector, which must be as many.
    Raises:
        ValueError: the temperature is not positive, or the widths differ.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA): w and b on top of the distance, where w is free and larger scores
        are better answers, so that it has to become negative; their CosineQA has the cosine in its place.
    """

    def __init__(
        self,
        *,
        of: Literal["poincare", "cosine"] = "poincare",
        free: bool = False,
        temperature: float = 1.0,
        widths: tuple[int, int],
    ) -> None:
        super().__init__()
        _check(temperature)
        if widths[0] != widths[1]:
            raise ValueError(
                f"an anchor's vector has {widths[0]} numbers and a candidate's {widths[1]}; energies want equal"
            )
        self.near, self.free, self.temperature = {"poincare": poincare, "cosine": cosine}[of], free, temperature
        self.weight = nn.Parameter(torch.tensor(1.0 if free else math.log(math.e - 1)))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.sign = -1 if of == "poincare" else 1  # of b; both score functions are larger for what is nearer

    def forward(self, anchor_AD: Tensor, candidate_CD: Tensor) -> Tensor:
        """Scores [A, C]; of distances float64."""
        w = self.weight if self.free else nn.functional.softplus(self.weight)
        return (w * self.near(anchor_AD, candidate_CD) + self.sign * self.bias) / self.temperature


def _check(temperature: float) -> None:
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; it divides the scores and must be above 0")


def _unit(vector_BD: Tensor) -> Tensor:
    return nn.functional.normalize(vector_BD, dim=1, eps=SMALLEST_NORM)


# A similarity with weights of its own is a module class; the method makes one a term, and gives it `widths`.
SIMILARITIES: dict[str, Callable[..., Tensor] | type[nn.Module]] = {
    "bilinear": Bilinear,
    "cosine": cosine,
    "dot": dot,
    "energy": Energy,
    "poincare": poincare,
}
