"""What augmentation may know of a vocabulary. This file imports no torch: data workers read it."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models.pieces import going_on
from pipeline.ragged import Flags, Whole

MASKS = ("[MASK]", "<mask>")
STOP = re.compile("[.\u3002\uff0e\uff61]+[\"'\u201d\u2019\u00bb\u300d\u300f)\\]\uff09]*")  # full stops, perhaps a quote


@dataclass(frozen=True, eq=False)
class Lexicon:
    """
    Entries of a vocabulary by number.

    Args:
        continues_V: goes on with the word before it.
        special_V: no word of any text: first, last, padding, mask and the like.
        stops_V: a full stop, European or Chinese, perhaps with a closing quote.
        word_W: numbers of all others that are known, without the one for unknown words.
        mask: number of the mask word; -1: there is none.
    """

    continues_V: Flags
    special_V: Flags
    stops_V: Flags
    word_W: Whole
    mask: int

    @classmethod
    def of(cls, tokenizer: str) -> "Lexicon":
        """From a tokenizer's JSON; where no prefix marks what goes on, every entry is a word."""
        opened = Tokenizer.from_str(tokenizer)
        words = opened.get_vocab()
        flags = lambda numbers: _flags(1 + max(words.values()), numbers)
        unknown = {opened.token_to_id(name) for name in [getattr(opened.model, "unk_token", None)] if name}
        added = {number for number, token in opened.get_added_tokens_decoder().items() if token.special}
        masks = [words[name] for name in MASKS if name in words]
        special = (added | set(masks[:1])) - unknown
        written = opened.decode_batch([[number] for number in words.values()], skip_special_tokens=False)
        stops = [number for number, text in zip(words.values(), written, strict=True) if STOP.fullmatch(text.strip())]
        known = np.array(sorted(set(words.values()) - special - unknown), dtype=np.int64)
        return cls(flags(going_on(opened)), flags(special), flags(stops), known, masks[0] if masks else -1)


def _flags(size: int, numbers: list[int] | set[int]) -> NDArray[np.bool_]:
    flags_V = np.zeros(size, dtype=np.bool_)
    flags_V[list(numbers)] = True
    return flags_V
