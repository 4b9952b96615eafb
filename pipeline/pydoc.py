"""
Source `pydoc:`: the documentation of installed Python packages, read from their source files without importing them.

Modules are documents, and paragraphs of prose in their docstrings are records, in source order. Or else a docstring's
first line is a question, what follows its right answer, and what follows other first lines of the module wrong ones.
"""

import ast
import os
import sysconfig
import warnings
from collections.abc import Iterator, MutableMapping
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
import xxhash

from models.recipe import Corpus
from pipeline import files, judged, tables
from pipeline.docstrings import prose
from pipeline.shard import Shard, SourceError, digest_of

DEFAULT = ("", "numpy", "polars", "torch")  # "" is the standard library
BUCKET_BYTES = 5_500_000  # of source code: 0.3 to 1 million characters of prose, so that cores are used evenly
SKIPPED = {"__pycache__", "test", "tests", "testing", "_testing", "idle_test", "idlelib", "lib2to3", "turtledemo"}
SKIPPED |= {
    "pydoc_data",
    "ensurepip",
    "site-packages",
    "_vendor",
    "_vendored",
    "vendor",
    "vendored",
    "extern",
    "externals",
}
WRONG = 8  # answers to a question that are taken from other docstrings of its module
ANSWER = 400  # characters of an answer, about: paragraphs are taken while it is shorter
Found = tuple[str, str]  # path, and name relative to the root
Paragraph = tuple[int, str, str]  # line of its docstring, public name of what that is about, and text


def shards(uri: str, memory: MutableMapping[str, Any]) -> list[Shard]:
    """
    Shards of installed packages: `pydoc:` for the default ones, `pydoc:NAME,NAME` for any others.

    Raises:
        SourceError: a package is not installed, or has no Python source.
    """
    names = [name.strip() for name in uri.removeprefix("pydoc:").split(",") if name.strip()] or DEFAULT
    return [shard for name in dict.fromkeys(names) for shard in _package(name, memory)]


def read(shard: Shard, corpus: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    """
    Records (as `pipeline.sources.read`) and quarantine of a shard; files that do not parse are in the latter.

    Args:
        corpus: with `labels = "right"` records are questions and answers.
    Raises:
        SourceError: a file changed since `shards`.
    """
    records: list[tuple[Any, ...]] = []
    bad: list[tuple[str, int, str, str]] = []
    digests = []
    for path in shard.files:
        name, code = files.relative(path, shard.root), files.content(path)
        digests.append((name, 1, xxhash.xxh3_128(code).hexdigest()))
        module = _module(name)
        try:
            paragraphs = list(_paragraphs(_tree(code), module))
        except (SyntaxError, ValueError, RecursionError) as error:
            bad.append((name, getattr(error, "lineno", None) or 1, f"not Python: {error}; mend or drop it", ""))
            continue
        found = questions(paragraphs) if corpus.asks else [(*paragraph, None) for paragraph in paragraphs]
        records += [
            (name, row, module, title, "en", text, at, label) for at, (row, title, text, label) in enumerate(found)
        ]
    if digest_of(digests) != shard.digest:
        raise SourceError(f"{shard.name}: changed while it was read; start the run again when nobody installs packages")
    quarantine = pl.DataFrame(bad, schema=tables.QUARANTINE.empty().schema, orient="row")
    frame = pl.DataFrame(records, schema=judged.RECORDS, orient="row")
    return frame if corpus.asks else frame.drop("label"), tables.QUARANTINE.check(quarantine)


def questions(paragraphs: list[Paragraph]) -> list[tuple[int, str, str, int | None]]:
    """
    Questions of a module, each before its answers: the right one and up to `WRONG` of other questions, which a digest
    chooses. A docstring of one paragraph asks nothing.

    Returns:
        Line, name, text and label of each: null for a question, 1 and 0 for right and wrong answers.
    """
    asked: list[tuple[int, str, str, str]] = []
    for (line, name), some in groupby(paragraphs, key=lambda paragraph: paragraph[:2]):
        first, *rest = (text for _, _, text in some)
        if rest:
            asked.append((line, name, first, _answer(rest)))
    found: list[tuple[int, str, str, int | None]] = []
    for line, name, question, right in asked:
        found += [(line, name, question, None), (line, name, right, 1)]
        others = {answer: at for at, (_, _, asks, answer) in enumerate(asked) if asks != question and answer != right}
        chosen = sorted(others, key=lambda answer: xxhash.xxh3_64_intdigest(f"{question}\n{answer}".encode()))[:WRONG]
        found += [(*asked[others[answer]][:2], answer, 0) for answer in sorted(chosen, key=lambda one: others[one])]
    return found


def _answer(paragraphs: list[str]) -> str:
    """The first paragraphs, until they are long enough."""
    text = ""
    for paragraph in paragraphs:
        if len(text) >= ANSWER:
            break
        text = f"{text} {paragraph.strip()}".strip()
    return text


def _package(name: str, memory: MutableMapping[str, Any]) -> list[Shard]:
    root, found = _files(name)
    count = 1
    while sum(Path(path).stat().st_size for path, _ in found) > count * BUCKET_BYTES:
        count *= 2
    buckets: dict[int, list[Found]] = {}
    for path, inner in found:
        buckets.setdefault(xxhash.xxh3_64_intdigest(inner.encode()) % count, []).append((path, inner))
    return [
        Shard(
            f"pydoc {name or 'standard library'} {number + 1} of {count}",
            "pydoc",
            tuple(path for path, _ in some),
            digest=digest_of((inner, 1, _digest(path, memory)) for path, inner in some),
            root=root,
        )
        for number, some in sorted(buckets.items())
    ]


def _files(name: str) -> tuple[str, list[Found]]:
    """Folder that names are relative to, and the package's source files in order of their names."""
    if not name:
        root = sysconfig.get_paths()["stdlib"]
        return root, sorted(_walk(root, root), key=lambda found: found[1])
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None:
        raise SourceError(f"source pydoc:{name}: no such package; install it, or name an installed top-level package")
    folders = [str(Path(folder).absolute()) for folder in spec.submodule_search_locations or ()]
    if folders:
        root = str(Path(folders[0]).parent)
        found = sorted(_walk(folders[0], root), key=lambda found: found[1])
    else:
        path = Path(spec.origin or "")
        root, found = str(path.parent), [(str(path), path.name)] if path.suffix == ".py" else []
    if not found:
        raise SourceError(f"source pydoc:{name}: no Python source, {spec.origin} is compiled; name another package")
    return root, found


def _walk(folder: str, root: str) -> Iterator[Found]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and name.isidentifier()]
        for name in names:
            if name.endswith(".py") and not name.startswith(("test_", "_sysconfigdata", "conftest")):
                path = os.path.join(here, name)  # noqa: PTH118 (ten times faster, and packages are large)
                yield path, path[len(root) :].lstrip("/")


def _digest(path: str, memory: MutableMapping[str, Any]) -> str:
    about = Path(path).stat()
    stamp, known = [about.st_size, about.st_mtime_ns], memory.get(f"{path} pydoc")
    if known is None or known["stamp"] != stamp:
        known = memory[f"{path} pydoc"] = {"stamp": stamp, "digest": xxhash.xxh3_128(files.content(path)).hexdigest()}
    return str(known["digest"])


def _module(name: str) -> str:
    """`numpy/linalg/_linalg.py` is numpy.linalg._linalg."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _tree(code: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes
        return ast.parse(code)


def _paragraphs(tree: ast.Module, module: str) -> Iterator[tuple[int, str, str]]:
    """Line of the docstring, public name of its object and text of each paragraph, in source order."""
    public = ".".join(part for part in module.split(".") if not part.startswith("_") or part == "__future__")
    for node, name in _objects(tree, public or module):
        if (body := node.body) and isinstance(body[0], ast.Expr) and (text := ast.get_docstring(node)):
            for paragraph in prose(text):
                yield body[0].lineno, name, paragraph


def _objects(node: Any, name: str) -> Iterator[tuple[Any, str]]:
    """Modules, classes and functions with their dotted names; expressions are not searched, which saves most time."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node, name
    for field in ("body", "handlers", "orelse", "finalbody"):
        for child in getattr(node, field, ()) or ():
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _objects(child, f"{name}.{child.name}")
            elif isinstance(child, ast.If | ast.Try | ast.With | ast.For | ast.While | ast.ExceptHandler):
                yield from _objects(child, name)
