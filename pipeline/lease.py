"""A lease lets one run do a long piece of work while others wait for it."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.store import Store


@contextmanager
def lease(store: Store, key: str, *, beat_seconds: float = 2.0, stale_seconds: float = 30.0) -> "Iterator[Lease]":
    """Hold a key while the block runs; wait while another run holds it, take over when its heart stops."""
    held = Lease(store, key, beat_seconds, stale_seconds)
    held.acquire()
    try:
        yield held
    finally:
        held.release()


class Lease:
    """
    The right to do one piece of work, kept by a heartbeat.

    Each holder writes `leases/<key>/<number>.json`, created only if absent, so of two that take over one wins. A waiter
    judges the heart by its own clock: no beat for `stale_seconds` means dead, whatever the clocks of two machines say.
    """

    def __init__(self, store: Store, key: str, beat_seconds: float, stale_seconds: float) -> None:
        self.store, self.key = store, key
        self.beat_seconds, self.stale_seconds = beat_seconds, stale_seconds
        self.number, self.beats = -1, 0
        self.owner = f"{_here()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Wait for the key, then keep it alive from a thread."""
        seen: tuple[int, int] | None = None
        since = time.monotonic()
        while True:
            number, record = self._last()
            beat = (number, record["beats"])
            if beat != seen:
                seen, since = beat, time.monotonic()
            dead = time.monotonic() - since > self.stale_seconds or is_gone(record["owner"])
            if (record["free"] or dead) and self.store.create(self._name(number + 1), self._record()):
                self.number = number + 1
                break
            time.sleep(min(0.5, self.beat_seconds))
        self._thread = threading.Thread(target=self._beat, name=f"lease {self.key}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the key back."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        self.store.put(self._name(self.number), self._record(free=True))

    def _beat(self) -> None:
        while not self._stop.wait(self.beat_seconds):
            self.beats += 1
            with suppress(Exception):  # one lost beat is no death; the next may get through
                self.store.put(self._name(self.number), self._record())

    def _last(self) -> tuple[int, dict[str, Any]]:
        names = self.store.names(f"leases/{self.key}/")
        if not names:
            return -1, {"beats": -1, "free": True, "owner": ""}
        record = self.store.get(names[-1]) or {"beats": -1, "free": False, "owner": ""}
        return int(names[-1].rsplit("/", 1)[1].removesuffix(".json")), record

    def _name(self, number: int) -> str:
        return f"leases/{self.key}/{number:06d}.json"

    def _record(self, free: bool = False) -> dict[str, Any]:
        return {"owner": self.owner, "beats": self.beats, "free": free}


@cache
def _here() -> str:
    """Where a process number means one process: this host, since it was started, in this container."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink().name}".replace(":", "-")
    return f"{socket.gethostname()}/{uuid.uuid4().hex}"  # no /proc: nothing is known of other processes


def is_gone(owner: str) -> bool:
    """Whether the owner was a process of this machine that has ended; one that nobody has buried yet has ended too."""
    where, _, rest = owner.partition(":")
    if where != _here():
        return False
    try:
        status = Path(f"/proc/{rest.partition(':')[0]}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"
