// SPDX-License-Identifier: Apache-2.0
//
// Links the two generated units that include every header (CMakeLists.txt beside this file).
int first_unit();
int second_unit();

int main() {
  return first_unit() + second_unit();
}
