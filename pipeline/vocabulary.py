"""Words become numbers: a vocabulary that is made once per corpus name and then pinned, and the `tokens` stage."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from models import recipe
from models.closing import plain
from models.recipe import digest
from models.trouble import MendableError
from pipeline.store import Piece, Store
from pipeline.tables import TOKENS

TOKENS_VERSION = 1
VOCABULARY_VERSION = 1
ENCODED = 4_000  # sentences that are encoded at once
COUNTED = 100_000  # sentences in which entries are counted, evenly from all shards
UNKNOWN = "<unk>"  # number 0; also what padding holds, so lengths and not numbers decide a mask


class VocabularyError(MendableError, ValueError):
    """A vocabulary that cannot be read or trained."""


@dataclass(frozen=True)
class Vocabulary:
    """
    A pinned tokenizer, and how often each of its entries stands in a sample of the corpus that it was pinned on.

    `texts` is the sample's number of sentences; 0: it was not kept.
    """

    tokenizer: str
    counts: tuple[int, ...]
    texts: int = 0

    @property
    def size(self) -> int:
        """Entries."""
        return len(self.counts)

    @property
    def ends(self) -> float:
        """Sentences of the sample; of a vocabulary that did not keep their number, one of twenty words each."""
        return self.texts or sum(self.counts) / 20

    @property
    def digest(self) -> str:
        """Names the vocabulary in keys."""
        return digest(self.tokenizer, list(self.counts), *([self.texts] if self.texts else []))

    def words(self) -> dict[str, int]:
        """Entry and number."""
        return dict(Tokenizer.from_str(self.tokenizer).get_vocab())


def pinned(
    store: Store, corpus: str, settings: recipe.Tokenizer, sentences: list[Piece], table: Iterable[str] = ()
) -> Vocabulary:
    """
    The vocabulary of a corpus name: made on its first use, and the same from then on.

    Args:
        table: for kind `table`, its words in order.
    Raises:
        VocabularyError: kind `saved` without a readable file; no sentence to train on.
    """
    ready = saved(settings.path) if settings.kind == "saved" else None
    ready = of_words(table, settings) if settings.kind == "table" else ready
    unset = set() if settings.leave_out else {"leave_out"}
    what = settings.model_dump(exclude={"most_tokens", "path"} | unset)
    what |= {"leave_out": _left_out(settings)} if settings.leave_out else {}
    name = f"vocabulary/{corpus}-{digest(VOCABULARY_VERSION, what, ready)}.json"
    record = store.get(name)
    if record is None:
        tokenizer = ready or train(lambda: _sample(store, sentences, settings.sample), settings)
        counts = count(_sample(store, sentences, COUNTED), tokenizer)
        texts = sum(map(len, _sample(store, sentences, COUNTED)))
        made_from = [piece.key for piece in sentences]
        store.create(name, {"tokenizer": tokenizer, "counts": counts, "texts": texts, "made_from": made_from})
        record = store.get(name)
        assert record is not None
    return Vocabulary(record["tokenizer"], tuple(record["counts"]), record.get("texts", 0))


def saved(path: str) -> str:
    """
    A tokenizer.json, or that of a model folder, as JSON; a closing mark that the model's readout adds is left out.

    Raises:
        VocabularyError: it cannot be read.
    """
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    try:
        return plain(Tokenizer.from_file(str(file)).to_str())
    except Exception as error:  # the library raises no class of its own
        raise VocabularyError(
            f'tokenizer.path is "{path}": {error}; give a tokenizer.json or a folder that holds one'
        ) from None


def of_words(words: Iterable[str], settings: recipe.Tokenizer) -> str:
    """A tokenizer of given words as JSON, behind the unknown one; of words that it would never see none is left out."""
    numbers = {UNKNOWN: 0}
    for word in words:
        numbers.setdefault(word, len(numbers))
    return str(_word_level(settings, models.WordLevel(numbers, unk_token=UNKNOWN)).to_str())


def train(texts: Callable[[], Iterator[list[str]]], settings: recipe.Tokenizer) -> str:
    """
    A new tokenizer as JSON, the same for the same texts; unknown words are number 0.

    Args:
        texts: called for each pass over the texts.
    Raises:
        VocabularyError: no word in the texts.
    """
    special = [UNKNOWN, "[PAD]", "[CLS]", "[SEP]", "[MASK]"] if settings.kind == "wordpiece" else [UNKNOWN]
    trained = _wordpiece(settings, special, texts) if settings.kind == "wordpiece" else _words(settings, special, texts)
    if Tokenizer.from_str(trained).get_vocab_size() <= len(special):
        raise VocabularyError("no word to train a vocabulary on: the corpus has no training sentence")
    return trained


def _wordpiece(settings: recipe.Tokenizer, special: list[str], texts: Callable[[], Iterator[list[str]]]) -> str:
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=settings.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The trainer numbers letters inside words in the order of a hash table that differs from run to run, and equally
    # frequent pairs go by those numbers. Naming the letters first, in order, leaves nothing to chance.
    letters: set[str] = set()
    for batch in texts():
        letters.update(tokenizer.normalizer.normalize_str("\n".join(batch)))
    inside = [f"##{letter}" for letter in sorted(letters) if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size, special_tokens=[*special, *inside], show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tree = json.loads(tokenizer.to_str())
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] in special]
    return json.dumps(tree, ensure_ascii=False)


def _words(settings: recipe.Tokenizer, special: list[str], texts: Callable[[], Iterator[list[str]]]) -> str:
    tokenizer = _word_level(settings, models.WordLevel(unk_token=UNKNOWN))
    trainer = trainers.WordLevelTrainer(vocab_size=settings.size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    return str(tokenizer.to_str())


def _word_level(settings: recipe.Tokenizer, model: models.WordLevel) -> Tokenizer:
    tokenizer = Tokenizer(model)
    steps = _normalizers(settings)
    if settings.leave_out:
        every = "|".join(re.escape(word) for word in sorted(_left_out(settings), key=len, reverse=True))
        steps.append(normalizers.Replace(Regex(rf"(?<!\w)(?:{every})(?!\w)"), " "))
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def _normalizers(settings: recipe.Tokenizer) -> list[normalizers.Normalizer]:
    return [normalizers.NFKC(), normalizers.Lowercase()] if settings.lowercase else []


def _left_out(settings: recipe.Tokenizer) -> tuple[str, ...]:
    """Words that no text keeps, written as texts are when they are taken out."""
    written = normalizers.Sequence(_normalizers(settings))
    return tuple(written.normalize_str(word) for word in settings.leave_out)


def count(batches: Iterator[list[str]], tokenizer: str) -> list[int]:
    """How often each entry stands in some texts, by number."""
    opened = Tokenizer.from_str(tokenizer)
    opened.no_padding()
    opened.no_truncation()
    total = np.zeros(1 + max(opened.get_vocab().values()), dtype=np.int64)  # numbers of ready-made ones have gaps
    for texts in batches:
        for ids in encoded(texts, opened):
            total += np.bincount(ids.explode().to_numpy(), minlength=len(total))
    return [int(times) for times in total]


def tokens(sentences: pl.DataFrame, tokenizer: Tokenizer) -> pl.DataFrame:
    """Each sentence as vocabulary numbers, row-aligned with `sentences`; cut where the tokenizer truncates."""
    parts = [TOKENS.empty(), *(ids.to_frame() for ids in encoded(sentences["text"].to_list(), tokenizer))]
    return TOKENS.check(pl.concat(parts))


def encoded(texts: list[str], tokenizer: Tokenizer) -> Iterator[pl.Series]:
    """Texts as columns of vocabulary numbers, some at a time: the library's own records are large."""
    for start in range(0, len(texts), ENCODED):
        entries = tokenizer.encode_batch_fast(texts[start : start + ENCODED], add_special_tokens=False)
        yield pl.Series("tokens", [entry.ids or [0] for entry in entries], dtype=pl.List(pl.Int32))


def unknown(tokenizer: Tokenizer) -> int:
    """The number of what the vocabulary lacks; -1 where it lacks nothing."""
    name = getattr(tokenizer.model, "unk_token", None)
    number = tokenizer.token_to_id(name) if name else getattr(tokenizer.model, "unk_id", None)
    return -1 if number is None else int(number)


def open_tokenizer(text: str, most_tokens: int) -> Tokenizer:
    """A tokenizer from its JSON; longer sentences are cut."""
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.enable_truncation(most_tokens)
    return tokenizer


def _sample(store: Store, sentences: list[Piece], most: int) -> Iterator[list[str]]:
    """Training sentences, evenly from all shards: every k-th where there are more than `most`."""
    every = max(1, -(-sum(piece.rows for piece in sentences) // most))
    for piece in sentences:
        rows = store.read(piece, ["held_out", "text"]).filter(~pl.col("held_out"))
        yield rows["text"].gather_every(every).to_list()
