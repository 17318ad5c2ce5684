# SPDX-License-Identifier: Apache-2.0
"""The package around the router: what it exports, documents and carries."""

from __future__ import annotations

import enum
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import limpet
import pytest
from limpet import policies


def test_every_public_name_is_there_and_documented() -> None:
    for name in limpet.__all__:
        thing = getattr(limpet, name)
        if not name.startswith("_"):
            assert thing.__doc__, name
    for name in policies.__all__:
        assert getattr(policies, name).__doc__


def test_every_method_of_the_router_is_documented() -> None:
    for cls in (limpet.Router, limpet.Lease):
        for name in vars(cls):
            if not name.startswith("_"):
                assert vars(cls)[name].__doc__, name


@pytest.mark.parametrize(
    "kind",
    [
        limpet.Affinity,
        limpet.Outcome,
        limpet.ParentHint,
        limpet.ParseStatus,
        limpet.Reason,
        limpet.ReplicaState,
        limpet.Standing,
    ],
)
def test_enumerations_are_pythons_own(kind: type[enum.Enum]) -> None:
    for member in kind:
        assert kind(member.value) is member
        assert pickle.loads(pickle.dumps(member)) is member
        assert isinstance(member.value, str)


def test_the_version_is_that_of_the_headers() -> None:
    header = Path(limpet.get_include(), "limpet", "version.hpp")
    if not header.is_file():
        pytest.skip("this limpet was not installed from a wheel, so it carries no headers")
    assert f'"{limpet.__version__}"' in header.read_text(encoding="utf-8")


def test_the_package_is_typed() -> None:
    folder = Path(limpet.__file__).parent
    assert (folder / "py.typed").is_file()
    assert (folder / "_core.pyi").is_file()


def test_a_package_without_its_compiled_half_says_what_to_do(tmp_path: Path) -> None:
    package = tmp_path / "limpet"
    package.mkdir()
    shutil.copy(Path(limpet.__file__), package / "__init__.py")
    ran = subprocess.run(
        [sys.executable, "-c", "import limpet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "limpet's compiled half, limpet._core, is missing from" in ran.stderr
    assert "pip install ." in ran.stderr
