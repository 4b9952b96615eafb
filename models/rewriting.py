"""Rewriting: other ways to say a text, drawn from a model that was trained to write answers."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders

from models.decoding import Drawing, answers
from models.model import Model
from models.transformer import Transformer
from models.trouble import FolderError, MendableError
from models.views import NAMES
from models.wording import FILLERS, UNKNOWN

TIMES, TRIES = 2, 5  # texts drawn at once for each that is wanted, and how often
AT_ONCE = 512  # rows that are written together, of many texts
CLOSE = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]"  # letters and marks that stand without spaces between them


class RewriteError(MendableError, ValueError):
    """A text that cannot be rewritten."""


@dataclass(frozen=True)
class Rewrites:
    """
    What was found.

    Args:
        texts: the most similar first.
        scores: the model's similarity of each to the text.
        drawn: how many were drawn; of them `empty`, `copies` of the text, and `repeated`.
    """

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    drawn: int
    empty: int
    copies: int
    repeated: int


def writer(model: Model) -> Transformer:
    """
    The encoder of a model that writes.

    Raises:
        FolderError: it was not trained to.
    """
    if not model.method.generating:
        raise FolderError(
            f"model of recipe {model.recipe.name} writes nothing: none of its terms generates; train one that does, as "
            'firth retrain simbert, or add a term with objective = { kind = "generation" }'
        )
    return cast(Transformer, model.method.tower(model.method.generating[0].tower))


def rewritten(model: Model, text: str, most: int = 10, drawing: Drawing | None = None, seed: int = 0) -> Rewrites:
    """
    Texts that say the same in other words, each once and none the text itself, the most similar first.

    Twice as many are drawn as are wanted, and again, a few times, while too few differ; of all of them the `most` most
    similar are left. There may be fewer.

    Args:
        seed: the same gives the same texts.
    Raises:
        FolderError: the model does not write.
        RewriteError: the text says nothing, or leaves no room; nothing but copies and empty texts came.
    Source:
        Su 2020 (SimBERT): texts drawn from the top k, then ranked by the model's own vectors.
    """
    drawing, encoder = drawing or Drawing(), writer(model)
    if most < 1:
        raise RewriteError(f"{most} texts are wanted; should be at least 1")
    asked, never = _asked(model, encoder, text), forbidden(model.tokenizer, encoder)
    generator, gathered = torch.Generator().manual_seed(seed), Gathered(model.tokenizer, text)
    for _ in range(TRIES):
        draw_BMU = torch.rand(1, most * TIMES, drawing.longest, generator=generator, dtype=torch.float64)
        with model.rounding():
            [rows] = answers(encoder, asked, draw_BMU, never, drawing)
        for row in rows:
            gathered.add(row)
        if len(gathered.others) >= most:
            break
    if not gathered.others:
        raise RewriteError(
            f"none of {gathered.drawn} texts that were drawn is another one: {gathered.empty} are empty, "
            f"{gathered.copies} say the same; train the model longer, or draw from more words: top_k"
        )
    return _ranked(model, [gathered], most)[0]


class Gathered:
    """Texts that were drawn for a text, each once and none that says the same as it."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text
        self.own, self.others = alike(tokenizer, text), dict[str, str]()
        self.drawn = self.empty = self.copies = self.repeated = 0

    def add(self, numbers: Sequence[int]) -> None:
        """One more, as vocabulary numbers."""
        said = spoken(self.tokenizer, numbers)
        name = alike(self.tokenizer, said)
        self.drawn += 1
        self.empty += not name
        self.copies += bool(name) and name == self.own
        self.repeated += name in self.others
        if name and name != self.own:
            self.others.setdefault(name, said)

    def best(self, score_N: NDArray[np.float32], most: int) -> Rewrites:
        """Those with the highest scores."""
        others, best = list(self.others.values()), np.argsort(-score_N, kind="stable")[:most]
        texts, scores = tuple(others[row] for row in best), tuple(float(score_N[row]) for row in best)
        return Rewrites(texts, scores, self.drawn, self.empty, self.copies, self.repeated)


def reworded(
    model: Model, texts: Sequence[str], seeds: Sequence[int], most: int, drawing: Drawing | None = None
) -> list[Rewrites]:
    """
    Many texts in other words; each gets twice as many draws as are wanted, once, and may end with fewer or none.

    Args:
        seeds: one a text, which alone decides what is drawn for it.
    Raises:
        FolderError: the model does not write.
    """
    drawing, encoder = drawing or Drawing(), writer(model)
    never = forbidden(model.tokenizer, encoder)
    numbers = [entry.ids for entry in model.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    found = [Gathered(model.tokenizer, text) for text in texts]
    for rows in _together(numbers, max(1, AT_ONCE // (most * TIMES)), encoder.room() - 2):
        draws = [np.random.default_rng(seeds[row]).random((most * TIMES, drawing.longest)) for row in rows]
        id_BT = torch.tensor([numbers[row] for row in rows], dtype=torch.int64, device=model.device)
        with model.rounding():
            written = answers(encoder, id_BT, torch.from_numpy(np.stack(draws)), never, drawing)
        for row, said in zip(rows, written, strict=True):
            for one in said:
                found[row].add(one)
    return _ranked(model, found, most)


def _together(numbers: Sequence[Sequence[int]], size: int, most: int) -> Iterator[list[int]]:
    """Rows of texts of the same length, some at a time; empty ones, and those above the most tokens, are left out."""
    order = sorted((row for row, one in enumerate(numbers) if 0 < len(one) <= most), key=lambda row: len(numbers[row]))
    for _, group in groupby(order, key=lambda row: len(numbers[row])):
        rows = list(group)
        yield from (rows[first : first + size] for first in range(0, len(rows), size))


def _ranked(model: Model, found: Sequence[Gathered], most: int) -> list[Rewrites]:
    """What was gathered for some texts, by the model's own similarity."""
    asked_ND = model.encode([one.text for one in found])
    other_MD = model.encode([other for one in found for other in one.others.values()])
    ends = np.cumsum([len(one.others) for one in found])
    stretches = zip(found, asked_ND, np.split(other_MD, ends[:-1]), strict=True)
    return [one.best(model.score(asked_D[None], other_ND)[0], most) for one, asked_D, other_ND in stretches]


def forbidden(tokenizer: Tokenizer, encoder: Transformer) -> list[int]:
    """Numbers of the words that no text is written with: special ones but the last, and those without a name."""
    unknown = getattr(tokenizer.model, "unk_token", None)
    names = {name for role in NAMES.values() for name in role} | {*FILLERS, *UNKNOWN, unknown}
    named = {number for name in names if name and (number := tokenizer.token_to_id(name)) is not None}
    special = {number for number, word in tokenizer.get_added_tokens_decoder().items() if word.special}
    known = set(tokenizer.get_vocab().values())
    nameless = {number for number in range(encoder.vocabulary()) if number not in known}
    return sorted((named | special | nameless) - {encoder.ends()[1]})


def spoken(tokenizer: Tokenizer, numbers: Sequence[int]) -> str:
    """A text of vocabulary numbers: pieces joined to words, and no space where none belongs."""
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None)
    if tokenizer.decoder is None and prefix:
        words = [word for number in numbers if (word := tokenizer.id_to_token(number)) is not None]
        text = decoders.WordPiece(prefix=prefix).decode(words)
    else:
        text = tokenizer.decode(list(numbers))
    text = re.sub(rf"(?<={CLOSE})\s+|\s+(?={CLOSE})", "", text)
    return " ".join(text.split())


def alike(tokenizer: Tokenizer, text: str) -> str:
    """What two texts have in common that say the same: letters, their marks and digits, as the model reads them."""
    plain = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    plain = unicodedata.normalize("NFKC", plain).casefold()
    return "".join(sign for sign in plain if unicodedata.category(sign)[0] in "LMN") or "".join(text.split())


def _asked(model: Model, encoder: Transformer, text: str) -> torch.Tensor:
    """The text as numbers, [1, T]."""
    if not text.strip():
        raise RewriteError('the text is empty; give one, as in firth rewrite MODEL "how is a table sorted"')
    numbers = model.tokenizer.encode(text, add_special_tokens=False).ids
    room = encoder.room() - len(numbers) - 1
    if room < 1:
        raise RewriteError(
            f"the text fills all {encoder.room()} tokens that the model reads, so that none is left to write; give a "
            "shorter one"
        )
    return torch.tensor([numbers], dtype=torch.int64, device=model.device)
