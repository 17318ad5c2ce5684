#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The gateway and the router against a real vLLM 0.32.0 on two CPU cores; not part of tests/run.sh.
#
#   bash tests/real_engine/run.sh [FOLDER]            the tests: some ten minutes after the install
#   bash tests/real_engine/run.sh --ladder [FOLDER]   the load ladder, affinity off against on, with
#                                                     three interleaved rounds: about an hour, on a
#                                                     machine that has nothing else to do
#
# FOLDER (default build/real_engine) keeps the engine between runs: 6.2 GB. Needs 24 GB of memory.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

case ${1:-} in
  -h | --help)
    sed -n '4,12s/^# \{0,1\}//p' tests/real_engine/run.sh
    exit 0
    ;;
esac
ladder=no
if [[ ${1:-} == --ladder ]]; then
  ladder=yes
  shift
fi
folder=${1:-$PWD/build/real_engine}

setup build python >&2
"$limpet_venv/bin/pip" install -q --no-build-isolation . >&2
echo "installing vLLM into $folder, unless it is there" >&2
bash tests/real_engine/engine.sh install "$folder" >&2

if [[ $ladder == no ]]; then
  LIMPET_REAL_ENGINE=$folder "$limpet_venv/bin/python" -m pytest tests/real_engine \
    -p no:cacheprovider --override-ini=testpaths=tests/real_engine
  exit
fi

group=$(bash tests/real_engine/engine.sh start "$folder" 18101 '0|1' \
  --data-parallel-size 2 --api-server-count 1)
trap 'bash tests/real_engine/engine.sh stop "$group"' EXIT
"$limpet_venv/bin/limpet" compare http://127.0.0.1:18101 --data-parallel-size 2 \
  --modes "${LADDER_MODES:-off,on}" --sessions "${LADDER_SESSIONS:-2,4,8}" \
  --seconds "${LADDER_SECONDS:-100}" --rounds "${LADDER_ROUNDS:-3}" \
  --report build/real_engine_ladder.html
