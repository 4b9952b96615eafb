"""
Words told from windows: the lane term of language models and of word vectors.

Either all words are candidates and the one softmax of `models.objectives` judges, or a few noise words are and the
logistic loss of `models.noise` does. Letters besides those of `models`: A anchors, P words to be told, K noise words of
each, S that all share.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.lookup import Words
from models.noise import Counted, EveryWord, Noise, NoiseWords, Normalised, Unnormalised, logistic
from models.objectives import softmax
from models.scorers import Scorer
from models.windows import Windows


@dataclass(frozen=True)
class Told:
    """
    Windows of a lane, and their noise words.

    Args:
        noise: vocabulary numbers [P, K], or [S] where all anchors share them; None: every word is a candidate.
    """

    windows: Windows
    noise: Tensor | None

    @property
    def count(self) -> int:
        """P."""
        return len(self.windows.target_P)


class Telling(nn.Module):
    """
    A lane objective: the words of a lane are told from their windows.

    Args:
        candidates, objective: every word with the softmax, or noise with the logistic loss.
        count_V: how often each word stands in the corpus, for noise; see `counts`.
        contexts: contexts that have a log Z of their own, where that is wanted.
        temperature: scores are divided by it.
    Raises:
        ValueError: candidates and objective do not go together, or noise has a word that is never drawn.
    """

    log_kq_V: Tensor | None

    def __init__(
        self,
        candidates: EveryWord | NoiseWords,
        objective: Normalised | Unnormalised,
        count_V: Tensor,
        contexts: int = 0,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(candidates, NoiseWords) != isinstance(objective, Unnormalised):
            raise ValueError(
                'noise goes with objective.kind = "logistic", and candidates.kind = "vocabulary" with "softmax"'
            )
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it divides the scores and must be above 0")
        self.candidates, self.temperature = candidates, temperature
        self.noise = Noise(count_V, power=candidates.power) if isinstance(candidates, NoiseWords) else None
        log_kq_V = None  # nothing is taken off the scores
        if self.noise is not None and isinstance(candidates, NoiseWords) and candidates.correct:
            log_kq_V = self.noise.log_q_V + math.log(candidates.count)
        self.register_buffer("log_kq_V", log_kq_V, persistent=False)
        log_z = objective.log_z if isinstance(objective, Unnormalised) else "fixed"
        self.log_z = nn.Parameter(torch.zeros(())) if log_z == "global" else None
        self.log_z_of = Words(contexts, 1, initial=0.0) if log_z == "per-context" else None
        if self.log_z_of is not None:
            self.log_z_of.sparse = True  # as of word tables: other contexts stay as they are

    def draw(self, encoder: Scorer, id_LT: Tensor, length_L: Tensor, common: int) -> Told:
        """Windows and noise of a lane; noise that a batch shares comes from the seed `common`."""
        windows = encoder.windows(id_LT, length_L)
        if self.noise is None or not isinstance(self.candidates, NoiseWords):
            return Told(windows, None)
        if self.candidates.shared:
            return Told(windows, self.noise.draw(self.candidates.drawn or self.candidates.count, seed=common))
        return Told(windows, self.noise.draw(len(windows.target_P), self.candidates.count))

    def told(self, encoder: Scorer, other: Scorer, drawn: Told, length_L: Tensor) -> Tensor:
        """Loss summed over the words of a lane, nats, []."""
        if not drawn.count:
            return torch.zeros((), device=length_L.device)
        windows, anchor_AD = drawn.windows, self._anchors(encoder, drawn.windows.input)
        if drawn.noise is None:
            score_AV = _wide(anchor_AD @ other.outputs.weight.T)
            score_PV = score_AV if windows.anchor_P is None else score_AV[windows.anchor_P]
            return softmax(score_PV, windows.target_P[:, None])[0]
        right_P, wrong = self._against_noise(anchor_AD, other.outputs, windows, drawn.noise)
        log_z_A = self.trained_log_z(encoder, windows.input)
        log_z_P = log_z_A if windows.anchor_P is None else log_z_A[windows.anchor_P]
        wrong = wrong - (log_z_A if drawn.noise.dim() == 1 else log_z_P)[:, None]
        if self.log_kq_V is not None:
            wrong = wrong - self.log_kq_V[drawn.noise].to(wrong.dtype)
            right_P = right_P - self.log_kq_V[windows.target_P].to(right_P.dtype)
        return logistic(right_P - log_z_P, wrong, self._weight(drawn))

    def _anchors(self, encoder: Scorer, input: Tensor) -> Tensor:
        anchor_AD = encoder.anchors(input)
        return anchor_AD if self.temperature == 1 else anchor_AD / self.temperature

    def _against_noise(self, anchor_AD: Tensor, rows: Words, windows: Windows, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the right words [P] and of noise, [A, S] or [P, K]."""
        row_MD = rows(torch.cat([windows.target_P, noise.flatten()]))  # one look-up: one sparse gradient
        right_PD, wrong_MD = row_MD.split([len(windows.target_P), noise.numel()])
        anchor_PD = anchor_AD if windows.anchor_P is None else anchor_AD[windows.anchor_P]
        right_P = _wide((anchor_PD * right_PD).sum(dim=1))
        if noise.dim() == 1:
            return right_P, _wide(anchor_AD @ wrong_MD.T)
        return right_P, _wide(torch.bmm(wrong_MD.view(*noise.shape, -1), anchor_PD[:, :, None])[:, :, 0])

    def _weight(self, drawn: Told) -> Tensor | float:
        assert drawn.noise is not None and isinstance(self.candidates, NoiseWords)
        if drawn.noise.dim() == 2:
            return 1.0
        return drawn.windows.told_words() * (self.candidates.count / len(drawn.noise))

    def trained_log_z(self, encoder: Scorer, input: Tensor) -> Tensor:
        """Log Z of each anchor as it was trained, [A]."""
        if self.log_z_of is not None:
            of_A: Tensor = self.log_z_of(encoder.only_word(input))[:, 0]
            return of_A
        if self.log_z is not None:
            return self.log_z.expand(len(input))
        return torch.zeros(len(input), device=input.device)

    @torch.no_grad()
    def scores(
        self, encoder: Scorer, other: Scorer, id_LT: Tensor, length_L: Tensor, cells: int
    ) -> tuple[Tensor, Tensor]:
        """
        Scores of all words of some texts, the ends included, in order of text and place.

        Args:
            cells: pairs of context and word looked at together; it bounds the memory and changes nothing.
        Returns:
            s(w, c) less log Z as it was trained, and the exact log-sum-exp of that over the vocabulary, [N] each, nats.
            Under a softmax log Z is part of the model: scores are log chances, and what is left of log Z is 0.
        """
        windows = encoder.windows(id_LT, length_L)
        score, log_z = [], []
        some = max(1, cells // len(other.outputs.weight))
        for input, target_P in zip(windows.input.split(some), windows.target_P.split(some), strict=True):
            score_PV = self._anchors(encoder, input) @ other.outputs.weight.T
            if self.noise is None:
                score_PV = score_PV.log_softmax(dim=1)
            score_PV = score_PV - self.trained_log_z(encoder, input)[:, None]
            score.append(score_PV.gather(1, target_P[:, None])[:, 0])
            log_z.append(score_PV.logsumexp(dim=1))
        return torch.cat(score), torch.cat(log_z)


def _wide(score: Tensor) -> Tensor:
    """Scores are judged in 32 bits at least."""
    return score.float() if score.dtype == torch.bfloat16 else score


def counts(counted: Counted, ends: bool) -> Tensor:
    """How often each word that may be told stands in the corpus, [V']; the end is the last one."""
    word_V = counted.word_V.double()
    return torch.cat([word_V, word_V.new_tensor([counted.texts])]) if ends else word_V
