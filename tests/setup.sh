#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts in place what the project's scripts need. As root on Debian or Ubuntu it installs missing
# packages; for anybody else it names them. Python packages go into build/venv, nowhere else.
#
#   bash tests/setup.sh [WHAT...]     build: compiler and CMake (the default)
#                                     tests: Catch2, fmt, simdjson, Boost, clang, linters, Chromium
#                                     bench: Google Benchmark
#                                     python: an interpreter and build/venv (tests/requirements.txt)
#                                     module: what the Python module is best built with
#
# Other scripts source this file and call `setup WHAT...`, which fails when something that cannot be
# done without is missing. It then exports CMAKE_GENERATOR and the like for the builds that follow.

limpet_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
limpet_venv=$limpet_root/build/venv

# what | needed or useful | Debian packages | how to see that it is there
limpet_needs='
build  | needed | g++                        | command g++
build  | needed | cmake                      | cmake
build  | needed | make                       | command make ninja
tests  | useful | catch2                     | header catch2/catch_test_macros.hpp catch2/catch.hpp
tests  | needed | pkg-config                 | command pkg-config
tests  | useful | libfmt-dev                 | header fmt/format.h
tests  | useful | libsimdjson-dev            | header simdjson.h
tests  | useful | libboost-dev               | header boost/beast.hpp
tests  | useful | clang-14 libclang-rt-14-dev| clang
tests  | useful | clang-format-19            | command clang-format-19
tests  | useful | shellcheck                 | command shellcheck
tests  | useful | chromium fonts-dejavu-core | command chromium
bench  | useful | libbenchmark-dev           | header benchmark/benchmark.h
python | needed | python3-venv python3-dev   | python
module | needed | libsimdjson-dev            | header simdjson.h
module | useful | libfmt-dev                 | header fmt/format.h
'

# The newest clang++ that can link AddressSanitizer and libFuzzer.
find_clang() {
  local name
  for name in clang++ clang++-{20,19,18,17,16,15,14}; do
    if command -v "$name" >/dev/null && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$name" -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null; then
      echo "$name"
      return 0
    fi
  done
  return 1
}

# An interpreter that can make a virtual environment and build an extension module.
find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    if "$name" -c '
import ensurepip, pathlib, sys, sysconfig, venv
header = pathlib.Path(sysconfig.get_paths()["include"], "Python.h")
sys.exit(sys.version_info < (3, 10) or not header.exists())' 2>/dev/null; then
      echo "$name"
      return 0
    fi
  done
  return 1
}

limpet_is_there() {
  local kind=$1 name
  shift
  case $kind in
    command)
      for name in "$@"; do
        if command -v "$name" >/dev/null; then return 0; fi
      done
      return 1
      ;;
    header)
      for name in "$@"; do
        if echo "#include <$name>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; then return 0; fi
      done
      return 1
      ;;
    cmake)
      name=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')
      [[ $(printf '%s\n3.25\n' "$name" | sort -V | head -n 1) == 3.25 ]]
      ;;
    clang) find_clang >/dev/null ;;
    python) find_python >/dev/null ;;
  esac
}

# Prints "needed|PACKAGES" or "useful|PACKAGES" for each thing of the given kinds that is missing.
limpet_missing() {
  local what need packages probe
  while IFS='|' read -r what need packages probe; do
    read -r what <<<"$what"
    read -r need <<<"$need"
    read -r packages <<<"$packages"
    read -ra probe <<<"$probe"
    if [[ -n $what && " $* " == *" $what "* ]] && ! limpet_is_there "${probe[@]}"; then
      echo "$need|$packages"
    fi
  done <<<"$limpet_needs"
}

limpet_apt_install() {
  local packages log=$limpet_root/build/logs/apt.log
  mkdir -p "$limpet_root/build/logs"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >"$log" 2>&1 ||
    echo "apt-get update failed; trying with the lists that are there" >&2
  # Each line on its own, so that a package this release lacks costs only itself.
  while IFS='|' read -r _ packages; do
    # shellcheck disable=SC2086 # several names
    apt-get install -y --no-install-recommends $packages </dev/null >>"$log" 2>&1 ||
      { echo "could not install $packages:" && tail -n 5 "$log"; } >&2
  done
}

limpet_make_venv() {
  local stamp=$limpet_venv/requirements.txt
  if cmp -s "$limpet_root/tests/requirements.txt" "$stamp"; then return 0; fi
  rm -rf -- "$limpet_venv"
  "$(find_python)" -m venv "$limpet_venv" &&
    "$limpet_venv/bin/python" -m pip install -q --disable-pip-version-check \
      -r "$limpet_root/tests/requirements.txt" &&
    cp "$limpet_root/tests/requirements.txt" "$stamp"
}

# What CMake, ctest and ccache read from the environment in every build of these scripts.
limpet_export() {
  local cores
  cores=$(nproc 2>/dev/null || echo 2)
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$cores}
  export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$cores}
  if [[ -d $limpet_venv/bin ]]; then
    export PATH=$limpet_venv/bin:$PATH
  fi
  if command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
  fi
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache
    # A precompiled header carries times and defines that ccache would otherwise refuse to ignore.
    export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  fi
}

setup() {
  local missing
  missing=$(limpet_missing "$@")
  if [[ -n $missing ]] && [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
    echo "installing: $(cut -d'|' -f2 <<<"$missing" | paste -sd' ')"
    limpet_apt_install <<<"$missing"
    missing=$(limpet_missing "$@")
  fi
  if [[ -n $missing ]]; then
    echo "missing packages; on Debian or Ubuntu, as root:" >&2
    echo "  apt-get install --no-install-recommends $(cut -d'|' -f2 <<<"$missing" | paste -sd' ')" >&2
    if grep -q '^needed' <<<"$missing"; then return 1; fi
    echo "going on without; CMake fetches what it can, what needs the rest is skipped" >&2
  fi
  if [[ " $* " == *" python "* ]]; then
    limpet_make_venv || return 1
  fi
  limpet_export
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '4,14s/^# \{0,1\}//p' "$0"
    exit 0
  fi
  if [[ $# -eq 0 ]]; then set -- build; fi
  setup "$@"
  echo "ready: $*"
fi
