# SPDX-License-Identifier: Apache-2.0
"""A header is one idea: none has more than about 300 lines."""

from __future__ import annotations

import sys
from pathlib import Path

import common

LIMIT = 320


def problems(root: Path) -> list[str]:
    found = []
    for path in common.files(root):
        if path.suffix != ".hpp" or root / "include" not in path.parents:
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LIMIT:
            found.append(f"{path.relative_to(root)} has {lines} lines, more than {LIMIT}: split it")
    return found


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
