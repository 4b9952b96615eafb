"""
The unit of work: one chunk of a source, known by its bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from models.trouble import MendableError


class SourceError(MendableError, ValueError):
    """A source that cannot be used at all: what is wrong, what was got, what would be right."""


class ColumnError(SourceError):
    """A table that lacks a column which the recipe names, or whose column holds something else."""


@dataclass(frozen=True)
class Chunk:
    """A part of one file that is read alone; documents never cross its ends."""

    digest: str  # of the bytes (Parquet: of the values) that it covers
    start: int = 0  # Parquet: first row; JSON lines: first byte; else 0
    stop: int = -1  # exclusive; -1: to the end
    first_row: int = 1  # number of its first line or row
    empty: bool = False


@dataclass(frozen=True)
class Shard:
    """One chunk of a source, or several small files together; equal digests mean equal records."""

    name: str  # for people
    kind: str  # text | markdown | jsonl | csv | parquet | pydoc | refused
    files: tuple[str, ...]  # URIs or absolute paths
    start: int = 0
    stop: int = -1
    first_row: int = 1
    digest: str = ""  # of bytes, relative names and first row: all that records depend on
    root: str = ""  # what `source` is relative to; not part of the digest


def digest_of(parts: Iterable[tuple[str, int, str]]) -> str:
    """
    A shard's digest, from the relative name, the first row and the digest of each of its files.

    Names and first rows take part because records carry them: a renamed file, or a line put in before a chunk, changes
    what is read although the chunk's own bytes stay. A bucket of one file has the digest of that file alone.
    """
    hasher = xxhash.xxh3_128()
    for name, first_row, digest in parts:
        hasher.update(f"{len(name)} {name} {first_row} {digest}\n".encode())
    return hasher.hexdigest()
