"""
The registry: parameters, losses, scores and the model folder to MLflow, once for each set of weights.

By default MLflow lives in the store, on sqlite; any tracking URI may take its place. A model is logged as a pyfunc from
code, with a copy of the package `models`, so that it loads where firth is not installed and no pickle is executed.
"""

import pipeline.settings  # noqa: F401  telemetry off before MLflow is imported

# isort: split
import json
import logging
import os
import re
import socket
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version as installed
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast
from urllib.parse import urlsplit

import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from sqlalchemy.exc import SQLAlchemyError

import models
from models.trouble import MendableError

WEIGHTS = "firth.weights"  # tag: the training key, by which equal weights are known again
ALIAS = "candidate"
NEEDED = ("mlflow", "numpy", "pydantic", "safetensors", "tokenizers", "torch")  # what a registered model imports
SECONDS = 5  # to wait for a server's answer in `check`
HUSHED = (r".*Any type hint is inferred as AnyType", r".*``noload`` loader strategy")  # about its own classes
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
SQLITE = "sqlite:///"


class RegistryError(MendableError, ValueError):
    """A registry that cannot be used: what is wrong, what was got, what would be right."""


@dataclass(frozen=True)
class Registered:
    """Where a model went: `uri` loads it, from the MLflow at `tracking`; no name and version if it was only logged."""

    run_id: str
    name: str | None
    version: int | None
    uri: str
    alias: str | None
    tracking: str
    new: bool = field(default=False, compare=False)  # whether this call logged a run or made a version


def tracking(store: str, uri: str | None) -> str:
    """
    MLflow's address: the given one, else `MLFLOW_TRACKING_URI`, else a sqlite file in the store.

    Raises:
        RegistryError: the store is not a local folder, where sqlite could lie, and there is no address.
    """
    found = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if found:
        return found
    scheme, _, rest = store.rpartition("://")
    if scheme not in ("", "file"):
        raise RegistryError(
            f"store {store} is no local folder, and MLflow's sqlite file needs one; "
            "name a tracking URI, such as http://mlflow.example:5000 or sqlite:////var/lib/firth/mlflow.db"
        )
    return f"{SQLITE}{Path(rest).expanduser().resolve() / 'mlflow.db'}"


def check(uri: str) -> None:
    """
    Find out before training whether the registry answers, within seconds.

    Raises:
        RegistryError: no server, an unknown scheme, or a folder that cannot be written.
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]  # postgresql+psycopg2 names a driver too
    if scheme in ("", "file"):
        raise RegistryError(
            f'registry "{uri}" is a plain folder, which MLflow no longer takes; try {SQLITE}PATH/mlflow.db'
        )
    if scheme == "sqlite":
        _check_sqlite(uri)
        if not Path(uri.removeprefix(SQLITE)).exists():
            return  # MLflow lays it out when the first model comes
    elif parts.hostname:
        _check_port(uri, parts.hostname, parts.port or PORTS.get(scheme, 443))
    patience = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(SECONDS)}
    with _environment(patience), _connected(uri) as client:
        client.search_experiments(max_results=1)


def register(
    uri: str,
    *,
    folder: Path,
    name: str | None,
    parameters: Mapping[str, Any],
    scores: Mapping[str, float],
    loss: Sequence[tuple[int, float]],
    tags: Mapping[str, str],
    watched: Sequence[Mapping[str, float]] = (),
    bound: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    experiment: str = "firth",
) -> Registered:
    """
    Log a model folder with all that led to it, and register it as a new version with the alias `candidate`.

    Weights that were logged or registered before are found by their tag `firth.weights`: there is no second run and no
    second version; only scores that have changed are logged again.

    Args:
        parameters: the recipe, nested as it is; logged flat, `training.rate`.
        scores: flat names; MLflow allows no "@", so `hit@10` is logged as `hit_at_10`.
        loss: (step, nats) pairs.
        watched: figures with their `step`, logged as `watch.<figure>`.
        bound: the same of log N - L by the number of a softmax term; logged as `bound.0`.
        name: of the registered model; None: log only.
    Raises:
        RegistryError: MLflow refused; the folder is whole, and a rerun only registers.
    """
    with _connected(uri) as client:
        place = _experiment(client, uri, experiment)
        run_id = _logged(client, place, tags.get(WEIGHTS))
        new = run_id is None
        if run_id is None:
            run_id = _log(client, place, folder, parameters, scores, _series(loss, bound or {}, watched), tags)
        else:
            _log_changed(client, run_id, scores)
        model_uri = _model_uri(client, run_id)
        if name is None:
            return Registered(run_id, None, None, model_uri, None, uri, new)
        number = _known_version(client, name, run_id)
        new = new or number is None
        if number is None:
            with redirect_stderr(StringIO()):  # it prints what the scoreboard says better
                number = int(mlflow.register_model(model_uri, name, tags=dict(tags)).version)
        client.set_registered_model_alias(name, ALIAS, str(number))
        return Registered(run_id, name, number, f"models:/{name}/{number}", ALIAS, uri, new)


def fetch(uri: str, name: str, into: Path) -> Path:
    """
    The model folder of a registered model, brought here.

    Args:
        name: `NAME` takes the alias `champion`, else `candidate`; `NAME@ALIAS` and `NAME/VERSION` are exact.
        into: folder to put it in.
    Raises:
        RegistryError: nothing of that name; the known ones are named.
    """
    with _connected(uri) as client:
        found = _find(client, uri, name)
        place = Path(mlflow.artifacts.download_artifacts(f"models:/{found.name}/{found.version}", dst_path=str(into)))
        served = Model.load(str(place)).flavors.get("python_function", {}).get("artifacts", {}).get("model")
        if served is None:
            raise RegistryError(
                f'"{name}" in registry "{uri}" holds no model folder; name a model that firth registered'
            )
        return place / str(served["path"])


def registered(uri: str) -> dict[str, list[str]]:
    """
    Training keys of all registered versions, each with the names that it has: `docs version 3, champion`.

    Raises:
        RegistryError: MLflow does not answer.
    """
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
        return {}  # nothing was ever registered
    check(uri)
    found: dict[str, list[str]] = {}
    with _connected(uri) as client:
        for model in _all(client.search_registered_models):
            aliases = {str(number): alias for alias, number in sorted(model.aliases.items())}
            for version in _all(partial(client.search_model_versions, f"name = '{model.name}'")):
                run = client.get_run(version.run_id) if WEIGHTS not in version.tags and version.run_id else None
                key = (run.data.tags if run else version.tags).get(WEIGHTS)
                alias = aliases.get(str(version.version))
                if key:
                    found.setdefault(key, []).append(
                        f"{model.name} version {version.version}{f', {alias}' if alias else ''}"
                    )
    return found


def _all(search: Callable[..., Any]) -> Iterator[Any]:
    """What a search finds, page by page."""
    token: str | None = None
    while True:
        page = search(max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def flat(tree: Any, path: str = "") -> dict[str, str]:
    """A nested recipe as MLflow's parameters: `terms.0.weight`; lists of plain values stay whole."""
    nested = isinstance(tree, Mapping) or (isinstance(tree, list | tuple) and any(isinstance(v, Mapping) for v in tree))
    if not nested or not tree:
        return {path: tree if isinstance(tree, str) else json.dumps(tree)}
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return {k: v for key, value in items for k, v in flat(value, f"{path}.{key}" if path else str(key)).items()}


def plain(name: str) -> str:
    """A name that MLflow takes for a metric: "@" is spelled out, other strange characters become "_"."""
    return re.sub(r"[^\w\-./ ]", "_", name.replace("@", "_at_"))


def _check_sqlite(uri: str) -> None:
    path = Path(uri.removeprefix(SQLITE))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
        if path.exists():  # MLflow itself would try a file that is no database for minutes
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA schema_version")
    except (OSError, sqlite3.Error) as error:
        raise RegistryError(f'registry "{uri}": {error}; name a file in a folder that can be written') from None


def _check_port(uri: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=SECONDS).close()
    except OSError as error:
        raise RegistryError(
            f'registry "{uri}" does not answer at {host}:{port}: {error}; '
            "start it (mlflow server), mend the address, or leave it out to keep the registry in the store"
        ) from None


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _hushed() -> Iterator[None]:
    """MLflow without the warnings that it gives about itself; any other passes."""
    with warnings.catch_warnings():
        for message in HUSHED:
            warnings.filterwarnings("ignore", message)
        yield


@contextmanager
def _connected(uri: str) -> Iterator[MlflowClient]:
    """A client; the process looks at this MLflow and no other meanwhile, and hears only of trouble."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels, nothing = [logger.level for logger in loggers], cast(str, None)
    with _environment({"MLFLOW_TRACKING_URI": uri, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}), _hushed():
        try:
            for logger in loggers:
                logger.setLevel(logging.WARNING)
            mlflow.set_tracking_uri(uri)
            yield MlflowClient(uri, uri)
        except (MlflowException, SQLAlchemyError, ModuleNotFoundError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RegistryError(f'registry "{uri}": {reason}; give an MLflow server\'s URI, or {SQLITE}PATH') from error
        finally:
            mlflow.set_tracking_uri(nothing)  # the environment, which says the same, is set back after it
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _experiment(client: MlflowClient, uri: str, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        # Without a place of its own, MLflow would put models of a sqlite registry into the current folder.
        place = Path(uri.removeprefix(SQLITE)).resolve().parent / "mlflow-artifacts" if uri.startswith(SQLITE) else None
        return str(client.create_experiment(name, artifact_location=place.as_uri() if place else None))
    if found.lifecycle_stage != "active":
        raise RegistryError(
            f'experiment "{name}" was deleted; restore it: mlflow experiments restore -x {found.experiment_id}'
        )
    return str(found.experiment_id)


def _find(client: MlflowClient, uri: str, name: str) -> ModelVersion:
    base, at, alias = name.partition("@")
    base, _, number = base.partition("/")
    wanted = [(base, alias)] if at else [(base, "champion"), (base, ALIAS)]
    for model, label in wanted:
        with suppress(MlflowException):
            return (
                client.get_model_version(model, number) if number else client.get_model_version_by_alias(model, label)
            )
    known = ", ".join(sorted(model.name for model in client.search_registered_models())) or "none"
    raise RegistryError(f'no registered model "{name}" in registry "{uri}"; known: {known}; or give a model folder')


def _logged(client: MlflowClient, experiment: str, weights: str | None) -> str | None:
    """The finished run of the same weights; one that was killed on its way has another status and does not count."""
    if not weights:
        return None
    wanted = f"tags.`{WEIGHTS}` = '{weights}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment], wanted, max_results=1)
    return str(runs[0].info.run_id) if runs else None


def _series(
    loss: Sequence[tuple[int, float]],
    bound: Mapping[str, Sequence[tuple[int, float]]],
    watched: Sequence[Mapping[str, float]],
) -> list[tuple[str, int, float]]:
    """What was told step by step: name, step and value."""
    told = {"loss": loss, **{f"bound.{term}": pairs for term, pairs in bound.items()}}
    flat = [(name, step, float(value)) for name, pairs in told.items() for step, value in pairs]
    seen = [(key, int(one["step"]), value) for one in watched for key, value in one.items() if key != "step"]
    return flat + [(f"watch.{plain(key)}", step, value) for key, step, value in seen]


def _log(
    client: MlflowClient,
    experiment: str,
    folder: Path,
    parameters: Mapping[str, Any],
    scores: Mapping[str, float],
    series: Sequence[tuple[str, int, float]],
    tags: Mapping[str, str],
) -> str:
    run_id = str(client.create_run(experiment, run_name=str(parameters.get("name", "firth"))).info.run_id)
    # An active run, not only its number: models would go to the experiment "Default", placed in the current folder.
    with mlflow.start_run(run_id=run_id, nested=True):  # ends as FINISHED, or FAILED if anything is raised
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, step, value in series]
        metrics += [Metric(plain(key), float(value), now, 0) for key, value in scores.items()]
        for start in range(0, len(metrics), 1000):  # the most that MLflow takes at once; of the others 100
            client.log_batch(run_id, metrics=metrics[start : start + 1000])
        settings = [Param(plain(key), value) for key, value in flat(parameters).items()]
        for start in range(0, len(settings), 100):
            client.log_batch(run_id, params=settings[start : start + 100])
        client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        _log_model(run_id, folder, tags)
    return run_id


def _log_model(run_id: str, folder: Path, tags: Mapping[str, str]) -> None:
    from models.folder import load  # torch takes its time; `check` needs none

    model = load(folder)
    beside = {"transformer": ("transformers",), "ngram": ("pyarrow",)}.get(model.recipe.encoder.kind, ())
    told = TensorSpec(np.dtype(np.float32), (-1, model.width)) if model.width else TensorSpec(np.dtype(float), (-1,))
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.string)]),
        outputs=Schema([told]),
    )
    Model.log(
        None,
        mlflow.pyfunc,
        name="model",
        run_id=run_id,
        tags=dict(tags),
        signature=signature,
        input_example=["a text to encode"],  # it is tried at once, so what cannot serve is not registered
        python_model=str(Path(__file__).with_name("served.py")),
        artifacts={"model": str(folder)},
        code_paths=[str(Path(models.__file__).parent)],
        pip_requirements=[f"{name}=={installed(name).partition('+')[0]}" for name in (*NEEDED, *beside)],
    )


def _model_uri(client: MlflowClient, run_id: str) -> str:
    outputs = client.get_run(run_id).outputs
    assert outputs is not None, "a finished run has logged its model"
    return f"models:/{outputs.model_outputs[0].model_id}"


def _log_changed(client: MlflowClient, run_id: str, scores: Mapping[str, float]) -> None:
    known, now = client.get_run(run_id).data.metrics, int(time.time() * 1000)
    changed = {plain(key): float(value) for key, value in scores.items() if known.get(plain(key)) != float(value)}
    if changed:
        client.log_batch(run_id, metrics=[Metric(key, value, now, 0) for key, value in changed.items()])


def _known_version(client: MlflowClient, name: str, run_id: str) -> int | None:
    """The version of this run under this name, if there is one."""
    found = client.search_model_versions(f"run_id = '{run_id}'")
    return next((int(version.version) for version in found if version.name == name), None)
