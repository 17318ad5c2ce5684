# SPDX-License-Identifier: Apache-2.0
"""Counts the tests in JUnit files of ctest and pytest: prints `PASSED FAILED SKIPPED`.

A ctest entry that ran Catch2 or unittest counts as the cases that its output reports, any other
entry as one. A Catch2 2 case that printed "SKIPPED:" passed as far as Catch2 knows; it counts as
skipped. An entry that could not be started failed.

    count.py FILE...
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

Counts = tuple[int, int, int]  # passed, failed, skipped

_CATCH_ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.MULTILINE)
_CATCH_SOME = re.compile(r"^test cases: *(\d+) *\|(.*)$", re.MULTILINE)
_CATCH2_SKIPPED = re.compile(r"^ *SKIPPED:", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_FAILED = re.compile(r"(?:failures|errors|unexpected successes)=(\d+)")


def _number(text: str, word: str) -> int:
    match = re.search(rf"(\d+) {word}(?! as expected)", text)
    return int(match[1]) if match else 0


def _cases(output: str) -> Counts | None:
    """What a test program says of its own cases, if it is one that does."""
    told_skipped = len(_CATCH2_SKIPPED.findall(output))
    if match := _CATCH_ALL_PASSED.search(output):
        return int(match[1]) - told_skipped, 0, told_skipped
    if match := _CATCH_SOME.search(output):
        total, rest = int(match[1]), match[2]
        failed = _number(rest, "failed")
        skipped = max(_number(rest, "skipped"), told_skipped)
        return total - failed - skipped, failed, skipped
    if match := _UNITTEST.search(output):
        total, rest = int(match[1]), match[2] or ""
        failed = sum(int(number) for number in _UNITTEST_FAILED.findall(rest))
        skipped = int((re.search(r"skipped=(\d+)", rest) or [0, 0])[1])
        return total - failed - skipped, failed, skipped
    return None


def _entry(case: ET.Element) -> Counts:
    broken = case.find("failure") is not None or case.find("error") is not None
    skipped = case.find("skipped")
    if skipped is not None and case.get("status") == "notrun":
        # ctest reports an entry that could not be started in the same way as a skip.
        broken = not skipped.get("message", "").startswith("SKIP_")
    counts = _cases(case.findtext("system-out") or "")
    if counts is None:
        return (0, 1, 0) if broken else (0, 0, 1) if skipped is not None else (1, 0, 0)
    if broken and counts[1] == 0:  # all cases passed, then the program failed, e.g. a leak
        return counts[0], 1, counts[2]
    return counts


def count(file: Path) -> Counts:
    entries = [_entry(case) for case in ET.parse(file).getroot().iter("testcase")]
    passed, failed, skipped = (sum(entry[kind] for entry in entries) for kind in range(3))
    return passed, failed, skipped


if __name__ == "__main__":
    totals = [count(Path(name)) for name in sys.argv[1:]]
    print(*(sum(total[kind] for total in totals) for kind in range(3)))
