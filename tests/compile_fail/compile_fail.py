# SPDX-License-Identifier: Apache-2.0
"""Compiles one file twice: as it is it must compile, with LIMPET_EXPECT_FAIL it must not.

The second time the compiler's output must contain the text of every `// expect: TEXT` line of the
file, so that the message a user meets after a near miss stays the one we promise.

    compile_fail.py FILE COMPILER [FLAG...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

EXPECT = re.compile(r"^\s*// expect: *(.+?)\s*$", re.MULTILINE)


def compile_once(command: list[str], *more: str) -> tuple[bool, str]:
    """Whether it compiles, and what the compiler said."""
    with tempfile.TemporaryDirectory() as folder:
        # To an object file: a syntax check alone leaves templates uninstantiated in gcc.
        done = subprocess.run(
            [*command, *more, "-c", "-o", str(Path(folder) / "out.o")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
            check=False,
        )
    return done.returncode == 0, done.stdout


def problems(file: Path, command: list[str]) -> list[str]:
    """What is wrong with this file; nothing when it holds."""
    expected = EXPECT.findall(file.read_text(encoding="utf-8"))
    if not expected:
        return ["no line `// expect: TEXT` says which message is promised"]
    compiles, output = compile_once([*command, str(file)])
    if not compiles:
        return [f"does not compile as it is:\n{output}"]
    compiles, output = compile_once([*command, str(file)], "-DLIMPET_EXPECT_FAIL")
    if compiles:
        return ["compiles with LIMPET_EXPECT_FAIL, where it must not"]
    missing = [text for text in expected if text not in output]
    return [f"the compiler did not say `{text}`, but:\n{output}" for text in missing]


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = problems(Path(arguments[0]), arguments[1:])
    for problem in found:
        print(f"{arguments[0]}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
