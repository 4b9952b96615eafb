from collections.abc import Iterator

import pytest

from pipeline.cluster import session, start


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, started once for all tests that need it."""
    with session(workers=2):
        start()
        yield
