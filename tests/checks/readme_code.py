# SPDX-License-Identifier: Apache-2.0
"""The code in README.md is the code of examples/, which is built and run.

The first ```cpp block equals examples/quickstart.cpp and the first ```python block equals
examples/quickstart.py, each without the comment (or docstring) that opens the file. Every later
block of these languages stands, line for line, in some file of examples/.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import common

QUICKSTARTS = {"cpp": "examples/quickstart.cpp", "python": "examples/quickstart.py"}

_BLOCK = re.compile(r"^```(cpp|c\+\+|python|py)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LANGUAGE = {"c++": "cpp", "py": "python"}
_PREFACE = {
    "cpp": re.compile(r"(?:[ \t]*//[^\n]*\n|[ \t]*\n)*"),
    "python": re.compile(r'(?:#[^\n]*\n|[ \t]*\n)*(?:"""(?:.*?)"""[ \t]*\n)?\s*', re.DOTALL),
}


def _lines(code: str) -> list[str]:
    return [line.rstrip() for line in textwrap.dedent(code).strip("\n").splitlines()]


def _contains(whole: list[str], part: list[str]) -> bool:
    """Whether `part` stands in `whole` line for line, indented alike or not."""
    for start in range(len(whole) - len(part) + 1):
        if _lines("\n".join(whole[start : start + len(part)])) == part:
            return True
    return False


def problems(root: Path) -> list[str]:
    readme = root / "README.md"
    if not readme.is_file():
        return ["README.md is absent"]
    blocks: dict[str, list[list[str]]] = {"cpp": [], "python": []}
    for language, code in _BLOCK.findall(readme.read_text(encoding="utf-8")):
        blocks[_LANGUAGE.get(language, language)].append(_lines(code))

    found = []
    for language, name in QUICKSTARTS.items():
        example = root / name
        if not example.is_file():
            found.append(f"{name} is absent")
            continue
        if not blocks[language]:
            found.append(f"README.md has no {language} block")
            continue
        text = example.read_text(encoding="utf-8")
        preface = _PREFACE[language].match(text)
        code = _lines(text[preface.end() if preface else 0 :])
        if blocks[language][0] != code:
            found.append(f"the first {language} block of README.md differs from {name}")
        sources = [
            path.read_text(encoding="utf-8").splitlines()
            for path in sorted((root / "examples").rglob("*" + example.suffix))
        ]
        found += [
            f"a {language} block of README.md is in no example: {block[0] if block else ''}"
            for block in blocks[language][1:]
            if not any(_contains(source, block) for source in sources)
        ]
    return found


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
