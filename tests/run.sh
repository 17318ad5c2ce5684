#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up, builds and tests everything; the last line is "N passed, N failed, N skipped".
#
#   bash tests/run.sh [STAGE...]      all stages, or those named (setup always runs first):
#
#     dev           gcc build with warnings as errors, every header alone, the C++ tests
#     clang         the same with clang, under AddressSanitizer and UndefinedBehaviorSanitizer
#     tsan          tests/threads under ThreadSanitizer
#     compile_fail  the error messages that near misses must get, from gcc and clang
#     consumer      use from outside: subproject, installed package, pkg-config
#     checks        the repository itself: include levels, header list, README code and more
#     python        sdist, module, pytest, mypy, stubtest, ruff, the headers in the wheel
#     format        clang-format, shellcheck
#     fuzz          a few seconds of libFuzzer a target
#
# A stage that fails does not stop the others. A stage whose tools are missing counts as skipped, and
# with CI=true as failed. Builds and logs are below build/. LIMPET_SHARED_DATA names the folder of
# recordings that some tests use (default ../shared/data); without it they are skipped.
# FUZZ_SECONDS (default 5) is the time a fuzz target gets.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

all_stages=(dev clang tsan compile_fail consumer checks python format fuzz)
not_cpp_tests='^(compile_fail|consumer|checks)$'
# Statistics over many runs of what the other tests of the simulator and the gate run step by step;
# only the optimised build does them in seconds.
long_simulations='(accuracy|default_rule|gate_front_end|token_rules)\.test'
step_limit=1500 # seconds; a step that takes longer hangs

case ${1:-} in
  -h | --help)
    sed -n '4,23s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
for stage in "$@"; do
  if [[ " setup ${all_stages[*]} " != *" $stage "* ]]; then
    echo "no stage called '$stage'; there are: ${all_stages[*]}" >&2
    exit 2
  fi
done

# Counters of the stage that runs.
passed=0
failed=0
skipped=0

# step NAME COMMAND...: runs it with its output in the stage's log, of which a failure shows the end.
step() {
  local name=$1 start=$SECONDS log=$logs/$stage.log output
  shift
  output=$(mktemp "$logs/step.XXXXXX")
  printf '   %-34s ' "$name"
  if timeout "$step_limit" "$@" >"$output" 2>&1 </dev/null; then
    printf 'ok      %4d s\n' $((SECONDS - start))
    { echo "---- $name: $*" && cat "$output"; } >>"$log"
    rm -f "$output"
    return 0
  fi
  printf 'FAILED  %4d s\n' $((SECONDS - start))
  { echo "---- $name: $*" && cat "$output"; } >>"$log"
  local command="$*"
  echo "   ${command:0:200}"
  { grep -E '(error|Error|FAILED):' "$output" | head -n 20 || true; } | sed 's/^/   ! /'
  tail -n 60 "$output" | sed 's/^/   | /'
  echo "   whole log: ${log#"$PWD/"}"
  rm -f "$output"
  return 1
}

# A step that is a test by itself.
test_step() {
  if step "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
}

# Adds the counts of a JUnit file; a suite that says nothing, or failed without saying how, failed.
add_counts() {
  local file=$1 suite_ok=$2 p=0 f=0 s=0
  if [[ -f $file ]]; then
    read -r p f s < <(python3 tests/count.py "$file") || true
  fi
  if [[ $f -eq 0 && ($suite_ok == no || $((p + s)) -eq 0) ]]; then
    f=1
  fi
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + s))
}

# ctest_step NAME PRESET ARGUMENT...: the tests of that build that the arguments pick.
ctest_step() {
  local name=$1 preset=$2 ok=yes results
  shift 2
  results=$PWD/build/results/$stage-$preset.xml
  rm -f "$results"
  # Catch2's closing line must survive: ctest cuts the output of passed tests at 1 KiB by default.
  step "$name" "${wrap[@]}" ctest --preset "$preset" --output-junit "$results" \
    --test-output-size-passed 1048576 --test-output-size-failed 1048576 "$@" || ok=no
  add_counts "$results" "$ok"
}
wrap=()

# The stage cannot run here.
skip() {
  if [[ ${CI:-} == true ]]; then
    echo "   FAILED: $1, and CI must run every stage"
    failed=$((failed + 1))
  else
    echo "   skipped: $1"
    skipped=$((skipped + 1))
  fi
}

# Goes on after an error, so that one run shows them all.
build() {
  local keep_going=-k
  if [[ ${CMAKE_GENERATOR:-} == Ninja ]]; then keep_going=-k0; fi
  step "build" cmake --build --preset "$1" -- "$keep_going"
}

configure() {
  local preset=$1
  shift
  step "configure ($preset)" cmake --preset "$preset" "$@"
}

configure_clang() {
  configure "$1" "-DCMAKE_CXX_COMPILER=$clang"
}

# The project's files of the given patterns; every file that is no build's without git.
project_files() {
  if [[ -e .git ]]; then
    git ls-files --cached --others --exclude-standard -- "$@"
  else
    local pattern
    for pattern in "$@"; do
      find . -path ./build -prune -o -name "$pattern" -type f -print
    done
  fi
}

stage_setup() {
  setup build tests python
}

stage_dev() {
  configure dev && build dev || return
  ctest_step "C++ tests" dev -LE "$not_cpp_tests"
}

stage_clang() {
  if [[ -z $clang ]]; then
    skip "no clang++ with its runtime libraries"
    return
  fi
  configure_clang clang && build clang || return
  ctest_step "C++ tests" clang -LE "$not_cpp_tests" -E "$long_simulations"
}

stage_tsan() {
  configure tsan && build tsan || return
  # ThreadSanitizer of gcc 12 cannot start where the kernel randomises addresses widely.
  if setarch -R true 2>/dev/null; then
    wrap=(setarch -R)
  fi
  ctest_step "threads tests" tsan
  wrap=()
}

stage_compile_fail() {
  configure dev || return
  ctest_step "gcc" dev -L '^compile_fail$'
  if [[ -z $clang ]]; then
    skip "no clang++"
    return
  fi
  configure_clang clang || return
  ctest_step "clang" clang -L '^compile_fail$'
}

stage_consumer() {
  configure dev || return
  ctest_step "subproject, package, pkg-config" dev -L '^consumer$'
}

stage_checks() {
  configure dev || return
  ctest_step "checks and their self-test" dev -L '^checks$'
}

stage_python() {
  local python=$limpet_venv/bin/python ok=yes results=$PWD/build/results/pytest.xml
  rm -rf build/sdist "$results"
  # The module is built from the source distribution, which proves that nothing is missing there; with
  # asserts, and optimised only as far as its simulations need, since that is most of its build.
  step "sdist" "$python" -m build --no-isolation --sdist --outdir build/sdist &&
    step "build and install" "$python" -m pip install -q --no-build-isolation --no-deps \
      --force-reinstall -Ccmake.build-type=RelWithDebInfo \
      -Ccmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 build/sdist/limpet-*.tar.gz || return
  step "pytest" "$python" -m pytest -q -n "$CTEST_PARALLEL_LEVEL" --dist worksteal \
    --junitxml "$results" || ok=no
  add_counts "$results" "$ok"
  test_step "examples/quickstart.py" "$python" examples/quickstart.py
  test_step "headers in the wheel" env PYTHON="$python" CXX=g++ \
    bash tests/consumer/run.sh wheel build/wheel_consumer
  test_step "stubtest" "$python" -m mypy.stubtest limpet \
    --allowlist tests/python/stubtest_allowlist.txt
  test_step "mypy --strict" "$python" -m mypy python/limpet examples tests/python tests/examples
  test_step "mypy --strict (checks)" "$python" -m mypy tests/checks
  test_step "ruff check" "$python" -m ruff check
  test_step "ruff format" "$python" -m ruff format --check
}

stage_format() {
  local files
  if command -v clang-format-19 >/dev/null; then
    mapfile -t files < <(project_files '*.hpp' '*.cpp')
    test_step "clang-format, ${#files[@]} files" clang-format-19 --dry-run -Werror "${files[@]}"
  else
    skip "no clang-format-19"
  fi
  if command -v shellcheck >/dev/null; then
    mapfile -t files < <(project_files '*.sh')
    test_step "shellcheck, ${#files[@]} files" shellcheck -x .ci/run "${files[@]}"
  else
    skip "no shellcheck"
  fi
}

stage_fuzz() {
  local target name found=no
  if [[ -z $clang ]]; then
    skip "no clang++ with libFuzzer"
    return
  fi
  configure_clang fuzz && build fuzz || return
  for target in build/fuzz/tests/fuzz/limpet_fuzz_*; do
    if [[ ! -x $target || -d $target ]]; then continue; fi
    found=yes
    name=${target##*/limpet_fuzz_}
    # New inputs go to the first folder; an input that breaks something is kept beside it.
    mkdir -p "build/fuzz/found/$name"
    test_step "$name" "$target" -max_total_time="${FUZZ_SECONDS:-5}" -timeout=10 -rss_limit_mb=4096 \
      -print_final_stats=1 -artifact_prefix="build/fuzz/$name-" "build/fuzz/found/$name" \
      "tests/fuzz/corpus/$name"
  done
  [[ $found == yes ]]
}

table=()
total_passed=0
total_failed=0
total_skipped=0

run_stage() {
  stage=$1
  local start=$SECONDS
  passed=0
  failed=0
  skipped=0
  : >"$logs/$stage.log"
  printf '\n== %s\n' "$stage"
  if ! "stage_$stage" && [[ $failed -eq 0 ]]; then
    failed=1
  fi
  table+=("$(printf '%-14s %8d %8d %8d %7d s' "$stage" $passed $failed $skipped $((SECONDS - start)))")
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
}

logs=$PWD/build/logs
mkdir -p "$logs" build/results
chosen=()
for stage in "${@:-"${all_stages[@]}"}"; do
  if [[ $stage != setup ]]; then chosen+=("$stage"); fi
done

run_stage setup
clang=$(find_clang || true)
for next in ${chosen[@]+"${chosen[@]}"}; do
  run_stage "$next"
done

printf '\n%-14s %8s %8s %8s %9s\n' stage passed failed skipped time
printf '%s\n' "${table[@]}"
printf '%-14s %8d %8d %8d %7d s\n\n' total $total_passed $total_failed $total_skipped $SECONDS
if [[ $total_passed -eq 0 && $total_failed -eq 0 ]]; then
  echo "no test ran"
  total_failed=1
fi
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[[ $total_failed -eq 0 ]]
