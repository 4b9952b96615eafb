"""The `firth` command. Heavy imports stand inside the commands, so that help answers at once."""

import errno
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from models.trouble import MendableError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Keep a text-embedding model in step with a growing corpus.",
)

Recipe = Annotated[str, typer.Argument(help="A recipe's name (see `firth recipes`) or the path of a TOML file.")]
Corpus = Annotated[
    str,
    typer.Option(help="File, folder, glob or URI of text, or `pydoc:` for the documentation of installed packages."),
]
StorePlace = Annotated[str, typer.Option("--store", envvar="FIRTH_STORE", help="Folder or URI for all that is made.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: training.epochs=2. Repeatable."),
]
Model = Annotated[str, typer.Argument(help="A model folder, or the name of a registered model.")]
Tracking = Annotated[str | None, typer.Option(metavar="URI", help="MLflow; default: a file in the store.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

TEXTS = 4096  # texts read from standard input before they are encoded
BLOCKED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)  # no bug, but a disk that says no
FAILED, STOPPED = 2, 130  # exit codes; 130 is the shell's for Ctrl-C


@app.command()
def retrain(
    recipe: Recipe,
    corpus: Corpus,
    store: StorePlace = ".firth",
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option(help="Training processes; the result does not depend on it.")] = 1,
    gpu: Annotated[bool, typer.Option("--gpu", help="Give each worker a GPU.")] = False,
    register: Annotated[str | None, typer.Option(metavar="NAME", help="Register the model under this name.")] = None,
    tracking: Tracking = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object last, instead of the scoreboard.")
    ] = False,
) -> None:
    """Turn a corpus into a trained, evaluated, registered model. What the store holds already is not made again."""
    with _told():
        from models.recipe import load

        load(recipe, overrides or [])  # a slip of the pen is told at once
        from flows.server import early

        ready = early()
        from flows.order import check

        asked = (recipe, corpus, store, overrides, workers, gpu, register, tracking)
        check(*asked)  # what is wrong here waits for no server, and leaves no failed run in its list
        from flows.retrain import retrain as flow

        ready()

        for name in ("prefect.flow_runs", "prefect.task_runs"):
            logging.getLogger(name).propagate = False  # they tell of errors that are raised, and told here, as well
        result = flow(*asked)
        print(json.dumps(result)) if as_json else _show(result)


@app.command()
def recipes() -> None:
    """List the recipes."""
    with _told():
        from models.recipe import known, load

        for name in known():
            print(f"{name:32} {load(name).source}")


@app.command()
def describe(recipe: Recipe, overrides: Overrides = None) -> None:
    """Show a recipe with every setting filled in."""
    with _told():
        from flows.order import described

        print(json.dumps(described(recipe, overrides or []).model_dump(mode="json"), indent=2))


@app.command()
def encode(model: Model, store: StorePlace = ".firth", tracking: Tracking = None) -> None:
    """Read texts from standard input, a line each; print a JSON list of numbers for each."""
    with _told():
        from flows.registry import opened

        opened_model = opened(model, store, tracking)
        for texts in _lines():
            for vector in opened_model.encode(texts):
                print(json.dumps([round(float(value), 6) for value in vector]))


@app.command()
def search(
    model: Model,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    corpus: Corpus,
    store: StorePlace = ".firth",
    most: Annotated[int, typer.Option("-n", min=1, help="Hits to show.")] = 5,
    tracking: Tracking = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a hit.")] = False,
) -> None:
    """Find the sentences of a corpus that answer a query best, in the model's own geometry."""
    with _told():
        from flows.search import hits

        for hit in hits(model, query, corpus, store=store, most=most, tracking=tracking):
            place = hit["title"] or f"{hit['source']}, row {hit['row']}"
            print(json.dumps(hit) if as_json else f"{hit['score']:6.3f}  {place}\n        {hit['text']}")


@app.command()
def rewrite(
    model: Model,
    text: Annotated[str, typer.Argument(help="What to say in other words.")],
    store: StorePlace = ".firth",
    most: Annotated[int, typer.Option("-n", min=1, help="Texts to show.")] = 10,
    top_k: Annotated[int, typer.Option(min=0, help="Draw each word from so many likeliest; 0: from all.")] = 5,
    top_p: Annotated[float, typer.Option(help="And of them from those that together have this chance.")] = 1.0,
    longest: Annotated[int, typer.Option(min=1, help="Most tokens of a text.")] = 32,
    seed: Annotated[int, typer.Option(help="The same gives the same texts.")] = 0,
    tracking: Tracking = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
) -> None:
    """Say a text in other words, with a model whose recipe has a term that generates; the most similar first."""
    if not 0 < top_p <= 1:
        raise typer.BadParameter(f"{top_p} is no chance above 0, up to 1", param_hint="--top-p")
    with _told():
        from flows.rewrite import Drawing, rewrites

        drawing = Drawing(top_k, top_p, longest)
        found = rewrites(model, text, store=store, most=most, drawing=drawing, seed=seed, tracking=tracking)
        for said, score in zip(found.texts, found.scores, strict=True):
            print(json.dumps({"score": score, "text": said}) if as_json else f"{score:6.3f}  {said}")
        if len(found.texts) < most:
            print(
                f"firth: {len(found.texts)} of {most}: of {found.drawn} texts that were drawn {found.empty} are empty, "
                f"{found.copies} say the same as the text, {found.repeated} were drawn before",
                file=sys.stderr,
            )


data = typer.Typer(no_args_is_help=True, help="What the store holds, and what it should forget.")
app.add_typer(data, name="data")
store_commands = typer.Typer(no_args_is_help=True, help="House-keeping of the store.")
app.add_typer(store_commands, name="store")


@data.command()
def status(store: StorePlace = ".firth", tracking: Tracking = None, as_json: AsJson = False) -> None:
    """Show what is in a store, what each run used, and what nothing uses."""
    with _told():
        from flows.data import shown, state

        found = state(store, tracking)
        print(json.dumps(found) if as_json else shown(found))


@data.command()
def forget(
    documents: Annotated[list[str], typer.Argument(metavar="DOCUMENT...", help="Ids, as in table documents.")],
    corpus: Annotated[str, typer.Option(help="Its corpus.name, or the URI as it was given to `firth retrain`.")],
    store: StorePlace = ".firth",
    tracking: Tracking = None,
    as_json: AsJson = False,
) -> None:
    """Forget documents: the next run makes their shards anew without them, `firth store clean` removes the old."""
    with _told():
        from flows.data import forget, told

        found = forget(documents, corpus, store, tracking)
        print(json.dumps(found) if as_json else told(found))


@store_commands.command()
def clean(
    store: StorePlace = ".firth",
    tracking: Tracking = None,
    keep_days: Annotated[float, typer.Option(min=0, help="What a run of the last so many days used stays.")] = 30.0,
    grace_hours: Annotated[float, typer.Option(min=0, help="Nothing younger goes.")] = 24.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what nothing uses; never what a registered model needs, nor what a run that goes on may need."""
    with _told():
        from flows.store import clean, told

        found = clean(store, tracking, keep_days, grace_hours, dry_run)
        print(json.dumps(found) if as_json else told(found))


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console

    from pipeline.report import scoreboard

    wide = Console()
    Console(width=wide.width if wide.is_terminal else 110).print(scoreboard(result))


def _lines() -> Iterator[list[str]]:
    """Standard input's lines, some at a time."""
    texts: list[str] = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            texts.append(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise MendableError(
                f"standard input, line {number}: not UTF-8 at byte {error.start}; convert it, as with iconv -t UTF-8"
            ) from None
        if len(texts) == TEXTS:
            yield texts
            texts = []
    yield texts


@contextmanager
def _told() -> Iterator[None]:
    """A block whose errors, if a person can mend them, end the command with a line; any other keeps its traceback."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        _end("stopped; the same command goes on from here", STOPPED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except MendableError as error:
        _end(str(error))
    except OSError as error:
        if error.errno not in BLOCKED:
            raise
        _end(f"{error}; make room, or choose another place with --store DIR")


def _end(message: str, code: int = FAILED) -> NoReturn:
    print(f"firth: {' '.join(message.split())}", file=sys.stderr)
    raise typer.Exit(code) from None


def main() -> None:
    """Run the command line."""
    app(prog_name="firth")


if __name__ == "__main__":
    main()
