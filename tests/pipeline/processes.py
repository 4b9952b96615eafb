"""Other processes that tests start, talk to and end."""

import subprocess
import sys

from pipeline.store import Store

WAIT_SECONDS = 30


def child(code: str, store: Store) -> subprocess.Popen[str]:
    """Another process that runs some lines with `store`; what it prints is read from its pipe."""
    head = (
        "import sys, time\nfrom pipeline.lease import lease\nfrom pipeline.store import Store\n"
        f"store = Store({store.root!r})\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill it, if it still runs, and bury it."""
    process.kill()
    process.communicate()
