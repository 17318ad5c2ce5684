// SPDX-License-Identifier: Apache-2.0
//
// SharedAtomic: a number that all copies of an object share.
//
// What a std::shared_ptr of a std::atomic would do, at a thirtieth of what including the library
// adds to a build. One allocation for all copies; a move is a copy. Thread-safe as a shared_ptr is:
// the number from any thread, one copy from one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace limpet::detail {

template <class T>
class SharedAtomic {
 public:
  explicit SharedAtomic(T value) : cell_(new Cell{value}) {}
  SharedAtomic(const SharedAtomic& other) noexcept : cell_(other.cell_) {
    cell_->copies.fetch_add(1, std::memory_order_relaxed);
  }
  SharedAtomic& operator=(SharedAtomic other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~SharedAtomic() {
    if (cell_->copies.fetch_sub(1, std::memory_order_acq_rel) == 1) delete cell_;
  }

  [[nodiscard]] std::atomic<T>* operator->() const noexcept { return &cell_->value; }

 private:
  struct Cell {
    std::atomic<T> value;
    std::atomic<std::size_t> copies = 1;
  };

  Cell* cell_;
};

}  // namespace limpet::detail
