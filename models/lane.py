"""Terms of the loss that need nothing beyond a lane: something is drawn there, and told."""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from models.lookup import Encoder
from models.masked import LANE_OBJECTIVES
from models.noise import WORD_CANDIDATES, WORD_OBJECTIVES, Counted, NoiseWords, Unnormalised
from models.recipe import RecipeError, Term
from models.scorers import SCORERS, Scorer
from models.telling import Telling, counts


class Drawn(Protocol):
    """What a lane is to tell."""

    @property
    def count(self) -> int:
        """How many things are told; a mean is over those of the whole batch."""


class LaneObjective(Protocol):
    """
    Draws what is to be told, and tells it.

    All lanes of a worker are drawn before any is told, so that the count of the batch is known before any backward.
    Both find torch's default generator in the state of this lane and this turn; what all lanes of a batch draw alike
    comes from `common`.
    """

    def draw(self, encoder: Any, id_LT: Tensor, length_L: Tensor, common: int) -> Drawn:
        """
        What is to be told.

        Args:
            encoder: of the term's anchors.
            common: a seed, the same for all lanes of the batch.
        """

    def told(self, encoder: Any, other: Any, drawn: Any, length_L: Tensor) -> Tensor:
        """The loss summed over what was drawn, []; `other` is the encoder of the candidates."""


@dataclass(frozen=True)
class LaneTerm:
    """An objective that lives in a lane, with its towers and its weight in the loss."""

    tower: str
    candidate: str
    objective: LaneObjective
    weight: float
    mean: bool


def in_lane(term: Term) -> bool:
    """Whether a term needs nothing beyond a lane: masked words, or words told from windows."""
    if term.candidates is None:
        return not term.generates
    return term.candidates.kind in WORD_CANDIDATES


def compares(term: Term) -> bool:
    """Whether a term compares vectors of the whole batch."""
    return not in_lane(term) and not term.generates


def lane_term(term: Term, encoder: Encoder, other: Encoder, kind: str, counted: Counted) -> LaneTerm:
    """
    A recipe's term that needs nothing beyond a lane, its parts bound.

    Args:
        encoder, other: the towers of the term's anchors and candidates.
        kind: of the encoder, as the recipe names it.
        counted: the corpus, for noise.
    Raises:
        RecipeError: words are told, and the encoder is no scorer.
        ValueError: parts that do not go together.
    """
    objective: LaneObjective
    if term.candidates is None:
        objective = LANE_OBJECTIVES[term.objective.kind](**term.objective.options)
    else:
        objective = _telling(term, encoder, other, kind, counted)
    return LaneTerm(term.anchor, term.candidate, objective, term.weight, term.reduce == "mean")


def _telling(term: Term, encoder: Encoder, other: Encoder, kind: str, counted: Counted) -> Telling:
    """Words told by a scorer; where noise is corrected for, scores start as log shares, so that Z starts near 1."""
    assert term.candidates and term.similarity
    if not isinstance(encoder, Scorer) or not isinstance(other, Scorer):
        raise RecipeError(
            f"candidates.kind = {term.candidates.kind} wants encoder.kind = {', '.join(SCORERS)}; "
            f"this encoder is {kind}"
        )
    candidates = WORD_CANDIDATES[term.candidates.kind](**term.candidates.options)
    objective = WORD_OBJECTIVES[term.objective.kind](**term.objective.options)
    contexts = len(encoder.words.weight)
    if isinstance(objective, Unnormalised) and objective.log_z == "per-context":
        encoder.check_context()
    count_V = counts(counted, other.ends)
    if isinstance(candidates, NoiseWords) and candidates.correct:
        times_V = count_V.clamp(min=1)
        other.start_at((times_V / times_V.sum()).log())
    # Where all words are candidates the gradient has every row.
    other.outputs.sparse = other.outputs.sparse and isinstance(candidates, NoiseWords)
    return Telling(candidates, objective, count_V, contexts, term.similarity.options["temperature"])
