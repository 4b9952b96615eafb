"""Prefect's own temporary server, where no other is named: started while we still import, ended whatever happens."""

import atexit
import subprocess
import threading
from collections.abc import Callable

from pipeline import settings  # noqa: F401  before Prefect

# `read` ends with the pipe, and the pipe with this process, be it killed.
GUARD = "read _; kill $0 2>/dev/null"


def early() -> Callable[[], None]:
    """
    Start the server that the first flow of this process would start; the result waits until it answers.

    Prefect's server outlives a process that was killed; ours does not, because a guard holds the end of a pipe.
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE

    if PREFECT_API_URL.value() or not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return lambda: None
    thread = threading.Thread(target=_start, daemon=True)
    thread.start()
    return thread.join


def _start() -> None:
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()  # the one that Prefect's clients ask for: there is one a process
    try:
        server.start()
    except RuntimeError:
        return  # the flow tries again, and tells
    if server.server_process:
        guard(server.server_process.pid)


def guard(pid: int) -> None:
    """End a process when this one has ended."""
    # A session of its own: Ctrl-C is for us.
    watcher = subprocess.Popen(
        ["sh", "-c", GUARD, str(pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    atexit.register(watcher.communicate)  # closes the pipe; and until then keeps it
