"""
The scoreboard: the page at the end of `firth retrain`, made from the same result that `--json` prints.

It says what was read, what was dropped and why, what was trained, how it scores beside its baselines, and where the
model lies. It reads the same in a terminal and in a log file.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import isfinite
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

HEADINGS = {  # the model, and baselines that have a column of their own; chance is shown by that name
    "": "model",
    "bm25": "BM25",
    "vectors": "word vectors",
    "random": "chance",
    "overlap": "word overlap",
    "bag": "bag of words",
    "words": "word vectors",
    "most_common": "largest class",
    "unigram": "single words",
}
SIDES = tuple(side for side in HEADINGS if side)
COUNTS = (
    *("queries", "candidates", "same_text", "repeated", "pairs", "dropped", "texts", "classes", "trained"),
    *("questions", "answers", "none_right", "all_right", "tokens", "unseen", "unknown"),
)
# Evaluations that a recipe may hold several of, each with a name: sts.stsb-dev.spearman
SEVERAL = ("sts", "probe", "words", "perplexity", "ranking")
HUNDREDS = ("spearman", "pearson", "length_bias", "accuracy")  # figures up to 100
MEASURES = {  # what verdicts are of; decimals
    "mrr_over_bm25": ("MRR", 3),
    "map_over_bm25": ("MAP", 3),
    "map_over_vectors": ("MAP", 3),
    "spearman_over_overlap": ("Spearman", 2),
    "accuracy_over_bag": ("accuracy", 2),
    "accuracy_over_words": ("accuracy", 2),
}
CONTRASTED = {"none": "nothing", "groups": "same group", "guide": "same group, and by the guide"}
LARGE = 10  # a class of more than one text in so many is told
BARS = "▁▂▃▄▅▆▇█"


def scoreboard(result: Mapping[str, Any]) -> Group:
    """
    What a run did, as a page for people.

    Args:
        result: what `--json` prints; a part that is missing or empty is left out.
    """
    sections = (_head, _stages, _drops, _classes, _false_negatives, _training, _scores, _where)
    return Group(*(part for section in sections for part in section(result)))


def _head(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    yield Rule(Text(f"firth  {result.get('recipe') or ''}", "bold"), style="dim", align="left")
    read = ", ".join(f"{count:,} {name}" for name, count in (result.get("read") or {}).items())
    yield _pairs({"corpus": result.get("corpus"), "read": read, "store": result.get("store")})


def _stages(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    stages = result.get("stages") or []
    if not stages:
        return
    table = _table("stage", "rows", "new", "same", "gone", "set aside", "seconds", left=("stage",))
    for stage in stages:
        shards = [_number(stage.get(f"shards_{which}") or 0, empty="·") for which in ("new", "same", "gone")]
        aside = Text(_number(stage.get("quarantined") or 0, empty="·"), "yellow" if stage.get("quarantined") else "")
        took = "cached" if stage.get("cached") else f"{stage.get('seconds') or 0:,.1f}"
        took = took if stage.get("key") else "·"  # no recipe of today fills it
        style = "dim" if stage.get("cached") else ""
        table.add_row(stage["name"], _number(stage.get("rows")), *shards, aside, took, style=style)
    yield from _section("Stages", table)
    work = sum(stage.get("seconds") or 0 for stage in stages)
    filled = [stage for stage in stages if stage.get("key")]
    done = sum(bool(stage.get("cached")) for stage in filled)
    yield _line(
        f"{_seconds(work)} of work, {done} of {len(filled)} stages were there already; new, same and gone count shards"
    )


def _drops(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    dropped = {reason: count for reason, count in (result.get("dropped") or {}).items() if count}
    if not dropped:
        return
    table = _table("count", "why", left=("why",))
    for reason, count in sorted(dropped.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(_number(count), Text(reason))
    yield from _section("Left out, cut or unknown", table)
    aside = result.get("quarantine") or {}
    for row in aside.get("first") or []:
        yield _line(f"{row['source']}, row {row['row']}: {row['reason']}")
    files = aside.get("files") or []
    if files:
        more = f" and {len(files) - 1} more beside it" if len(files) > 1 else ""
        yield _line(f'all rows set aside: polars.read_parquet("{files[0]}"){more}', "")


def _classes(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Texts that are never told apart; one class of very many leaves the loss little to tell apart."""
    told = result.get("classes") or {}
    if not told:
        return
    told_apart = f"{told['texts']:,} texts are of {told['classes']:,} classes, the largest of {told['largest']:,}"
    yield from _section("Never told apart", Text(told_apart))
    if told["crowded"]:
        yield _line(f"{told['crowded']:,} texts are in more pairs than dedup.partners, and join nobody")
    sentences = (result.get("read") or {}).get("sentences") or 0
    if told["largest"] > sentences / LARGE > 0:
        yield _line("the largest class is a large part of the corpus: lower dedup.partners, or raise dedup.near")


def _false_negatives(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Of wrong candidates, how many a guide finds as right as the right one; before and after they are left out."""
    told = result.get("false_negatives") or {}
    if not told:
        return
    table = _table("left out", "wrong candidates", "likely right", "share", left=("left out",))
    for stage, name in CONTRASTED.items():
        share = told[stage]["share"]
        shown = "" if share is None else f"{100 * share:.3f} %"
        style = "dim" if stage == "guide" and not told["masked"] else ""
        table.add_row(name, _number(told[stage]["wrong"]), _number(told[stage]["likely"]), shown, style=style)
    yield from _section("False negatives, by the guide", table)
    of = f"of {told['batches']:,} batch{'es' if told['batches'] > 1 else ''} of the first epoch"
    yield _line(f"{of}; likely right: the guide scores it as high as the right answer, or higher")
    if not told["masked"]:
        yield _line("guide.mask is false: the guide's line is what it would leave, and nothing was left out by it")


def _training(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    training = result.get("training") or {}
    if not training:
        return
    losses, facts = [value for value in training.get("loss") or [] if value is not None], []
    if training.get("workers"):
        facts.append(f"{training['workers']} worker{'s' if training['workers'] != 1 else ''}")
    facts += [str(training["precision"])] if training.get("precision") else []
    facts += [f"{100 * training['peak_share']:.0f} % of peak"] if training.get("peak_share") is not None else []
    pace = f"{_number(training.get('steps'))} steps in {_seconds(training.get('seconds') or 0)}"
    pace += f", {training.get('rows_per_second') or 0:,.0f} rows/s"
    lines = {"pace": pace, "on": ", ".join(facts)}
    if not training.get("steps") and "ngrams" in training:
        counted = f"{training['ngrams']:,} different n-grams of {training['order']} words among"
        lines = {"counted": f"{counted} {training['predicted']:,} words and ends, in {_seconds(training['seconds'])}"}
    if losses:
        lines["loss"] = f"{losses[0]:.4f} → {losses[-1]:.4f} nats  {_curve(losses)}"
    if training.get("best_step"):
        lines["kept"] = f"step {training['best_step']:,}, the best by watch.best"
    for number, told in (training.get("bound") or {}).items():
        first, last = told[0][1], told[-1][1]
        lines[f"term {number}"] = f"log N - loss {first:.4f} → {last:.4f} nats"
    yield from _section("Training", _pairs(lines))


def _scores(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    scores = result.get("scores") or {}
    names = list(dict.fromkeys(map(_evaluation, scores)))
    for name in names:
        own = {key.removeprefix(f"{name}."): value for key, value in scores.items() if _evaluation(key) == name}
        if not any(key not in COUNTS for key in own):
            continue  # nothing was asked; a note says why
        yield from _section(f"Scores: {name}", _sides(own))
        yield from map(_line, _verdicts(own))
        if "queries" in own:
            yield _line(
                f"{own['queries']:,.0f} held-out queries, {own.get('candidates', 0):,.0f} candidates each", "dim"
            )
        if "pairs" in own:
            unknown = f", {own['unknown']:,.0f} with an unknown word left out" if own.get("unknown") else ""
            yield _line(f"{own['pairs']:,.0f} rated pairs{_left_out(own, 'score')}{unknown}")
        if "tokens" in own:
            yield _line(f"{own['tokens']:,.0f} words and ends of {own['texts']:,.0f} texts")
        if "questions" in own:
            asked = f"{own['questions']:,.0f} questions counted, {own['answers']:,.0f} answers in all"
            yield _line(f"{asked}{_left_out(own, 'label')}")
            yield _line(f"{own['none_right']:,.0f} had no right answer, {own['all_right']:,.0f} no wrong one")
        if "classes" in own:
            trained = f", trained on {own['trained']:,.0f} others" if "trained" in own else ""
            yield _line(f"{own['texts']:,.0f} texts, {own['classes']:,.0f} classes{trained}{_left_out(own, 'label')}")


def _left_out(scores: Mapping[str, float], what: str) -> str:
    return f", {scores['dropped']:,.0f} without a {what} left out" if scores.get("dropped") else ""


def _evaluation(key: str) -> str:
    """The evaluation that a figure belongs to: `neighbours`, `sts.stsb-dev`."""
    parts = key.split(".")
    return ".".join(parts[: 2 if parts[0] in SEVERAL else 1])


def _sides(scores: Mapping[str, float]) -> Table:
    """Model and baselines side by side: `bm25.mrr` stands in the row of `mrr`, `most_common` beside accuracy."""
    if "most_common" in scores:
        scores = {**scores, "most_common.accuracy": scores["most_common"]}
    there = [side for side in SIDES if any(name.startswith(f"{side}.") for name in scores)]
    baseline = lambda name: name.partition(".")[0] in SIDES
    names = [name for name in scores if not (baseline(name) or name in COUNTS or "_over_" in name)]
    table = _table("", *(HEADINGS[side] for side in ("", *there)), left=("",))
    for name in names:
        values = [
            f"{scores[key]:.{2 if name in HUNDREDS else 4}f}" if key in scores else ""
            for key in (name, *(f"{side}.{name}" for side in there))
        ]
        table.add_row(Text(name), Text(values[0], "bold"), *values[1:])
    return table


def _verdicts(scores: Mapping[str, float]) -> Iterable[Text]:
    """Whether the model is better than its baselines, so that no one need read an interval."""
    for name, (measure, places) in MEASURES.items():
        mean, low, high = (scores.get(f"{name}{end}") for end in ("", ".low", ".high"))
        if mean is None or low is None or high is None:
            continue
        baseline = HEADINGS[name.partition("_over_")[2]]
        found = f"{_signed(mean, places)} {measure}"
        interval = f"(95 % interval {_signed(low, places)} to {_signed(high, places)})"
        if low > 0:
            yield Text(f"beats {baseline} by {found} {interval}", "bold green")
        elif high < 0:
            yield Text(f"does not beat {baseline}: {found} {interval}", "bold red")
        else:
            yield Text(f"does not beat {baseline}: {found}, which may be chance {interval}", "bold yellow")


def _where(result: Mapping[str, Any]) -> Iterable[RenderableType]:
    folder, registered = result.get("model_folder"), result.get("registered")
    facts = {"folder": folder}
    if registered and registered.get("name"):
        facts["registered"] = f"{registered['name']} version {registered['version']}, alias {registered['alias']}"
        facts["load"] = f'mlflow.pyfunc.load_model("{registered["uri"]}")'
    elif registered:
        facts["logged"] = registered.get("uri")
    else:
        facts["registered"] = "no"
    facts["tracking"] = (registered or {}).get("tracking") or result.get("tracking")
    facts["run"] = (registered or {}).get("run_id")
    if folder and "ngrams" in (result.get("training") or {}):  # it has no vectors
        code = f"from models.folder import load; print(load({folder!r}).token_scores(['some text']))"
        facts["try"] = f"python -c {shlex.quote(code)}"
    elif folder:
        name = shlex.quote((registered or {}).get("name") or folder)
        store = f" --store {shlex.quote(result['store'])}" if result.get("store") else ""
        facts["try"] = f'echo "some text" | firth encode {name}{store}'
        corpus = shlex.quote(result.get("corpus") or "")
        facts[""] = f'firth search {name} --corpus {corpus}{store} "some text"'
    yield from _section("Model", _pairs(facts))
    for note in result.get("notes") or []:
        yield _line(Text(f"note: {note}", "yellow"))


def _section(title: str, body: RenderableType) -> Iterable[RenderableType]:
    yield Text()
    yield Text(title, "bold")
    yield Padding(body, (0, 0, 0, 2), expand=False)


def _line(text: str | Text, style: str = "dim") -> RenderableType:
    return Padding(text if isinstance(text, Text) else Text(text, style), (0, 0, 0, 2), expand=False)


def _table(*columns: str, left: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return table


def _pairs(facts: Mapping[str, str | None]) -> Table:
    """Name and value in two columns; what has no value is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            table.add_row(name, Text(str(value)))
    return table


def _curve(values: list[float], width: int = 24) -> str:
    """Values as a row of bars; each stands for the mean of its stretch."""
    values = [value for value in values if isfinite(value)]
    size = min(width, len(values))
    cuts = [round(at * len(values) / size) for at in range(size + 1)] if size else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    if not means:
        return ""
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(BARS[min(7, int(8 * (mean - low) / span))] for mean in means)


def _number(value: int | None, empty: str = "") -> str:
    return f"{value:,}" if value else (empty or ("" if value is None else "0"))


def _seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _signed(value: float, places: int = 3) -> str:
    """Decimals with a sign and no leading zero: +.035."""
    return re.sub(r"^([+-])0\.", r"\1.", f"{value:+.{places}f}")
