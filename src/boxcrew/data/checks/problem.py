"""Defects of a data set: each has a kind that programs can rely on, a file, and a position in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, Literal, get_args

ProblemKind = Literal[
    # images
    "missing-file", "not-an-image", "unreadable-image", "truncated-image", "image-bomb", "exif-rotation",
    "size-mismatch", "image-frames",
    # annotations
    "unreadable-annotation", "xml-bomb", "xml-external-entity", "path-escape", "empty-annotation",
    "image-without-annotation", "annotation-without-image", "ambiguous-image", "several-annotations",
    # boxes and classes
    "not-a-box", "box-malformed", "box-nan", "box-empty", "box-outside", "box-swapped", "box-overhang",
    "box-larger-than-image", "box-small", "unknown-class", "class-id-gap", "duplicate-class",
    "box-derived", "label-confidence",
    # the set as a whole; a cause explains many other problems
    "cause", "duplicate-id", "duplicate-image", "leak", "no-split", "made-split", "data-yaml",
    # labeled samples
    "class-empty", "label-missing", "row-malformed", "value-missing", "value-unknown", "column-constant",
    "column-numbering", "column-doubtful", "text-unreadable", "text-cut", "text-short", "image-resized",
    # writing it in another format
    "lost-flag",
]  # fmt: skip

Action = Literal["repaired", "left out", "noted"]
"""What was done about a problem. Repairs happen in memory only; what is left out is not trained on."""

ACTIONS: tuple[Action, ...] = get_args(Action)

MAX_IMBALANCE = 5.0  # times as many examples of the commonest class as of the rarest; beyond, advice is given


@dataclass(frozen=True)
class Problem:
    """A defect of a data set, and what was done about it."""

    kind: ProblemKind
    file: str  # relative to the set's root, with forward slashes; the root itself for the set as a whole
    message: str  # with the value
    action: Action
    _: KW_ONLY
    at: str = ""  # where in the file: "line 3", "object 2 (tea)", "annotation 17"
    value: str = ""  # the offending value, if a single one is to blame
    count: int = 1  # number of samples, values or objects concerned

    @property
    def where(self) -> str:
        return f"{self.file} {self.at}" if self.at else self.file

    def __str__(self) -> str:
        return f"{self.where}: {self.message} ({self.action})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def first_problem(problems: Sequence[Problem]) -> str:
    """Return the cause of the problems if one was found, else the first that left something out, as advice;
    empty if there is neither.
    """
    if cause := next((problem for problem in problems if problem.kind == "cause"), None):
        return cause.message
    lost = [problem for problem in problems if problem.action == "left out"]
    return f"the first of {len(lost)} problems: {lost[0]}" if lost else ""
