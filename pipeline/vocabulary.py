"""Words become numbers: a vocabulary that is trained once per corpus name and then pinned, and the `tokens` stage."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from models import recipe
from models.recipe import digest
from pipeline.store import Piece, Store
from pipeline.tables import TOKENS

TOKENS_VERSION = 1
VOCABULARY_VERSION = 1
UNKNOWN = "<unk>"  # number 0; also what padding holds, so lengths and not numbers decide a mask


class VocabularyError(ValueError):
    """A vocabulary that cannot be read or trained."""


def pinned(store: Store, corpus: str, settings: recipe.Tokenizer, sentences: list[Piece]) -> str:
    """
    The tokenizer of a corpus name as JSON: trained on its first use, and the same from then on.

    Raises:
        VocabularyError: kind `saved` without a readable file; no sentence to train on.
    """
    if settings.kind == "saved":
        return saved(settings.path)
    name = f"vocabulary/{corpus}-{digest(VOCABULARY_VERSION, _what_matters(settings))}.json"
    record = store.get(name)
    if record is None:
        trained = train(_sample(store, sentences, settings.sample), settings)
        store.create(name, {"tokenizer": trained, "trained_on": [piece.key for piece in sentences]})
        record = store.get(name)
        assert record is not None
    return str(record["tokenizer"])


def is_pinned(store: Store, corpus: str, settings: recipe.Tokenizer) -> bool:
    """Whether `pinned` would train nothing."""
    name = f"vocabulary/{corpus}-{digest(VOCABULARY_VERSION, _what_matters(settings))}.json"
    return settings.kind == "saved" or store.get(name) is not None


def saved(path: str) -> str:
    """A tokenizer.json, or that of a model folder."""
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        return Tokenizer.from_file(str(file)).to_str()
    except Exception as error:
        raise VocabularyError(
            f'tokenizer.path is "{path}": {error}; give a tokenizer.json or a folder that holds one'
        ) from None


def train(batches: Iterator[list[str]], settings: recipe.Tokenizer) -> str:
    """A new tokenizer as JSON; unknown words are number 0."""
    special = [UNKNOWN]
    if settings.kind == "wordpiece":
        special += ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=settings.size, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(vocab_size=settings.size, special_tokens=special, show_progress=False)
    if settings.lowercase:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.train_from_iterator(batches, trainer)
    if tokenizer.get_vocab_size() <= len(special):
        raise VocabularyError("no word to train a vocabulary on: the corpus has no training sentence")
    return tokenizer.to_str()


def tokens(sentences: pl.DataFrame, tokenizer: Tokenizer) -> pl.DataFrame:
    """Each sentence as vocabulary numbers, row-aligned with `sentences`; cut where the tokenizer truncates."""
    encoded = tokenizer.encode_batch_fast(sentences["text"].to_list(), add_special_tokens=False)
    ids = pl.Series("tokens", [entry.ids for entry in encoded], dtype=pl.List(pl.Int32))
    return TOKENS.check(ids.to_frame())


def open_tokenizer(text: str, most_tokens: int) -> Tokenizer:
    """A tokenizer from its JSON; longer sentences are cut."""
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.enable_truncation(most_tokens)
    return tokenizer


def size(text: str) -> int:
    """Entries of a tokenizer's vocabulary."""
    return Tokenizer.from_str(text).get_vocab_size()


def words(text: str) -> dict[str, int]:
    """Entry and number of a tokenizer's vocabulary."""
    return dict(Tokenizer.from_str(text).get_vocab())


def _what_matters(settings: recipe.Tokenizer) -> dict[str, object]:
    return json.loads(settings.model_dump_json(exclude={"most_tokens", "path"}))


def _sample(store: Store, sentences: list[Piece], most: int) -> Iterator[list[str]]:
    """Training sentences, evenly from all shards: every k-th where there are more than `most`."""
    every = max(1, -(-sum(piece.rows for piece in sentences) // most))
    for piece in sentences:
        rows = store.read(piece, ["held_out", "text"]).filter(~pl.col("held_out"))
        yield rows["text"].gather_every(every).to_list()
