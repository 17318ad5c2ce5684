# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence in its first line, or in the second after `#!`."""

from __future__ import annotations

import sys
from pathlib import Path

import common

SUFFIXES = {".hpp", ".cpp", ".py", ".pyi", ".sh", ".cmake", ".in", ".toml", ".js", ".css"}
NAMES = {"CMakeLists.txt", ".ci/run"}
LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = (f"// {LINE}", f"# {LINE}", f"/* {LINE} */")


def problems(root: Path) -> list[str]:
    found = []
    for path in common.files(root):
        name = path.relative_to(root).as_posix()
        if path.suffix not in SUFFIXES and path.name not in NAMES and name not in NAMES:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and lines[0].startswith("#!"):
            lines = lines[1:]
        if not lines or lines[0] not in COMMENTS:
            found.append(f"{name} does not begin with `{LINE}`")
    return found


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
