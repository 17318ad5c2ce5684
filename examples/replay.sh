#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up, builds the example `replay` and runs it: how much of their prompts do coding-agent sessions
# find already read on the replica they are sent to, policy by policy.
#
#   bash examples/replay.sh [ARGUMENT...]   arguments go to replay: --trace FILE, --replicas N, --json
#
# Without --trace the recorded sessions of LIMPET_SHARED_DATA (default ../shared/data) are replayed
# where they are there, else sessions that are generated.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '4,10s/^# \{0,1\}//p' examples/replay.sh
  exit 0
fi
# shellcheck source=tests/setup.sh
source tests/setup.sh

log=build/logs/replay.log
mkdir -p build/logs

# In a file rather than on the screen, unless it fails: the demo's own table is what counts.
quietly() {
  echo "$1" >&2
  shift
  if ! "$@" >>"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "failed: $* (whole log: $log)" >&2
    exit 1
  fi
}

: >"$log"
setup build >&2
quietly "configuring ..." cmake --preset release -DLIMPET_BUILD_TESTS=OFF
quietly "building replay ..." cmake --build --preset release --target replay

arguments=(--replicas 8 "$@")
sessions=${LIMPET_SHARED_DATA:-../shared/data}/claude_code_sessions.jsonl
if [[ " $* " != *" --trace"* && -f $sessions ]]; then
  arguments+=(--trace "$sessions")
fi
exec build/release/examples/replay "${arguments[@]}"
