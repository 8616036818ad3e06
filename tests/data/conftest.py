"""A bucket on the local S3 server."""

from tests.helpers.s3_fixtures import bucket, s3  # noqa: F401 - fixtures
