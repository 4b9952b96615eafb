"""
A recipe: everything that decides what is trained, read once from TOML into frozen models.

Unknown keys and names are refused and the known ones listed. This file imports no torch, so that data workers can read
a recipe cheaply; names of parts (`similarity.kind` and the like) are checked by `models.resolving.resolve`.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from models.trouble import MendableError

GENERATION = "generation"  # the objective of a term whose rows tell their answers
COUNTING = frozenset({"ngram"})  # encoders that count and are not trained


class RecipeError(MendableError, ValueError):
    """A recipe that cannot be used: what is wrong, what was got, what would be right."""


class Part(BaseModel):
    """Base of all settings: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _kind(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": value["kind"]} if "kind" in value else {}


class Choice(Part):
    """A named part and its options, `{ kind = "cosine", temperature = 0.05 }`; written flat, as it is read."""

    kind: str
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, Mapping) and "options" not in value:
            return _kind(value) | {"options": {k: v for k, v in value.items() if k != "kind"}}
        return value

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.options}


class Corpus(Part):
    """How the source's records become documents. Columns are names in the source; sizes are in characters or bytes."""

    name: str = Field("", description="the vocabulary is trained once per name; empty: a digest of the source's URI")
    text: str = Field("text", description="column that holds the text")
    texts: tuple[str, ...] = Field(
        (),
        description="columns of one example a row: anchor, its positive, perhaps a hard negative; or one column whose "
        "texts stay whole and make groups; empty: `text`",
    )
    label: str = Field(
        "", description="column that says entailment, neutral or contradiction of the two `texts`; empty: none"
    )
    labels: Literal["entailment", "right"] = Field(
        "entailment",
        description="what `label` says: how two sentences stand, or of a question's answer 1 right, 0 wrong",
    )
    columns: tuple[str, ...] = Field(
        (), description="names of the columns of tables without a first line that names them; .txt is then one of tabs"
    )
    parallel: bool = Field(False, description="each file of a folder is a column, called as the file; a line is a row")
    document: tuple[str, ...] = Field((), description="columns that together name a document; empty: `id` if present")
    order: tuple[str, ...] = Field((), description="columns to sort a document's rows by; empty: as in the file")
    title: str = Field("", description="column with the document's title; empty: none")
    language: str = Field("en", description="ISO 639 code, for cutting sentences")
    language_column: str = Field("", description="column that holds each row's language code; empty: none")
    lines: bool = Field(False, description="text files hold a sentence a line, a blank line between documents")
    scattered: Literal["refuse", "sort"] = Field("refuse", description="what to do when a document's rows lie apart")
    longest: int = Field(1_000_000, ge=1, description="characters; a longer line or value goes to quarantine")
    held_out: float = Field(0.1, ge=0, lt=1, description="share of documents kept for evaluation, by digest of the id")
    split: int = Field(0, ge=0, description="another number holds other documents out")
    shard_bytes: int = Field(8_000_000, ge=1, description="text bytes of a shard, about; also the most of a bucket")

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            lists = ("document", "order", "texts", "columns")
            return {k: (v,) if k in lists and isinstance(v, str) else v for k, v in value.items()}
        return value

    @property
    def example_texts(self) -> int:
        """Texts of a labelled example, rated premises being made into triples; 0: running text, questions, groups."""
        return 0 if self.asks or self.grouped else 3 if self.label else len(self.texts)

    @property
    def asks(self) -> bool:
        """Whether the texts are questions and their answers, right and wrong."""
        return self.labels == "right"

    @property
    def grouped(self) -> bool:
        """Whether a row is one text, and its document a group of similar ones."""
        return len(self.texts) == 1

    @model_validator(mode="after")
    def _examples(self) -> Self:
        if len(self.texts) > 3:
            raise ValueError(f"corpus.texts names {len(self.texts)} columns; 2, or 3 with a hard negative")
        if self.grouped and not self.document:
            raise ValueError(
                f"corpus.texts names one column, {self.texts[0]}: name that of its group in corpus.document; or name 2 "
                "columns, or 3 with a hard negative"
            )
        if len(set(self.texts)) < len(self.texts):
            raise ValueError(f"corpus.texts names a column twice: {', '.join(self.texts)}")
        if self.label and len(self.texts) != 2:
            raise ValueError('corpus.label needs corpus.texts to name two columns, as in ["premise", "hypothesis"]')
        if self.asks and not self.label:
            raise ValueError('corpus.labels = "right" needs corpus.label to name the column of 1 and 0')
        if self.parallel and self.columns:
            raise ValueError("corpus.columns names the columns of a table, and corpus.parallel has files for columns")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"corpus.columns has a name twice: {', '.join(self.columns)}")
        return self


class Tokenizer(Part):
    """The vocabulary: trained once per corpus name, then pinned, so that growth does not redo all tokens."""

    kind: Literal["word-level", "wordpiece", "saved", "encoder", "table"] = Field(
        "word-level",
        description="`encoder`: that of encoder.path, or a new wordpiece if there is none; `table`: the words of "
        "encoder.table, for vectors that stay as they are and know more words than the corpus",
    )
    path: str = Field("", description="kind `saved`: a tokenizer.json, or a folder that holds one")
    size: int = Field(50_000, ge=3, description="entries, special ones included")
    lowercase: bool = False
    leave_out: tuple[str, ...] = Field((), description="words that no text keeps; kinds word-level and table")
    most_tokens: int = Field(50, ge=1, description="a longer sentence is cut, and counted")
    sample: int = Field(2_000_000, ge=1, description="sentences to train on at most, evenly from all shards")
    refresh: int = Field(0, ge=0, description="raise it to train the vocabulary anew")


class Batches(Part):
    """Rows that are read together. All counts are rows of the batches table."""

    rows: int = Field(400, ge=2, le=65_536, description="rows of a batch")
    run: int = Field(400, ge=2, description="neighbouring sentences that stand together at most")
    lane_rows: int = Field(100, ge=1, description="rows that are encoded together; no part of the cluster's size")
    bucket_rows: int = Field(400_000, ge=1, description="rows shuffled in memory at once")


class Encoder(Part):
    """Towers are sets of weights; `[encoder.f]` overrides for tower f what all share."""

    kind: str
    towers: tuple[str, ...] = ("f",)
    options: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "options" in value or "own" in value:
            return value
        towers = value.get("towers", ["f"])
        if not isinstance(towers, list | tuple) or not towers or len(set(map(str, towers))) < len(towers):
            raise ValueError(f'encoder.towers is {towers!r}; should be a list of different names, as in ["f", "g"]')
        rest = {k: v for k, v in value.items() if k not in ("kind", "towers")}
        own = {k: rest.pop(k) for k in towers if isinstance(k, str) and k in rest}
        return _kind(value) | {"towers": towers, "options": rest, "own": own}

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"kind": self.kind, "towers": list(self.towers), **self.options, **self.own}

    def tower(self, name: str) -> dict[str, Any]:
        """The options of one tower: what all share, and its own on top."""
        return {**self.options, **self.own.get(name, {})}


class Term(Part):
    """
    One summand of the loss: whose vectors are compared, with what, and what the scores should say.

    A term that lives in a lane, like masked words, has an objective and nothing to compare.
    """

    anchor: str = Field("", description="tower of the anchors; empty: the first")
    candidate: str = Field("", description="tower of the candidates; empty: the anchor's")
    candidates: Choice | None = None
    similarity: Choice | None = None
    objective: Choice
    weight: float = 1.0
    reduce: Literal["mean", "sum"] = Field("mean", description="divide by the count over the whole batch, or by 1")
    ahead: int = Field(0, ge=0, description="the answer is the sentence so many later, of the context up to the anchor")

    @property
    def generates(self) -> bool:
        """Whether each row tells the text of its answer."""
        return self.candidates is None and self.objective.kind == GENERATION


class Training(Part):
    """How the weights move. Neither the number of workers nor their hardware stands here."""

    epochs: int = Field(1, ge=1)
    steps: int | None = Field(None, ge=1, description="end after so many steps, in whichever epoch")
    optimizer: Literal["adam", "adamw", "sgd", "lazy-adam", "lazy-sgd"] = Field(
        "adam", description="lazy: rows of word tables that a batch does not touch stay as they are"
    )
    rate: float = Field(0.0005, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0, description="added to the root of Adam's second moment")
    weight_decay: float = Field(0.0, ge=0)
    decay: Literal["all", "matrices"] = Field(
        "all", description="matrices: biases and single numbers are left as they are"
    )
    schedule: Literal["constant", "linear"] = Field("constant", description="linear: down to 0 behind the last step")
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the steps in which the rate rises from 0")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    clip_by: Literal["global", "tensor"] = "global"
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"
    cached: bool = Field(False, description="encode twice to hold one lane at a time in memory; the same result")
    start: str = Field("fresh", description="`fresh`, or the path of a model folder to start from")
    seed: int = Field(0, ge=0)
    log_steps: int = Field(10, ge=1)
    checkpoint_steps: int | None = Field(None, ge=1, description="default: a tenth of the run")

    @property
    def lazy(self) -> bool:
        """Whether gradients of word tables stay sparse."""
        return self.optimizer.startswith("lazy-")

    @model_validator(mode="after")
    def _touches_no_other_row(self) -> Self:
        wrong = [name for name in ("clip", "weight_decay") if getattr(self, name)]
        if self.lazy and wrong:
            raise ValueError(
                f"training.{wrong[0]} is {getattr(self, wrong[0])}; {self.optimizer} has none: it leaves rows that a "
                f"batch does not touch as they are; use {self.optimizer.removeprefix('lazy-')}"
            )
        return self


class Teacher(Part):
    """A frozen model whose vectors of the clean texts are what a term's scores should agree with (objective gram)."""

    model: str = Field(min_length=1, description="a model folder; neither its width nor its tokenizer need be the same")


class Guide(Part):
    """A frozen model by which wrong candidates that may be right are left out, and false negatives estimated."""

    model: str = Field(min_length=1, description="a model folder; neither its width nor its tokenizer need be the same")
    kind: Literal["absolute", "relative"] = Field(
        "absolute", description="the limit is the right answer's score + margin, or that score + margin of its size"
    )
    margin: float = Field(0.0, ge=-2, le=2, description="candidates from there on are left out; below 0: more of them")
    mask: bool = Field(True, description="false: nothing is left out, false negatives are estimated alone")
    sample: int = Field(4_000, ge=1, description="rows of batches by which they are estimated, about")


class Negatives(Part):
    """Hard negatives from the whole corpus: who finds them, and which of them an anchor gets."""

    miner: Choice = Field(Choice(kind="bm25"), description="`bm25`, `dense`, `same-document` or `random`")
    count: int = Field(1, ge=1, le=64, description="of an anchor")
    first: int = Field(0, ge=0, description="so many of the nearest are left out, counted behind the score rules")
    last: int = Field(50, ge=1, description="how many of the nearest are looked at")
    choose: Literal["top", "sample"] = Field("top", description="the nearest that the rules leave, or drawn from these")
    absolute_margin: float | None = Field(None, description="below the right answer's score by so much at least")
    relative_margin: float | None = Field(
        None, ge=0, description="the same as a share of that score: .05 leaves out what has more than 95 % of it"
    )
    floor: float | None = Field(None, description="lowest score")
    ceiling: float | None = Field(None, description="highest score")
    short: Literal["fewer", "drop", "random"] = Field(
        "fewer",
        description="an anchor with too few: keeps those it has, leaves training, or is filled up by drawn texts",
    )
    judge: str = Field("", description="folder of a cross-encoder, whose scores the rules then look at; empty: none")
    exact: int = Field(1_000_000, ge=0, description="texts up to which the search is exact; beyond, cells are searched")
    seed: int = Field(0, ge=0, description="of what is drawn")

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.first + self.count > self.last:
            raise ValueError(
                f"negatives.first {self.first} and count {self.count} reach beyond last, {self.last}; set "
                f"negatives.last to at least {self.first + self.count}"
            )
        return self


class Dedup(Part):
    """Texts that repeat others: which are never told apart, and which stay out of training."""

    near: float = Field(
        0.0, ge=0, le=1, description="least share of runs of characters that near repeats have in common; 0: exact only"
    )
    shingle: int = Field(5, ge=1, le=64, description="characters of such a run")
    positives: bool = Field(
        True, description="texts that answer the same text are of one class, through any number of steps"
    )
    partners: int = Field(100, ge=1, description="a text in more pairs than that joins nobody")
    decontaminate: bool = Field(True, description="texts of the files that the recipe is evaluated on stay out")
    boilerplate: int = Field(0, ge=0, description="a line that stands in at least so many documents stays out; 0: none")
    boilerplate_share: float = Field(0.0, ge=0, le=1, description="and in at least this share of all documents")
    repeats: Literal["keep", "drop"] = Field("keep", description="`drop`: of equal texts the first one stays")


class Readout(Part):
    """What a text's vector is after training: the towers' vectors, one behind the other."""

    towers: tuple[str, ...] = Field((), description="empty: the first tower")
    normalise: bool = Field(False, description="scale each tower's vector to length 1 first")
    pooling: str = Field("", description="another pooling than in training; empty: the same")
    head: bool = Field(True, description="whether the encoder's head is kept after training")
    denoise: bool = Field(True, description="whether a template's own vector is taken off after training")
    stop: bool = Field(False, description="a text without a closing mark gets a full stop")


class Watch(Part):
    """What is measured while a run trains, and which step's weights it ends with."""

    steps: int | None = Field(
        None, ge=1, description="measure every so many steps, before the first and after the last"
    )
    evaluation: tuple[Choice, ...] = Field((), description="by what; empty: by `evaluation`")
    best: str = Field("", description="end with the weights whose figure of this name is best; empty: with the last")
    lowest: bool = Field(False, description="a smaller figure is a better one")

    @model_validator(mode="after")
    def _best_is_measured(self) -> Self:
        if self.best and not self.steps:
            raise ValueError(
                f'watch.best is "{self.best}" but nothing is measured; set watch.steps, as in watch.steps=50'
            )
        return self


class Recipe(Part):
    """The whole of a method; see each part."""

    name: str
    source: str = Field("", description="paper, or who decided the numbers")
    corpus: Corpus = Corpus()
    tokenizer: Tokenizer = Tokenizer()
    pairs: Choice = Choice(kind="neighbours", options={"context_size": 1})
    augment: tuple[Choice, ...] = Field((), description="what is done to the tokens of each view, anew every epoch")
    view: tuple[Choice, ...] = Field((), description="how each view is encoded")
    batches: Batches = Batches()
    encoder: Encoder
    context: Choice | None = Field(None, description="what reads a run's vectors for terms with `ahead`; none: nothing")
    terms: tuple[Term, ...] = Field((), description="at least one, but for an encoder that counts")
    training: Training = Training()
    teacher: Teacher | None = Field(None, description="whose geometry is learned; none: nobody's")
    guide: Guide | None = Field(None, description="who tells what may be right without being marked so; none: nobody")
    negatives: Negatives | None = Field(None, description="hard negatives from the whole corpus; none: no one mines")
    dedup: Dedup | None = Field(None, description="what is done about texts that repeat others; none: nothing")
    watch: Watch = Watch()
    readout: Readout = Readout()
    evaluation: tuple[Choice, ...] = (Choice(kind="neighbours"),)

    @property
    def counting(self) -> bool:
        """Whether words are counted, and no weight is trained."""
        return self.encoder.kind in COUNTING

    @property
    def generates(self) -> bool:
        """Whether a term does."""
        return any(term.generates for term in self.terms)

    @model_validator(mode="after")
    def _terms_there(self) -> Self:
        if self.counting and self.terms:
            raise ValueError(f"terms has {len(self.terms)}; encoder.kind = {self.encoder.kind} counts: leave them out")
        if not self.counting and not self.terms:
            raise ValueError(f"terms is []; encoder.kind = {self.encoder.kind} is trained: name at least one")
        return self

    @model_validator(mode="after")
    def _towers_exist(self) -> Self:
        towers = self.encoder.towers
        named = [
            (f"terms.{i}.{side}", getattr(t, side))
            for i, t in enumerate(self.terms)
            for side in ("anchor", "candidate")
        ]
        named += [("readout.towers", name) for name in self.readout.towers]
        for where, name in named:
            if name and name not in towers:
                raise ValueError(f'{where} is "{name}"; towers of encoder: {", ".join(towers)}')
        return self


def known() -> dict[str, Path]:
    """Name and path of every recipe that is installed with the package."""
    found = [Path(str(entry)) for entry in files("recipes").iterdir() if entry.name.endswith(".toml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def load(name_or_path: str, overrides: Iterable[str] = ()) -> Recipe:
    """
    Read a recipe by name or by path, with `KEY=VALUE` overrides such as `training.epochs=2`.

    Raises:
        RecipeError: no such recipe, key or value; the message names the known ones.
    """
    path = known().get(name_or_path, Path(name_or_path))
    if not path.is_file():
        raise RecipeError(f'no recipe "{name_or_path}"; known: {", ".join(known())}; or give the path of a .toml file')
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path}: not TOML: {error}") from None
    tree.setdefault("name", path.stem)
    read = parse(tree)
    if not (overrides := list(overrides)):
        return read
    tree = read.model_dump(mode="json")  # defaults are there too, so that evaluation.0.most=100 finds its place
    for override in overrides:
        _put(tree, override)
    return parse(tree)


def parse(tree: Mapping[str, Any]) -> Recipe:
    """
    Check a recipe that lies in memory.

    Raises:
        RecipeError: every wrong key or value, each with what would be right.
    """
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        items = error.errors()
        inner = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
        # A list with a wrong member also counts as too short: name the member alone.
        faults = "; ".join(_fault(item) for item in items if item["loc"] not in inner)
        raise RecipeError(f"recipe {tree.get('name', '?')}: {faults}") from None


def digest(*parts: Any) -> str:
    """A short, stable name (16 hex digits) for settings or for anything that JSON can say."""
    plain = [part.model_dump(mode="json") if isinstance(part, BaseModel) else part for part in parts]
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _put(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f'"{override}" is not KEY=VALUE, as in training.epochs=2')
    *path, last = key.strip().split(".")
    group: Any = tree
    for name in path:
        if isinstance(group, dict):
            group[name] = {} if group.get(name) is None else group[name]  # a table that the recipe does without
            group = group[name]
        else:
            group = group[_place(group, name, override)]
        if not isinstance(group, dict | list):
            raise RecipeError(f'"{override}": {name} is the value {group!r}, not a group of settings')
    group[last if isinstance(group, dict) else _place(group, last, override)] = _value(text)


def _place(entries: list[Any], name: str, override: str) -> int:
    if not name.isdecimal() or int(name) >= len(entries):
        raise RecipeError(
            f'"{override}": {name} should be the number of an entry, from 0 to {len(entries) - 1}; a whole list can be '
            f"given too, as in KEY=[...]"
        )
    return int(name)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word is a string: corpus.text=body


def _fault(item: Any) -> str:
    where = ".".join(str(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        return f'unknown key "{where}"; known: {", ".join(_keys(item["loc"][:-1]))}'
    if item["type"] == "missing":
        return f'key "{where}" is missing'
    if item["type"] == "value_error":  # our own, whole as it is
        return str(item["ctx"]["error"])
    return f"{where or 'recipe'} is {item['input']!r}: {item['msg']}"


def _keys(path: tuple[Any, ...]) -> list[str]:
    model: Any = Recipe
    for step in path:
        if isinstance(step, int):
            continue
        annotation = model.model_fields[step].annotation
        model = next((a for a in getattr(annotation, "__args__", ()) if isinstance(a, type)), annotation)
    return sorted(model.model_fields)
