"""Fixtures of the local S3 server, for the directories of tests that import them in their conftest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from boxcrew.core.storage.address import Url
from tests.helpers.s3 import S3Server, serving


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A local S3 server, which this process and those that it starts find."""
    with serving() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> Url:
    """A new, empty bucket."""
    name = f"b{uuid.uuid4().hex}"
    s3.make_bucket(name)
    return Url.of(f"s3://{name}")
