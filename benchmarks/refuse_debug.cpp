// SPDX-License-Identifier: Apache-2.0
//
// Asserts on the measured path make figures that mean nothing, so such a build ends here.
#ifndef NDEBUG
#error "benchmarks need NDEBUG: use `cmake --preset bench` or benchmarks/run.sh"
#endif
