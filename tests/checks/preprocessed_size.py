# SPDX-License-Identifier: Apache-2.0
"""The core stays light: the lines a compiler reads for `#include <limpet/limpet.hpp>`.

Counted without blank lines and line markers (`g++ -E -P`). The standard headers that the core needs
are nearly all of it, <chrono>, <algorithm> and <memory> most of that; one heavy header more
(<regex>, <ranges>, <functional>) adds 5,000 to 30,000. The limit is for gcc 12: other standard
libraries are larger or smaller, so other compilers are not measured. The compiler is $CXX or g++.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import common

LIMIT = 70_000
MEASURED_ON = "12"


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measurable() -> bool:
    compiler = _compiler()
    if shutil.which(compiler) is None or "Free Software" not in _run(compiler, "--version"):
        return False
    return _run(compiler, "-dumpversion").strip().split(".")[0] == MEASURED_ON


def problems(root: Path) -> list[str]:
    umbrella = root / "include" / "limpet" / "limpet.hpp"
    if not umbrella.is_file():
        return ["include/limpet/limpet.hpp is absent"]
    if not measurable():
        print(f"SKIPPED: the limit is for gcc {MEASURED_ON}, not for {_compiler()}")
        return []
    include = f"-I{root / 'include'}"
    text = _run(_compiler(), "-std=c++20", "-E", "-P", "-x", "c++", include, str(umbrella))
    lines = text.count("\n")
    print(f"limpet.hpp preprocesses to {lines} lines, limit {LIMIT}")
    return [f"limpet.hpp preprocesses to {lines} lines, more than {LIMIT}"] if lines > LIMIT else []


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
