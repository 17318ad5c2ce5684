#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures examples/gateway.cpp beside other proxies in front of the same three engines that do nothing
# (engine.cpp): requests a second, time added to a request, processor time of a request. Peers are
# installed into build/peers (pip) or, by root on Debian, as packages; one that cannot be had is named.
#
#   bash benchmarks/peers/run.sh                    five rounds of all: some four minutes
#   bash benchmarks/peers/run.sh --rounds 9 --only gateway,vllm-router
#
# Use an idle machine. benchmarks/README.md says what is not measured.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '4,12s/^# \{0,1\}//p' benchmarks/peers/run.sh
  exec python3 benchmarks/peers/measure.py --help
fi
# shellcheck source=tests/setup.sh
source tests/setup.sh

setup build tests >&2
for tool in wrk haproxy nginx; do
  if command -v "$tool" >/dev/null; then continue; fi
  if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
    # Without policy-rc.d's leave the packages would start services of their own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "$tool" >/dev/null 2>&1 || true
  fi
  command -v "$tool" >/dev/null || echo "no $tool: install the package of that name" >&2
done
if [[ ! -x build/peers/bin/vllm-router ]]; then
  python3 -m venv build/peers
  build/peers/bin/pip install -q vllm-router==0.1.17 >&2 || true
fi

cmake --preset bench -DLIMPET_BUILD_EXAMPLES=ON >&2
cmake --build --preset bench --target gateway peer_engine >&2
exec python3 benchmarks/peers/measure.py "$@"
