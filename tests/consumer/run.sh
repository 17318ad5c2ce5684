#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses Limpet as a stranger would and runs the program that results.
#
#   tests/consumer/run.sh WAY FOLDER
#
# WAY     add_subdirectory   the sources inside another CMake project
#         find_package       installed, found by CMake
#         pkg_config         installed, found by pkg-config
#         wheel              the headers inside the installed Python package ($PYTHON, default python3)
# FOLDER  scratch folder, emptied first. The compiler is $CXX (default c++).
set -euo pipefail

if [[ $# -ne 2 ]]; then
  sed -n '4,13s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
way=$1
folder=$2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source=$(cd -- "$here/../.." && pwd)
export CXX=${CXX:-c++}
version=$(sed -n 's/.*version_string = "\([0-9.]*\)".*/\1/p' "$source/include/limpet/version.hpp")

rm -rf -- "$folder"
mkdir -p -- "$folder"

fmt=OFF
if [[ -f $source/include/limpet/fmt.hpp ]] && pkg-config --exists fmt; then
  fmt=ON
fi

# Installs to $folder/prefix and then moves it, since a package may not know where it was made.
install_library() {
  cmake -S "$source" -B "$folder/library" -DCMAKE_INSTALL_PREFIX="$folder/made" \
    -DLIMPET_BUILD_TESTS=OFF -DLIMPET_BUILD_EXAMPLES=OFF
  cmake --install "$folder/library"
  mv "$folder/made" "$folder/prefix"
}

build_project() {
  cmake -S "$here/project" -B "$folder/build" -DCONSUMER_FMT=$fmt "$@"
  cmake --build "$folder/build"
  "$folder/build/consumer"
}

compile_directly() {
  "$CXX" -std=c++20 "$@" "$here/consumer.cpp" -o "$folder/consumer"
  "$folder/consumer"
}

case $way in
  add_subdirectory)
    build_project -DLIMPET_SOURCE="$source"
    ;;
  find_package)
    install_library
    build_project -DCMAKE_PREFIX_PATH="$folder/prefix" -DLIMPET_VERSION="$version"
    ;;
  pkg_config)
    install_library
    export PKG_CONFIG_PATH=$folder/prefix/share/pkgconfig
    found=$(pkg-config --modversion limpet)
    if [[ $found != "$version" ]]; then
      echo "pkg-config says version $found, version.hpp says $version" >&2
      exit 1
    fi
    read -ra flags < <(pkg-config --cflags limpet)
    compile_directly "${flags[@]}"
    ;;
  wheel)
    include=$(cd "$folder" && "${PYTHON:-python3}" -c 'import limpet; print(limpet.get_include())')
    compile_directly "-I$include"
    ;;
  *)
    echo "no way called '$way'" >&2
    exit 2
    ;;
esac
echo "$way: ok"
