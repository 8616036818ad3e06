"""The command `boxcrew proposals`: regions of the images of a data set, and how many objects they cover."""

from __future__ import annotations

import time
from dataclasses import asdict

from pydantic import Field

from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.units import counted, format_duration
from boxcrew.data.checks.scan import scan
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.source import open_source
from boxcrew.data.proposals.coverage import proposal_coverage
from boxcrew.data.proposals.store import compute_proposals
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.detection_inputs import proposal_method


class ProposalsConfig(BoxOptions):
    """The settings of `boxcrew proposals`."""

    data: str
    format: str = "auto"
    method: str = "fast"
    count: int = Field(default=500, ge=1)
    seed: int = 0


def proposals_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require(tree, "data", example="boxcrew proposals data=photos")
    config = ProposalsConfig.of(tree)
    workers = max(1, int(usable_cores()))
    source = open_source(config.data, format=config.format, seed=config.seed, options=config.box_options())
    with out.progress("checking the data") as progress:
        source = scan(source, workers=workers, progress=progress)
    method, start = proposal_method(config.method), time.monotonic()
    with out.progress("proposing regions") as progress:
        regions = compute_proposals(
            source.records, source, method, count=config.count, workers=workers, progress=progress
        )
    seconds = time.monotonic() - start
    images = counted(len(source.records), "image")
    out.info(f"{images} in {format_duration(seconds)}: {method.key}; stored for later runs")
    splits = {name: proposal_coverage(records, regions) for name, records in source.splits.items()}
    for name, coverage in splits.items():
        out.info(f"{name}: {coverage.sentence()}")
        if coverage.is_poor:
            out.warn(f"{name}: {coverage.advice(count='count', method='method')}")
    out.result(
        {"method": method.key, "seconds": seconds} | {name: asdict(each) for name, each in splits.items()}
    )
