"""
A text and its answer in one row, and what sees what there: [CLS] text [SEP] answer [SEP].

The text sees itself alone; the answer sees the text, and of itself what stands before. So one pass gives the text's
vector, the same as without the answer, and tells the answer word by word.

Source:
    Dong et al. 2019 (UniLM), section 2.3, the sequence-to-sequence mask; Su 2020 (SimBERT) for vector and answer of one
    row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.lookup import real


@dataclass(frozen=True)
class Packed:
    """
    Packed rows.

    Args:
        id_LS: vocabulary numbers, special words included.
        segment_LS: 0 for the text and the special words around it, 1 behind.
        source_L: tokens of segment 0.
        whole_L: tokens of a row; what stands behind them fills.
    """

    id_LS: Tensor
    segment_LS: Tensor
    source_L: Tensor
    whole_L: Tensor

    def tells(self) -> Tensor:
        """True [L, S] for places whose state tells the next token: the answer's, and the special word behind it."""
        place_S = torch.arange(self.id_LS.shape[1], device=self.id_LS.device)
        return (place_S >= self.source_L[:, None] - 1) & (place_S < self.whole_L[:, None] - 1)

    def told(self) -> Tensor:
        """Numbers [N] of what those places tell, row after row."""
        return self.id_LS.roll(-1, dims=1)[self.tells()]

    def sees(self) -> Tensor:
        """What each token sees; see `sees`."""
        return sees(self.segment_LS, self.whole_L)


def sees(segment_LS: Tensor, whole_L: Tensor) -> Tensor:
    """
    True [L, 1, S, S] where a token, the first S, sees another, the second.

        j is seen by i  iff  j does not fill, and n[j] <= n[i],   n[i] = segment[0] + .. + segment[i]

    Source:
        Dong et al. 2019 (UniLM), section 2.3.
    """
    count_LS = segment_LS.cumsum(dim=1)
    real_LS = real(whole_L, segment_LS.shape[1])
    return ((count_LS[:, None, :] <= count_LS[:, :, None]) & real_LS[:, None, :])[:, None]


def pack(
    id_LT: Tensor,
    length_L: Tensor,
    answer_LU: Tensor,
    answer_L: Tensor,
    *,
    ends: tuple[int, int],
    room: int,
    filler: int,
) -> Packed:
    """
    Texts and their answers, each pair in one row; a text without an answer stands alone.

    Args:
        id_LT, answer_LU: vocabulary numbers without special words; whatever stands behind an end is not read.
        length_L, answer_L: how many; an answer is cut to what its text leaves (`fitting`).
        ends: the special words before a text, and behind a text and an answer.
        room: most tokens of a text alone, special ones not counted.
        filler: what stands behind the end.
    """
    first, last = ends
    length_L = length_L.clamp(max=room)
    answer_L = fitting(length_L, answer_L, room)
    source_L = length_L + 2
    whole_L = source_L + telling(answer_L)
    place_LS = torch.arange(int(whole_L.max()), device=id_LT.device).expand(len(length_L), -1)
    at_source_LS, at_answer_LS = place_LS - 1, place_LS - source_L[:, None]
    id_LS = torch.full_like(place_LS, filler)
    id_LS = torch.where(at_answer_LS == answer_L[:, None], last, id_LS)
    id_LS = torch.where(at_answer_LS < answer_L[:, None], _picked(answer_LU, at_answer_LS), id_LS)
    id_LS = torch.where(at_answer_LS < 0, last, id_LS)
    id_LS = torch.where(at_source_LS < length_L[:, None], _picked(id_LT, at_source_LS), id_LS)
    id_LS[:, 0] = first
    id_LS = id_LS.where(place_LS < whole_L[:, None], filler)
    return Packed(id_LS, (at_answer_LS >= 0).long(), source_L, whole_L)


def fitting(length_L: Tensor, answer_L: Tensor, room: int) -> Tensor:
    """How many tokens of each answer stand beside its text, [L], the text being cut to `room` itself."""
    return answer_L.minimum(room - 1 - length_L.clamp(max=room)).clamp(min=0)


def telling(answer_L: Tensor) -> Tensor:
    """How many tokens are told of answers of these lengths, [L]: the special word at the end is one of them."""
    return (answer_L + 1).where(answer_L > 0, 0)


def _picked(id_LT: Tensor, at_LS: Tensor) -> Tensor:
    if not id_LT.shape[1]:
        return torch.zeros_like(at_LS)
    return id_LT.gather(1, at_LS.clamp(0, id_LT.shape[1] - 1))
