"""Objectives: scores and right answers to a sum, and the number of things it was summed over."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


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


def binary(score_AC: Tensor, answer_AP: Tensor) -> tuple[Tensor, Tensor]:
    """
    Logistic loss of telling, of each candidate by itself, whether it is an answer.

        sum over a, c of log( 1 + exp(-y[a, c] score[a, c]) ),   y = 1 if c answers a, else -1

    Args:
        score_AC: similarity, no unit; -inf for a candidate left out, which is neither summed nor counted.
        answer_AP: int64 column of each right answer; -1 fills unused places.
    Returns:
        Nats summed over pairs of anchor and candidate, and the number of pairs, both []. log(2) a pair when all
        scores are 0.
    Source:
        ours: Logeswaran and Lee 2018 name it beside their softmax and give no equation.
    """
    kept_AC, right_AC = kept(score_AC), _right(score_AC, answer_AP)
    signed_N = torch.where(right_AC, score_AC, -score_AC)[kept_AC]
    return -nn.functional.logsigmoid(signed_N).sum(), pairs(kept_AC, answer_AP)


def margin(score_AC: Tensor, answer_AP: Tensor, *, margin: float = 1.0) -> tuple[Tensor, Tensor]:
    """
    What right answers lack to stand above wrong ones by a margin.

        sum over a, right answers p and wrong c of max( 0, margin - score[a, p] + score[a, c] )

    Args:
        score_AC: similarity, no unit; -inf for a candidate left out, which is neither summed nor counted.
        answer_AP: int64 column of each right answer, each column once; -1 fills unused places.
        margin: above 0, in units of the scores.
    Returns:
        Sum over triples, and the number of triples, both []; `margin` a triple when scores tell nothing apart.
    Raises:
        ValueError: the margin is not positive, which scores that are all alike would satisfy.
    Source:
        Weston and Watkins 1999, whose classes are the candidates here; Logeswaran and Lee 2018 name it beside their
        softmax and give no equation.
    """
    return _lacking(score_AC, answer_AP, margin)


def hinge(score_AC: Tensor, answer_AP: Tensor, *, margin: float = 5.0) -> tuple[Tensor, Tensor]:
    """
    `margin` for anchors that have candidates of their own, as a question has; it is written with energies.

        sum over a, right answers p and wrong c of max( 0, margin + e[a, p] - e[a, c] ),   e = -score

    A smaller energy is a better answer; scores here are larger for a better one. A recipe says `reduce = "sum"` with
    it, as the paper does: more wrong answers, or more questions in a batch, then weigh more.

    Args:
        score_AC: less the energy, as -(w d + b) of a distance d; -inf for a place without a candidate.
        answer_AP: int64 column of each right answer, each column once; -1 fills unused places.
        margin: above 0, in units of the energy.
    Returns:
        Sum over triples, and the number of triples, both []. A number added to all energies changes nothing, so a
        bias b has no gradient.
    Raises:
        ValueError: the margin is not positive.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA), the pairwise hinge loss.
    """
    return _lacking(score_AC, answer_AP, margin)


def _lacking(score_AC: Tensor, answer_AP: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    if not margin > 0:
        raise ValueError(f"objective.margin is {margin}; by how much a right answer should lead, above 0")
    kept_AC, right_AC = kept(score_AC), _right(score_AC, answer_AP)
    column_AP = answer_AP.clamp(min=0)
    leads_AP = (answer_AP >= 0) & kept_AC.gather(1, column_AP)
    lack_APC = (margin - score_AC.gather(1, column_AP)[:, :, None] + score_AC[:, None, :]).clamp(min=0)
    counts_APC = leads_AP[:, :, None] & (kept_AC & ~right_AC)[:, None, :]
    return lack_APC.where(counts_APC, 0.0).sum(), triples(kept_AC, answer_AP)


def gram(score_AC: Tensor, taught_AC: Tensor) -> tuple[Tensor, Tensor]:
    """
    How far scores are from a teacher's.

        sum over a, c of (score[a, c] - taught[a, c])^2

    Where all texts are anchors and candidates, these are the Gram matrices of two models' vectors, which may be of
    unlike widths: 0 where they differ by a rotation.

    Args:
        score_AC: similarity, no unit; -inf for a candidate left out, which is neither summed nor counted.
        taught_AC: the teacher's cosines, in place of right answers.
    Returns:
        Sum over pairs of anchor and candidate, and the number of pairs, both [].
    Source:
        Su 2021 (RoFormer-Sim), the second stage; similarity-preserving distillation as in Tung and Mori 2019.
    """
    kept_AC = kept(score_AC)
    return (score_AC - taught_AC).where(kept_AC, 0.0).square().sum(), kept_AC.sum()


def kept(score_AC: Tensor) -> Tensor:
    """Whether a candidate stands in an anchor's pool, [A, C]; a score that is no number does, so that it shows."""
    return score_AC != -torch.inf


def pairs(kept_AC: Tensor, answer_AP: Tensor) -> Tensor:
    """How many pairs of anchor and candidate there are, []."""
    return kept_AC.sum()


def triples(kept_AC: Tensor, answer_AP: Tensor) -> Tensor:
    """How many triples of anchor, right answer and wrong one there are, []."""
    right_AC = _right(kept_AC, answer_AP)
    return ((kept_AC & right_AC).sum(dim=1) * (kept_AC & ~right_AC).sum(dim=1)).sum()


def _right(like_AC: Tensor, answer_AP: Tensor) -> Tensor:
    """Which candidates are answers, bool [A, C]."""
    right_AC = torch.zeros(like_AC.shape, dtype=torch.bool, device=like_AC.device)
    anchor_N, place_N = (answer_AP >= 0).nonzero(as_tuple=True)
    right_AC[anchor_N, answer_AP[anchor_N, place_N]] = True
    return right_AC


OBJECTIVES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "binary": binary,
    "gram": gram,
    "hinge": hinge,
    "margin": margin,
    "softmax": softmax,
}

# What an objective is a mean over, where that is not its anchors: known without a score, from who is in which pool.
COUNTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "binary": pairs,
    "gram": pairs,
    "hinge": triples,
    "margin": triples,
}
