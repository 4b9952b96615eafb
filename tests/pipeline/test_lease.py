import json
import os
import signal
import threading
import time

import pytest
from processes import WAIT_SECONDS, child, end, line

from pipeline import lease as leases
from pipeline.lease import lease
from pipeline.store import Store

HOLD = "with lease(store, 'k', beat_seconds=0.1):\n    print('held', flush=True)\n    sys.stdin.readline()\n"


def record(store: Store, number: int) -> dict[str, object]:
    found = store.get(f"leases/k/{number:06d}.json")
    assert found is not None
    return found


def test_a_second_taker_waits_until_the_first_gives_the_lease_back(tmp_path):
    store, taken = Store.at(tmp_path), threading.Event()

    def take() -> None:
        with lease(store, "k", beat_seconds=0.1):
            taken.set()

    holder = child(HOLD, store)
    try:
        assert line(holder) == "held"
        waiter = threading.Thread(target=take)
        waiter.start()
        assert not taken.wait(0.7)
        holder.communicate("\n", timeout=WAIT_SECONDS)
        assert taken.wait(WAIT_SECONDS)
        waiter.join()
    finally:
        end(holder)
    assert record(store, 1)["free"]


def test_a_holder_killed_on_this_machine_is_followed_at_once(tmp_path):
    store = Store.at(tmp_path)
    holder = child(HOLD, store)
    assert line(holder) == "held"
    os.kill(holder.pid, signal.SIGKILL)  # nobody waits for it yet: it stays in the process table
    began = time.monotonic()
    with lease(store, "k", beat_seconds=0.1, stale_seconds=25):
        took = time.monotonic() - began
    end(holder)
    assert took < 10


def test_a_holder_on_another_machine_is_followed_when_its_heart_stops(tmp_path):
    store = Store.at(tmp_path)
    store.put("leases/k/000000.json", {"owner": "elsewhere:1:abc", "beats": 3, "free": False})
    began = time.monotonic()
    with lease(store, "k", beat_seconds=0.1, stale_seconds=0.8):
        took = time.monotonic() - began
    assert 0.8 < took < 10


def test_a_holder_on_another_machine_is_waited_for_while_its_heart_beats(tmp_path):
    store, last = Store.at(tmp_path), 0.0

    def beat() -> None:
        nonlocal last
        for number in range(15):
            store.put("leases/k/000000.json", {"owner": "elsewhere:1:abc", "beats": number, "free": False})
            last = time.monotonic()
            time.sleep(0.1)

    store.put("leases/k/000000.json", {"owner": "elsewhere:1:abc", "beats": -5, "free": False})
    heart = threading.Thread(target=beat)
    heart.start()
    with lease(store, "k", beat_seconds=0.1, stale_seconds=1.2):
        assert time.monotonic() - last > 0.9  # up to a look's pause after the last beat was seen
    heart.join()


def test_a_lease_beats_while_it_is_held(tmp_path):
    store = Store.at(tmp_path)
    with lease(store, "k", beat_seconds=0.05):
        limit = time.monotonic() + WAIT_SECONDS
        while record(store, 0)["beats"] == 0 and time.monotonic() < limit:
            time.sleep(0.05)
        assert not record(store, 0)["free"]
    assert record(store, 0)["beats"]
    assert record(store, 0)["free"]


def test_of_two_that_take_over_one_wins_and_the_other_waits(tmp_path):
    store = Store.at(tmp_path)
    store.put("leases/k/000000.json", {"owner": f"{leases._here()}:{2**22 + 1}:abc", "beats": 0, "free": False})
    code = (
        "import json\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "with lease(store, 'k', beat_seconds=0.1, stale_seconds=600) as held:\n"
        "    began = time.monotonic()\n"
        "    time.sleep(0.4)\n"
        "    print(json.dumps([held.number, began, time.monotonic()]), flush=True)\n"
    )
    takers = [child(code, store) for _ in range(2)]
    assert [line(taker) for taker in takers] == ["ready", "ready"]
    for taker in takers:
        assert taker.stdin is not None
        taker.stdin.write("\n")
        taker.stdin.flush()
    first, second = sorted(json.loads(taker.communicate(timeout=WAIT_SECONDS)[0]) for taker in takers)
    assert (first[0], second[0]) == (1, 2)
    assert second[1] >= first[2]


def test_a_lease_is_given_back_when_its_work_fails(tmp_path):
    store = Store.at(tmp_path)
    with pytest.raises(ValueError, match="no"), lease(store, "k"):
        raise ValueError("no")
    assert record(store, 0)["free"]
