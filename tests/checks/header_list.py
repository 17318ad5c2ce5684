# SPDX-License-Identifier: Apache-2.0
"""Every header under include/ stands in one list of include/CMakeLists.txt, and each exists.

The lists decide what is installed, verified to compile alone, and linked in two translation units:
a header that is in none would be missing for users only.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import common


def problems(root: Path) -> list[str]:
    listed = Counter(name for names in common.header_lists(root).values() for name in names)
    include = root / "include"
    present = {
        path.relative_to(include).as_posix()
        for path in common.files(root)
        if path.suffix == ".hpp" and include in path.parents
    }
    return [
        *(
            f"include/{name} is in no list of {common.HEADER_LIST}"
            for name in present - set(listed)
        ),
        *(f"{common.HEADER_LIST} lists {name}, which is absent" for name in set(listed) - present),
        *(f"{common.HEADER_LIST} lists {name} twice" for name in listed if listed[name] > 1),
    ]


if __name__ == "__main__":
    sys.exit(common.run(problems, __doc__))
