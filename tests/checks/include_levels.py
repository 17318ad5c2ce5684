# SPDX-License-Identifier: Apache-2.0
"""Includes only point down, and the core includes the standard library alone.

Levels are the lists L0 to L5 of include/CMakeLists.txt; every other list there is an optional room.
A header may include lower levels and, of its own level, what is listed before it in its own folder,
of which detail/ is a part. A detail/ header named after another one (detail/fleet_booking.hpp,
fleet.hpp) is a part of it: the two may include each other. The umbrella limpet.hpp may include
every level. A room may include the core, its own headers and its own package; nothing else includes
a room. L0 to L3 leave out the heavy headers of the standard library.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath

import common

UMBRELLA = "limpet/limpet.hpp"
HEAVY = {"iostream", "functional", "regex", "random", "ranges"}
ROOM_PACKAGES = {"FMT": re.compile(r"fmt/"), "WIRE": re.compile(r"simdjson\.h$")}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_LEVEL = re.compile(r"L[0-5]")


def _folder(header: str) -> PurePosixPath:
    folder = PurePosixPath(header).parent
    return folder.parent if folder.name == "detail" else folder


def _is_part_of(part: str, whole: str) -> bool:
    path = PurePosixPath(part)
    near = path.parent.name == "detail" and _folder(part) == _folder(whole)
    return near and path.name.startswith(PurePosixPath(whole).stem + "_")


def _may_include(
    header: str, other: str, lists: dict[str, list[str]], home: dict[str, str]
) -> bool:
    own, target = home[header], home[other]
    if not _LEVEL.fullmatch(own):
        return target == own or _LEVEL.fullmatch(target) is not None
    if not _LEVEL.fullmatch(target):
        return False
    if header == UMBRELLA or target < own:
        return True
    if target == own and (_is_part_of(header, other) or _is_part_of(other, header)):
        return True
    names = lists[own]
    near = target == own and _folder(other) == _folder(header)
    return near and names.index(other) < names.index(header)


def _problem(
    header: str, quote: str, name: str, lists: dict[str, list[str]], home: dict[str, str]
) -> str | None:
    """What is wrong with one include line, if anything."""
    level = home[header]
    if quote == '"':
        return f'{header} includes "{name}" in quotes; write <limpet/...>'
    if name.startswith("limpet/"):
        if name not in home:
            return f"{header} includes {name}, which is in no header list"
        if not _may_include(header, name, lists, home):
            return f"{header} ({level}) includes {name} ({home[name]}): up or sideways"
        return None
    if "/" in name or name.endswith((".h", ".hpp")):
        package = ROOM_PACKAGES.get(level)
        if package is None or not package.match(name):
            return f"{header} ({level}) includes <{name}>, which is not of the standard library"
        return None
    if name in HEAVY and level in {"L0", "L1", "L2", "L3"}:
        return f"{header} ({level}) includes <{name}>, too heavy below L4"
    return None


def problems(root: Path) -> list[str]:
    lists = common.header_lists(root)
    home = {name: level for level, names in lists.items() for name in names}
    found = []
    for header in home:
        path = root / "include" / header
        if not path.is_file():
            continue  # header_list.py reports it
        for quote, name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            problem = _problem(header, quote, name, lists, home)
            if problem is not None:
                found.append(problem)
    return found


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
