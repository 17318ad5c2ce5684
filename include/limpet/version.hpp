// SPDX-License-Identifier: Apache-2.0
//
// The version of the library, for people, for the preprocessor and for the build.
//
// CMake, pkg-config and the Python package read `version_string` from this file, so a release changes
// it here alone. Before 1.0 a new minor version may change the interface; a new patch never does.
#pragma once

#include <string_view>

// For #if: major * 10'000 + minor * 100 + patch.
#define LIMPET_VERSION 100

namespace limpet {

inline constexpr std::string_view version_string = "0.1.0";

}  // namespace limpet
