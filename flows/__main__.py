"""The `firth` command. Heavy imports stand inside the commands, so that help answers at once."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

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


@app.command()
def retrain(
    recipe: Recipe,
    corpus: Corpus,
    store: StorePlace = ".firth",
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option(min=1, help="Training processes; the result does not depend on it.")] = 1,
    gpu: Annotated[bool, typer.Option("--gpu", help="Give each worker a GPU.")] = False,
    register: Annotated[str | None, typer.Option(metavar="NAME", help="Register the model under this name.")] = None,
    tracking: Annotated[str | None, typer.Option(metavar="URI", help="MLflow; default: a file in the store.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object last, instead of the scoreboard.")
    ] = False,
) -> None:
    """Turn a corpus into a trained, evaluated, registered model. What the store holds already is not made again."""
    from flows.retrain import retrain as flow

    result = _tried(
        flow,
        recipe,
        corpus,
        store=store,
        overrides=overrides or [],
        workers=workers,
        gpu=gpu,
        register=register,
        tracking=tracking,
    )
    if as_json:
        print(json.dumps(result))
        return
    from rich.console import Console

    from pipeline.report import scoreboard

    wide = Console()
    Console(width=wide.width if wide.is_terminal else 110).print(scoreboard(result))


@app.command()
def recipes() -> None:
    """List the recipes."""
    from models.recipe import known, load

    for name in known():
        print(f"{name:32} {load(name).source}")


@app.command()
def describe(recipe: Recipe, overrides: Overrides = None) -> None:
    """Show a recipe with every setting filled in."""
    from models.method import resolve
    from models.recipe import load

    print(json.dumps(_tried(lambda: resolve(load(recipe, overrides or []))).model_dump(mode="json"), indent=2))


@app.command()
def encode(
    model: Annotated[str, typer.Argument(help="A model folder, or the name of a registered model.")],
    store: StorePlace = ".firth",
    tracking: Annotated[str | None, typer.Option(metavar="URI", help="MLflow; default: a file in the store.")] = None,
) -> None:
    """Read texts from standard input, a line each; print a JSON list of numbers for each."""
    from flows.registry import opened

    opened_model = _tried(opened, model, store, tracking)
    texts = [line.rstrip("\n") for line in sys.stdin]
    for vector in opened_model.encode(texts):
        print(json.dumps([round(float(value), 6) for value in vector]))


@app.command()
def search(
    model: Annotated[str, typer.Argument(help="A model folder, or the name of a registered model.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    corpus: Corpus,
    store: StorePlace = ".firth",
    most: Annotated[int, typer.Option("-n", min=1, help="Hits to show.")] = 5,
    tracking: Annotated[str | None, typer.Option(metavar="URI", help="MLflow; default: a file in the store.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a hit.")] = False,
) -> None:
    """Find the sentences of a corpus that answer a query best, in the model's own geometry."""
    from flows.search import hits

    for hit in _tried(hits, model, query, corpus, store=store, most=most, tracking=tracking):
        print(
            json.dumps(hit)
            if as_json
            else f"{hit['score']:6.3f}  {hit['title'] or hit['source']}\n        {hit['text']}"
        )


def _tried(function: Any, *arguments: Any, **options: Any) -> Any:
    """The function's result; an error that a person can mend is a line, not a traceback."""
    try:
        return function(*arguments, **options)
    except KeyboardInterrupt:
        _end("stopped; the same command goes on from here")
    except (ValueError, OSError) as error:
        _end(str(error))
    except RuntimeError as error:
        from pipeline.store import StoreError

        if not isinstance(error, StoreError):
            raise
        _end(str(error))


def _end(message: str) -> NoReturn:
    print(f"firth: {message}", file=sys.stderr)
    raise typer.Exit(2)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    app(prog_name="firth")
