"""Parses the XML of annotation files without expanding entities, with which a file could fill the memory or
read other files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import defusedxml.ElementTree
from defusedxml import DefusedXmlException, EntitiesForbidden, ExternalReferenceForbidden

from boxcrew.data.checks.problem import ProblemKind

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

XML_ERRORS = (OSError, ET.ParseError, DefusedXmlException, LookupError, ValueError)
"""What reading and parsing a file may raise."""

_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']*)""")


def parse_xml(data: bytes) -> Element:
    """Parse XML with entities forbidden. Without a document type there are no entities, and the standard
    parser, several times faster, is as safe as defusedxml. In encodings that are no superset of ASCII a
    document type cannot be searched for.
    """
    declared = _ENCODING.match(data)
    is_ascii = declared is None or declared[1].lower() in {b"utf-8", b"us-ascii", b"iso-8859-1"}
    if is_ascii and b"\0" not in data and b"<!DOCTYPE" not in data:
        return ET.fromstring(data)  # noqa: S314
    guarded: Element = defusedxml.ElementTree.fromstring(data)
    return guarded


def xml_problem_kind(error: Exception) -> ProblemKind:
    """Return the kind of problem that an error of `XML_ERRORS` is."""
    if isinstance(error, ExternalReferenceForbidden) or getattr(error, "sysid", None):
        return "xml-external-entity"
    return "xml-bomb" if isinstance(error, EntitiesForbidden) else "unreadable-annotation"
