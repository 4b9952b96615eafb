"""The whole road in a bucket, checkpoints and all: killed in training, gone on with, run again, searched."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import bucket
import pytest
from made_up import SMALL, TOPICS, sentences

from pipeline.store import Store

pytestmark = [pytest.mark.launch, pytest.mark.long]

FOLDER = f"s3://{bucket.BUCKET}"
SETTINGS = [*SMALL, "training.rate=0.001", "training.epochs=30", "training.checkpoint_steps=12"]
AFTER = """
import json, sys
from made_up import firth
from pipeline.cluster import session, start

arguments = json.loads(sys.argv[1])
with session():
    start()
    for each in arguments:
        done = firth(*each)
        print(json.dumps([done.exit_code, done.stdout.splitlines()[-1:], done.stderr[-2000:]]))
"""


def order(tracking):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    places = ["--corpus", f"{FOLDER}/stories.jsonl", "--store", f"{FOLDER}/store", "--tracking", tracking]
    return ["retrain", "quick-thoughts-bag", *places, *settings]


def kill_in_training(command, log):
    """The command, killed when Ray has a checkpoint of it in the bucket; the step of the least."""
    store, end = Store.at(f"{FOLDER}/store"), time.monotonic() + 250
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            while len(steps := {name.split("/")[2] for name in store.names("runs/") if "/step_" in name}) < 2:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    return min(int(step.removeprefix("step_")) for step in steps)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Step of the checkpoint; what the next run, the one after, and the search say."""
    place = tmp_path_factory.mktemp("bucket")
    tracking = f"sqlite:///{place}/mlflow.db"
    rows = [{"id": f"{t}{n}", "text": " ".join(sentences(t, 8, n))} for t in TOPICS for n in range(10)]
    with bucket.served() as endpoint, bucket.environment(endpoint):
        text = "\n".join(map(json.dumps, rows)).encode()
        bucket.client(endpoint).put_object(Bucket=bucket.BUCKET, Key="stories.jsonl", Body=text)
        step = kill_in_training([sys.executable, "-m", "flows", *order(tracking)], place / "log")
        again = [*order(tracking), "--register", "made-up", "--json"]
        search = ["search", "made-up", "the wave and the gull", "--corpus", f"{FOLDER}/stories.jsonl"]
        search += ["--store", f"{FOLDER}/store", "--tracking", tracking, "--json", "-n", "1"]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        run = [sys.executable, "-c", AFTER, json.dumps([again, again, search])]
        done = subprocess.run(run, env=here, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()[-3:]]
        assert [code for code, _, _ in said] == [0, 0, 0], said
        left = Store.at(f"{FOLDER}/store").names("runs/")
    return step, [json.loads(lines[0]) for _, lines, _ in said], left


def test_a_killed_run_goes_on_from_its_checkpoint_in_the_bucket(told):
    step, (resumed, _, _), left = told
    assert resumed["training"]["taken_up"][0] >= step >= 12
    assert left == []


def test_a_second_run_in_a_bucket_does_no_work(told):
    _, (first, second, _), _ = told
    assert [stage["name"] for stage in second["stages"] if not stage["cached"]] == []
    assert first["model_folder"] == second["model_folder"]
    assert second["model_folder"].startswith(f"{FOLDER}/store/weights/")


def test_a_search_reads_model_and_sentences_of_a_bucket(told):
    assert "wave" in told[1][2]["text"] or "gull" in told[1][2]["text"]
