// SPDX-License-Identifier: Apache-2.0
//
// Server-sent events, cut anywhere: hands on the data of each event, and where each event ends.
//
// For looking into a stream that passes through: it reads, and neither delays nor alters a byte.
// Chunks may end inside a line, a field name or a CRLF. Memory is a few bytes whatever the stream
// holds, since data are handed on in the pieces they came in; comments and other fields are
// dropped. Cost: a pass or two of memchr. One stream each; not thread-safe. Lines end with LF, CRLF
// or CR, as the HTML standard has it ("Server-sent events", section "Interpreting an event
// stream").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace limpet {

// How much of an event's data a piece is.
enum class SsePiece : std::uint8_t {
  part,   // some of it
  whole,  // all of it: the event starts and ends in this chunk, with one line of data
};

// What a splitter hands on to. The lines of an event's data are parted by a piece "\n".
template <class T>
concept SseSink = requires(T& sink, std::string_view text, SsePiece piece) {
  sink.data(text, piece);
  sink.end_event();  // only after data
};

class SseSplitter {
 public:
  template <SseSink Sink>
  void feed(std::string_view chunk, Sink& sink) {
    while (!chunk.empty()) {
      if (after_cr_) {  // an LF here belongs to the line end before
        after_cr_ = false;
        if (chunk.front() == '\n') chunk.remove_prefix(1);
      } else if (in_value_) {
        chunk = value(chunk, sink);
      } else {
        chunk = name(chunk, sink);
      }
    }
  }

 private:
  static constexpr std::string_view data_field = "data:";

  // Reads a line up to its colon, or to its end where it has none.
  template <class Sink>
  std::string_view name(std::string_view chunk, Sink& sink) {
    if (name_size_ == 0 && chunk.starts_with(data_field)) {
      start_value(true, sink);
      return chunk.substr(data_field.size());
    }
    const char c = chunk.front();
    if (c == '\n' || c == '\r') {
      if (name_size_ == 0 && has_data_) {
        has_data_ = false;
        sink.end_event();
      }
      end_line(c);
    } else if (c == ':') {
      start_value(name_size_ == data_field.size() - 1, sink);
    } else if (name_size_ != other && data_field[name_size_] == c) {
      ++name_size_;
    } else {
      name_size_ = other;
    }
    return chunk.substr(1);
  }

  // Reads what follows the colon, up to the end of the line.
  template <class Sink>
  std::string_view value(std::string_view chunk, Sink& sink) {
    const bool from_start = at_value_start_;
    at_value_start_ = false;
    if (from_start && chunk.front() == ' ') chunk.remove_prefix(1);
    const std::size_t end = line_end(chunk);
    const std::string_view text = chunk.substr(0, end);
    if (is_data_ && !text.empty()) {
      const bool whole = from_start && first_line_ && blank_line_at(chunk, end);
      sink.data(text, whole ? SsePiece::whole : SsePiece::part);
    }
    if (end == chunk.size()) return {};
    end_line(chunk[end]);
    return chunk.substr(end + 1);
  }

  template <class Sink>
  void start_value(bool is_data, Sink& sink) {
    in_value_ = true;
    at_value_start_ = true;
    is_data_ = is_data;
    if (!is_data) return;
    first_line_ = !has_data_;
    if (has_data_) sink.data("\n", SsePiece::part);
    has_data_ = true;
  }

  void end_line(char c) noexcept {
    after_cr_ = c == '\r';
    in_value_ = false;
    name_size_ = 0;
  }

  [[nodiscard]] static std::size_t find(std::string_view text, char c) noexcept {
    const void* const at = text.empty() ? nullptr : std::memchr(text.data(), c, text.size());
    if (at == nullptr) return text.size();
    return static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
  }

  // Where the line ends; the size of the chunk where it does not.
  [[nodiscard]] static std::size_t line_end(std::string_view chunk) noexcept {
    const std::size_t lf = find(chunk, '\n');
    return find(chunk.substr(0, lf), '\r');
  }

  // Whether the line that ends at `end` is followed by an empty one, as far as the chunk shows.
  [[nodiscard]] static bool blank_line_at(std::string_view chunk, std::size_t end) noexcept {
    chunk.remove_prefix(end);
    return chunk.starts_with("\n\n") || chunk.starts_with("\r\n\r\n");
  }

  static constexpr std::uint8_t other = 0xFF;

  std::uint8_t name_size_ = 0;   // characters of "data" seen on this line, or `other`
  bool in_value_ = false;        // past the colon
  bool at_value_start_ = false;  // one space after the colon is not part of the value
  bool is_data_ = false;         // of the line
  bool first_line_ = false;      // of its event's data
  bool has_data_ = false;        // the event has some
  bool after_cr_ = false;
};

}  // namespace limpet
