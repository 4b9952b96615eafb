"""
Answers drawn word by word: a text is read once, and what each layer made of it is kept.

Letters besides those of `models`: S tokens of a text with the special words around it, M answers of each text, N rows
that are being written, U words of an answer at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.transformer import Transformer


@dataclass(frozen=True)
class Drawing:
    """
    How the next word is drawn.

    Args:
        top_k: from so many likeliest words; 0: from all.
        top_p: and of those from the likeliest that together have this chance.
        longest: most words of an answer.
    Raises:
        ValueError: a number out of its range.
    Source:
        Fan, Lewis and Dauphin 2018, section 5.1 (top k); Holtzman et al. 2020, section 3.1 (top p).
    """

    top_k: int = 5
    top_p: float = 1.0
    longest: int = 32

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; a number of words, or 0 for all of them")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; a chance above 0, up to 1")
        if self.longest < 1:
            raise ValueError(f"longest is {self.longest}; an answer has at least 1 word")


def pick(score_NV: Tensor, draw_N: Tensor, drawing: Drawing) -> Tensor:
    """
    One word a row [N], by its chance among those that are left: first the top k, then of them the top p.

        p(w) = exp score(w) / sum over the words left of exp score

    Args:
        score_NV: -inf for words that never come.
        draw_N: numbers from 0 to below 1; a word has as large a share of them as its chance, the likeliest first.
    """
    score_NK, word_NK = score_NV.double().topk(min(drawing.top_k or score_NV.shape[1], score_NV.shape[1]), dim=1)
    chance_NK = score_NK.softmax(dim=1)
    before_NK = chance_NK.cumsum(dim=1) - chance_NK
    chance_NK = chance_NK.where(before_NK < drawing.top_p, 0.0)
    reached_NK = chance_NK.cumsum(dim=1)
    left_N = (chance_NK > 0).sum(dim=1)
    place_N = (reached_NK <= draw_N.to(reached_NK)[:, None] * reached_NK[:, -1:]).sum(dim=1)
    return word_NK.gather(1, place_N.minimum(left_N - 1)[:, None])[:, 0]


class Reading:
    """
    Texts as far as they have been read: keys and values of each layer, which the words of an answer look back at.

    A text's own tokens see each other and nothing behind them; each word of an answer sees the text and what stands
    before it. So nothing that was read changes by what is read later.

    Args:
        id_BT: texts of the same length, vocabulary numbers without special words.
    """

    def __init__(self, encoder: Transformer, id_BT: Tensor) -> None:
        from transformers import DynamicCache  # 4 s, so only where needed

        self.encoder, self.kept = encoder, DynamicCache()
        first, last = encoder.ends()
        around = lambda number: id_BT.new_full((len(id_BT), 1), number)
        self.state_ND = self._read(torch.cat([around(first), id_BT, around(last)], dim=1), segment=0)

    def repeat(self, times: int) -> None:
        """Each row so often, one behind the other."""
        self.kept.batch_repeat_interleave(times)
        self.state_ND = self.state_ND.repeat_interleave(times, dim=0)

    def keep(self, row_R: Tensor) -> None:
        """These rows alone."""
        self.kept.batch_select_indices(row_R)
        self.state_ND = self.state_ND[row_R]

    def read(self, word_N: Tensor) -> None:
        """The next word of each row."""
        self.state_ND = self._read(word_N[:, None], segment=1)

    def scores(self) -> Tensor:
        """Scores [N, V] of the word that comes next."""
        return self.encoder.words_at(self.state_ND)

    def _read(self, id_NS: Tensor, segment: int) -> Tensor:
        """State [N, D] of the last of some tokens, each of which sees all that was read, and the others."""
        seen = self.kept.get_seq_length() + id_NS.shape[1]
        given: dict[str, Any] = {"input_ids": id_NS, "cache": self.kept}
        # Masks of four dimensions reach attention as they are; the library's own would count from what is kept.
        given["attention_mask"] = torch.ones(len(id_NS), 1, id_NS.shape[1], seen, dtype=torch.bool, device=id_NS.device)
        if self.encoder.segmented:
            given["token_type_ids"] = torch.full_like(id_NS, segment)
        state_NSD: Tensor = self.encoder.body(**given).last_hidden_state
        return state_NSD[:, -1]


@torch.no_grad()
def answers(
    encoder: Transformer, id_BT: Tensor, draw_BMU: Tensor, never: Sequence[int], drawing: Drawing
) -> list[list[list[int]]]:
    """
    M answers of each of some texts of the same length, the special word at the end left out; they may be empty.

    Args:
        id_BT: vocabulary numbers without special words.
        draw_BMU: numbers from 0 to below 1, one a word; they decide all, whatever else is in the batch.
        never: words that never come.
    """
    reading, last = Reading(encoder, id_BT), encoder.ends()[1]
    texts, times = draw_BMU.shape[:2]
    reading.repeat(times)
    written: list[list[int]] = [[] for _ in range(texts * times)]
    draw_NU, live_N = draw_BMU.flatten(0, 1), torch.arange(texts * times, device=id_BT.device)
    most = min(drawing.longest, draw_NU.shape[1], encoder.room() - id_BT.shape[1] - 1)
    for place in range(most):
        score_NV = reading.scores()
        score_NV[:, list(never)] = -torch.inf
        word_N = pick(score_NV, draw_NU[live_N.to(draw_NU.device), place], drawing)
        on_R = (word_N != last).nonzero().flatten()
        live_N, word_N = live_N[on_R], word_N[on_R]
        for row, word in zip(live_N.tolist(), word_N.tolist(), strict=True):
            written[row].append(word)
        if not len(on_R) or place == most - 1:
            break
        if len(on_R) < len(score_NV):
            reading.keep(on_R)
        reading.read(word_N)
    return [written[text * times : (text + 1) * times] for text in range(texts)]
