"""The data stages of one corpus, each run over its shards: documents, sentences, tokens, pairs, batches."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from models import recipe as recipes
from models.parts import bind, complete
from models.recipe import Recipe, digest
from pipeline import batches, corpus, examples, forgetting, groups, joining, merged, rows, vocabulary, word_vectors
from pipeline.cluster import Progress, silent
from pipeline.manifest import Manifest, Stage, one_piece, run
from pipeline.pairs import PAIRINGS, PAIRS_VERSION, READS
from pipeline.sources import Shard, SourceError, read, shards
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import DOCUMENTS, NUMBERS, PAIRS, QUARANTINE, SENTENCES, TOKENS
from pipeline.vocabulary import Vocabulary

NUMBERS_VERSION = 1


@dataclass(frozen=True)
class Road:
    """One corpus, one recipe, one store; each method is a stage and returns its table."""

    store: Store
    recipe: Recipe
    uri: str

    @property
    def corpus_name(self) -> str:
        """What the vocabulary is pinned to."""
        return self.recipe.corpus.name or digest(self.uri)

    def numbered(self) -> "Corpus":
        """
        The source's shards, each with the number that it keeps for good.

        Raises:
            SourceError: the source cannot be used.
        """
        memory_name = f"sources/{digest(self.uri)}.json"
        before = self.store.get(memory_name) or {}
        memory = dict(before)
        found = {shard.digest: shard for shard in shards(self.uri, self.recipe.corpus, memory)}
        if memory != before:
            self.store.put(memory_name, memory)
        numbers, gone = _numbers(self.store, self.corpus_name, list(found))
        return Corpus(dict(sorted((numbers[key], shard) for key, shard in found.items())), gone)

    def documents(self, source: "Corpus", progress: Progress = silent) -> Manifest:
        """
        Read records; what cannot be used goes to `quarantine`.

        Raises:
            SourceError: a document lies in two shards; nothing is left of the corpus.
        """
        later = {"texts": (), "label": "", "labels": "entailment", "columns": (), "parallel": False}  # keys stay
        unset = {name for name, none in later.items() if getattr(self.recipe.corpus, name) == none}
        what = self.recipe.corpus.model_dump(exclude={"name", "shard_bytes"} | unset)
        plain = {
            number: (piece_key("documents", corpus.DOCUMENTS_VERSION, what, (shard.digest,)), shard)
            for number, shard in source.shards.items()
        }
        lost = forgetting.held(self.store, self.corpus_name, self.recipe.corpus, plain)
        items = {
            number: (
                (shard.digest, *(f"without {one}" for one in lost.get(number, ()))),
                (shard, self.recipe.corpus, lost.get(number, ())),
            )
            for number, shard in source.shards.items()
        }
        stage = Stage("documents", corpus.DOCUMENTS_VERSION, make_documents, what)
        table = run(self.store, stage, items, progress, partial(self._usable, source))
        return replace(table, gone=source.gone)

    def _usable(self, source: "Corpus", table: Manifest) -> None:
        if table.rows == 0:
            aside = f"{table.count('quarantined')} records are in quarantine{self._first(table)}"
            raise SourceError(f"{self.uri}: no usable text; {aside}")
        _whole_documents(self.store, table, source)

    def _first(self, documents: Manifest) -> str:
        """The first quarantined record, for a message."""
        for piece in documents.pieces.values():
            aside = self.store.piece("quarantine", piece.key)
            if aside and aside.rows:
                row = self.store.read(aside).row(0, named=True)
                return f", the first: {row['source']}, row {row['row']}: {row['reason']}"
        return ""

    def sentences(self, documents: Manifest, progress: Progress = silent) -> Manifest:
        """Cut documents' records into sentences; labelled texts are sentences as they stand."""
        items = {number: ((piece.key,), piece) for number, piece in documents.pieces.items()}
        stage = Stage("sentences", corpus.SENTENCES_VERSION, make_sentences)
        if self.recipe.corpus.texts:
            stage = replace(stage, make=partial(make_sentences, whole=True), parameters={"whole": True})
        return replace(run(self.store, stage, items, progress), gone=documents.gone)

    def vocabulary(self, sentences: Manifest) -> Vocabulary:
        """The corpus's vocabulary; made on the first call for this corpus name."""
        settings = self.recipe.tokenizer
        table = word_vectors.words(settings.path) if settings.kind == "table" else ()
        return vocabulary.pinned(self.store, self.corpus_name, settings, list(sentences.pieces.values()), table)

    def tokens(self, sentences: Manifest, words: Vocabulary, progress: Progress = silent) -> Manifest:
        """Turn sentences into vocabulary numbers."""
        most = self.recipe.tokenizer.most_tokens
        name = _tokenizer_name(words)
        self.store.create(name, words.tokenizer)
        items = {number: ((piece.key,), (piece, name, most)) for number, piece in sentences.pieces.items()}
        stage = Stage("tokens", vocabulary.TOKENS_VERSION, make_tokens, [digest(words.tokenizer), most])
        return replace(run(self.store, stage, items, progress), gone=sentences.gone)

    def pairs(self, sentences: Manifest, progress: Progress = silent) -> Manifest:
        """Find which texts belong together."""
        choice = complete(PAIRINGS, self.recipe.pairs, "pairs")
        items = {number: ((piece.key,), (piece, choice)) for number, piece in sentences.pieces.items()}
        stage = Stage("pairs", PAIRS_VERSION, make_pairs, choice.model_dump())
        return replace(run(self.store, stage, items, progress), gone=sentences.gone)

    def joined(self, sentences: Manifest, pairs: Manifest, progress: Progress = silent) -> Manifest | None:
        """Classes of texts that are never told apart; None where the recipe joins nothing."""
        make = partial(joining.joined, self.store, self.recipe, sentences, pairs, progress)
        return one_piece(self.store, "joined", make)

    def left_out(self, sentences: Manifest, progress: Progress = silent) -> Manifest | None:
        """Texts that are never trained on, each with its reason; None where the recipe looks for none."""
        from pipeline import leaving  # torch

        make = partial(leaving.left_out, self.store, self.recipe, sentences.pieces, progress)
        return one_piece(self.store, "left_out", make)

    def teacher(self, sentences: Manifest, progress: Progress = silent) -> Manifest:
        """Vectors of all sentences by the recipe's teacher, which it has."""
        from pipeline import teacher  # torch, which data workers do without

        assert self.recipe.teacher
        return teacher.vectors(self.store, self.recipe.teacher.model, sentences, progress)

    def guide(self, sentences: Manifest, progress: Progress = silent) -> Manifest:
        """Vectors of all sentences by the recipe's guide, which it has."""
        from pipeline import teacher  # torch

        assert self.recipe.guide
        return teacher.vectors(self.store, self.recipe.guide.model, sentences, progress)

    def negatives(
        self,
        sentences: Manifest,
        pairs: Manifest,
        progress: Progress = silent,
        joined: Manifest | None = None,
        left_out: Manifest | None = None,
    ) -> Manifest:
        """
        Hard negatives of all anchors, for a recipe that has them mined; none of a class that an anchor is of, and none
        that stays out of training.
        """
        from pipeline import mine  # torch

        tables = (_only(joined), _only(left_out))
        barred = mine.Barred(batches.held_out(self.store, sentences.pieces), self._kin(sentences), *tables)
        return mine.negatives(self.store, self.recipe, self.corpus_name, sentences, pairs, barred, progress)

    def _kin(self, sentences: Manifest) -> Piece | None:
        """Groups that share a text, where documents are groups."""
        return groups.kindred(self.store, sentences.pieces) if self.recipe.pairs.kind == "groups" else None

    def augmented(self, sentences: Manifest, words: Vocabulary, progress: Progress = silent) -> Manifest:
        """Training sentences in other words, for an augmentation that reads them."""
        from pipeline import paraphrases  # torch

        return paraphrases.paraphrases(self.store, self.recipe, sentences, _tokenizer(words), progress)

    def source(
        self,
        sentences: Manifest,
        tokens: Manifest,
        pairs: Manifest,
        teacher: Manifest | None = None,
        augmented: Manifest | None = None,
        guide: Manifest | None = None,
        negatives: Manifest | None = None,
        joined: Manifest | None = None,
        left_out: Manifest | None = None,
    ) -> batches.Source:
        """
        What batches are made of.

        Raises:
            RecipeError: augmentation or batches do not fit the pairs.
        """
        made_of = examples.completed(self.recipe, lambda: _tokenizer(self.vocabulary(sentences)))
        kin = self._kin(sentences)
        taught = teacher.pieces if teacher else None
        others = augmented.pieces if augmented else None
        held_out = batches.held_out(self.store, sentences.pieces)
        ahead = max((term.ahead for term in self.recipe.terms), default=0)
        return batches.Source(
            sentences.pieces,
            tokens.pieces,
            pairs.pieces,
            held_out,
            made_of,
            ahead,
            kin,
            taught,
            others,
            guide=guide.pieces if guide else None,
            joined=_only(joined),
            left_out=_only(left_out),
            negatives=negatives.pieces if negatives else None,
        )

    def batches(self, source: batches.Source, epoch: int = 0) -> Manifest:
        """
        The training set of one epoch, in the order in which it will be read.

        Raises:
            BatchesError: fewer sentences than a batch has rows.
        """
        started = time.time()
        settings, seed = self.recipe.batches, self.recipe.training.seed
        key = batches.epoch_key(batches.plan_key(settings, seed, source), epoch)
        cached = self.store.piece("batches", key) is not None
        piece = batches.epoch(self.store, settings, seed, epoch, source)
        return Manifest("batches", key, {0: piece}, time.time() - started, cached=cached, new=int(not cached))


@dataclass(frozen=True)
class Corpus:
    """A source's shards by number, and how many of the last run's are gone."""

    shards: Mapping[int, Shard]
    gone: int = 0


def _only(table: Manifest | None) -> Piece | None:
    """The piece of a table that has one for all shards."""
    return table.pieces[0] if table else None


def make_documents(store: Store, key: str, item: tuple[Shard, recipes.Corpus, tuple[int, ...]]) -> Piece:
    """Worker's part of stage `documents`: one shard; what was put aside beside a forgotten document is not quoted."""
    started, (shard, settings, forgotten) = time.time(), item
    records, refused = read(shard, settings)
    refused = refused.with_columns(excerpt=pl.lit("")) if forgotten else refused
    store.write(QUARANTINE, key, refused, started=started, inputs=(shard.digest,))
    reasons = Counter(f"dropped.{reason}" for reason in rows.kinds(refused["reason"]))
    frame = corpus.documents(records, settings, forgotten)
    counts = {"quarantined": len(refused), "documents": frame["document"].n_unique(), **reasons}
    return store.write(DOCUMENTS, key, frame, started=started, inputs=(shard.digest,), counts=counts)


def make_sentences(store: Store, key: str, documents: Piece, whole: bool = False) -> Piece:
    """Worker's part of stage `sentences`: one shard."""
    started = time.time()
    frame = corpus.sentences(store.read(documents), whole)
    counts = {"held_out": int(frame["held_out"].sum()), "characters": int(frame["text"].str.len_chars().sum())}
    return store.write(SENTENCES, key, frame, started=started, inputs=(documents.key,), counts=counts)


def make_tokens(store: Store, key: str, item: tuple[Piece, str, int]) -> Piece:
    """Worker's part of stage `tokens`: one shard."""
    started, (sentences, name, most) = time.time(), item
    tokenizer = vocabulary.open_tokenizer(str(store.get(name)), most + 1)  # one more tells who is cut
    whole = vocabulary.tokens(store.read(sentences, ["text"]), tokenizer)
    frame = whole.select(pl.col("tokens").list.head(most))
    flat = frame["tokens"].explode(empty_as_null=False)
    counts = {
        "tokens": len(flat),
        "unknown": int((flat == vocabulary.unknown(tokenizer)).sum()),
        "cut": int((whole["tokens"].list.len() > most).sum()),
    }
    return store.write(TOKENS, key, frame, started=started, inputs=(sentences.key,), counts=counts)


def make_pairs(store: Store, key: str, item: tuple[Piece, recipes.Choice]) -> Piece:
    """Worker's part of stage `pairs`: one shard."""
    started, (sentences, choice) = time.time(), item
    frame = bind(PAIRINGS, choice)(store.read(sentences, list(READS.get(choice.kind, ("document", "place")))))
    return store.write(PAIRS, key, frame, started=started, inputs=(sentences.key,))


def _tokenizer(words: Vocabulary) -> tuple[str, str]:
    """Where stage `tokens` keeps the tokenizer, and its JSON."""
    return _tokenizer_name(words), words.tokenizer


def _tokenizer_name(words: Vocabulary) -> str:
    """Where stage `tokens` keeps the tokenizer."""
    return f"tokenizers/{digest(words.tokenizer)}.json"


def _numbers(store: Store, name: str, present: list[str]) -> tuple[dict[str, int], int]:
    """A number for each shard digest, given once per corpus name and never used again; and how many shards are gone."""
    while True:
        versions = store.names(f"corpora/{name}/")
        last: dict[str, Any] = (store.get(versions[-1]) if versions else None) or {"numbers": {}, "present": []}
        numbers = dict(last["numbers"])
        for key in present:
            numbers.setdefault(key, len(numbers))
        gone = len(set(last["present"]) - set(present))
        if sorted(present) == sorted(last["present"]):
            return numbers, gone
        record = {"numbers": numbers, "present": present}
        if store.create(f"corpora/{name}/{len(versions):06d}.json", record):
            return numbers, gone


def make_numbers(store: Store, key: str, documents: Piece) -> Piece:
    """The numbers of a shard's documents."""
    started, rows = time.time(), store.read(documents, ["document"])
    return store.write(NUMBERS, key, rows.unique(), started=started, inputs=(documents.key,))


def _whole_documents(store: Store, table: Manifest, source: Corpus) -> None:
    """A document lies in one shard, or its neighbours are torn apart and its held-out mark is not one."""
    pieces = merged.small(store, NUMBERS, NUMBERS_VERSION, table.pieces, make_numbers)
    for numbers in merged.ranges(store, pieces, "document"):
        torn = numbers.filter(pl.col("document").is_duplicated()).sort("document", "shard")
        if len(torn):
            number, one = torn.row(0)
            other = torn.row(1)[1]
            named = store.read(table.pieces[one], ["document", "id"]).filter(pl.col("document") == number)
            raise SourceError(
                f'document "{named["id"][0]}" lies in {source.shards[one].name} and in {source.shards[other].name}; '
                "name the columns that tell documents apart, as in corpus.document=['file','id'], or put its rows "
                "together in one file"
            )
