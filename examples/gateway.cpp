// SPDX-License-Identifier: Apache-2.0
//
// A gateway for several vLLM servers, or the data-parallel ranks of one, in one file to read and to
// take over: says which conversation a request belongs to, sends it to the replica that holds its
// prefix cache, and passes every byte on.
//
//   gateway --replica http://10.0.0.1:8000 --replica http://10.0.0.2:8000     (--help says more)
//
// A thread serves connections of its own, a coroutine each, and shares the router and the replicas'
// health with the others. A Session reads top down: read_request, answer, ask (a replica), relay
// (its answer). The lease lives on the stack of answer(), so whatever ends that returns the slot.
// Needs Boost 1.74 (Asio, Beast) and simdjson. Left out: TLS, users, several models, reloading.
#include <limpet/limpet.hpp>
#include <limpet/wire/identity.hpp>
#include <limpet/wire/usage.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without including it
#include <vector>

#include <boost/asio.hpp>
#include <boost/beast.hpp>

#include <sys/resource.h>

#if defined(__GNUC__) && !defined(__clang__)
// Asio 1.74 allocates and frees the frames of its coroutines in pairs; gcc 12, once it has inlined
// one half, takes the other for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t max_head_bytes = 65'536;  // of a request or an answer
constexpr std::size_t buffer_bytes = 16'384;      // of a connection, each way
constexpr auto read_timeout = seconds(120);       // for the next request, and again for its body
constexpr auto connect_timeout = seconds(5);
constexpr auto idle_timeout = seconds(600);  // without a byte in the middle of an answer
constexpr auto linger_timeout = seconds(5);  // for a refused client to stop sending
constexpr auto pooled_for = seconds(3);      // at most without a request: engines close after 5 s
constexpr auto probe_timeout = seconds(2);
constexpr auto probe_interval = seconds(5);  // of /health and /metrics; 1 s after a failure
constexpr int failures_until_down = 3;       // in a row
constexpr const char* rank_header = "X-data-parallel-rank";

constexpr std::string_view help = R"(usage: gateway --replica URL... [OPTION...]

Sends every turn of an LLM conversation to the replica that still holds its prefix cache.

  --replica URL             a vLLM server, e.g. http://10.0.0.1:8000; once for each
  --data-parallel-size N    ranks behind each server (default 1)
  --max-num-seqs N          as the engines have it: above a quarter, turns leave home (default 256)
  --listen HOST:PORT        port 0: any that is free (default 127.0.0.1:8080)
  --threads N               (default 0: one a core)
  --max-body MIB            of a request (default 32)
  --patience SECONDS        for an answer to begin; then another replica is asked (default 600)
  --grace SECONDS           for open answers after SIGTERM (default 30)

Serves POST /v1/*, GET /v1/models, /health and, to this machine alone, /limpet/snapshot (counts).
Answers say in x-limpet-replica, x-limpet-outcome and x-limpet-key-source what was decided.
)";

struct Options {
  std::vector<std::string> replicas;
  std::string listen = "127.0.0.1:8080";
  std::uint32_t ranks = 1, max_num_seqs = 0, threads = 0, max_body = 32, patience = 600, grace = 30;
};

// A server, and how it is.
struct Endpoint {
  std::string url, authority;  // authority: HOST:PORT
  tcp::resolver::results_type addresses;
  std::atomic<int> failures = 0;  // in a row
  std::atomic<bool> up = true;
};

// What a turn can be sent to: a server, or a rank behind it.
struct Replica {
  limpet::ReplicaId id;
  Endpoint& endpoint;
  std::string name, rank;  // rank: empty where the server has no others
};
using ReplicaIds = std::vector<limpet::ReplicaId>;

[[nodiscard]] limpet::RouterOptions with_random_secret() {  // since strangers choose session ids
  std::random_device random;
  const auto word = [&] { return std::uint64_t{random()} << 32U | random(); };
  return {.secret = {word(), word()}};
}

// What all threads share.
struct Gateway {
  Options options;
  limpet::Router<> router{with_random_secret()};
  std::deque<Endpoint> endpoints{};
  std::deque<Replica> replicas{};  // by slot of their id
  std::atomic<std::size_t> turn = 0;
  std::atomic<bool> stopping = false, told_unrouted = false;
  std::mutex health{};

  [[nodiscard]] bool ranked() const { return options.ranks > 1; }

  // For what the router does not decide: replicas take turns. None where no other is up.
  [[nodiscard]] Replica* any(const ReplicaIds& but_not) {
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      Replica& replica = replicas[turn.fetch_add(1, std::memory_order_relaxed) % replicas.size()];
      if (replica.endpoint.up && std::ranges::count(but_not, replica.id) == 0) return &replica;
    }
    return nullptr;
  }

  void answered(Endpoint& endpoint) {
    if (endpoint.failures.load(std::memory_order_relaxed) != 0) endpoint.failures = 0;
  }

  void failed(Endpoint& endpoint, const std::string& why) {
    std::cerr << endpoint.url + ": " + why + "\n";
    if (++endpoint.failures >= failures_until_down) set_up(endpoint, false);
  }

  void set_up(Endpoint& endpoint, bool up) {
    const std::lock_guard lock(health);  // so that the router hears of changes in their order
    if (endpoint.up.exchange(up) == up) return;
    std::cerr << endpoint.url + (up ? " is up\n" : " is down\n");
    for (const Replica& replica : replicas) {
      if (&replica.endpoint != &endpoint) continue;
      up ? router.set_up(replica.id) : router.set_down(replica.id);
    }
  }
};

// A connection to a server.
struct Upstream {
  explicit Upstream(asio::io_context& context) : socket(context) { buffer.reserve(buffer_bytes); }

  tcp::socket socket;
  beast::flat_buffer buffer;  // read, and not yet parsed
  Clock::time_point idle_since;
};

class Session;

// A thread's connections: those of clients, and idle ones to servers.
struct Worker {
  [[nodiscard]] std::unique_ptr<Upstream> take_idle(const Endpoint& endpoint) {
    auto& pool = idle[&endpoint];  // the last one was idle for the shortest time
    if (!pool.empty() && Clock::now() - pool.back()->idle_since > pooled_for) pool.clear();
    if (pool.empty()) return nullptr;
    auto upstream = std::move(pool.back());
    pool.pop_back();
    return upstream;
  }

  void keep(const Endpoint& endpoint, std::unique_ptr<Upstream> upstream) {
    upstream->idle_since = Clock::now();
    idle[&endpoint].push_back(std::move(upstream));
  }

  awaitable<void> sweep();
  void stop();

  Gateway& gateway;
  std::unordered_set<Session*> sessions{};
  asio::io_context context{1};
  std::map<const Endpoint*, std::vector<std::unique_ptr<Upstream>>> idle{};
};

[[nodiscard]] std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

// What a coroutine waits with that takes an error as a value.
[[nodiscard]] auto into(error_code& error) {
  return asio::redirect_error(use_awaitable, error);
}

// Takes out what concerns one connection alone.
template <class Fields>
void drop_hop_by_hop(Fields& fields) {
  std::vector<std::string> named;
  const auto lines = fields.equal_range(http::field::connection);
  for (auto line = lines.first; line != lines.second; ++line) {
    for (const auto& name : http::token_list(line->value())) named.emplace_back(view(name));
  }
  for (const std::string& name : named) fields.erase(name);
  for (const char* name : {"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
                           "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade"}) {
    fields.erase(name);
  }
}

// An error as the client's protocol has it.
[[nodiscard]] std::string error_body(std::string_view path, unsigned status,
                                     const std::string& text) {
  if (path.starts_with("/v1/messages")) {
    const char* const type = status == 404   ? "not_found_error"
                             : status == 413 ? "request_too_large"
                             : status < 500  ? "invalid_request_error"
                             : status == 503 ? "overloaded_error"
                                             : "api_error";
    return R"({"type":"error","error":{"type":")" + std::string(type) + R"(","message":")" + text +
           "\"}}";
  }
  return R"({"error":{"message":")" + text + R"(","type":")" +
         (status < 500 ? "invalid_request_error" : "server_error") + R"(","param":null,"code":)" +
         std::to_string(status) + "}}";
}

[[nodiscard]] std::string counts(const limpet::Snapshot& snapshot) {
  std::ostringstream json;
  json << R"({"refused":)" << snapshot.refused << R"(,"readings":)" << snapshot.readings
       << R"(,"replicas":[)";
  for (const limpet::ReplicaSnapshot& row : snapshot.replicas) {
    json << (&row == snapshot.replicas.data() ? "" : ",\n") << R"({"name":")" << row.name
         << R"(","state":")" << to_string(row.state) << '"';
    const std::pair<const char*, std::uint64_t> numbers[] = {
        {"in_flight", row.in_flight}, {"pins", row.pins},     {"placed", row.placed},
        {"sticky", row.sticky},       {"moved", row.moved},   {"spilled_in", row.spilled_in},
        {"balanced", row.balanced},   {"failed", row.failed}, {"live_tokens", row.live_tokens}};
    for (const auto& [name, number] : numbers) json << ",\"" << name << "\":" << number;
    json << '}';
  }
  json << "]}\n";
  return std::move(json).str();
}

// A client's connection.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Worker& worker, tcp::socket client)
      : worker_(worker), gateway_(worker.gateway), client_(std::move(client)) {
    buffer_.reserve(buffer_bytes);
    worker_.sessions.insert(this);
    error_code ignored;
    client_.non_blocking(true, ignored);  // for watch()
    client_.set_option(tcp::no_delay(true), ignored);
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ~Session() {
    worker_.sessions.erase(this);
    if (gateway_.stopping && worker_.sessions.empty()) worker_.context.stop();
  }

  static awaitable<void> serve(Worker& worker, tcp::socket client) {
    const auto session = std::make_shared<Session>(worker, std::move(client));
    try {
      for (bool open = true; open && !worker.gateway.stopping;) {
        open = co_await session->read_request();
        if (open) open = co_await session->answer();
      }
    } catch (const std::exception& error) {
      std::cerr << std::string("a connection ended: ") + error.what() + "\n";
    }
    session->close_client();  // ends watch(), which keeps the session alive
  }

  // Ends what takes too long: whoever waits for a socket fails once it is closed.
  void check(Clock::time_point now) {
    if (now < deadline_) return;
    close_upstream();
    if (doing_ != Doing::asking) close_client();
  }

  // The gateway ends, and with it a connection that has asked nothing.
  void stop() {
    if (doing_ == Doing::reading && buffer_.size() == 0) close_client();
  }

 private:
  enum class Doing { reading, asking, relaying };

  // A request as the router sees it. Not routed: the engine's own balancer decides.
  struct Asked {
    limpet::Turn turn{};
    bool routed = false, names_rank = false;
    limpet::IdentitySource key_source = limpet::IdentitySource::none;
  };

  // Where it goes; the lease has no slot where it is not routed.
  struct Choice {
    limpet::Lease lease{};
    Replica* replica = nullptr;
    limpet::Outcome outcome = limpet::Outcome::unrouted;
  };

  void begin(Doing doing, seconds limit) {
    doing_ = doing;
    deadline_ = Clock::now() + limit;
  }

  void close_client() {
    error_code ignored;
    client_.close(ignored);
  }

  void close_upstream() {
    error_code ignored;
    if (upstream_) upstream_->socket.close(ignored);
  }

  // Returns: false where there is no request, or none that can be served.
  awaitable<bool> read_request() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(max_head_bytes);
    parser.body_limit(std::uint64_t{gateway_.options.max_body} << 20U);
    begin(Doing::reading, read_timeout);
    error_code error;
    co_await http::async_read_header(client_, buffer_, parser, into(error));
    const auto coding = parser.get()[http::field::transfer_encoding];
    const bool unknown_coding = !coding.empty() && !beast::iequals(coding, "chunked");
    std::optional<http::request_header<>> head;  // as it was before trailers join it
    if (!error && !parser.is_done() && !unknown_coding) {
      begin(Doing::reading, read_timeout);
      if (parser.chunked()) head = parser.get().base();
      if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(client_, asio::buffer(go_on), into(error));
      }
      co_await http::async_read(client_, buffer_, parser, into(error));
    }
    request_ = parser.release();
    if (head) request_.base() = std::move(*head);
    takes_chunks_ = request_.version() >= 11;
    keep_alive_ = !error && !unknown_coding && takes_chunks_ && request_.keep_alive() &&
                  request_.method() != http::verb::head;  // to which we answer with a body
    if (!error && !unknown_coding) co_return true;

    using enum http::status;
    const error_code left = http::error::end_of_stream;
    if (unknown_coding) {
      co_await refuse(not_implemented, "no transfer coding but chunked is understood");
    } else if (error == http::error::header_limit) {
      co_await refuse(request_header_fields_too_large, "the headers are over 64 KiB");
    } else if (error == http::error::body_limit) {
      co_await refuse(payload_too_large, "the body is over the limit of " +
                                             std::to_string(gateway_.options.max_body) + " MiB");
    } else if (error.category() == left.category() && error != left &&
               error != http::error::partial_message) {
      co_await refuse(bad_request, "this is not HTTP/1.1: " + error.message());
    } else {
      co_return false;
    }
    // Lets it read that, which it could not if it still sends and we closed at once.
    client_.shutdown(tcp::socket::shutdown_send, error);
    for (begin(Doing::reading, linger_timeout); !error;) {
      co_await client_.async_read_some(asio::buffer(chunk_), into(error));
    }
    co_return false;
  }

  // Returns: whether the connection goes on.
  awaitable<bool> answer() {
    using enum http::status;
    const std::string_view target = view(request_.target());
    const std::string_view path = target.substr(0, target.find('?'));
    const bool is_get = request_.method() == http::verb::get;
    const bool is_turn = request_.method() == http::verb::post && path.starts_with("/v1/");
    error_code error;
    if (is_get && path == "/health" && std::ranges::any_of(gateway_.endpoints, &Endpoint::up)) {
      co_return co_await say(ok, "{}\n");
    }
    if (is_get && path == "/limpet/snapshot" &&
        client_.remote_endpoint(error).address().is_loopback()) {
      co_return co_await say(ok, counts(gateway_.router.snapshot()));
    }
    if (!is_turn && !(is_get && (path == "/v1/models" || path == "/health"))) {
      co_return co_await refuse(not_found, "served are POST /v1/* and GET /v1/models");
    }

    const Asked asked = is_turn ? identify(path) : Asked{};
    drop_hop_by_hop(request_);
    request_.erase(http::field::expect);
    request_.version(11);
    if (is_turn || !request_.body().empty()) request_.content_length(request_.body().size());

    Choice choice = choose(asked, {});
    for (bool first_try = true;; first_try = false) {
      if (!choice.replica) co_return co_await refuse(service_unavailable, "no replica is up");
      Endpoint& endpoint = choice.replica->endpoint;
      error = co_await ask(*choice.replica, asked);
      if (gone_) co_return false;  // the lease cancels
      const auto status = error ? unknown : answer_->get().result();
      const bool failed = error || status == bad_gateway || status == service_unavailable ||
                          status == gateway_timeout;
      if (!failed) gateway_.answered(endpoint);
      if (failed) {
        choice.lease.fail();
        gateway_.failed(endpoint, error ? error.message()
                                        : "status " + std::to_string(answer_->get().result_int()));
        if (first_try && !asked.names_rank) {
          Choice other = choose(asked, beside(*choice.replica));
          if (other.replica) {
            choice = std::move(other);
            continue;
          }
        }
      }
      if (error) co_return co_await refuse(bad_gateway, "the replica gave no answer");
      co_return co_await relay(choice, asked);
    }
  }

  [[nodiscard]] Asked identify(std::string_view path) const {
    std::vector<std::pair<std::string_view, std::string_view>> headers;
    for (const auto& field : request_) {
      headers.emplace_back(view(field.name_string()), view(field.value()));
    }
    const limpet::Identity identity = limpet::identify(headers, request_.body());
    constexpr std::string_view tenant;  // whom you have authenticated
    const limpet::KeyHasher& hasher = gateway_.router.hasher();
    Asked asked{.routed = true, .key_source = identity.source};
    if (const auto key = identity.key(tenant, hasher)) asked.turn.key = *key;
    if (const auto key = identity.parent_key(tenant, hasher)) asked.turn.parent = *key;
    asked.turn.side_call = identity.kind == limpet::RequestKind::side_call;

    const auto rank = request_.find(rank_header);
    asked.names_rank = gateway_.ranked() && rank != request_.end();
    if (asked.names_rank) {  // and if it names none, the engine says so
      const auto has_rank = [&](const Replica& r) { return r.rank == view(rank->value()); };
      asked.routed = std::ranges::count_if(gateway_.replicas, has_rank) == 1;
      if (asked.routed) {
        asked.turn.client_pinned = std::ranges::find_if(gateway_.replicas, has_rank)->id;
      }
    }
    if (gateway_.ranked() && path.starts_with("/v1/responses")) {
      if (!gateway_.told_unrouted.exchange(true)) {
        std::cerr
            << "vLLM lets no header choose the rank of /v1/responses: such turns go unrouted\n";
      }
      asked.routed = false;
    }
    return asked;
  }

  [[nodiscard]] Choice choose(const Asked& asked, const ReplicaIds& failed) {
    Choice choice;
    if (!asked.routed) {
      choice.replica = gateway_.any(failed);
      return choice;
    }
    limpet::Turn turn = asked.turn;
    turn.exclude = failed;
    choice.lease = gateway_.router.route(turn);
    choice.outcome = choice.lease.outcome();
    if (choice.lease) choice.replica = &gateway_.replicas[choice.lease.replica().slot];
    return choice;
  }

  // The replica and all behind its server; of a single server, that rank alone.
  [[nodiscard]] ReplicaIds beside(const Replica& failed) const {
    ReplicaIds ids;
    for (const Replica& replica : gateway_.replicas) {
      const bool same_server = &replica.endpoint == &failed.endpoint;
      if (gateway_.endpoints.size() > 1 ? same_server : &replica == &failed) {
        ids.push_back(replica.id);
      }
    }
    return ids;
  }

  // Sends the request. Returns: the error where no answer began; else the head is in answer_.
  awaitable<error_code> ask(Replica& replica, const Asked& asked) {
    request_.set(http::field::host, replica.endpoint.authority);
    if (asked.routed && !asked.names_rank && !replica.rank.empty()) {
      request_.set(rank_header, replica.rank);
    }
    for (bool fresh = false;; fresh = true) {
      upstream_ = fresh ? nullptr : worker_.take_idle(replica.endpoint);
      const bool pooled = upstream_ != nullptr;
      error_code error;
      begin(Doing::asking, connect_timeout);
      watch();
      if (!pooled) {
        upstream_ = std::make_unique<Upstream>(worker_.context);
        co_await asio::async_connect(upstream_->socket, replica.endpoint.addresses, into(error));
        if (error) co_return error;
        upstream_->socket.set_option(tcp::no_delay(true), error);
      }
      begin(Doing::asking, seconds(gateway_.options.patience));
      // An engine may answer and hang up before it has read all, and what it said counts.
      co_await http::async_write(upstream_->socket, request_, into(error));
      do {
        answer_.emplace();
        answer_->header_limit(max_head_bytes);
        answer_->body_limit(std::numeric_limits<std::uint64_t>::max());
        co_await http::async_read_header(upstream_->socket, upstream_->buffer, *answer_,
                                         into(error));
      } while (!error && answer_->get().result_int() < 200);
      // A pooled connection that the engine has closed meanwhile is no failure of the engine.
      const bool stale = pooled && upstream_->socket.is_open() && upstream_->buffer.size() == 0;
      if (!error || !stale) co_return error;
    }
  }

  // Sees the client hang up while its request is elsewhere, and tells the engine by hanging up. Who
  // has sent all and closes only that direction has hung up, too.
  void watch() {
    if (std::exchange(watching_, true)) return;
    client_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      self->watching_ = false;
      if (error || self->doing_ == Doing::reading) return;
      const std::size_t size = self->client_.read_some(self->buffer_.prepare(4096), error);
      self->buffer_.commit(size);  // it sends its next request already
      if (error && error != asio::error::would_block) {
        self->gone_ = true;
        self->close_upstream();
      } else if (self->buffer_.size() < max_head_bytes) {
        self->watch();
      }
    });
  }

  // Passes the answer on. Returns: whether the connection goes on.
  awaitable<bool> relay(Choice& choice, const Asked& asked) {
    begin(Doing::relaying, idle_timeout);
    std::string().swap(request_.body());  // prompts are large, and streams take long
    const bool reusable = answer_->keep_alive();
    // Of its own, or trailers would join it.
    http::response<http::buffer_body> response(std::move(answer_->get().base()));
    const bool has_length = response.has_content_length() || answer_->is_done();
    const bool server_error = response.result_int() >= 500;
    keep_alive_ = keep_alive_ && !gateway_.stopping;
    drop_hop_by_hop(response);
    response.version(11);
    if (!has_length && takes_chunks_) response.chunked(true);
    response.keep_alive(keep_alive_ && (has_length || takes_chunks_));
    response.set("x-limpet-replica", choice.replica->name);
    response.set("x-limpet-outcome", to_string(choice.outcome).data());
    response.set("x-limpet-key-source", to_string(asked.key_source).data());

    limpet::UsageScanner scanner;
    http::response_serializer<http::buffer_body> serializer(response);
    http::buffer_body::value_type& body = response.body();
    error_code error;
    for (bool more = true; more;) {
      const std::size_t size = parse(error);
      more = !answer_->is_done();
      if (!error && size == 0 && more) {
        body = {nullptr, 0, true};
        if (!serializer.is_header_done()) {  // nothing to send it with
          co_await http::async_write_header(client_, serializer, into(error));
          if (error) co_return false;
        }
        error = co_await read_upstream();
        if (!error) continue;
      }
      if (error) {
        if (gone_) co_return false;
        choice.lease.fail();
        gateway_.failed(choice.replica->endpoint, "an answer broke off: " + error.message());
        co_return false;  // without the answer's end, by which the client knows
      }
      body = {size == 0 ? nullptr : chunk_.data(), size, more};
      co_await http::async_write(client_, serializer, into(error));
      if (error && error != http::error::need_buffer) co_return false;
      error = {};
      scanner.feed({chunk_.data(), size});
      begin(Doing::relaying, idle_timeout);
    }
    if (reusable && !gone_ && upstream_->buffer.size() == 0) {
      worker_.keep(choice.replica->endpoint, std::move(upstream_));
    }
    upstream_.reset();  // or the client hung up, with which it was closed
    const auto usage = scanner.usage();
    if (server_error || scanner.failed()) {
      choice.lease.fail();
    } else {
      usage ? choice.lease.finish(*usage) : choice.lease.finish();
    }
    co_return keep_alive_;
  }

  // Moves what has arrived of the answer's body into chunk_. Returns: bytes.
  std::size_t parse(error_code& error) {
    http::buffer_body::value_type& room = answer_->get().body();
    room = {chunk_.data(), chunk_.size(), true};
    if (upstream_->buffer.size() == 0 || answer_->is_done()) return 0;
    answer_->eager(true);  // all that chunk_ takes; reading the head has reset it
    upstream_->buffer.consume(answer_->put(upstream_->buffer.cdata(), error));
    if (error == http::error::need_more || error == http::error::need_buffer) error = {};
    return chunk_.size() - room.size;
  }

  awaitable<error_code> read_upstream() {
    error_code error;
    const auto room = upstream_->buffer.prepare(buffer_bytes);
    const auto size = co_await upstream_->socket.async_read_some(room, into(error));
    upstream_->buffer.commit(size);
    if (error == asio::error::eof) answer_->put_eof(error = {});
    co_return error;
  }

  // These answer by themselves, and return as answer() does.
  awaitable<bool> refuse(http::status status, std::string text) {
    return say(status, error_body(view(request_.target()), static_cast<unsigned>(status), text));
  }

  awaitable<bool> say(http::status status, std::string body) {
    http::response<http::string_body> response(status, 11, std::move(body));
    response.set(http::field::content_type, "application/json");
    if (status == http::status::service_unavailable) response.set(http::field::retry_after, "1");
    response.keep_alive(keep_alive_);
    response.prepare_payload();
    error_code error;
    co_await http::async_write(client_, response, into(error));
    co_return keep_alive_ && !error;
  }

  Worker& worker_;
  Gateway& gateway_;
  tcp::socket client_;
  beast::flat_buffer buffer_;  // what the client sent beyond the present request
  http::request<http::string_body> request_;
  bool keep_alive_ = false, takes_chunks_ = false;  // the client's connection; HTTP/1.0 takes none
  bool watching_ = false, gone_ = false;            // gone: the client hung up
  Doing doing_ = Doing::reading;
  Clock::time_point deadline_ = Clock::now() + read_timeout;
  std::unique_ptr<Upstream> upstream_;
  std::optional<http::response_parser<http::buffer_body>> answer_;
  std::array<char, buffer_bytes> chunk_;
};

awaitable<void> Worker::sweep() {
  for (asio::steady_timer timer(context);;) {
    timer.expires_after(seconds(1));
    co_await timer.async_wait(use_awaitable);
    const Clock::time_point now = Clock::now();
    for (Session* session : sessions) session->check(now);
    for (auto& [endpoint, pool] : idle) {
      std::erase_if(pool, [now](const auto& one) { return now - one->idle_since > pooled_for; });
    }
  }
}

void Worker::stop() {
  for (Session* session : sessions) session->stop();
  if (sessions.empty()) context.stop();
}

// The body that GET gives in time with status 200.
awaitable<std::optional<std::string>> fetch(const Endpoint& endpoint, const char* target) {
  try {
    http::request<http::empty_body> request(http::verb::get, target, 11);
    request.set(http::field::host, endpoint.authority);
    request.keep_alive(false);
    beast::tcp_stream stream(co_await asio::this_coro::executor);
    stream.expires_after(probe_timeout);
    co_await stream.async_connect(endpoint.addresses, use_awaitable);
    co_await http::async_write(stream, request, use_awaitable);
    beast::flat_buffer buffer;
    http::response<http::string_body> response;
    co_await http::async_read(stream, buffer, response, use_awaitable);
    if (response.result() == http::status::ok) co_return std::move(response.body());
  } catch (const boost::system::system_error&) {
    // As good as another status.
  }
  co_return std::nullopt;
}

// Watches a server's health and reads its metrics.
awaitable<void> tend(Gateway& gateway, Endpoint& endpoint) {
  std::minstd_rand random(std::random_device{}());
  for (asio::steady_timer timer(co_await asio::this_coro::executor);;) {
    const auto health = co_await fetch(endpoint, "/health");
    if (health) {
      gateway.answered(endpoint);
      gateway.set_up(endpoint, true);
      const auto page = co_await fetch(endpoint, "/metrics");
      if (page) gateway.router.observe(endpoint.url, *page);
    } else {
      gateway.failed(endpoint, "/health does not answer 200");
    }
    std::chrono::milliseconds pause = endpoint.failures > 0 ? seconds(1) : probe_interval;
    pause -= pause * (random() % 10) / 100;  // not all at once
    timer.expires_after(pause);
    co_await timer.async_wait(use_awaitable);
  }
}

awaitable<void> accept(std::deque<Worker>& workers, tcp::acceptor& acceptor) {
  asio::steady_timer timer(acceptor.get_executor());
  for (std::size_t turn = 0; acceptor.is_open(); ++turn) {
    Worker& worker = workers[turn % workers.size()];
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(worker.context, into(error));
    if (!error) {
      asio::co_spawn(worker.context, Session::serve(worker, std::move(socket)), asio::detached);
    } else if (acceptor.is_open()) {
      std::cerr << "cannot accept: " + error.message() + "\n";  // mostly for want of descriptors
      timer.expires_after(seconds(1));
      co_await timer.async_wait(use_awaitable);
    }
  }
}

// Of HOST:PORT or [HOST]:PORT.
[[nodiscard]] std::pair<std::string, std::string> host_and_port(const std::string& text) {
  const std::size_t colon = std::min(text.rfind(':'), text.size());
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(std::min(text.data() + colon + 1, end), end, port);
  if (host.empty() || host.find_first_of("/@\"\\ ") != host.npos || read.ec != std::errc{} ||
      read.ptr != end) {
    throw std::invalid_argument("'" + text + "' is not HOST:PORT");
  }
  return {host, std::to_string(port)};
}

void add_replicas(Gateway& gateway) {
  asio::io_context context;
  for (std::string url : gateway.options.replicas) {
    constexpr std::string_view scheme = "http://";
    if (url.ends_with('/')) url.pop_back();
    if (!url.starts_with(scheme)) throw std::invalid_argument("'" + url + "' is not http://...");
    Endpoint& endpoint = gateway.endpoints.emplace_back();
    endpoint.url = url;
    endpoint.authority = url.substr(scheme.size());
    const auto [host, port] = host_and_port(endpoint.authority);
    error_code error;
    endpoint.addresses = tcp::resolver(context).resolve(host, port, error);
    if (error) throw std::runtime_error("cannot find " + host + ": " + error.message());
    for (std::uint32_t i = 0; i < gateway.options.ranks; ++i) {
      limpet::ReplicaOptions options{.name = url, .endpoint = url};
      options.max_num_seqs = gateway.options.max_num_seqs;
      if (gateway.ranked()) {
        options.rank = i;
        options.engine = std::to_string(i);
        options.name += "#" + options.engine;
      }
      gateway.replicas.push_back(
          {gateway.router.add_replica(options), endpoint, options.name, options.engine});
    }
  }
}

void run(const Options& options) {
  Gateway gateway{.options = options};
  add_replicas(gateway);
  std::deque<Worker> workers;
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  while (workers.size() < (options.threads > 0 ? options.threads : cores)) {
    workers.emplace_back(gateway);
  }
  rlimit files{};  // two a stream, and many systems start with 1,024
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  asio::io_context control{1};
  const auto [host, port] = host_and_port(options.listen);
  tcp::acceptor acceptor(control);
  try {
    acceptor = {control, *tcp::resolver(control).resolve(host, port).begin()};
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error("cannot listen on " + options.listen + ": " + error.code().message());
  }
  std::cout << "listening on " << acceptor.local_endpoint() << std::endl;
  asio::co_spawn(control, accept(workers, acceptor), asio::detached);
  for (Endpoint& endpoint : gateway.endpoints) {
    asio::co_spawn(control, tend(gateway, endpoint), asio::detached);
  }

  asio::signal_set signals(control, SIGINT, SIGTERM);
  asio::steady_timer deadline(control);
  const auto stop_at_once = [&workers](auto&&...) {
    for (Worker& worker : workers) worker.context.stop();
  };
  signals.async_wait([&](error_code, int) {
    gateway.stopping = true;
    error_code ignored;
    acceptor.close(ignored);
    for (Worker& worker : workers) asio::post(worker.context, [&worker] { worker.stop(); });
    deadline.expires_after(seconds(options.grace));
    deadline.async_wait(stop_at_once);
    signals.async_wait(stop_at_once);  // asked twice
  });

  std::size_t running = workers.size();
  std::vector<std::jthread> threads;
  for (Worker& worker : workers) {
    asio::co_spawn(worker.context, worker.sweep(), asio::detached);
    threads.emplace_back([&worker, &running, &control] {
      worker.context.run();
      asio::post(control, [&running, &control] {
        if (--running == 0) control.stop();
      });
    });
  }
  control.run();
}

[[nodiscard]] Options read_options(const std::vector<std::string>& words) {
  Options options;
  const std::map<std::string, std::uint32_t*> numbers = {
      {"--data-parallel-size", &options.ranks}, {"--max-num-seqs", &options.max_num_seqs},
      {"--threads", &options.threads},          {"--max-body", &options.max_body},
      {"--patience", &options.patience},        {"--grace", &options.grace}};
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string& name = words[i];
    const auto number = numbers.find(name);
    if (name != "--replica" && name != "--listen" && number == numbers.end()) {
      throw std::invalid_argument("there is no option '" + name + "'");
    }
    if (i + 1 == words.size()) throw std::invalid_argument(name + " needs a value");
    const std::string& value = words[i + 1];
    if (name == "--replica") options.replicas.push_back(value);
    if (name == "--listen") options.listen = value;
    if (number == numbers.end()) continue;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, *number->second);
    if (read.ec != std::errc{} || read.ptr != end || *number->second > 100'000) {
      throw std::invalid_argument(name + " '" + value + "' must be 0 to 100000");
    }
  }
  if (options.replicas.empty()) throw std::invalid_argument("at least one --replica is needed");
  if (options.ranks == 0 || options.max_body == 0 || options.patience == 0) {
    throw std::invalid_argument("--data-parallel-size, --max-body, --patience must be at least 1");
  }
  return options;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (std::ranges::count(arguments, "--help") > 0) {
    std::cout << help;
    return 0;
  }
  try {
    run(read_options(arguments));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << "gateway: " << error.what() << "; see gateway --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "gateway: " << error.what() << '\n';
    return 1;
  }
}
