"""The road as one flow, one thin task per stage. The store owns what is done already; Prefect owns order and state."""

from pipeline import settings  # noqa: F401  before Prefect and Ray

# isort: split
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.progress import watched
from models.folder import WEIGHTS
from models.method import resolve
from models.parts import complete
from models.recipe import Recipe, RecipeError, load
from pipeline import embed, evaluate, register, scoring, word_vectors
from pipeline.batches import Source
from pipeline.cluster import scratch, session
from pipeline.manifest import Manifest
from pipeline.pairs import PAIRINGS
from pipeline.road import Corpus, Road
from pipeline.store import Store
from pipeline.train import Job, precise
from pipeline.vocabulary import Vocabulary
from pipeline.weights import Weights, weights

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def stage(function: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """A function as a Prefect task of the stage's name, whose result the store keeps, not Prefect."""
    name = function.__name__.removeprefix("make_").replace("_", "-")
    return task(name=name, cache_policy=NO_CACHE, persist_result=False)(function)


@dataclass(frozen=True)
class Order:
    """What was asked for, checked; nothing has been done yet."""

    road: Road
    workers: int
    gpu: bool
    register: str | None
    tracking: str


@flow(name="retrain", persist_result=False, validate_parameters=True)
def retrain(
    recipe: str,
    corpus: str,
    store: str = ".firth",
    overrides: list[str] | None = None,
    workers: int = 1,
    gpu: bool = False,
    register: str | None = None,
    tracking: str | None = None,
) -> dict[str, Any]:
    """
    Turn a corpus into a trained, evaluated, registered model.

    Args:
        recipe: name of an installed recipe, or the path of one.
        corpus: file, folder, glob, URI, or `pydoc:` for the documentation of installed Python packages.
        store: folder or URI for all that is made; what it holds already is not made again.
        overrides: settings of the recipe as `training.epochs=2`.
        workers: training processes; the result does not depend on how many.
        gpu: give each worker a GPU.
        register: name of the registered model; none: log the run only.
        tracking: MLflow's URI; none: a sqlite file in the store.
    """
    order = check(recipe, corpus, store, overrides or [], workers, gpu, register, tracking)
    road = order.road
    with session(workers):
        shards = make_shards(road)
        documents = make_documents(road, shards)
        sentences = make_sentences(road, documents)
        vocabulary = make_vocabulary(road, sentences)
        tokens = make_tokens(road, sentences, vocabulary)
        pairs = make_pairs(road, sentences)
        source = road.source(sentences, tokens, pairs)
        batches = make_batches(road, source)
        trained = make_weights(order, source, vocabulary)
        vectors = make_vectors(road, trained, sentences)
        scores = make_scores(road, trained, sentences, vectors)
    registered = make_registered(order, trained, scores)
    tables = [documents, sentences, tokens, pairs, *empty(), batches]
    return summary(order, tables, trained, vectors, scores, registered)


def check(
    recipe: str,
    corpus: str,
    store: str,
    overrides: list[str],
    workers: int,
    gpu: bool,
    name: str | None,
    tracking: str | None,
) -> Order:
    """
    Everything that can be known to be wrong before any work.

    Raises:
        ValueError: of the part that is wrong, with the remedy.
    """
    if workers < 1:
        raise RecipeError(f"workers is {workers}; at least 1")
    plan = resolve(load(recipe, overrides))
    complete(PAIRINGS, plan.pairs, "pairs")
    for number, choice in enumerate(plan.evaluation):
        complete(evaluate.EVALUATIONS, choice, f"evaluation.{number}")
    word_vectors.check(plan)
    place = Store.at(store)
    uri = register.tracking(place.root, tracking)
    register.check(uri)
    start_digest(plan)
    return Order(Road(place, plan, corpus), workers, gpu, name, uri)


@stage
def make_shards(road: Road) -> Corpus:
    """Find what there is to read."""
    return road.numbered()


@stage
def make_documents(road: Road, shards: Corpus) -> Manifest:
    """Read records; put aside what cannot be used."""
    with watched("documents") as progress:
        return road.documents(shards, progress)


@stage
def make_sentences(road: Road, documents: Manifest) -> Manifest:
    """Cut records into sentences."""
    with watched("sentences") as progress:
        return road.sentences(documents, progress)


@stage
def make_vocabulary(road: Road, sentences: Manifest) -> Vocabulary:
    """The corpus's pinned vocabulary."""
    return road.vocabulary(sentences)


@stage
def make_tokens(road: Road, sentences: Manifest, vocabulary: Vocabulary) -> Manifest:
    """Turn sentences into numbers."""
    with watched("tokens") as progress:
        return road.tokens(sentences, vocabulary, progress)


@stage
def make_pairs(road: Road, sentences: Manifest) -> Manifest:
    """Find which sentences belong together."""
    with watched("pairs") as progress:
        return road.pairs(sentences, progress)


@stage
def make_batches(road: Road, source: Source) -> Manifest:
    """Write the first epoch in the order in which it will be read."""
    return road.batches(source)


@stage
def make_weights(order: Order, source: Source, vocabulary: Vocabulary) -> Weights:
    """Train, unless these weights are there."""
    road = order.road
    job = Job(road.store.root, precise(road.recipe, order.gpu), source, vocabulary, start_digest(road.recipe))
    lineage = {
        "corpus": road.uri,
        "recipe": road.recipe.name,
        "firth": version("firth"),
        "torch": version("torch"),
        "batches": job.plan,
        "sentences": [piece.key for piece in source.sentences.values()],
    }
    with watched("weights", "steps") as progress:
        return weights(road.store, job, lineage, workers=order.workers, gpu=order.gpu, progress=progress)


@stage
def make_vectors(road: Road, trained: Weights, sentences: Manifest) -> Manifest:
    """Embed the held-out sentences."""
    with watched("vectors") as progress:
        upto = scoring.sample(sentences, road.recipe.evaluation)
        return embed.vectors(road.store, trained.key, trained.folder, sentences, upto, progress)


@stage
def make_scores(road: Road, trained: Weights, sentences: Manifest, vectors: Manifest) -> scoring.Outcome:
    """Measure the model beside its baselines."""
    return scoring.outcome(road.store, road.recipe.evaluation, trained.folder, sentences, vectors)


@stage
def make_registered(order: Order, trained: Weights, scores: scoring.Outcome) -> register.Registered:
    """Log the run; register the model if it was given a name."""
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        training = trained.training
        return register.register(
            order.tracking,
            folder=order.road.store.fetch(trained.folder, Path(place)),
            name=order.register,
            parameters=order.road.recipe.model_dump(mode="json"),
            scores=scores.figures,
            loss=list(zip(training["logged_steps"], training["loss"], strict=True)),
            tags={register.WEIGHTS: trained.key, "firth.corpus": order.road.uri, "firth.version": version("firth")},
        )


def start_digest(recipe: Recipe) -> str:
    """Digest of the weights that a run starts from; empty for fresh ones."""
    if recipe.training.start == "fresh":
        return ""
    weights_file = Path(recipe.training.start) / WEIGHTS
    if not weights_file.is_file():
        raise RecipeError(
            f'training.start is "{recipe.training.start}"; `fresh`, or a model folder that holds {WEIGHTS}'
        )
    return hashlib.sha256(weights_file.read_bytes()).hexdigest()


def empty() -> list[Manifest]:
    """Stages of the road that no recipe of today fills."""
    return [Manifest(name, "", {}, cached=True) for name in ("negatives", "augmented")]


def summary(
    order: Order,
    tables: list[Manifest],
    trained: Weights,
    vectors: Manifest,
    scores: scoring.Outcome,
    registered: register.Registered,
) -> dict[str, Any]:
    """What a run says at its end: the object that `--json` prints, and the scoreboard's content."""
    documents, tokens = tables[0], tables[2]
    named = registered.name is not None
    rows = [table.row() for table in tables] + [trained.row(), vectors.row(), scores.row(), registered_row(registered)]
    return {
        "recipe": order.road.recipe.name,
        "corpus": order.road.uri,
        "store": order.road.store.root,
        "model_folder": order.road.store.path(trained.folder),
        "scores": scores.figures,
        "gate": None,
        "registered": asdict(registered) if named else None,
        "tracking": order.tracking,
        "stages": rows,
        "read": {"documents": documents.count("documents"), "sentences": tokens.rows, "tokens": tokens.count("tokens")},
        "dropped": drops(tables),
        "training": dict(trained.training),
        "notes": [note for table in tables for note in table.notes] + list(scores.notes),
    }


def registered_row(registered: register.Registered) -> dict[str, Any]:
    """The last stage as `--json` shows it."""
    return {
        "name": "registered",
        "key": registered.uri,
        "seconds": 0.0,
        "cached": False,
        "shards_new": 0,
        "shards_same": 0,
        "rows": 0,
        "quarantined": 0,
    }


def drops(tables: list[Manifest]) -> dict[str, int]:
    """What was left out, cut or unknown, and how often."""
    documents, _, tokens, _, _, _, batches = tables
    found = {name.removeprefix("dropped."): n for name, n in documents.counts().items() if name.startswith("dropped.")}
    found["sentences cut at the token limit"] = tokens.count("cut")
    found["tokens unknown to the vocabulary"] = tokens.count("unknown")
    found["sentences out of training: they repeat a held-out one"] = batches.count("repeats_of_held_out")
    return {reason: count for reason, count in found.items() if count}
