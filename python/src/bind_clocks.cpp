// SPDX-License-Identifier: Apache-2.0
//
// The clocks, in seconds.
#include "arguments.hpp"
#include "bind.hpp"
#include "policies.hpp"

#include <limpet/clock.hpp>

namespace limpet::python {

AnyClock clock_from(const py::object& policy, Scripts& scripts) {
  return policy_from<AnyClock, SteadyClock, ManualClock>(policy, "clock", {"now"}, scripts.clock,
                                                         ScriptedClock(&scripts));
}

void bind_clocks(py::module_& module) {
  py::class_<SteadyClock>(module, "SteadyClock", "The default: the machine's monotonic clock.")
      .def(py::init<>())
      .def(
          "now", [](SteadyClock clock) { return seconds_of(clock.now()); },
          "Seconds since an arbitrary moment.")
      .def("__repr__", [](SteadyClock) { return "SteadyClock()"; });

  py::class_<ManualClock>(module, "ManualClock",
                          "A clock that stands still until it is advanced: for tests and "
                          "simulations. Give it to a router "
                          "and keep it to move its time. Thread-safe.")
      .def(py::init([](py::handle start) {
             return ManualClock(Instant{duration_from(start, "start")});
           }),
           py::arg("start") = 0.0)
      .def(
          "now", [](const ManualClock& clock) { return seconds_of(clock.now()); },
          "The time in seconds.")
      .def(
          "advance",
          [](ManualClock& clock, py::handle seconds) {
            const Duration by = duration_from(seconds, "seconds");
            if (clock.now().time_since_epoch() > Duration::max() - by) {
              refuse_value("seconds", seconds, "the clock would pass 292 years");
            }
            clock.advance(by);
          },
          py::arg("seconds"),
          "Moves the time on. ValueError for a negative number: it never goes back.")
      .def("__repr__", [](const ManualClock& clock) {
        return "ManualClock(" + repr_of(seconds_of(clock.now())) + ")";
      });
}

}  // namespace limpet::python
