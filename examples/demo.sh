#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up, builds the Python module and runs `limpet demo`: four simulated GPUs, the gateway, and
# coding agents that talk to them through it, affinity off against on; no GPU, no model. Ends with a
# table, a sentence of advice and build/limpet-demo.html.
#
#   bash examples/demo.sh [ARGUMENT...]     arguments go to limpet demo: --sessions, --rounds, --keep
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '4,8s/^# \{0,1\}//p' examples/demo.sh
  exit 0
fi
# shellcheck source=tests/setup.sh
source tests/setup.sh

log=build/logs/demo.log
mkdir -p build/logs
setup build module python >&2
echo "building the Python module ..." >&2
if ! "$limpet_venv/bin/python" -m pip install --no-deps --no-build-isolation \
  -Ccmake.define.CMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF . >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "failed: pip install . (whole log: $log)" >&2
  exit 1
fi
exec "$limpet_venv/bin/limpet" demo --report build/limpet-demo.html "$@"
