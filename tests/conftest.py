from collections.abc import Iterator

import pytest
from hypothesis import settings

from pipeline.cluster import session, start

settings.register_profile("firth", deadline=None)  # a busy machine is no fault of an example
settings.load_profile("firth")


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, started once for all tests that need it."""
    with session(workers=2):
        start()
        yield
