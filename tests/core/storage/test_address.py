"""URLs: which are known, and what the others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.config import Config, to_yaml
from boxcrew.core.errors import UsageError
from boxcrew.core.storage import address
from boxcrew.core.storage.address import Url, is_url, location_of, require_package


class Places(Config):
    out: Url | Path | None = None
    file: Path | None = None


def test_a_url_stays_one_and_a_path_is_a_path() -> None:
    stored = Places.of({"out": "s3://bucket/runs/a/"})
    assert isinstance(stored.out, Url)
    assert (stored.out, stored.out.scheme, stored.out.path) == ("s3://bucket/runs/a", "s3", "bucket/runs/a")
    assert Places.of(stored.tree()) == stored
    assert to_yaml(stored) == "out: s3://bucket/runs/a\nfile: null\n"
    assert Places.of({"out": "runs/a"}).out == location_of("runs/a") == Path("runs/a")
    assert stored.out / "b" == "s3://bucket/runs/a/b"


@pytest.mark.parametrize("text", ["ftp://host/a", "http://host/a", "memory://a", "s4://bucket/a"])
def test_an_unknown_scheme_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not supported") as error:
        Places.of({"out": text})
    assert "s3://" in error.value.advice
    with pytest.raises(UsageError, match="is not supported"):
        location_of(text)
    assert not is_url(text)


def test_a_url_is_refused_where_a_file_is_meant() -> None:
    with pytest.raises(UsageError, match="file=s3://bucket/a: s3:// is not supported here"):
        Places.of({"file": "s3://bucket/a"})
    with pytest.raises(UsageError, match="not a URL such as s3://bucket/path"):
        Places.of({"out": "s3://"})


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "find_spec", lambda name: None)
    for scheme, extra in (("s3", "s3"), ("gs", "gcs"), ("az", "azure"), ("abfs", "azure")):
        with pytest.raises(UsageError, match=f"reads {scheme}://") as error:
            require_package(Url.of(f"{scheme}://bucket/a"))
        assert error.value.advice == f"pip install 'boxcrew[{extra}]'"
