// SPDX-License-Identifier: Apache-2.0
//
// A small reverse proxy for chat completions, and what it takes to route them by conversation: the
// lines marked "limpet". The rest is what such a server has anyway.
//
//   server PORT REPLICA...     e.g. server 8080 127.0.0.1:8000 127.0.0.1:8001; PORT 0: any free one
//
// Requests with equal `x-session-id` are one conversation; the answer says in `x-limpet-replica`
// and `x-limpet-outcome` where it came from. Streams are passed on as they come, a client that
// hangs up ends its request at the engine, and /metrics of each replica is read every two seconds.
// One thread, one coroutine a connection. Needs Boost 1.74 (Asio, Beast).
#include <limpet/limpet.hpp>  // limpet

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without including it
#include <vector>

#include <boost/asio.hpp>
#include <boost/beast.hpp>

#if defined(__GNUC__) && !defined(__clang__)
// Asio 1.74 allocates and frees the frames of its coroutines in pairs; gcc 12, once it has inlined
// one half, takes the other for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using boost::system::system_error;
using Request = http::request<http::string_body>;

constexpr std::uint64_t max_request_bytes = 256U << 20U;
constexpr auto connect_timeout = std::chrono::seconds(5);
constexpr auto scrape_interval = std::chrono::seconds(2);

struct Replica {
  std::string endpoint;  // HOST:PORT
  tcp::resolver::results_type addresses;
};

struct Server {
  limpet::Router<> router;        // limpet
  std::vector<Replica> replicas;  // by slot of their id
};

// How a request ended.
enum class Ending { answered, client_gone, replica_failed };

// A request at a replica. Shared with the coroutine that watches its client.
struct Exchange {
  explicit Exchange(const asio::any_io_executor& executor) : upstream(executor) {}

  beast::tcp_stream upstream;
  bool client_gone = false;
  bool over = false;
};

[[nodiscard]] std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

// Ends the exchange when its client hangs up before the answer is complete.
asio::awaitable<void> watch(tcp::socket& client, std::shared_ptr<Exchange> exchange) {
  error_code error;
  co_await client.async_wait(tcp::socket::wait_read, asio::redirect_error(use_awaitable, error));
  if (exchange->over) co_return;  // and the client's socket perhaps no more
  char byte = 0;
  if (client.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error) == 0 || error) {
    exchange->client_gone = true;
    exchange->upstream.close();
  }
}

asio::awaitable<bool> answer(beast::tcp_stream& client, const Request& request, http::status status,
                             std::string text) {
  http::response<http::string_body> response(status, request.version(), std::move(text));
  response.keep_alive(request.keep_alive());
  response.prepare_payload();
  error_code error;
  co_await http::async_write(client, response, asio::redirect_error(use_awaitable, error));
  co_return !error;
}

// Passes the body on as it comes. Returns when it is complete; throws what the client's side does.
asio::awaitable<Ending> stream_body(beast::tcp_stream& client, beast::tcp_stream& upstream,
                                    beast::flat_buffer& buffer,
                                    http::response_parser<http::buffer_body>& parser) {
  http::response_serializer<http::buffer_body> serializer(parser.get());
  http::buffer_body::value_type& body = parser.get().body();
  std::array<char, 16'384> chunk{};
  body = {nullptr, 0, true};
  co_await http::async_write_header(client, serializer, use_awaitable);
  while (!serializer.is_done()) {
    std::size_t read = 0;
    if (!parser.is_done()) {
      body = {chunk.data(), chunk.size(), true};
      error_code error;
      co_await http::async_read_some(upstream, buffer, parser,
                                     asio::redirect_error(use_awaitable, error));
      if (error && error != http::error::need_buffer) co_return Ending::replica_failed;
      read = chunk.size() - body.size;
      if (read == 0 && !parser.is_done()) continue;  // an empty chunk would end the stream
    }
    body = {read == 0 ? nullptr : chunk.data(), read, !parser.is_done()};
    error_code error;
    co_await http::async_write(client, serializer, asio::redirect_error(use_awaitable, error));
    if (error && error != http::error::need_buffer) co_return Ending::client_gone;
  }
  co_return Ending::answered;
}

// Sends the request to the replica and its answer to the client.
asio::awaitable<Ending> relay(beast::tcp_stream& client, Request request, const Replica& replica,
                              limpet::Outcome outcome) {  // limpet
  const bool keep_alive = request.keep_alive();
  auto exchange = std::make_shared<Exchange>(client.get_executor());
  beast::tcp_stream& upstream = exchange->upstream;
  asio::co_spawn(client.get_executor(), watch(client.socket(), exchange), asio::detached);
  for (const char* hop : {"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding"}) {
    request.erase(hop);
  }
  request.set(http::field::host, replica.endpoint);
  request.keep_alive(false);
  request.prepare_payload();

  Ending ending = Ending::replica_failed;
  bool reached = false;
  try {
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    upstream.expires_after(connect_timeout);
    co_await upstream.async_connect(replica.addresses, use_awaitable);
    upstream.expires_never();
    co_await http::async_write(upstream, request, use_awaitable);
    co_await http::async_read_header(upstream, buffer, parser, use_awaitable);
    reached = true;

    http::response<http::buffer_body>& response = parser.get();
    if (!response.has_content_length() && !parser.is_done()) response.chunked(true);
    response.keep_alive(keep_alive);
    response.set("x-limpet-replica", replica.endpoint);           // limpet
    response.set("x-limpet-outcome", to_string(outcome).data());  // limpet
    ending = co_await stream_body(client, upstream, buffer, parser);
  } catch (const system_error&) {
    if (reached) ending = Ending::client_gone;
  }
  exchange->over = true;
  error_code ignored;
  client.socket().cancel(ignored);  // wakes the watcher
  if (exchange->client_gone) co_return Ending::client_gone;
  if (!reached) {
    co_await answer(client, request, http::status::bad_gateway, "the replica does not answer\n");
  }
  co_return ending;
}

asio::awaitable<void> serve(Server& server, tcp::socket socket) {
  beast::tcp_stream client(std::move(socket));
  beast::flat_buffer buffer;
  for (bool open = true; open;) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(max_request_bytes);
    co_await http::async_read(client, buffer, parser,
                              use_awaitable);  // throws when the client left
    Request request = parser.release();
    open = request.keep_alive();

    const std::string session(view(request["x-session-id"]));
    limpet::Turn turn;                                // limpet
    if (!session.empty()) turn.key = session;         // limpet
    limpet::Lease lease = server.router.route(turn);  // limpet
    if (!lease) {                                     // limpet
      open = co_await answer(client, request, http::status::service_unavailable, "no replica\n");
      continue;
    }
    const Replica& replica = server.replicas[lease.replica().slot];  // limpet
    const Ending ending = co_await relay(client, std::move(request), replica, lease.outcome());
    if (ending == Ending::answered) lease.finish();      // limpet
    if (ending == Ending::replica_failed) lease.fail();  // limpet
    open = open && ending == Ending::answered;
  }  // limpet: the lease's destructor gives back what a hang-up or an exception left
}

asio::awaitable<void> listen(Server& server, tcp::acceptor acceptor) {
  for (;;) {
    tcp::socket socket = co_await acceptor.async_accept(use_awaitable);
    asio::co_spawn(acceptor.get_executor(), serve(server, std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> scrape(Server& server, const Replica& replica) {
  const auto executor = co_await asio::this_coro::executor;
  Request request(http::verb::get, "/metrics", 11);
  request.set(http::field::host, replica.endpoint);
  request.keep_alive(false);
  for (asio::steady_timer timer(executor);;) {
    try {
      beast::tcp_stream stream(executor);
      beast::flat_buffer buffer;
      http::response<http::string_body> response;
      stream.expires_after(connect_timeout);
      co_await stream.async_connect(replica.addresses, use_awaitable);
      co_await http::async_write(stream, request, use_awaitable);
      co_await http::async_read(stream, buffer, response, use_awaitable);
      server.router.observe(replica.endpoint, response.body());  // limpet
    } catch (const system_error&) {
      // The last reading stays, and stops to count when it is too old.
    }
    timer.expires_after(scrape_interval);
    co_await timer.async_wait(use_awaitable);
  }
}

[[nodiscard]] std::uint16_t port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("'" + std::string(text) + "' is no port");
  }
  return port;
}

void run(std::uint16_t port, const std::vector<std::string>& endpoints) {
  Server server;  // before the context, whose last coroutines may still hold leases
  asio::io_context context;
  tcp::resolver resolver(context);
  for (const std::string& endpoint : endpoints) {
    const std::size_t colon = endpoint.rfind(':');
    if (colon == std::string::npos) throw std::invalid_argument("'" + endpoint + "' has no port");
    const auto replica_port = std::to_string(port_of(std::string_view(endpoint).substr(colon + 1)));
    server.replicas.push_back(
        {endpoint, resolver.resolve(endpoint.substr(0, colon), replica_port)});
    server.router.add_replica({.name = endpoint});  // limpet
  }
  for (const Replica& replica : server.replicas) {
    asio::co_spawn(context, scrape(server, replica), asio::detached);
  }
  tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), port});
  std::cout << "listening on " << acceptor.local_endpoint() << std::endl;
  asio::co_spawn(context, listen(server, std::move(acceptor)), asio::detached);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](error_code, int) { context.stop(); });
  context.run();
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::cerr << "usage: server PORT REPLICA...   e.g. server 8080 127.0.0.1:8000 127.0.0.1:8001\n";
    return 2;
  }
  try {
    run(port_of(words[1]), std::vector<std::string>(words + 2, words + count));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << "server: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "server: " << error.what() << '\n';
    return 1;
  }
}
