#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the micro-benchmarks without asserts and says, after a line on the machine and its versions,
# what each promise of cost comes to and whether it holds (claims.py, compile_time.sh).
#
#   bash benchmarks/run.sh                 the promises: some three minutes
#   bash benchmarks/run.sh ARGUMENT...     the benchmarks themselves; arguments go to Google Benchmark,
#                                          e.g. --benchmark_filter=threads
#
# Use an idle machine: threads need a core each. benchmarks/README.md says what is not measured.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '4,11s/^# \{0,1\}//p' benchmarks/run.sh
  exit 0
fi
# shellcheck source=tests/setup.sh
source tests/setup.sh

setup build bench >&2
cmake --preset bench >&2
cmake --build --preset bench >&2

echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores," \
  "load $(cut -d' ' -f1 /proc/loadavg), $(uname -sr)"
echo "build:   $(g++ --version | head -n 1), $(sed -n 's/^CMAKE_BUILD_TYPE[^=]*=//p' build/bench/CMakeCache.txt)," \
  "limpet $(sed -n 's/.*version_string = "\(.*\)".*/\1/p' include/limpet/version.hpp)" \
  "$(git rev-parse --short HEAD 2>/dev/null || true)"
echo

bench=build/bench/benchmarks/limpet_bench
if [[ $# -gt 0 ]]; then
  # Debian builds its libbenchmark without NDEBUG, and the library warns of that; our own code is
  # checked at compile time (refuse_debug.cpp).
  "$bench" --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true \
    --benchmark_report_aggregates_only=true "$@" 2> >(grep -v 'Library was built as DEBUG' >&2)
  exit
fi
failed=0
python3 benchmarks/claims.py "$bench" || failed=1
echo
bash benchmarks/compile_time.sh 5 || failed=1
exit $failed
