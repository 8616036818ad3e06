"""The command `boxcrew data pack`: write a data set as tar shards with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import ByteSize, Field

from boxcrew.cli.data_tables import print_counts
from boxcrew.cli.output import Output
from boxcrew.core.config import NamesLocation, Tree, lift
from boxcrew.core.errors import UsageError
from boxcrew.core.storage.address import Url, is_url, location_of
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.packing import pack
from boxcrew.hardware.probe import usable_cores
from boxcrew.train.run.data import print_problems

_EXAMPLE = "boxcrew data pack data=PATH out=DIR_OR_URL shard=256MB"


class PackConfig(BoxOptions):
    """The settings of `boxcrew data pack`."""

    data: Annotated[str, NamesLocation]
    out: Annotated[str, NamesLocation]
    shard: ByteSize = Field(default=ByteSize(256_000_000), ge=1_000_000)
    format: str = "auto"
    seed: int = 0


def pack_set(names: list[str], tree: Tree, out: Output) -> dict[str, Any]:
    """Pack a set, without the images that cannot be used; return what is in it."""
    config = _config(names, tree)
    place = location_of(config.out)
    if not isinstance(place, Url) and not is_url(config.data):
        require_outside(place, Path(config.data))
    options = config.box_options()
    request = OpenRequest(path=config.data, format=config.format, seed=config.seed, options=options)
    with out.progress("checking the images") as progress:
        source = open_scanned(request, workers=max(1, int(usable_cores())), progress=progress)
    report = print_counts(source, out)
    print_problems(source.problems, out, rest="--json names all")
    with out.progress("packing the images") as progress:
        num_shards = pack(source, place, shard_bytes=config.shard, progress=progress)
    out.info(f"written: {config.out}, {num_shards} shards; train on it with: boxcrew train data={config.out}")
    return {"out": config.out, "shards": num_shards, **report}


def _config(names: list[str], tree: Tree) -> PackConfig:
    tree = lift(tree, "data", BoxOptions.model_fields)
    if len(names) > 1:
        raise UsageError(f"{names[1]}: not understood", advice=_EXAMPLE)
    for key in ("data", "out"):
        if key not in tree:
            raise UsageError(f"data pack: {key}= is missing", advice=_EXAMPLE)
    return PackConfig.of(tree)


def require_outside(out: Path, path: Path) -> None:
    """Raise an error if the copy would become a part of the set that it is made from."""
    folder = path if path.is_dir() else path.parent
    if path.exists() and out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"out={out}: is inside the data set {path}", advice="choose a folder outside of it")
