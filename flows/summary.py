"""What a run says at its end: the object that `--json` prints, from which the scoreboard is made too."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flows.order import Order
from pipeline.contrasts import estimate
from pipeline.groups import OUT
from pipeline.manifest import Manifest
from pipeline.register import Registered
from pipeline.scoring import Outcome
from pipeline.store import Piece, Store
from pipeline.weights import Weights

UNASKED = {  # of questions, pairs, groups and targets, by their counts in batches
    "no_right": "questions without a right answer",
    "no_wrong": "questions without a wrong answer",
    "wrong_is_right": "wrong answers that say the same as a right one",
    "wrong_beyond_most": "wrong answers beyond pairs.most: each epoch draws others",
    "equal_pairs": "pairs of texts that say the same",
    "negatives_missing": "mined negatives that are missing: fillers stand there",
    "negatives_too_few": "examples with too few mined negatives",
    "groups_of_one": "groups of one text",
    "groups_of_one_text": "groups of texts that all say the same",
    "targets_cut": "texts to generate, cut where the encoder has no room behind what they answer",
}
SHOWN = 3  # quarantined rows that stand in the summary itself


@dataclass(frozen=True)
class Filed:
    """Where the model went, and what bringing it there took."""

    registered: Registered
    seconds: float

    def row(self) -> dict[str, Any]:
        """The stage as `--json` shows it; its one row is the registered version."""
        new = int(self.registered.new)
        return {
            "name": "registered",
            "key": self.registered.uri,
            "seconds": round(self.seconds, 3),
            "cached": not new,
            "shards_new": new,
            "shards_same": 1 - new,
            "shards_gone": 0,
            "rows": 1,
            "quarantined": 0,
        }


@dataclass(frozen=True)
class Guided:
    """What a recipe's guide was asked: vectors of all sentences, and its word on the batches; None: it was not."""

    vectors: Manifest | None = None
    contrasts: Manifest | None = None

    def stages(self, batches: Manifest) -> list[Manifest]:
        """The last of the data stages, with those of the guide around."""
        before = [replace(self.vectors, name="guide")] if self.vectors else []
        return [*before, batches, *([self.contrasts] if self.contrasts else [])]


@dataclass(frozen=True)
class Repeats:
    """What a recipe's `dedup` found; None: it was not asked, or there is no such thing."""

    joined: Manifest | None = None
    left_out: Manifest | None = None

    def stages(self) -> list[Manifest]:
        """Those of the data stages that there are."""
        return [table for table in (self.joined, self.left_out) if table]

    def classes(self) -> dict[str, int] | None:
        """Classes of texts that are never told apart, in plain JSON types."""
        if self.joined is None:
            return None
        names = ("classes", "texts", "largest", "crowded")
        return {name: self.joined.count(name) for name in names}


def summary(
    order: Order,
    tables: Sequence[Manifest],
    trained: Weights,
    vectors: Manifest,
    scores: Outcome,
    filed: Filed,
    teacher: Manifest | None = None,
    guided: Guided = Guided(),
    repeats: Repeats = Repeats(),
) -> dict[str, Any]:
    """
    All figures of a run, in plain JSON types.

    Args:
        tables: documents, sentences, tokens, pairs, negatives, augmented, batches.
        teacher: vectors by the model that was learned from, if there is one.
        guided: what a guide was asked, if there is one.
        repeats: what texts that repeat others were found to be, if it was asked.
    """
    road, (documents, _, tokens, *_) = order.road, tables
    taught = [replace(teacher, name="teacher")] if teacher else []
    found = [*tables[:4], *repeats.stages(), *tables[4:-1]]
    stages: list[Any] = [*found, *taught, *guided.stages(tables[-1]), trained, vectors, scores, filed]
    return {
        "recipe": road.recipe.name,
        "corpus": road.uri,
        "store": road.store.root,
        "model_folder": road.store.path(trained.folder),
        "scores": dict(scores.figures),
        "gate": None,
        "registered": asdict(filed.registered) if filed.registered.name else None,
        "tracking": order.tracking,
        "stages": [stage.row() for stage in stages],
        "read": {"documents": documents.count("documents"), "sentences": tokens.rows, "tokens": tokens.count("tokens")},
        "dropped": drops(tables),
        "quarantine": quarantine(road.store, documents),
        "false_negatives": estimate(road.store, road.recipe, guided.contrasts) if guided.contrasts else None,
        "classes": repeats.classes(),
        "training": dict(trained.training),
        "notes": [*trained.training.get("notes", ()), *scores.notes],
    }


def drops(tables: Sequence[Manifest]) -> dict[str, int]:
    """What was left out, cut or unknown, and how often."""
    documents, _, tokens, _, _, _, batches = tables
    found = {name.removeprefix("dropped."): n for name, n in documents.counts().items() if name.startswith("dropped.")}
    found["sentences cut at the token limit"] = tokens.count("cut")
    found["tokens unknown to the vocabulary"] = tokens.count("unknown")
    found["sentences out of training: they repeat a held-out one"] = batches.count("repeats_of_held_out")
    out = sorted((name.removeprefix(OUT), times) for name, times in batches.counts().items() if name.startswith(OUT))
    found |= {f"sentences out of training: {reason}": times for reason, times in out}
    found |= {reason: batches.count(name) for name, reason in UNASKED.items()}
    return {reason: count for reason, count in found.items() if count}


def quarantine(store: Store, documents: Manifest) -> dict[str, Any]:
    """Where quarantined rows are listed, and the first of them as `source, row, reason`."""
    lists = [_list(store, piece) for piece in documents.pieces.values() if piece.counts.get("quarantined")]
    first: list[dict[str, Any]] = []
    for piece in lists:
        if len(first) < SHOWN:
            first += store.read(piece, ["source", "row", "reason"]).head(SHOWN - len(first)).to_dicts()
    return {"files": [store.path(piece.file) for piece in lists], "first": first}


def _list(store: Store, documents: Piece) -> Piece:
    """The quarantine of a shard; it has the key of its documents."""
    piece = store.piece("quarantine", documents.key)
    assert piece is not None, "a shard's quarantine is written before its documents"
    return piece
