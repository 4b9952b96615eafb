"""
Forgetting: a document's text leaves every table, and the shards that never held it stay as they are.

Of a forgotten document the store keeps the 64-bit digest of its id, as table `documents` does. It enters the keys of
those shards that hold the document, so the next run makes these anew without it; what was made of the old ones is
named here until a clean-up has taken it away.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from models.recipe import Corpus, digest
from models.trouble import MendableError
from pipeline.cluster import map_shards
from pipeline.corpus import document_digest
from pipeline.shard import Shard
from pipeline.sources import read
from pipeline.store import Piece, Store


class ForgetError(MendableError, ValueError):
    """A document that cannot be forgotten because it is not known."""


@dataclass(frozen=True)
class Asked:
    """A shard, and which forgotten documents nobody has looked for in it yet; its piece, if there is one."""

    shard: Shard
    corpus: Corpus
    documents: frozenset[int]
    piece: Piece | None


def forgotten(store: Store, corpus: str) -> frozenset[int]:
    """Digests of a corpus's forgotten documents."""
    record = store.get(_name(corpus)) or {"documents": []}
    return frozenset(record["documents"])


def touched(store: Store) -> set[str]:
    """Keys of all `documents` pieces that were made before one of their documents was forgotten."""
    found: set[str] = set()
    for name in store.names("forgotten/"):
        if name.count("/") == 1:
            found.update((store.get(name) or {"pieces": []})["pieces"])
    return found


def forget(store: Store, corpus: str, ids: Collection[str]) -> set[str]:
    """
    Remember that some documents are forgotten.

    Args:
        corpus: its name, or the URI it was read from.
    Returns:
        Keys of the `documents` pieces that hold them.
    Raises:
        ForgetError: no such corpus, or no such document in it; nothing is remembered then.
    """
    known = {name.split("/")[1] for name in store.names("corpora/")}
    name = corpus if corpus in known else digest(corpus)
    versions = store.names(f"corpora/{name}/")
    if not versions:
        raise ForgetError(
            f'corpus "{corpus}" is not in store {store.root}; give the URI as it was given to `firth retrain`, or its '
            "corpus.name"
        )
    shards = set((store.get(versions[-1]) or {"numbers": {}})["numbers"])
    wanted = {document_digest(id): id for id in ids}
    found, keys = set(forgotten(store, name)), set()
    for piece in _documents(store):
        if piece.inputs and piece.inputs[0] in shards:
            here = wanted.keys() & set(store.read(piece, ["document"])["document"].unique().to_list())
            found |= here
            keys |= {piece.key} if here else set()
    unknown = [id for number, id in wanted.items() if number not in found]
    if unknown:
        raise ForgetError(
            f'document "{unknown[0]}" is not in corpus "{corpus}"; give its id as column `id` of table documents has '
            "it: the file below the corpus's folder, or the values of corpus.document joined by /"
        )
    record = store.get(_name(name)) or {"documents": [], "pieces": []}
    documents = sorted({*record["documents"], *wanted})
    store.put(_name(name), {"documents": documents, "pieces": sorted({*record["pieces"], *keys})})
    return keys


def held(
    store: Store, corpus: str, settings: Corpus, shards: Mapping[int, tuple[str, Shard]]
) -> dict[int, tuple[int, ...]]:
    """
    Which forgotten documents each shard holds; shards without one are left out.

    Args:
        shards: by number the key that the shard's documents have where nothing is forgotten, and the shard.
    """
    wanted = forgotten(store, corpus)
    if not wanted:
        return {}
    names = {number: f"forgotten/{corpus}/{key}.json" for number, (key, _) in shards.items()}
    known = {number: store.get(name) or {"asked": [], "held": []} for number, name in names.items()}
    new = {number: wanted - set(record["asked"]) for number, record in known.items()}
    ask = [number for number, documents in new.items() if documents]
    items = [Asked(shards[n][1], settings, new[n], store.piece("documents", shards[n][0])) for n in ask]
    for number, here in zip(ask, map_shards(partial(_held, store), items), strict=True):
        known[number] = {"asked": sorted(wanted), "held": sorted({*known[number]["held"], *here})}
        store.put(names[number], known[number])
    return {number: tuple(record["held"]) for number, record in known.items() if record["held"]}


def _held(store: Store, asked: Asked) -> set[int]:
    if asked.piece:
        return set(store.read(asked.piece, ["document"])["document"].unique().to_list()) & asked.documents
    records, _ = read(asked.shard, asked.corpus)
    return {document_digest(id) for id in records["id"].unique()} & asked.documents


def _documents(store: Store) -> list[Piece]:
    names = [name for name in store.names("documents/") if name.endswith(".json")]
    found = [store.piece("documents", name.removeprefix("documents/").removesuffix(".json")) for name in names]
    return [piece for piece in found if piece]


def _name(corpus: str) -> str:
    return f"forgotten/{corpus}.json"
