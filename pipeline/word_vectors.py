"""Ready-made word vectors: a text file with a word and its numbers on each line, as GloVe and word2vec write it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.recipe import Recipe
from models.trouble import MendableError
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor


class WordVectorsError(MendableError, ValueError):
    """Word vectors that cannot be read."""


def tables(recipe: Recipe, vocabulary: Vocabulary) -> "dict[str, Tensor]":
    """
    The tables that towers name by path, by that name, each [V, word width]; words that a file lacks are zero.

    Raises:
        WordVectorsError: no file, or a line that is not a word and its numbers.
    """
    return {name: read(name, vocabulary.words()) for name in named(recipe)}


def named(recipe: Recipe) -> list[str]:
    """Files of word vectors that a recipe's towers name, each once."""
    towers = recipe.encoder.towers
    names = [str(recipe.encoder.tower(tower).get("table", "")) for tower in towers]
    return [name for name in dict.fromkeys(names) if name and name not in towers]


def check(recipe: Recipe) -> None:
    """
    Fail before any work where a table is wanted and not there.

    Raises:
        WordVectorsError: naming the key to set.
    """
    for tower in recipe.encoder.towers:
        options = recipe.encoder.tower(tower)
        table = str(options.get("table", ""))
        if options.get("frozen") and not table:
            raise WordVectorsError(
                f"encoder.{tower} is frozen and has no table, so its words would stay random; give a text file of word "
                f"vectors: --set encoder.{tower}.table=PATH"
            )
        if table and table not in recipe.encoder.towers and not Path(table).is_file():
            raise WordVectorsError(
                f'encoder.{tower}.table is "{table}": no such file; give a text file of word vectors'
            )


def read(path: str, vocabulary: dict[str, int]) -> "Tensor":
    """Vectors of the vocabulary's words, [V, width]; a first line of two numbers (word2vec's header) is passed over."""
    found: dict[int, np.ndarray] = {}
    width = 0
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, rest = line.rstrip().partition(" ")
            if number == 1 and rest.isdigit():
                continue
            width = width or len(rest.split())
            if word in vocabulary and not _phrase(rest, width):
                found[vocabulary[word]] = _numbers(rest, width, f"{path}, line {number}")
    if not found:
        raise WordVectorsError(
            f"{path}: none of the {len(vocabulary)} words of the vocabulary; is it of the same language and case?"
        )
    table = np.zeros((1 + max(vocabulary.values()), width), dtype=np.float32)
    table[list(found)] = list(found.values())
    from torch import from_numpy  # not for those who only read words

    return from_numpy(table)


def _phrase(rest: str, width: int) -> bool:
    """Whether the entry goes on with more words before its numbers; GloVe's largest file has `. . .` and the like."""
    more = rest.split()[:-width]
    return bool(more) and not all(_is_number(word) for word in more)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers(text: str, width: int, where: str) -> np.ndarray:
    try:
        values = np.array(text.split(), dtype=np.float32)
    except ValueError:
        values = np.zeros(0, dtype=np.float32)
    if len(values) != width:
        raise WordVectorsError(
            f"{where}: {len(text.split())} numbers after the word, should be {width} as on the first line"
        )
    return values
