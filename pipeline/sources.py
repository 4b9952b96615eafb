"""
Sources: from a path, a glob or a URI to shards, and from a shard to records.

Formats: text, Markdown, JSON lines, CSV and TSV, Parquet, folders of parallel lines, and the documentation of installed
Python packages (`pydoc:`). With `corpus.texts` a row of a table holds a whole example. What cannot be used comes back
as quarantine, with file, row and remedy, and costs nothing but itself.
"""

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl
import xxhash

from models.recipe import Corpus, digest
from pipeline import delimited, files, jsonl, labelled, parallel, parquet, prose, pydoc, rows
from pipeline.files import File
from pipeline.shard import Chunk, ColumnError, Shard, SourceError, digest_of

__all__ = ["Shard", "SourceError", "read", "shards"]

KINDS = ("text", "markdown", "jsonl", "csv", "parquet")
FEW = 64  # so many small files of a kind are shards of their own; more are put together
EMPTY = "the file is empty; fill or remove it"
LARGEST_WHOLE = 1 << 31  # bytes of a file that cannot be cut: it is read into memory as one shard
Memory = MutableMapping[str, Any]
Cut = tuple[File, Chunk]


def shards(uri: str, corpus: Corpus, memory: Memory) -> list[Shard]:
    """
    Shards of a source, sorted by file: a growing corpus gets new ones and keeps the rest.

    Large Parquet and JSON lines files are cut between documents; many small files are put together by the digest of
    their path, so that a new file changes one bucket only.

    Args:
        uri: file, folder, glob, URI such as s3://bucket/folder, or `pydoc:` with names of packages.
        corpus: names of columns, and the size of a shard in bytes of text.
        memory: what is known of files by URI, size and modification time; filled here, values are plain JSON.
    Raises:
        SourceError: there is nothing to use, a file is broken as a whole, or a column is missing.
    """
    if uri.startswith("pydoc:"):
        _check_tables(uri, [] if corpus.asks else ["pydoc:"], corpus)
        return pydoc.shards(uri, memory)
    root, found = files.listing(uri)
    if corpus.parallel:
        return _parallel(uri, root, found, corpus, memory)
    usable = _usable(uri, found)
    usable = [replace(file, form="csv") if corpus.columns and file.kind == "text" else file for file in usable]
    _check_tables(uri, [file.relative for file in usable if file.kind in ("text", "markdown")], corpus)
    cuts = _cuts(usable, corpus, memory)
    if all(chunk.empty for _, chunks in cuts for chunk in chunks):
        raise SourceError(f"source {uri}: {len(usable)} file(s), all empty; nothing to read")
    result = [_shard(root, file, chunk, True) for file, chunks in cuts for chunk in chunks if len(chunks) > 1]
    whole = [(file, chunks[0]) for file, chunks in cuts if len(chunks) == 1]
    result += [_shard(root, *cut, False) for cut in whole if cut[0].size > corpus.shard_bytes]
    for kind in KINDS:
        small = [cut for cut in whole if cut[0].kind == kind and cut[0].size <= corpus.shard_bytes]
        few = len(small) <= FEW
        result += [_shard(root, *cut, False) for cut in small] if few else _buckets(root, kind, small, corpus)
    return sorted(result, key=lambda shard: (shard.files, shard.start)) + _refused(root, found)


def read(shard: Shard, corpus: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Records of a shard in source order, and what cannot be used.

    Returns:
        Records: source, row (line or row of the file, from 1), id, title, language, text, and place (number of the
        record in its document, from 0, quarantined ones counted); and rows of `pipeline.tables.QUARANTINE`.
    Raises:
        SourceError: the file changed since `shards`, is broken as a whole, or a document's rows lie apart.
    """
    if shard.kind == "pydoc":
        return pydoc.read(shard, corpus)
    names = [files.relative(uri, shard.root) for uri in shard.files]
    if shard.kind == "refused":
        return _finish(_told(names, "link out of the corpus or to nothing, or no file; copy it in", corpus), corpus)
    if shard.kind == "parallel":
        return _finish(_read_parallel(shard, corpus), corpus)
    chunk = Chunk("", shard.start, shard.stop, shard.first_row)
    got = [_raw(shard.kind, uri, name, chunk, corpus) for uri, name in zip(shard.files, names, strict=True)]
    _check_unchanged(shard, [(name, chunk.first_row, digest) for name, (_, digest) in zip(names, got, strict=True)])
    return _finish(pl.concat([raw for raw, _ in got]), corpus)


def _parallel(uri: str, root: str, found: list[File], corpus: Corpus, memory: Memory) -> list[Shard]:
    """A shard for each folder of parallel lines."""
    settings = "corpus.texts, corpus.label" if corpus.texts else "corpus.text"
    result = []
    for folder in parallel.folders(uri, found, rows.named(corpus), f"{settings} or corpus.document"):
        columns = folder.columns.values()
        if not any(file.size for file in columns):
            raise SourceError(f"{folder.name}: {EMPTY}")
        known = digest_of((file.relative, 1, _chunks(file, corpus, memory)[0].digest) for file in columns)
        uris = tuple(file.uri for file in columns)
        result.append(Shard(f"{folder.name} and beside it", "parallel", uris, digest=known, root=root))
    return result


def _read_parallel(shard: Shard, corpus: Corpus) -> pl.DataFrame:
    names = [files.relative(uri, shard.root) for uri in shard.files]
    packed = [files.content(uri) for uri in shard.files]
    _check_unchanged(
        shard, [(name, 1, xxhash.xxh3_128(data).hexdigest()) for name, data in zip(names, packed, strict=True)]
    )
    found = [parallel.lines(uri, data) for uri, data in zip(shard.files, packed, strict=True)]
    parallel.check_lengths({name: len(some) for name, some in zip(names, found, strict=True)})
    columns = {PurePosixPath(name).name: some for name, some in zip(names, found, strict=True)}
    return parallel.raw(names[0], columns, corpus)


def _check_unchanged(shard: Shard, now: Iterable[tuple[str, int, str]]) -> None:
    if digest_of(now) != shard.digest:
        raise SourceError(f"{shard.name}: changed while it was read; start the run again when nobody writes to it")


def _finish(raw: pl.DataFrame, corpus: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    return (labelled.finish if corpus.texts else rows.finish)(raw, corpus)


def _check_tables(uri: str, prose: list[str], corpus: Corpus) -> None:
    """Prose has no columns, so it holds no labelled texts."""
    if corpus.texts and prose:
        raise SourceError(
            f"source {uri}: {prose[0]} has no columns, and corpus.texts asks for {', '.join(corpus.texts)}; name only "
            ".csv, .tsv, .jsonl or .parquet files, as in 'folder/*.parquet', leave corpus.texts empty, or name the "
            "columns of .txt tables in corpus.columns"
        )


def _usable(uri: str, found: list[File]) -> list[File]:
    """Files of a known kind that may be opened."""
    usable = [file for file in found if file.kind and not file.refused]
    if not usable:
        there = sorted({PurePosixPath(file.relative).suffix or "none" for file in found if not file.refused})
        refused = "".join(f"; {file.relative}: {file.refused}" for file in found if file.refused)
        suffixes = f"suffixes there: {', '.join(there)}; known: {files.KNOWN}"
        raise SourceError(f"source {uri}: nothing usable; {suffixes}{refused}")
    return usable


def _cuts(usable: list[File], corpus: Corpus, memory: Memory) -> list[tuple[File, list[Chunk]]]:
    """
    Chunks of all files; a Parquet file with other columns than the rest is one chunk, known by what is wrong with it.

    Raises:
        ColumnError: no Parquet file has the columns that the recipe names, which is then what is wrong.
    """
    cuts, errors, fits = [], [], False
    for file in usable:
        try:
            cuts.append((file, _chunks(file, corpus, memory)))
            fits = fits or file.kind == "parquet"
        except ColumnError as error:
            errors.append(error)
            cuts.append((file, [Chunk(_other_columns(file.relative, error))]))
    if errors and not fits:
        raise errors[0]
    return cuts


def _other_columns(name: str, error: ColumnError) -> str:
    return str(error).removeprefix(f"{name}: ")


def _chunks(file: File, corpus: Corpus, memory: Memory) -> list[Chunk]:
    """Chunks of a file, from memory if neither it nor what decides its cuts has changed."""
    cutter, settings = _cutter(file, corpus)
    key, stamp = f"{file.uri} {digest(settings)}", [file.size, file.modified]
    if file.modified is not None and (known := memory.get(key)) is not None and known["stamp"] == stamp:
        return [Chunk(**chunk) for chunk in known["chunks"]]
    chunks = cutter(file, corpus) if file.size else [Chunk(xxhash.xxh3_128().hexdigest(), empty=True)]
    memory[key] = {"stamp": stamp, "chunks": [asdict(chunk) for chunk in chunks]}
    return chunks


def _cutter(file: File, corpus: Corpus) -> tuple[Callable[[File, Corpus], list[Chunk]], list[Any]]:
    cuts: list[Any] = [corpus.document, corpus.scattered, corpus.shard_bytes]
    cuts += [corpus.texts, corpus.label] if corpus.texts else []
    if file.kind == "parquet":
        return parquet.chunks, [*cuts, rows.named(corpus)]
    if file.kind == "jsonl" and files.packing(file.uri) is None:
        return jsonl.chunks, cuts
    return _whole, []


def _whole(file: File, corpus: Corpus) -> list[Chunk]:
    if file.size > LARGEST_WHOLE:
        raise SourceError(
            f"{file.relative}: {file.size} bytes that cannot be cut, and at most {LARGEST_WHOLE} are read at once; "
            "split the file, or write it as Parquet or as JSON lines that are not compressed"
        )
    with files.open_file(file.uri) as stream:
        return [Chunk(jsonl.digest_lines(stream, file.size)[0])]


def _shard(root: str, file: File, chunk: Chunk, is_part: bool) -> Shard:
    unit = "rows" if file.kind == "parquet" else "bytes"
    name = f"{file.relative} {unit} {chunk.start}-{chunk.stop}" if is_part else file.relative
    known = digest_of([(file.relative, chunk.first_row, chunk.digest)])
    return Shard(name, file.kind or "", (file.uri,), chunk.start, chunk.stop, chunk.first_row, known, root)


def _buckets(root: str, kind: str, cuts: list[Cut], corpus: Corpus) -> list[Shard]:
    """Small files together: a power of two of buckets, so that their number seldom changes when the corpus grows."""
    count = FEW
    while sum(file.size for file, _ in cuts) > count * corpus.shard_bytes:
        count *= 2
    buckets: dict[int, list[Cut]] = {}
    for cut in cuts:
        number = xxhash.xxh3_64_intdigest(cut[0].relative.encode()) % count
        buckets.setdefault(number, []).append(cut)
    return [
        Shard(
            f"{kind} bucket {number + 1} of {count}",
            kind,
            tuple(file.uri for file, _ in cuts),
            digest=digest_of((file.relative, 1, chunk.digest) for file, chunk in cuts),
            root=root,
        )
        for number, cuts in sorted(buckets.items())
    ]


def _refused(root: str, found: list[File]) -> list[Shard]:
    refused = [file for file in found if file.refused]
    known = digest_of((file.relative, 1, file.refused) for file in refused)
    shard = Shard("refused files", "refused", tuple(file.uri for file in refused), digest=known, root=root)
    return [shard] if refused else []


def _told(names: list[str], reason: str, corpus: Corpus) -> pl.DataFrame:
    """Raw rows that only say why whole files are not read."""
    told = {"source": names, "row": [1] * len(names), "reason": [reason] * len(names)}
    nothing = pl.DataFrame(schema=rows.schema(corpus))
    return pl.concat([nothing, pl.DataFrame(told, schema_overrides=rows.RAW)], how="diagonal")


def _raw(kind: str, uri: str, name: str, chunk: Chunk, corpus: Corpus) -> tuple[pl.DataFrame, str]:
    """Raw rows of one file or a part of it, and the digest of what was read."""
    if kind == "parquet" and files.size(uri):
        try:
            raw, digest = parquet.raw(uri, name, chunk, corpus)
        except ColumnError as error:
            reason = _other_columns(name, error)
            return _told([name], reason, corpus), reason
        return raw if len(raw) else _told([name], EMPTY, corpus), digest
    packed = files.content(uri, chunk.start, chunk.stop)
    data = files.unpack(uri, packed)
    digest = xxhash.xxh3_128(packed).hexdigest()
    if not data.strip():
        return _told([name], EMPTY, corpus), digest
    if kind == "jsonl":
        return jsonl.raw(name, data, chunk.first_row, corpus), digest
    if kind == "csv":
        return delimited.raw(name, data, not files.by_commas(name), corpus), digest
    return (prose.markdown if kind == "markdown" else prose.text)(name, data, corpus), digest
