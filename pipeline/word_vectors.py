"""
Ready-made word vectors: a file with a word and its numbers in each row, in text as GloVe writes it or binary as
word2vec does, or an installed package that carries a table of words beside their numbers.
"""

import importlib.metadata
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from models.recipe import Recipe, file_digest
from models.trouble import MendableError
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

PEEK = 4096  # bytes by which a binary file is known
REMEDY = "give a text or binary file of word vectors, or install a package that carries them"
Entry = tuple[int, str, np.ndarray | str]  # line or row, from 1; word; numbers, as text where they are to be read yet


class WordVectorsError(MendableError, ValueError):
    """Word vectors that cannot be read."""


def tables(recipe: Recipe, vocabulary: Vocabulary) -> "dict[str, Tensor]":
    """
    The tables that towers name by path or package, by that name, each [V, word width]; words that it lacks are zero.

    Raises:
        WordVectorsError: no such table, or a row that is not a word and its numbers.
    """
    return {name: read(name, vocabulary.words()) for name in named(recipe)}


def named(recipe: Recipe) -> list[str]:
    """Word vectors that a recipe's towers name, each once."""
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
                f"encoder.{tower} is frozen and has no table, so its words would stay random; give a file of word "
                f"vectors, or a package that carries them: --set encoder.{tower}.table=PATH"
            )
        if table and table not in recipe.encoder.towers:
            try:
                paths(table)
            except WordVectorsError as error:
                raise WordVectorsError(f'encoder.{tower}.table is "{table}": {error}') from None


def paths(name: str) -> list[Path]:
    """
    Files that hold the word vectors of a name: that file, or of an installed package its words and their numbers.

    Raises:
        WordVectorsError: there is neither.
    """
    if Path(name).is_file():
        return [Path(name)]
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        try:
            inside = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            raise WordVectorsError(f"no such file, and no package of that name is installed; {REMEDY}") from None
        found = [[Path(str(file.locate())) for file in inside if file.suffix == end] for end in (".parquet", ".npy")]
        if all(len(some) == 1 for some in found):
            return [some[0] for some in found]
        raise WordVectorsError(
            f"package {name} carries {len(found[0])} .parquet and {len(found[1])} .npy files; should be one of words "
            f"and one of their numbers; {REMEDY}"
        )
    raise WordVectorsError(f"no such file; {REMEDY}")


def digests(name: str) -> list[str]:
    """Digests of the bytes of a name's files; none for no name."""
    return [file_digest(path) for path in paths(name)] if name else []


def read(name: str, vocabulary: dict[str, int]) -> "Tensor":
    """
    Vectors of the vocabulary's words, [V, width].

    Args:
        name: path of a file, whose first line may count words and numbers, or name of a package.
        vocabulary: words and their numbers.
    Raises:
        WordVectorsError: no such table, or one of no known word; a row of another width, a blank word, or one of the
            vocabulary's words that is there twice or has what is no finite number.
    """
    found: dict[int, np.ndarray] = {}
    width = 0
    row_of: dict[str, int] = {}
    for row, word, numbers in _entries(name):
        if not word.strip():
            raise WordVectorsError(f"{_where(name, row)}: a blank word; drop the row")
        if word not in vocabulary:
            continue
        if word in row_of:
            raise WordVectorsError(
                f'{_where(name, row)}: "{word}" stands in row {row_of[word]} too; drop one of the rows'
            )
        row_of[word] = row
        values = _numbers(numbers, _where(name, row)) if isinstance(numbers, str) else numbers
        if not np.isfinite(values).all():
            wrong = values[~np.isfinite(values)][0]
            raise WordVectorsError(f'{_where(name, row)}: "{word}" has {wrong}, should be finite; mend or drop the row')
        found[vocabulary[word]], width = values, len(values)
    if not found:
        raise WordVectorsError(
            f"{name}: none of the {len(vocabulary)} words of the vocabulary; is it of the same language and case?"
        )
    table = np.zeros((1 + max(vocabulary.values()), width), dtype=np.float32)
    table[list(found)] = list(found.values())
    from torch import from_numpy  # not for those who only read words

    return from_numpy(table)


def words(name: str) -> Iterator[str]:
    """
    The words of a table in order.

    Raises:
        WordVectorsError: no such table, or a blank word.
    """
    for row, word, _ in _entries(name):
        if not word.strip():
            raise WordVectorsError(f"{_where(name, row)}: a blank word; drop the row")
        yield word


def scarce(recipe: Recipe, vocabulary: Vocabulary) -> list[str]:
    """A warning for each table that lacks more than half of the corpus's words, as often as they stand there."""
    return [note for name in named(recipe) if (note := _scarce(name, vocabulary))]


def _scarce(name: str, vocabulary: Vocabulary) -> str:
    words = vocabulary.words()
    known_V = (read(name, words) != 0).any(dim=1).numpy()
    count_V = np.zeros(len(known_V), np.int64)
    count_V[list(words.values())] = [vocabulary.counts[number] for number in words.values()]
    lost, every = int(count_V[~known_V].sum()), int(count_V.sum())
    return f"{name}: {lost:,} of {every:,} words have no word vector" if 2 * lost > every else ""


def _where(name: str, row: int) -> str:
    return f"{name}, line {row}" if Path(name).is_file() and not _is_binary(Path(name)) else f"{name}, row {row}"


def _entries(name: str) -> Iterator[Entry]:
    """Words and their numbers in order."""
    first, *others = paths(name)
    if others:
        return _packaged(name, first, others[0])
    return _binary(first) if _is_binary(first) else _text(first)


def _header(line: bytes) -> tuple[int, int] | None:
    """How many words and numbers each the first line of word2vec's files says."""
    match = re.fullmatch(rb"(\d+)[ \t](\d+)\s*", line)
    return (int(match[1]), int(match[2])) if match else None


def _is_binary(path: Path) -> bool:
    """A header, and behind it bytes that are no text."""
    with path.open("rb") as file:
        if not _header(file.readline(PEEK)):
            return False
        return re.search(rb"[\x00-\x08\x0e-\x1f]", file.read(PEEK)) is not None


def _text(path: Path) -> Iterator[Entry]:
    """Lines of a word and its numbers, blanks or tabs between; entries of several words are passed over."""
    width, header, number = 0, None, 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and (header := _header(line.encode())):
                width = header[1]
                continue
            line = line.rstrip().replace("\t", " ")
            word, _, rest = (re.sub(" +", " ", line) if "  " in line else line).partition(" ")
            if word.strip() and (not rest or rest.count(" ") + 1 != width):  # counting is faster than cutting
                entries = rest.split(" ") if rest else []
                width = width or len(entries)
                if not _fits(entries, width, f"{path}, line {number}"):
                    continue
            yield number, word, rest
    if header and number - 1 != header[0]:
        raise WordVectorsError(
            f"{path}: {number - 1} lines of words, should be {header[0]} as the first line says; fetch it again"
        )


def _fits(entries: list[str], width: int, where: str) -> bool:
    """
    Whether a word's numbers are as many as the first line's; False: it goes on with more words before them, as `. . .`
    does in GloVe's largest file.
    """
    if not width:
        raise WordVectorsError(f"{where}: no number after the word; a line is a word and its numbers, blanks between")
    if len(entries) == width:
        return True
    more, numbers = entries[:-width], entries[-width:]
    if more and not all(map(_is_number, more)) and all(map(_is_number, numbers)):
        return False
    raise WordVectorsError(
        f"{where}: {len(entries)} numbers after the word, should be {width} as the first line says; mend it or drop "
        "the line"
    )


def _binary(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(b"\n") + 1
        header = _header(data[:at])
        assert header is not None, "known to be there by `_is_binary`"
        count, width = header
        for row in range(1, count + 1):
            end = data.find(b" ", at)
            stop = end + 1 + 4 * width
            if end < 0 or stop > len(data):
                raise WordVectorsError(
                    f"{path}, row {row}: the file ends, should hold {count} words of {width} numbers as its first line "
                    "says; fetch it again"
                )
            word = data[at:end].lstrip(b"\n").decode(errors="replace")
            yield row, word, np.frombuffer(data[end + 1 : stop], "<f4")
            at = stop
        if data[at:].strip():
            raise WordVectorsError(
                f"{path}, row {count}: {len(data) - at} bytes behind the last, so rows are not of {width} numbers as "
                "the first line says; fetch it again"
            )


def _packaged(name: str, words: Path, numbers: Path) -> Iterator[Entry]:
    columns = [column for column in pl.read_parquet(words).iter_columns() if column.dtype == pl.String()]
    table_VD = np.load(numbers, mmap_mode="r")
    if len(columns) != 1 or table_VD.ndim != 2 or len(columns[0]) != len(table_VD):
        shape = f"{[len(column) for column in columns]} words and numbers of shape {table_VD.shape}"
        raise WordVectorsError(f"package {name} holds {shape}; should be one row of numbers a word; {REMEDY}")
    for row, (word, values) in enumerate(zip(columns[0], table_VD, strict=True), start=1):
        yield row, word or "", _single(values)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers(text: str, where: str) -> np.ndarray:
    entries = text.split(" ")
    try:
        return _single(entries)
    except ValueError:
        wrong = next((word for word in entries if not _is_number(word)), text)
        raise WordVectorsError(f"{where}: not a number: {wrong}; should be as 0.1; mend it or drop the line") from None


def _single(values: np.ndarray | list[str]) -> np.ndarray:
    """As float32, where what is too large is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)
