# SPDX-License-Identifier: Apache-2.0
"""Shows that every check can fail: each runs on a tree that is right, then on damaged ones."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compile_fail"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import common
import compile_fail
import count
import header_list
import header_size
import include_levels
import machine_paths
import preprocessed_size
import readme_code
import spdx

SPDX_CPP = "// SPDX-License-Identifier: Apache-2.0\n"
LISTS = """# SPDX-License-Identifier: Apache-2.0
set(LIMPET_L0_HEADERS limpet/types.hpp)  # the lowest
set(LIMPET_L2_HEADERS
    limpet/detail/slots.hpp
    limpet/fleet.hpp
    limpet/pins/local.hpp
    limpet/pins/sharded.hpp
    limpet/scorers/weighted.hpp)
set(LIMPET_L4_HEADERS limpet/limpet.hpp)
set(LIMPET_FMT_HEADERS limpet/fmt.hpp)
"""


class Tree(unittest.TestCase):
    """A repository in a temporary folder, right in every respect until a test damages it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("include/CMakeLists.txt", LISTS)
        self.header("types")
        self.header("detail/slots", "<limpet/types.hpp>")
        self.header("fleet", "<limpet/types.hpp>", "<limpet/detail/slots.hpp>")
        self.header("pins/local", "<limpet/types.hpp>", "<vector>")
        self.header("pins/sharded", "<limpet/pins/local.hpp>", "<mutex>")
        self.header("scorers/weighted", "<limpet/types.hpp>")
        self.header("limpet", "<limpet/pins/sharded.hpp>", "<limpet/scorers/weighted.hpp>")
        self.header("fmt", "<limpet/limpet.hpp>", "<fmt/format.h>", "<string>")
        self.write("examples/quickstart.cpp", SPDX_CPP + "//\n// A preface.\nint main() {\n}\n")
        self.write("examples/quickstart.py", '# SPDX\n"""A preface."""\n\nimport limpet\n')
        self.write(
            "README.md", "# x\n```cpp\nint main() {\n}\n```\n```python\nimport limpet\n```\n"
        )

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def header(self, name: str, *includes: str) -> None:
        lines = "".join(f"#include {include}\n" for include in includes)
        self.write(f"include/limpet/{name}.hpp", SPDX_CPP + lines)

    def only_problem(self, check: object, *words: str) -> None:
        problems = check.problems(self.root)  # type: ignore[attr-defined]
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])


class HeaderList(Tree):
    def test_a_complete_list_passes(self) -> None:
        self.assertEqual(header_list.problems(self.root), [])

    def test_a_header_that_is_not_listed_fails(self) -> None:
        self.header("pins/new")
        self.only_problem(header_list, "include/limpet/pins/new.hpp", "in no list")

    def test_a_listed_header_that_is_absent_fails(self) -> None:
        (self.root / "include/limpet/fmt.hpp").unlink()
        self.only_problem(header_list, "limpet/fmt.hpp", "absent")

    def test_a_header_listed_twice_fails(self) -> None:
        self.write("include/CMakeLists.txt", LISTS + "set(LIMPET_L3_HEADERS limpet/types.hpp)\n")
        self.only_problem(header_list, "limpet/types.hpp", "twice")

    def test_a_header_in_a_comment_of_the_list_is_not_listed(self) -> None:
        self.write("include/CMakeLists.txt", LISTS.replace("limpet/fmt.hpp", "# limpet/fmt.hpp\n"))
        self.only_problem(header_list, "limpet/fmt.hpp", "in no list")


class IncludeLevels(Tree):
    def test_includes_that_point_down_pass(self) -> None:
        self.assertEqual(include_levels.problems(self.root), [])

    def test_an_include_of_a_higher_level_fails(self) -> None:
        self.header("types", "<limpet/limpet.hpp>")
        self.only_problem(include_levels, "limpet/types.hpp", "limpet/limpet.hpp", "up or sideways")

    def test_an_include_of_another_folder_of_the_same_level_fails(self) -> None:
        self.header("scorers/weighted", "<limpet/pins/local.hpp>")
        self.only_problem(include_levels, "limpet/scorers/weighted.hpp", "up or sideways")

    def test_an_include_of_a_later_header_of_the_same_folder_fails(self) -> None:
        self.header("pins/local", "<limpet/pins/sharded.hpp>")
        self.only_problem(include_levels, "limpet/pins/local.hpp", "up or sideways")

    def test_detail_of_the_same_level_belongs_to_the_folder_it_lies_in(self) -> None:
        self.header("pins/local", "<limpet/detail/slots.hpp>")
        self.only_problem(include_levels, "limpet/pins/local.hpp", "up or sideways")

    def test_a_part_in_detail_and_its_whole_may_include_each_other_only(self) -> None:
        self.header("detail/slots", "<limpet/fleet.hpp>")
        self.only_problem(include_levels, "limpet/detail/slots.hpp", "up or sideways")
        (self.root / "include/limpet/detail/slots.hpp").unlink()
        self.write("include/CMakeLists.txt", LISTS.replace("detail/slots", "detail/fleet_more"))
        self.header("detail/fleet_more", "<limpet/fleet.hpp>")
        self.header("fleet", "<limpet/detail/fleet_more.hpp>")
        self.assertEqual(include_levels.problems(self.root), [])
        self.header("detail/fleet_more", "<limpet/pins/local.hpp>")
        self.only_problem(include_levels, "limpet/detail/fleet_more.hpp", "up or sideways")

    def test_the_core_must_not_include_a_room(self) -> None:
        self.header("limpet", "<limpet/fmt.hpp>")
        self.only_problem(include_levels, "limpet/limpet.hpp", "limpet/fmt.hpp")

    def test_the_core_must_not_include_a_package(self) -> None:
        for name in ("fmt/format.h", "simdjson.h", "boost/asio.hpp", "pthread.h"):
            with self.subTest(name):
                self.header("limpet", f"<{name}>")
                self.only_problem(include_levels, name, "not of the standard library")

    def test_a_room_must_not_include_the_package_of_another(self) -> None:
        self.header("fmt", "<simdjson.h>")
        self.only_problem(include_levels, "simdjson.h", "not of the standard library")

    def test_heavy_standard_headers_fail_below_level_four_only(self) -> None:
        for name in ("iostream", "functional", "regex", "random", "ranges"):
            with self.subTest(name):
                self.header("pins/local", f"  # include <{name}>".strip())
                self.header("limpet", f"<{name}>")
                self.write(
                    "include/limpet/pins/local.hpp", f"{SPDX_CPP}  #  include <{name}> // why\n"
                )
                self.only_problem(include_levels, "limpet/pins/local.hpp", name, "too heavy")

    def test_an_include_in_quotes_fails(self) -> None:
        self.header("pins/local", '"sharded.hpp"')
        self.only_problem(include_levels, "limpet/pins/local.hpp", "quotes")

    def test_an_include_of_a_header_in_no_list_fails(self) -> None:
        self.header("pins/local", "<limpet/other.hpp>")
        self.only_problem(include_levels, "limpet/other.hpp", "in no header list")

    def test_the_rules_hold_lists_of_this_repository(self) -> None:
        lists = common.header_lists(common.REPOSITORY)
        self.assertIn("limpet/types.hpp", lists["L0"])
        self.assertIn("limpet/concepts.hpp", lists["L1"])


class HeaderSize(Tree):
    def test_a_header_at_the_limit_passes_and_one_line_more_fails(self) -> None:
        self.write("include/limpet/fmt.hpp", "// line\n" * 320)
        self.assertEqual(header_size.problems(self.root), [])
        self.write("include/limpet/fmt.hpp", "// line\n" * 321)
        self.only_problem(header_size, "include/limpet/fmt.hpp", "321")


class Spdx(Tree):
    def test_a_script_may_name_its_licence_in_its_second_line(self) -> None:
        self.write("examples/quickstart.py", "# SPDX-License-Identifier: Apache-2.0\n")
        self.write("run.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n")
        self.assertEqual(spdx.problems(self.root), [])

    def test_a_style_sheet_names_it_in_a_comment_of_its_language(self) -> None:
        self.write("examples/quickstart.py", "# SPDX-License-Identifier: Apache-2.0\n")
        self.write("a.css", "/* SPDX-License-Identifier: Apache-2.0 */\n")
        self.assertEqual(spdx.problems(self.root), [])

    def test_a_source_file_without_the_line_fails(self) -> None:
        self.write("examples/quickstart.py", "# SPDX-License-Identifier: Apache-2.0\n")
        names = ("a.hpp", "a.cpp", "a.py", "a.pyi", "a.sh", "a.js", "a.css")
        for name in (*names, "tests/CMakeLists.txt", ".ci/run"):
            with self.subTest(name):
                self.write(name, "\n" + SPDX_CPP)
                self.only_problem(spdx, name)
                (self.root / name).unlink()


class MachinePaths(Tree):
    def test_ordinary_paths_pass(self) -> None:
        # In parts, as below: a plain search for such paths finds none in the project.
        work, home, root = "wo" + "rk", "ho" + "me", "ro" + "ot"
        self.write(
            "a.sh",
            f"/usr/bin/env $HOME/{work}/x ${{root}}/{work}/ https://x.org/{home}/y build/{root}/x",
        )
        self.assertEqual(machine_paths.problems(self.root), [])

    def test_a_path_of_one_machine_fails(self) -> None:
        for path in ("/wo" + "rk/main", "/ro" + "ot/x", "/ho" + "me/ann/x", "/Us" + "ers/ann"):
            with self.subTest(path):
                self.write("a.sh", f"first line\ncd {path}\n")
                self.only_problem(machine_paths, "a.sh:2", path)


class ReadmeCode(Tree):
    def test_equal_code_passes(self) -> None:
        self.assertEqual(readme_code.problems(self.root), [])

    def test_code_that_differs_from_the_example_fails(self) -> None:
        self.write("examples/quickstart.cpp", SPDX_CPP + "int main() {\n  return 0;\n}\n")
        self.only_problem(readme_code, "first cpp block", "examples/quickstart.cpp")

    def test_a_part_of_the_example_is_not_the_example(self) -> None:
        self.write("examples/quickstart.py", "# SPDX\nimport limpet\nprint(limpet)\n")
        self.only_problem(readme_code, "first python block", "examples/quickstart.py")

    def test_a_later_block_must_stand_in_some_example(self) -> None:
        readme = (self.root / "README.md").read_text(encoding="utf-8")
        self.write("README.md", readme + "```cpp\nscore();\nmore();\n```\n")
        self.only_problem(readme_code, "in no example", "score();")
        self.write(
            "examples/custom_policy.cpp", SPDX_CPP + "void f() {\n  score();\n  more();\n}\n"
        )
        self.assertEqual(readme_code.problems(self.root), [])

    def test_a_missing_block_file_or_readme_fails(self) -> None:
        self.write("README.md", "```python\nimport limpet\n```\n")
        self.only_problem(readme_code, "no cpp block")
        (self.root / "examples/quickstart.cpp").unlink()
        self.only_problem(readme_code, "examples/quickstart.cpp is absent")
        (self.root / "README.md").unlink()
        self.only_problem(readme_code, "README.md is absent")


class PreprocessedSize(Tree):
    def test_a_heavy_core_fails(self) -> None:
        if not preprocessed_size.measurable():
            self.skipTest("the limit is for another compiler")
        self.header("limpet", "<vector>")
        self.assertEqual(preprocessed_size.problems(self.root), [])
        self.header("limpet", "<regex>", "<ranges>", "<thread>", "<iostream>", "<execution>")
        self.only_problem(preprocessed_size, "limpet.hpp preprocesses to")

    def test_an_absent_umbrella_fails(self) -> None:
        (self.root / "include/limpet/limpet.hpp").unlink()
        self.only_problem(preprocessed_size, "include/limpet/limpet.hpp is absent")


class CompileFail(Tree):
    """The driver of tests/compile_fail, with a compiler made of a shell script."""

    def driver(self, text: str, *, plain: int, expect_fail: int, says: str) -> list[str]:
        self.write("case.cpp", text)
        script = (
            f'case "$*" in *EXPECT_FAIL*) echo "{says}"; exit {expect_fail};; esac; exit {plain}'
        )
        return compile_fail.problems(self.root / "case.cpp", ["sh", "-c", script, "sh"])

    def test_a_promised_message_passes(self) -> None:
        found = self.driver(
            "// expect: say noexcept\n", plain=0, expect_fail=1, says="say noexcept!"
        )
        self.assertEqual(found, [])

    def test_another_message_fails(self) -> None:
        found = self.driver("// expect: say noexcept\n", plain=0, expect_fail=1, says="no match")
        self.assertIn("did not say `say noexcept`", found[0])

    def test_each_of_several_messages_must_appear(self) -> None:
        text = "// expect: one\n// expect: two\n"
        self.assertEqual(len(self.driver(text, plain=0, expect_fail=1, says="one")), 1)

    def test_a_file_that_never_compiles_fails(self) -> None:
        found = self.driver("// expect: x\n", plain=1, expect_fail=1, says="x")
        self.assertIn("does not compile as it is", found[0])

    def test_a_file_that_always_compiles_fails(self) -> None:
        found = self.driver("// expect: x\n", plain=0, expect_fail=0, says="x")
        self.assertIn("compiles with LIMPET_EXPECT_FAIL", found[0])

    def test_a_file_that_promises_nothing_fails(self) -> None:
        found = self.driver("int main() {}\n", plain=0, expect_fail=1, says="x")
        self.assertIn("no line `// expect: TEXT`", found[0])


CTEST = """<testsuite>
<testcase name="core: a" status="run"><system-out>
  SKIPPED: no data
All tests passed (3 assertions in 2 test cases)
</system-out></testcase>
<testcase name="core: b" status="fail"><failure message=""/><system-out>
test cases: 5 | 3 passed | 2 failed
</system-out></testcase>
<testcase name="core: c" status="fail"><failure message=""/>
<system-out>terminate called</system-out></testcase>
<testcase name="checks" status="run"><system-out>Ran 7 tests in 0.1s

OK (skipped=1)
</system-out></testcase>
<testcase name="odr" status="run"><system-out></system-out></testcase>
<testcase name="gone" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="v3" status="run"><system-out>
test cases: 4 | 2 passed | 1 skipped | 1 failed as expected
</system-out></testcase>
<testcase name="v3 skipped" status="notrun"><skipped message="SKIP_RETURN_CODE=4"/>
<system-out>test cases: 1 | 1 skipped</system-out></testcase>
</testsuite>"""

PYTEST = """<testsuites><testsuite tests="4" failures="1" errors="1" skipped="1">
<testcase/><testcase><failure/></testcase><testcase><error/></testcase><testcase><skipped/></testcase>
</testsuite></testsuites>"""


class Count(Tree):
    """The counting of tests/run.sh."""

    def counted(self, text: str) -> tuple[int, int, int]:
        self.write("results.xml", text)
        return count.count(self.root / "results.xml")

    def test_catch_unittest_and_plain_entries_of_ctest_are_counted(self) -> None:
        # passed: a 1, b 3, checks 6, odr 1, v3 3; failed: b 2, c 1, gone 1;
        # skipped: a 1, checks 1, v3 1, v3 skipped 1
        self.assertEqual(self.counted(CTEST), (14, 4, 4))

    def test_pytest_is_counted(self) -> None:
        self.assertEqual(self.counted(PYTEST), (1, 2, 1))


if __name__ == "__main__":
    unittest.main()
