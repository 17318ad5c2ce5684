// SPDX-License-Identifier: Apache-2.0
//
// Array: a number of elements that is known when it is made and stays.
//
// What std::vector would be without growth, for tables that are made once: it says so, and costs
// who includes it a tenth of the time to compile, since every element type of a vector brings some
// eighty functions. Elements begin with their default values. Moves, is not copied. As thread-safe
// as a plain array.
#pragma once

#include <cstddef>

namespace limpet::detail {

template <class T>
class Array {
 public:
  Array() noexcept = default;
  explicit Array(std::size_t size) : first_(new T[size]()), size_(size) {}
  Array(Array&& other) noexcept : first_(other.first_), size_(other.size_) {
    other.first_ = nullptr;
    other.size_ = 0;
  }
  Array& operator=(Array&& other) noexcept {
    if (this == &other) return *this;
    delete[] first_;
    first_ = other.first_;
    size_ = other.size_;
    other.first_ = nullptr;
    other.size_ = 0;
    return *this;
  }
  ~Array() { delete[] first_; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t at) noexcept { return first_[at]; }
  [[nodiscard]] const T& operator[](std::size_t at) const noexcept { return first_[at]; }
  [[nodiscard]] T* begin() noexcept { return first_; }
  [[nodiscard]] T* end() noexcept { return first_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return first_; }
  [[nodiscard]] const T* end() const noexcept { return first_ + size_; }

 private:
  T* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace limpet::detail
