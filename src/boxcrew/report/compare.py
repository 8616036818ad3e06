"""The page of a comparison: one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from boxcrew.core.version import VERSION
from boxcrew.report.doctor.markup import Html, data_uri, document, element
from boxcrew.report.doctor.style import STYLE

_KINDS = {".png": "image/png", ".jpg": "image/jpeg"}


def compare_page(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    pictures: Sequence[Path],
    *,
    names: str,
    warning: str,
) -> str:
    """Return the page with a table and pictures; `names` says what the columns of the images are."""
    head = element("tr", *(element("th", column) for column in columns))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in cells]
    images = [
        element("section", element("h2", title), *note, _picture(picture))
        for title, note, picture in zip(
            ("Accuracy and time", "The same images"), ([], [element("p", names)]), pictures, strict=False
        )
    ]
    notes = [element("p", warning, class_="note")] if warning else []
    when = datetime.now().astimezone()
    return document(
        "boxcrew compare",
        element("header", element("p", "boxcrew compare", class_="brand"), element("h1", "Comparison")),
        element("main", element("section", element("table", head, *body), *notes), *images),
        element("footer", element("p", f"boxcrew {VERSION}, {when:%Y-%m-%d %H:%M %Z}")),
        style=STYLE,
    )


def _picture(path: Path) -> Html:
    uri = data_uri(_KINDS[path.suffix], path.read_bytes())
    return element("img", src=uri, alt=path.stem, style="max-width: 100%")
