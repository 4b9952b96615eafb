"""Which entries of a vocabulary go on with a word. This file imports no torch, so that data workers read it cheaply."""

from tokenizers import Tokenizer


def going_on(tokenizer: Tokenizer) -> list[int]:
    """Numbers of the pieces that go on with the word before them, as WordPiece marks them; none without such a mark."""
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None)
    return [number for word, number in tokenizer.get_vocab().items() if prefix and word.startswith(prefix)]
