// SPDX-License-Identifier: Apache-2.0
//
// The simulated server as limpet/lab drives it: one LiveServer and the tokens that go into it.
#include "bind.hpp"

#include <limpet/sim/live_server.hpp>

#include <pybind11/stl.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace limpet::python {

namespace {

// Tokens as they lie in memory: four bytes each, in the machine's order.
[[nodiscard]] std::vector<std::uint32_t> tokens_of(const py::buffer& buffer) {
  const py::buffer_info bytes = buffer.request();
  const auto size = static_cast<std::size_t>(bytes.size * bytes.itemsize);
  if (bytes.ndim != 1 || bytes.strides[0] != bytes.itemsize || size % 4 != 0) {
    throw py::value_error("tokens: must be contiguous 32-bit numbers");
  }
  std::vector<std::uint32_t> tokens(size / 4);
  if (size > 0) std::memcpy(tokens.data(), bytes.ptr, size);
  return tokens;
}

[[nodiscard]] sim::LiveServer::Balancer balancer_from(const std::string& name) {
  if (name == "vllm-lb") return sim::VllmBalancer{};
  if (name == "vllm-lb-4w") return sim::VllmBalancer4w{};
  if (name == "vllm-lb-blind") return sim::VllmBalancerBlind{};
  throw py::value_error("balancer = " + name + ": there are vllm-lb, vllm-lb-4w and vllm-lb-blind");
}

[[nodiscard]] sim::LiveServer make(const sim::EngineProfile& profile, std::uint32_t ranks,
                                   const std::string& balancer) {
  if (ranks < 1 || ranks > 4'096) {
    throw py::value_error("ranks = " + std::to_string(ranks) + ": must be 1 to 4096");
  }
  if (profile.block_tokens < 1 || profile.kv_tokens < profile.block_tokens) {
    throw py::value_error("kv_tokens = " + std::to_string(profile.kv_tokens) +
                          ": must be at least a block of " + std::to_string(profile.block_tokens));
  }
  if (profile.max_num_seqs < 1 || profile.max_num_batched_tokens < 1) {
    throw py::value_error("max_num_seqs and max_num_batched_tokens must be at least 1");
  }
  return {profile, ranks, balancer_from(balancer)};
}

void submit(sim::LiveServer& server, std::uint64_t id, const py::buffer& buffer,
            std::uint64_t prompt_tokens, std::optional<std::uint32_t> rank, double now) {
  const std::vector<std::uint32_t> tokens = tokens_of(buffer);
  if (prompt_tokens < 1 || prompt_tokens >= tokens.size()) {
    throw py::value_error("prompt_tokens = " + std::to_string(prompt_tokens) + " of " +
                          std::to_string(tokens.size()) + " tokens: both parts must have some");
  }
  if (tokens.size() > server.capacity()) {
    throw py::value_error(std::to_string(tokens.size()) + " tokens: the cache of a rank holds " +
                          std::to_string(server.capacity()));
  }
  if (rank && *rank >= server.engines().size()) {
    throw py::value_error("rank = " + std::to_string(*rank) + ": no such rank of " +
                          std::to_string(server.engines().size()));
  }
  if (server.in_flight(id)) throw py::value_error("id = " + std::to_string(id) + ": is in flight");
  server.submit(id, tokens, prompt_tokens, rank.value_or(sim::LiveServer::any_rank), now);
}

[[nodiscard]] py::list advance(sim::LiveServer& server, double now) {
  py::list told;
  server.advance(now, [&](const sim::Progress& one) {
    told.append(py::make_tuple(one.id, one.rank, one.generated, one.cached, one.finished));
  });
  return told;
}

[[nodiscard]] std::uint32_t rank_of(const sim::LiveServer& server, std::uint32_t rank) {
  if (rank >= server.engines().size()) {
    throw py::value_error("rank = " + std::to_string(rank) + ": no such rank");
  }
  return rank;
}

}  // namespace

void bind_lab(py::module_& module) {
  py::class_<sim::LiveServer>(
      module, "LiveServer",
      "A simulated vLLM server of `ranks` data-parallel ranks, driven by the caller's clock: times "
      "are seconds that never go back. Not thread-safe. ValueError for what makes no sense.")
      .def(py::init(&make), py::arg("profile"), py::arg("ranks") = 1,
           py::arg("balancer") = "vllm-lb")
      .def("submit", &submit, py::arg("request"), py::arg("tokens"), py::arg("prompt_tokens"),
           py::arg("rank"), py::arg("now"),
           "A request of that number: `tokens` are those of the prompt and of the answer that it "
           "will get, four "
           "bytes each. Without a rank vLLM's own balancer chooses one.")
      .def("abort", &sim::LiveServer::abort, py::arg("request"), py::arg("now"),
           "Takes the request out of the server; False: it was not in flight.")
      .def("advance", &advance, py::arg("now"),
           "What has happened until now, one (request, rank, tokens of the answer so far, cached "
           "prompt "
           "tokens, finished) for each token of an answer.")
      .def_property_readonly("next_at", &sim::LiveServer::next_at,
                             "When advance() is due next; infinity: not unless one submits.")
      .def(
          "slow",
          [](sim::LiveServer& server, double factor) {
            if (!(factor > 0) || !std::isfinite(factor)) {
              throw py::value_error("factor = " + std::to_string(factor) + ": must be above 0");
            }
            server.slow(factor);
          },
          py::arg("factor"), "Steps take so many times as long from now on.")
      .def(
          "hang",
          [](sim::LiveServer& server, std::uint32_t rank, bool hangs, double now) {
            server.hang(rank_of(server, rank), hangs, now);
          },
          py::arg("rank"), py::arg("hangs"), py::arg("now"),
          "A rank that hangs ends no step, and its gauges stay as they were.")
      .def("reset_prefix_cache", &sim::LiveServer::reset_prefix_cache,
           "Forgets the cached prefixes of the idle ranks; False: some rank was at work.")
      .def("metrics", &sim::LiveServer::metrics, py::arg("started"),
           "The /metrics page; `started` is in s since 1970.")
      .def(
          "gauges",
          [](const sim::LiveServer& server, std::uint32_t rank) {
            const sim::Engine& engine = server.engines()[rank_of(server, rank)];
            return py::make_tuple(engine.running(), engine.waiting(),
                                  engine.cache().size() - engine.cache().free());
          },
          py::arg("rank"), "(running, waiting, blocks in use), as they are now.")
      .def_property_readonly("ranks",
                             [](const sim::LiveServer& server) { return server.engines().size(); })
      .def_property_readonly("capacity", &sim::LiveServer::capacity,
                             "Tokens that the KV cache of one rank holds.");
}

}  // namespace limpet::python
