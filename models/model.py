"""A trained model: texts to vectors, vectors to scores, and how likely words are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models import export
from models.closing import plain, stopping
from models.lane import LaneTerm
from models.method import Method
from models.ngram import Ngram
from models.recipe import Recipe
from models.scorers import Scorer
from models.summand import CELLS
from models.telling import Telling
from models.tokens_scored import PREDICTING, TokenScores
from models.transformer import Transformer
from models.trouble import FolderError, MendableError

ROWS = 512  # texts encoded at once; sorted by length first, so little of it is padding


class NoVectorsError(MendableError, ValueError):
    """A model that tells how likely texts are, asked for vectors."""


@dataclass(frozen=True)
class Model:
    """
    What a folder can do: `encode` texts to vectors, and `score` vectors in the geometry that was trained.

    Args:
        rounding: entered around encoding, as autocast is; scores are in full precision.
    """

    method: Method
    tokenizer: Tokenizer
    lineage: Mapping[str, Any]
    rounding: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.method.parameters()).device

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe that it was trained by."""
        return self.method.recipe

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return sum(width for _, width in self.method.widths())

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """
        Vectors of texts, [N, D] float32, in the order given.

        Where the recipe's readout says `stop`, a text without a closing mark gets a full stop (`models.closing`).

        Raises:
            TypeError: not a list of texts.
            NoVectorsError: the model has none.
        """
        if self.recipe.counting:
            raise NoVectorsError(
                f"recipe {self.recipe.name} counts words and has no vectors; it tells how likely texts are, as in "
                "token_scores([text]) and in evaluation perplexity"
            )
        _check_texts("encode", texts)
        encoded = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        # A transformer sees the words around nothing; others need a word, the unknown one.
        nothing = [] if self.recipe.encoder.kind == "transformer" else [0]
        return self.encode_tokens([entry.ids or nothing for entry in encoded])

    def encode_tokens(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors of texts that are vocabulary numbers already, [N, D] float32."""
        vectors = np.empty((len(ids), self.width), dtype=np.float32)
        by_length = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for first in range(0, len(ids), ROWS):
            rows = by_length[first : first + ROWS]
            vectors[rows] = self._encode([ids[row] for row in rows])
        return vectors

    @property
    def word_counts(self) -> NDArray[np.int64] | None:
        """How often each word was predicted in training, [V'], the end symbol last; None where no one knows."""
        tower = self.method.tower(self.recipe.encoder.towers[0])
        return tower.counts.word_counts if isinstance(tower, Ngram) and tower.counts else None

    def score(self, left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        """How well right vectors answer left ones, [M, N]; larger is better."""
        left_MD, right_ND = (torch.tensor(side, device=self.device) for side in (left, right))
        return self.method.score(left_MD, right_ND).cpu().numpy()

    def token_scores(self, texts: Sequence[str]) -> TokenScores:
        """
        What a language model says of each word of some texts and of their ends, in order of text and place.

        Texts are not cut, however long.

        Raises:
            FolderError: the model is none: it tells no next word.
            TypeError: not a list of texts.
        """
        _check_texts("token_scores", texts)
        return self.score_tokens(self.tokens(texts))

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Vocabulary numbers of each text's words; texts are not cut, however long."""
        _check_texts("tokens", texts)
        whole = Tokenizer.from_str(self.tokenizer.to_str())
        whole.no_truncation()
        return [entry.ids for entry in whole.encode_batch_fast(list(texts), add_special_tokens=False)]

    def score_tokens(self, ids: list[list[int]]) -> TokenScores:
        """As `token_scores`, of texts that are vocabulary numbers already."""
        tower = self.method.tower(self.recipe.encoder.towers[0])
        if isinstance(tower, Ngram):
            return tower.token_scores(ids)
        term = self.method.next_word()
        if term is None:
            raise FolderError(
                f"model of recipe {self.recipe.name} tells no next word; language models are those of encoder.kind = "
                f"{', '.join(sorted(PREDICTING))}"
            )
        parts = [self._token_scores(term, ids[first : first + ROWS], first) for first in range(0, len(ids), ROWS)]
        return TokenScores.joined(parts)

    def log_probability(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """
        Log chance of each text under explicit normalisation, and how many words it is a sum over, ends included.

            log p(text) = sum over its words and its end of s(w, c) - log sum over v of exp s(v, c)

        Returns:
            Nats [N], and counts [N]: exp(-nats.sum() / counts.sum()) is the perplexity.
        Raises:
            FolderError: the model is no language model.
        """
        found = self.token_scores(texts)
        return found.of_texts(len(texts)), np.bincount(found.text_N, minlength=len(texts))

    def normaliser(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """
        Log Z of the context of each word, in order of text and place, [N]: near 0 where scores are log chances already.

        Raises:
            FolderError: the model is no language model.
        """
        return self.token_scores(texts).log_z_N

    def _token_scores(self, term: LaneTerm, ids: list[list[int]], first: int) -> TokenScores:
        telling = cast(Telling, term.objective)
        encoder, other = (cast(Scorer, self.method.tower(name)) for name in (term.tower, term.candidate))
        ids_LT, length_L = _padded(ids)
        score_N, log_z_N = telling.scores(encoder, other, ids_LT.to(self.device), length_L.to(self.device), cells=CELLS)
        text_N = np.repeat(np.arange(first, first + len(ids)), length_L.numpy() + 1)
        return TokenScores(score_N.double().cpu().numpy(), log_z_N.double().cpu().numpy(), text_N)

    def _encode(self, ids: list[Sequence[int]]) -> NDArray[np.float32]:
        ids_LT, length_L = _padded(ids)
        with self.rounding():
            vector_ND = self.method.readout(ids_LT.to(self.device), length_L.to(self.device))
        return vector_ND.float().cpu().numpy()


def _check_texts(name: str, texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise TypeError(f"{name} got one text, {texts[:40]!r}; should be a list of texts, as in {name}([text])")
    wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise TypeError(f"text {wrong} is {texts[wrong]!r}; every text should be a string")


def _padded(ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers [L, T] and lengths [L]."""
    length_L = torch.tensor([len(row) for row in ids])
    ids_LT = torch.zeros(len(ids), max(1, int(length_L.max())), dtype=torch.int64)
    for at, row in enumerate(ids):
        ids_LT[at, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return ids_LT, length_L


def ready(method: Method, words: str, lineage: Mapping[str, Any]) -> Model:
    """The model that a method makes with a tokenizer, given as its JSON; the method is set to evaluation."""
    return Model(method.eval(), _tokenizer(method, plain(words)), lineage)


def _tokenizer(method: Method, words: str) -> Tokenizer:
    """A tokenizer that cuts texts, and closes them if that is wanted."""
    recipe = method.recipe
    tokenizer = Tokenizer.from_str(stopping(words) if recipe.readout.stop else words)
    tokenizer.no_padding()
    encoders = [method.tower(name) for name in recipe.encoder.towers]
    mosts = [export.most_tokens(recipe, encoder) for encoder in encoders if isinstance(encoder, Transformer)]
    tokenizer.enable_truncation(min([recipe.tokenizer.most_tokens, *mosts]))
    return tokenizer
