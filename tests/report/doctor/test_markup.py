"""Markup that nothing in a name can break."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from boxcrew.report.doctor.markup import Html, data_uri, element, join


class Reader(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")))


@given(text=texts, value=texts)
def test_any_text_and_attribute_comes_back_and_adds_no_tag(text: str, value: str) -> None:
    read = Reader(element("p", element("b", text), title=value))
    assert [tag for tag, _ in read.tags] == ["p", "b"]
    assert read.text == text
    assert read.tags[0][1] == {"title": value}


def test_attributes() -> None:
    written = element(
        "path", class_="a", stroke_width=1.25, hidden=True, id=None, open=False, viewbox="0 0 1 1"
    )
    assert written == '<path class="a" stroke-width="1.25" hidden viewBox="0 0 1 1"></path>'
    assert element("img", alt="x") == '<img alt="x">'


def test_only_markup_stays_markup() -> None:
    assert join(Html("<i>"), "<i>") == "<i>&lt;i&gt;"
    assert isinstance(element("p", join("a")), Html)


def test_pictures_stand_in_the_page() -> None:
    assert data_uri("image/png", b"\x00\xff") == "data:image/png;base64,AP8="
