# SPDX-License-Identifier: Apache-2.0
"""No file holds a path of the machine that somebody worked on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import common

# Split, so that this file does not match itself.
PATHS = re.compile(
    r"(?<![\w.$}>/-])/(?:" + r"work/|root/|home/(?!\.\.\.)\w|tmp/lim" + r"pet|Users/\w" + r")"
)


def problems(root: Path) -> list[str]:
    found = []
    for path in common.files(root):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a recording or a fuzz input, not text
        for number, line in enumerate(lines, 1):
            match = PATHS.search(line)
            if match:
                where = f"{path.relative_to(root)}:{number}"
                found.append(f"{where} holds a path of one machine: {line.strip()[:80]}")
    return found


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
