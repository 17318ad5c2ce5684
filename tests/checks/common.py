# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the repository, the header lists, and how a check is run.

A check is a module with `problems(root) -> list[str]`: one sentence for each thing that is wrong
under that root. self_test.py shows each of them fail on small trees made for it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HEADER_LIST = "include/CMakeLists.txt"
_GENERATED = {"build", "dist", "__pycache__"}


def files(root: Path) -> list[Path]:
    """The files of the project: what git does not ignore or, without git, what no build made."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and (root / ".git").exists():
        found = {root / name for name in listed.stdout.split("\0") if name}
    else:
        found = {
            path
            for path in root.rglob("*")
            if not _GENERATED & set(path.relative_to(root).parts)
            and not any(part.startswith(".git") for part in path.relative_to(root).parts[:-1])
        }
    return sorted(path for path in found if path.is_file())


def header_lists(root: Path) -> dict[str, list[str]]:
    """The lists of include/CMakeLists.txt: {"L0": ["limpet/types.hpp", ...], "FMT": ...}."""
    text = (root / HEADER_LIST).read_text(encoding="utf-8")
    text = re.sub(r"#[^\n]*", "", text)
    lists = re.findall(r"\bset\(LIMPET_(\w+)_HEADERS\b([^)]*)\)", text)
    return {name: body.split() for name, body in lists}


def run(problems: Callable[[Path], list[str]], describe: str) -> int:
    """The command line of every check: prints what is wrong, exit code 1 if anything is."""
    parser = argparse.ArgumentParser(description=describe)
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="repository to check")
    found = problems(parser.parse_args().root)
    for problem in found:
        print(problem)
    print(f"{len(found)} problems")
    return 1 if found else 0
