"""Checks that docstrings begin with a sentence that stands alone: `python tools/check_docstrings.py src`.

A first sentence that begins with a preposition or a relative pronoun only makes sense after the line above
it, and one of three words says nothing that the name does not. Dunder methods, and methods that may override
one of a base class, may be that short.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FEWEST_WORDS = 4
_FRAGMENT = re.compile(
    r"(About|Above|Across|After|Against|Along|Also|Among|And|As|At|Before|Behind|Below|Beside|"
    r"Besides|Between|Beyond|But|By|During|For|From|How|If|In|Inside|Into|Like|None|Of|On|Onto|"
    r"Or|Out|Outside|Over|Per|Since|That|The same|Then|There|Through|To|Towards|Under|Until|Up|"
    r"Upon|What|When|Where|Whether|Which|While|Who|Whom|Whose|Why|With|Within|Without)\b"
)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def complaints(path: Path) -> Iterator[str]:
    """Yield a line for every docstring of a file that does not begin with a sentence."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    may_be_short = {
        id(member)
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef) and owner.bases
        for member in owner.body
    }
    for node in ast.walk(tree):
        if not isinstance(node, _Documented):
            continue
        text = ast.get_docstring(node)
        if not text:
            continue
        line = 1 if isinstance(node, ast.Module) else node.lineno
        name = "" if isinstance(node, ast.Module) else node.name
        first = text.splitlines()[0]
        if _FRAGMENT.match(text):
            yield f"{path}:{line}: begins with a fragment: {first}"
        elif len(text.split()) < FEWEST_WORDS and id(node) not in may_be_short and not name.startswith("__"):
            yield f"{path}:{line}: has fewer than {FEWEST_WORDS} words: {first}"


def main(folders: list[str]) -> int:
    """Print all complaints about the Python files in the folders; return 1 if there are any."""
    files = sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    found = [complaint for file in files for complaint in complaints(file)]
    for complaint in found:
        print(complaint)
    print(f"{len(files)} files, {len(found)} docstrings without a first sentence")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
