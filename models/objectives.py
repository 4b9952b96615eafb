"""Objectives: scores and right answers to a sum and the number of anchors it was summed over."""

from collections.abc import Callable

import torch
from torch import Tensor


def softmax(score_AC: Tensor, answer_AP: Tensor) -> tuple[Tensor, Tensor]:
    """
    Cross-entropy of picking the right candidate; InfoNCE when candidates are a sample.

        sum over a of - mean over p of log( exp score[a, answer[a, p]] / sum over c of exp score[a, c] )

    An anchor with several right answers spreads its target evenly over them and still counts once.

    Args:
        score_AC: similarity divided by temperature, no unit; -inf for a candidate left out.
        answer_AP: int64 column of each right answer; -1 fills unused places.
    Returns:
        Nats summed over anchors, and the number of anchors, both []. The caller divides by the count of the whole
        batch: workers hold unequal numbers of anchors. log(C) an anchor when scores tell nothing apart; with P
        answers an anchor the mean cannot fall below log(P).
    Raises:
        ValueError: an anchor has no right answer.
    Source:
        Logeswaran and Lee 2018, equation 2, with the even targets of the authors' code; van den Oord, Li and Vinyals
        2018, equation 4.
    """
    has_AP = answer_AP >= 0
    if not has_AP.any(dim=1).all():
        lost = (~has_AP.any(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"anchors {lost[:5]} have no right answer; rows without one are candidates, not anchors")
    # Chosen by `where`, not by a product: an answer that fills may stand on a -inf, and 0 * -inf is NaN.
    logp_AP = score_AC.log_softmax(dim=1).gather(1, answer_AP.clamp(min=0)).where(has_AP, 0.0)
    return -(logp_AP.sum(dim=1) / has_AP.sum(dim=1)).sum(), torch.tensor(len(score_AC), device=score_AC.device)


OBJECTIVES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"softmax": softmax}
