"""
The Poincaré ball: points are vectors shorter than 1, and lengths grow without bound towards its edge.

The formulas as printed break down in three places. Where two points meet, the distance has no gradient; it is held at
that of `NEAREST`, with gradient 0. Of close points 1 + t rounds to 1, so arcosh is taken of t. At the edge 1 - |x|^2 is
0 or below; it is held at `EDGE`, with no gradient of its own.
"""

import torch
from torch import Tensor

NEAREST = 1e-15  # arcosh(1 + 1e-15) is 4.5e-8
EDGE = 1e-15  # 1 - |x|^2 of a point in float64 is a multiple of 1e-16
LARGEST, LONGEST, RELEASED = 10.0, 1.0, 1e-5  # numbers of the released HyperQA


def distances(left_AD: Tensor, right_CD: Tensor) -> Tensor:
    """
    Distance of every left point to every right one.

        d(x, y) = arcosh( 1 + 2 |x - y|^2 / ((1 - |x|^2) (1 - |y|^2)) )

    Args:
        left_AD: points of the ball, no unit.
        right_CD: points of the same width.
    Returns:
        [A, C] float64 whatever comes in, at least 4.5e-8.
    Source:
        Nickel and Kiela 2017, equation 1.
    """
    left_AD, right_CD = left_AD.double(), right_CD.double()
    # Not |x|^2 + |y|^2 - 2 x.y, as products of matrices would have it: of close points nothing would be left.
    apart_AC = torch.cdist(left_AD, right_CD, compute_mode="donot_use_mm_for_euclid_dist")
    return arcosh_of_one_and(2 * apart_AC.square() / (_gap(left_AD)[:, None] * _gap(right_CD)[None, :]))


def arcosh_of_one_and(t: Tensor) -> Tensor:
    """
    arcosh(1 + t) for t from 0 on, any shape, exact for small t; below `NEAREST` that of `NEAREST`, with gradient 0.

        log( 1 + t + sqrt(t (t + 2)) )
    """
    t = t.clamp(min=NEAREST)
    return torch.log1p(t + (t * (t + 2)).sqrt())


def clip_to_ball(vector_BD: Tensor, radius: float = 0.99) -> Tensor:
    """
    Vectors that are longer than the radius, scaled down to it; the others as they are, to the bit.

    Args:
        vector_BD: any vectors; zeros stay zeros, with a gradient.
        radius: above 0, at most 1. At 1 the points of the edge are infinitely far from all others but for rounding.
    Returns:
        [B, D]. What is outside sends back only the part of a gradient that turns it, none that shortens it.
    Raises:
        ValueError: the radius is not above 0 or above 1.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA), where the radius is 1; below 1 is ours, since a distance there is infinite.
    """
    if not 0 < radius <= 1:
        raise ValueError(f"radius is {radius}; the ball's own is 1, and points should stay within: above 0, at most 1")
    return vector_BD * (radius / vector_BD.norm(dim=1, keepdim=True).clamp(min=radius))


def riemannian_factor(point_BD: Tensor) -> Tensor:
    """
    What a Euclidean gradient at a point of the ball is multiplied by to become the Riemannian one, [B, 1].

        (1 - |x|^2)^2 / 4

    Source:
        Nickel and Kiela 2017, section 3.1: the inverse of the metric's tensor, (2 / (1 - |x|^2))^2.
    """
    return _gap(point_BD)[:, None].square() / 4


def with_riemannian_gradient(point_BD: Tensor) -> Tensor:
    """
    The same points; on its way back, each one's gradient is multiplied by its own `riemannian_factor`.

    The factor is of the point, not of the weights behind it: they have no place in the ball.
    """
    if not point_BD.requires_grad:
        return point_BD
    same_BD, factor_B1 = point_BD.view_as(point_BD), riemannian_factor(point_BD.detach())
    same_BD.register_hook(lambda gradient_BD: gradient_BD * factor_B1)
    return same_BD


def scale_as_released(gradient: Tensor) -> Tensor:
    """
    A tensor's gradient g as the released HyperQA changes it; no Riemannian gradient, as the norm is g's own.

        g ( (1 - |g|^2)^2 + 1e-5 ) / 4   of matrices, then clipped to -10 .. 10, then to norm 1

    Source:
        the released code of Tay, Tuan and Hui 2018, where the paper's factor has the norm of a point.
    """
    if gradient.dim() > 1:
        gradient = gradient * ((1 - gradient.square().sum()).square() + RELEASED) / 4
    gradient = gradient.clamp(-LARGEST, LARGEST)
    return gradient * (LONGEST / gradient.norm().clamp(min=LONGEST))


def _gap(point_BD: Tensor) -> Tensor:
    """1 - |x|^2 of each point, [B]."""
    return (1 - point_BD.square().sum(dim=1)).clamp(min=EDGE)
