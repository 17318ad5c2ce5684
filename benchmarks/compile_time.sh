#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What including Limpet costs a build: compiles examples/quickstart.cpp and, in turns with it, an empty
# program that includes the same standard headers. Prints CPU seconds (median, fastest, slowest) and
# their ratio; exit code 1 when the ratio is above 2.
#
#   bash benchmarks/compile_time.sh [ROUNDS] [FLAG...]     default: 7 rounds, -O0; the compiler is $CXX
#
# Not measured: linking, precompiled headers, modules.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '4,10s/^# \{0,1\}//p' benchmarks/compile_time.sh
  exit 0
fi
rounds=${1:-7}
shift || true
cxx=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# The standard headers that quickstart.cpp names, and those that the headers it reaches name.
"$cxx" -std=c++20 -Iinclude -MM examples/quickstart.cpp | tr -s '\\ ' '\n' |
  grep -E '\.(hpp|cpp)$' | xargs sed -nE 's/^#include (<[a-z_]+>).*/#include \1/p' | sort -u >"$work/empty.cpp"
echo 'int main() {}' >>"$work/empty.cpp"

TIMEFORMAT=%U
for ((round = 0; round < rounds; ++round)); do
  { time "$cxx" -std=c++20 -Iinclude "$@" -c "$work/empty.cpp" -o "$work/out.o"; } 2>>"$work/empty"
  { time "$cxx" -std=c++20 -Iinclude "$@" -c examples/quickstart.cpp -o "$work/out.o"; } 2>>"$work/quickstart"
done

echo "$("$cxx" --version | head -n 1), $rounds rounds, flags: ${*:-none}"
median() { sort -n "$1" | sed -n "$((rounds / 2 + 1))p"; }
for program in empty quickstart; do
  printf '%-12s %6.2f s   (%s to %s)\n' $program "$(median "$work/$program")" \
    "$(sort -n "$work/$program" | head -n 1)" "$(sort -n "$work/$program" | tail -n 1)"
done
awk -v empty="$(median "$work/empty")" -v quickstart="$(median "$work/quickstart")" 'BEGIN {
  printf "ratio        %6.2f     (at most 2)\n", quickstart / empty
  exit quickstart > 2 * empty
}'
