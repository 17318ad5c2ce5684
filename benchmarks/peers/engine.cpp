// SPDX-License-Identifier: Apache-2.0
//
// An engine that does nothing but answer, so that a proxy in front of it is what is measured: each
// POST gets the same completion of 1 KiB, each GET what a router asks before it sends turns.
//
//   peer_engine PORT     one thread; the port stands in every answer
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without including it

#include <boost/asio.hpp>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // as in examples/gateway.cpp
#endif

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

[[nodiscard]] std::string answer(std::string_view type, const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Answers {
  explicit Answers(const std::string& port)
      : completion(answer(
            "application/json",
            R"({"id":"cmpl-1","object":"chat.completion","created":1,"model":"m","system_fingerprint":")" +
                port + R"(","choices":[{"index":0,"finish_reason":"stop","message":)" +
                R"({"role":"assistant","content":")" + std::string(760, 'x') +
                R"("}}],"usage":{"prompt_tokens":200,"total_tokens":240,"completion_tokens":40,)" +
                R"("prompt_tokens_details":{"cached_tokens":192}}})")),
        models(answer("application/json",
                      R"({"object":"list","data":[{"id":"m","object":"model"}]})")),
        metrics(answer("text/plain",
                       "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
                       "vllm:kv_cache_usage_perc 0\n")) {}

  std::string completion, models, metrics;
};

// The body's length as the head says it; 0 where it says none.
[[nodiscard]] std::size_t body_size(std::string_view head) {
  constexpr std::string_view name = "\r\ncontent-length:";
  for (std::size_t line = head.find("\r\n"); line != head.npos;
       line = head.find("\r\n", line + 2)) {
    std::string_view field = head.substr(line, name.size());
    const bool equal = field.size() == name.size() &&
                       std::equal(field.begin(), field.end(), name.begin(), [](char a, char b) {
                         return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
                       });
    if (!equal) continue;
    const char* digits = head.data() + line + name.size();
    while (*digits == ' ') ++digits;
    std::size_t size = 0;
    std::from_chars(digits, head.data() + head.size(), size);
    return size;
  }
  return 0;
}

asio::awaitable<void> serve(tcp::socket socket, const Answers& answers) {
  socket.set_option(tcp::no_delay(true));
  for (std::string read;;) {
    const std::size_t head = co_await asio::async_read_until(socket, asio::dynamic_buffer(read),
                                                             "\r\n\r\n", asio::use_awaitable);
    const std::size_t whole = head + body_size({read.data(), head});
    if (read.size() < whole) {
      co_await asio::async_read(socket, asio::dynamic_buffer(read),
                                asio::transfer_exactly(whole - read.size()), asio::use_awaitable);
    }
    const std::string& said = read.starts_with("POST")           ? answers.completion
                              : read.starts_with("GET /metrics") ? answers.metrics
                                                                 : answers.models;
    read.erase(0, whole);
    co_await asio::async_write(socket, asio::buffer(said), asio::use_awaitable);
  }
}

asio::awaitable<void> accept(tcp::acceptor& acceptor, const Answers& answers) {
  for (;;) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(acceptor.get_executor(), serve(std::move(socket), answers), asio::detached);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: peer_engine PORT\n";
    return 2;
  }
  const Answers answers(words[1]);
  asio::io_context context{1};
  tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"),
                                   static_cast<unsigned short>(std::atoi(words[1]))});
  asio::co_spawn(context, accept(acceptor, answers), asio::detached);
  context.run();
}
