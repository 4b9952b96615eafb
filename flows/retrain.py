"""The road as one flow, one thin task per stage. The store owns what is done already; Prefect owns order and state."""

from pipeline import settings  # noqa: F401  before Prefect and Ray

# isort: split
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import opaque

from flows.order import Order, check, given_digest
from flows.progress import watched
from flows.summary import Filed, Guided, Repeats, summary
from pipeline import contrasts, counted, embed, ngrams, records, register, scoring
from pipeline.augment import PARAPHRASE
from pipeline.batches import Source
from pipeline.cluster import scratch, session
from pipeline.manifest import Manifest
from pipeline.road import Corpus, Road
from pipeline.run import Job, check_words
from pipeline.train import precise
from pipeline.vocabulary import Vocabulary
from pipeline.weights import Weights, weights

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def stage(function: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """
    A function as a Prefect task of the stage's name, whose result the store keeps, not Prefect.

    Arguments are opaque to Prefect, which would look for futures in every piece of a manifest: .3 s a stage and 3,000
    shards.
    """
    name = function.__name__.removeprefix("make_")
    run: Callable[..., Made] = task(name=name, cache_policy=NO_CACHE, persist_result=False)(function)

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Made:
        return run(*map(opaque, arguments), **{name: opaque(value) for name, value in options.items()})

    return call


@flow(name="retrain", persist_result=False, validate_parameters=True)
def retrain(
    recipe: str,
    corpus: str,
    store: str = ".firth",
    overrides: list[str] | None = None,
    workers: int = 1,
    gpu: bool = False,
    name: str | None = None,
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
        name: of the registered model; none: log the run only.
        tracking: MLflow's URI; none: a sqlite file in the store.
    """
    order = check(recipe, corpus, store, overrides, workers, gpu, name, tracking)
    with records.using(order.road.store):
        return _walk(order)


def _walk(order: Order) -> dict[str, Any]:
    """The road, from its shards to the record of what was used."""
    road = order.road
    with session(order.workers):
        shards = make_shards(road)
        documents = make_documents(road, shards)
        sentences = make_sentences(road, documents)
        vocabulary = make_vocabulary(road, sentences)
        tokens = make_tokens(road, sentences, vocabulary)
        pairs = make_pairs(road, sentences)
        joined = make_joined(road, sentences, pairs) if road.recipe.dedup else None
        out = make_left_out(road, sentences) if road.recipe.dedup else None
        negatives = make_negatives(road, sentences, pairs, joined, out) if road.recipe.negatives else empty("negatives")
        taught = make_teacher(road, sentences) if road.recipe.teacher else None
        guided = make_guide(road, sentences) if road.recipe.guide and road.recipe.guide.mask else None
        augmented = make_augmented(road, sentences, vocabulary) if _paraphrased(road) else empty("augmented")
        source = road.source(sentences, tokens, pairs, taught, augmented, guided, negatives, joined, out)
        if road.recipe.counting:
            batches = make_counts(road, source, vocabulary)
            trained = make_counted(order, source, vocabulary, batches)
        else:
            batches = make_batches(road, source)
            trained = make_weights(order, source, vocabulary)
        told = make_contrasts(road, source, batches) if road.recipe.guide else None
        vectors = make_vectors(road, trained, sentences)
        scores = make_scores(road, trained, sentences, vectors)
    filed = make_registered(order, trained, scores)
    tables = [documents, sentences, tokens, pairs, negatives, augmented, batches]
    known = Repeats(joined, out)
    result = summary(order, tables, trained, vectors, scores, filed, taught, Guided(guided, told), known)
    _remember(road, result)
    return result


def _remember(road: Road, result: dict[str, Any]) -> None:
    """Clean-up leaves alone what stands here."""
    keys = {row["name"]: row["key"] for row in result["stages"] if row["key"] and row["name"] != "registered"}
    name = result["registered"]
    records.keep(road.store, road.uri, road.recipe.name, keys, [name["name"], str(name["version"])] if name else [])


@stage
def make_shards(road: Road) -> Corpus:
    """Find what there is to read."""
    with watched("shards"):
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
    with watched("vocabulary"):
        vocabulary = road.vocabulary(sentences)
        check_words(road.recipe, vocabulary)
        return vocabulary


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
def make_joined(road: Road, sentences: Manifest, pairs: Manifest) -> Manifest | None:
    """Find which texts are never told apart."""
    with watched("joined") as progress:
        return road.joined(sentences, pairs, progress)


@stage
def make_left_out(road: Road, sentences: Manifest) -> Manifest | None:
    """Find which texts are never trained on."""
    with watched("left_out") as progress:
        return road.left_out(sentences, progress)


@stage
def make_negatives(
    road: Road, sentences: Manifest, pairs: Manifest, joined: Manifest | None, left_out: Manifest | None
) -> Manifest:
    """Mine hard negatives."""
    with watched("negatives") as progress:
        return road.negatives(sentences, pairs, progress, joined, left_out)


@stage
def make_teacher(road: Road, sentences: Manifest) -> Manifest:
    """Embed all sentences with the model to learn from."""
    with watched("teacher") as progress:
        return road.teacher(sentences, progress)


@stage
def make_guide(road: Road, sentences: Manifest) -> Manifest:
    """Embed all sentences with the model that says what may be right."""
    with watched("guide") as progress:
        return road.guide(sentences, progress)


@stage
def make_augmented(road: Road, sentences: Manifest, vocabulary: Vocabulary) -> Manifest:
    """Write training sentences in other words."""
    with watched("augmented") as progress:
        return road.augmented(sentences, vocabulary, progress)


@stage
def make_batches(road: Road, source: Source) -> Manifest:
    """Write the first epoch in the order in which it will be read."""
    with watched("batches"):
        return road.batches(source)


@stage
def make_contrasts(road: Road, source: Source, batches: Manifest) -> Manifest:
    """Estimate how many wrong candidates may be right."""
    with watched("contrasts"):
        return contrasts.contrasts(road.store, road.recipe, source, batches.pieces[0])


@stage
def make_weights(order: Order, source: Source, vocabulary: Vocabulary) -> Weights:
    """Train, unless these weights are there."""
    road = order.road
    with watched("weights", "steps") as progress:
        job = Job(road.store.root, precise(road.recipe, order.gpu), source, vocabulary, given_digest(road.recipe))
        lineage = _lineage(road, job.plan, source)
        return weights(road.store, job, lineage, workers=order.workers, gpu=order.gpu, progress=progress)


@stage
def make_counts(road: Road, source: Source, vocabulary: Vocabulary) -> Manifest:
    """Count n-grams, in place of batches."""
    with watched("counts") as progress:
        order = int(road.recipe.encoder.options["order"])
        return ngrams.counts(road.store, source, order, vocabulary.size, progress)


@stage
def make_counted(order: Order, source: Source, vocabulary: Vocabulary, counts: Manifest) -> Weights:
    """Add the counts up, in place of training, unless this model is there."""
    with watched("weights"):
        road = order.road
        return counted.model(road.store, road.recipe, vocabulary, counts, _lineage(road, counts.key, source))


@stage
def make_vectors(road: Road, trained: Weights, sentences: Manifest) -> Manifest:
    """Embed the held-out sentences."""
    with watched("vectors") as progress:
        upto = scoring.sample(sentences.pieces.values(), road.recipe.evaluation)
        return embed.vectors(road.store, trained.key, trained.folder, sentences, upto, progress)


@stage
def make_scores(road: Road, trained: Weights, sentences: Manifest, vectors: Manifest) -> scoring.Outcome:
    """Measure the model beside its baselines."""
    with watched("scores"):
        return scoring.outcome(road.store, road.recipe.evaluation, trained.folder, sentences, vectors, trained.key)


@stage
def make_registered(order: Order, trained: Weights, scores: scoring.Outcome) -> Filed:
    """Log the run; register the model if it was given a name."""
    started, training = time.time(), trained.training
    with watched("registered"), tempfile.TemporaryDirectory(dir=scratch()) as place:
        registered = register.register(
            order.tracking,
            folder=order.road.store.fetch(trained.folder, Path(place)),
            name=order.name,
            parameters=order.road.recipe.model_dump(mode="json"),
            scores=scores.figures,
            loss=list(zip(training["logged_steps"], training["loss"], strict=True)),
            watched=training.get("watched", ()),
            bound=training.get("bound"),  # weights of older versions have none
            tags={register.WEIGHTS: trained.key, "firth.corpus": order.road.uri, "firth.version": version("firth")},
        )
    return Filed(registered, time.time() - started)


def _lineage(road: Road, batches: str, source: Source) -> dict[str, Any]:
    """What a model was made from; `batches` is the key of what was read."""
    return {
        "corpus": road.uri,
        "recipe": road.recipe.name,
        "firth": version("firth"),
        "torch": version("torch"),
        "batches": batches,
        "sentences": [piece.key for piece in source.sentences.values()],
    }


def empty(name: str) -> Manifest:
    """A stage of the road that the recipe does not fill."""
    return Manifest(name, "", {}, cached=True)


def _paraphrased(road: Road) -> bool:
    return any(choice.kind == PARAPHRASE for choice in road.recipe.augment)
