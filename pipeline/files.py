"""
Files of a source, on a local disk or behind a URI that pyarrow knows (s3://, gs://), and their bytes.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import cast

import pyarrow as pa
from pyarrow import fs

from pipeline.remote import filesystem, is_remote
from pipeline.shard import SourceError

KINDS = {
    ".txt": "text",
    ".md": "markdown",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
PACKINGS = {".gz": "gzip", ".zst": "zstd"}
KNOWN = f"{', '.join(KINDS)}; all but .parquet also with {' or '.join(PACKINGS)}"


@dataclass(frozen=True)
class File:
    """A file as its folder lists it; `refused` says why it must not be opened."""

    uri: str
    relative: str
    size: int = 0
    modified: int | None = None  # nanoseconds; None: the file system does not tell
    refused: str = ""
    form: str = ""  # what is inside, where the suffix does not say

    @property
    def kind(self) -> str | None:
        """What is inside, by suffix; None: unknown."""
        return self.form or kind(self.uri)


def kind(uri: str) -> str | None:
    """What is inside a file, by its suffix; None: unknown."""
    path = PurePosixPath(_plain(uri))
    inner = PurePosixPath(path.stem) if path.suffix in PACKINGS else path
    found = KINDS.get(inner.suffix.lower())
    return None if found == "parquet" and inner is not path else found


def by_commas(name: str) -> bool:
    """Whether a table's values are parted by commas, not by tabs."""
    path = PurePosixPath(_plain(name))
    return (PurePosixPath(path.stem) if path.suffix in PACKINGS else path).suffix.lower() not in (".tsv", ".txt")


def packing(uri: str) -> str | None:
    """Name of the compression, by suffix; None: not compressed."""
    return PACKINGS.get(PurePosixPath(_plain(uri)).suffix)


def relative(uri: str, root: str) -> str:
    """A file's name as records and messages show it: its path below `root`."""
    return _plain(uri).removeprefix(_plain(root)).lstrip("/")


def listing(uri: str) -> tuple[str, list[File]]:
    """
    Root and files of a file, a folder (with all folders below, hidden ones skipped), or a glob, sorted by name.

    Links are listed as refused when they lead out of the root or to nothing, so that a corpus never reads what lies
    beside it; a link named by the user is followed.

    Raises:
        SourceError: nothing is there, or it cannot be listed.
    """
    if not uri.strip():
        raise SourceError(
            "the source is empty; give a file, a folder, a glob, a URI such as s3://bucket/folder, or pydoc:"
        )
    base, pattern = _base(uri)
    try:
        root, found = _remote(base) if is_remote(uri) else _local(base)
    except OSError as error:
        raise SourceError(f"source {uri}: cannot be listed: {error}; check its name and your access to it") from None
    wanted = [file for file in found if pattern is None or pattern.fullmatch(file.relative)]
    if not wanted:
        raise SourceError(f"source {uri}: {_nothing(pattern, found)}")
    return root, sorted(wanted, key=lambda file: file.relative)


def content(uri: str, start: int = 0, stop: int = -1) -> bytes:
    """
    Bytes of a file, as they lie there (compressed ones stay so).

    Raises:
        SourceError: it cannot be read.
    """
    with open_file(uri) as file:
        try:
            file.seek(start)
            return file.read() if stop < 0 else file.read(stop - start)
        except OSError as error:
            raise SourceError(f"{uri}: cannot be read: {error}; replace the file or move it away") from None


def size(uri: str) -> int:
    """Bytes of a file; 0 for an empty one."""
    with open_file(uri) as file:
        return file.seek(0, os.SEEK_END)


def open_file(uri: str) -> BufferedReader:
    """
    A file to seek in and to read lines from.

    Raises:
        SourceError: it cannot be opened.
    """
    try:
        system, path = _system(uri)
        return BufferedReader(cast("BufferedReader", system.open_input_file(path)))
    except OSError as error:
        raise SourceError(
            f"{uri}: cannot be opened: {error}; check that it is there and that you may read it"
        ) from None


def unpack(uri: str, data: bytes) -> bytes:
    """
    Contents of a file's bytes, decompressed by the file's suffix.

    Raises:
        SourceError: the compressed data is broken or cut short.
    """
    form = packing(uri)
    if form is None or not data:
        return data
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), form) as stream:
            return cast(bytes, stream.read())
    except OSError as error:
        raise SourceError(f"{uri}: broken {form} data: {error}; write the file again or move it away") from None


def _plain(uri: str) -> str:
    return uri.partition("?")[0] if is_remote(uri) else uri


def _system(uri: str) -> tuple[fs.FileSystem, str]:
    if not is_remote(uri):
        return fs.LocalFileSystem(), uri.removeprefix("file://")
    try:
        return filesystem(uri)
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"source {uri}: {error}; known: paths, and URIs such as s3://bucket/folder or gs://bucket"
        ) from None


def _base(uri: str) -> tuple[str, re.Pattern[str] | None]:
    """The folder to list and the pattern of names wanted in it; no pattern for a plain file or folder."""
    local = not is_remote(uri)
    path, query = (
        (uri.removeprefix("file://"), "") if local else (uri.partition("?")[0], "".join(uri.partition("?")[1:]))
    )
    if local:
        path = str(Path(path).expanduser().absolute())
    wild = re.search(r"[*?\[]" if local else r"[*\[]", path)
    if wild is None or (local and Path(path).exists()):
        return path + query, None
    base, _, rest = path[: wild.start()].rpartition("/")
    return base + query, _glob(rest + path[wild.start() :])


def _glob(text: str) -> re.Pattern[str]:
    """`*` and `?` stay within a name, `**/` crosses folders; a folder that matches brings all that is below it."""
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", text)
    return re.compile(
        "".join(forms.get(p, p.replace("[!", "[^") if p[:1] == "[" else re.escape(p)) for p in parts) + "(?:/.*)?"
    )


def _nothing(pattern: re.Pattern[str] | None, found: list[File]) -> str:
    if pattern is None:
        return f"the folder holds no files; known suffixes: {KNOWN}"
    return f"no file matches, of {len(found)} below the first wildcard; quote the glob, and use ** to cross folders"


def _local(base: str) -> tuple[str, list[File]]:
    path = Path(base)
    if not path.exists():
        raise SourceError(f"source {base}: no such file or folder; check the path, or quote the glob")
    if path.is_file():
        about = path.stat()
        return str(path.parent), [File(str(path), path.name, about.st_size, about.st_mtime_ns)]
    return base, list(_walk(base))


def _walk(base: str) -> Iterator[File]:
    def stop(error: OSError) -> None:
        raise error  # a folder that may not be read would otherwise be dropped in silence

    inside = os.path.realpath(base)
    for folder, folders, names in os.walk(base, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in names + linked:
            if not name.startswith("."):
                path = os.path.join(folder, name)  # noqa: PTH118 (ten times faster, and folders are large)
                yield from _entry(path, path[len(base) :].lstrip("/"), inside, name in linked)


def _entry(path: str, name: str, inside: str, is_folder: bool) -> Iterator[File]:
    target = os.path.realpath(path)
    if Path(path).is_symlink() and os.path.commonpath([target, inside]) != inside:
        yield File(path, name, refused="link that leads out of the corpus; copy the file in, or name it as a source")
        return
    if not name.isascii() and (sound := os.fsencode(name).decode(errors="replace")) != name:
        yield File(sound, sound, refused="name is not UTF-8; rename the file")
        return
    if is_folder:
        return  # within the root, so its files are listed where they are
    try:
        about = Path(path).stat()
    except FileNotFoundError:
        yield File(path, name, refused="link to nothing; mend or remove it")
        return
    if stat.S_ISREG(about.st_mode):
        yield File(path, name, about.st_size, about.st_mtime_ns)
    else:
        yield File(path, name, refused="not a regular file; move it away")


def _remote(base: str) -> tuple[str, list[File]]:
    system, path = _system(base)
    plain, mark, query = base.partition("?")
    plain, path = plain.rstrip("/"), path.rstrip("/")
    prefix = plain[: -len(path)] if plain.endswith(path) else plain.partition("://")[0] + "://"
    about = system.get_file_info(path)
    if about.type == fs.FileType.NotFound:
        raise SourceError(f"source {base}: no such file or folder; check the path and your access to it")
    single = about.type == fs.FileType.File
    entries = [about] if single else system.get_file_info(fs.FileSelector(path, recursive=True))
    root = path.rpartition("/")[0] if single else path
    files = [
        File(prefix + e.path + mark + query, e.path[len(root) :].lstrip("/"), e.size, e.mtime_ns)
        for e in entries
        if e.type == fs.FileType.File
    ]
    return prefix + root, [file for file in files if not any(part.startswith(".") for part in file.relative.split("/"))]
