"""Generation: a text's answer is told word by word, in the row that also gives the text's vector."""

from dataclasses import dataclass

from torch import Tensor

from models.masked import nats
from models.packed import fitting, pack, telling
from models.transformer import Transformer


def generation() -> None:
    """
    An objective without candidates: each row tells the clean text of its answer.

        sum over rows, and over their answers' tokens, of - log p(token | text, answer so far)

    A mean is over the told tokens of the whole batch, the special word behind each answer included.

    Source:
        Su 2020 (SimBERT); the language model of Dong et al. 2019 (UniLM), section 2.3.
    """


@dataclass(frozen=True)
class Generating:
    """A term that generates, of one tower."""

    tower: str
    weight: float
    mean: bool

    def share(self, encoder: Transformer, length_B: Tensor, answer_B: Tensor) -> float:
        """What a nat of a lane weighs in the loss of the whole batch, whose texts and answers are so long."""
        return self.weight / (max(1, told(encoder, length_B, answer_B)) if self.mean else 1)


def told(encoder: Transformer, length_B: Tensor, answer_B: Tensor) -> int:
    """How many tokens are told where texts and answers are so long."""
    return int(telling(fitting(length_B, answer_B, encoder.room())).sum())


def matched_and_told(
    encoder: Transformer, id_LT: Tensor, length_L: Tensor, answer_LU: Tensor, answer_L: Tensor, *, telling: bool = True
) -> tuple[Tensor, Tensor]:
    """
    Vectors [L, D] of texts, and the nats [] that their answers take, summed over the told tokens; of one pass.

    Args:
        id_LT, answer_LU: vocabulary numbers without special words.
        telling: without, the nats are 0: what a vocabulary costs is saved.
    """
    rows = pack(id_LT, length_L, answer_LU, answer_L, ends=encoder.ends(), room=encoder.room(), filler=encoder.filler)
    vector_LD, state_ND = encoder.packed(rows)
    return vector_LD, nats(encoder, state_ND, rows.told()) if telling else vector_LD.new_zeros(())
