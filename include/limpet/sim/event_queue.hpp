// SPDX-License-Identifier: Apache-2.0
//
// The simulator's future: events in order of time, and in order of scheduling where times are
// equal.
//
// The second rule is what makes a run deterministic: closed loops produce many equal times. A
// binary heap, O(log n) an event. Not thread-safe.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

namespace limpet::sim {

template <class Event>
class EventQueue {
 public:
  // Requires at >= now(): the past cannot be changed.
  void schedule(double at, Event event) {
    assert(at >= now_);
    heap_.push_back({at, next_++, event});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  // Removes the next event and moves the time to it. Requires that there is one.
  [[nodiscard]] Event pop() {
    assert(!empty());
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    now_ = entry.at;
    return entry.event;
  }

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] double now() const noexcept { return now_; }
  [[nodiscard]] double next_at() const noexcept { return heap_.front().at; }  // requires !empty()

 private:
  struct Entry {
    double at;
    std::uint64_t order;
    Event event;
  };

  static bool later(const Entry& a, const Entry& b) noexcept {
    return a.at > b.at || (a.at == b.at && a.order > b.order);
  }

  std::vector<Entry> heap_;
  std::uint64_t next_ = 0;
  double now_ = 0;
};

}  // namespace limpet::sim
