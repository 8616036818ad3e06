"""HTML and SVG elements; text is escaped, because names of files and classes may contain anything."""

from __future__ import annotations

import base64
import html

Attribute = str | int | float | bool | None

# Whatever a name in the data contains, a page loads nothing and runs nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Html(str):
    """Text that is markup already; any other text is escaped when it becomes part of a page."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return `<name …>children</name>`.

    In names of attributes an underscore becomes a dash, and one at the end is dropped: `class_`,
    `stroke_width`. Attributes that are None or false are left out.
    """
    text = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in {"img", "meta"}:
        return Html(f"<{name}{text}>")
    return Html(f"<{name}{text}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Concatenate texts and markup; texts are escaped."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def document(title: str, *body: str, style: str) -> str:
    """Return a whole page that needs no other file; `style` is its style sheet."""
    return "<!doctype html>\n" + element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("title", title),
            element("style", Html(style)),
        ),
        element("body", *body),
        lang="en",
    )


def data_uri(kind: str, content: bytes) -> str:
    """Return a URI that contains the content itself; `kind` is a media type such as image/jpeg."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-").replace("viewbox", "viewBox")
    if value is True:
        return f" {name}"
    text = f"{value:.5g}" if isinstance(value, float) else html.escape(str(value))
    return f' {name}="{text}"'
