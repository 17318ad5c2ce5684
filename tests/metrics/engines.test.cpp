// SPDX-License-Identifier: Apache-2.0
//
// read_engines(): the laws of a parser, pages of many engines, and random pages beside a plain
// model that never parses: it writes the page and knows what it wrote.
#include <limpet/metrics/engines.hpp>

#include "catch.hpp"
#include "support/readings.hpp"

#include <limpet/metrics/vllm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using limpet::ParseStatus;
using limpet::Reading;
using limpet::VllmMetrics;
using limpet_test::parse;
using limpet_test::Parsed;

// A page of vLLM's form, written line by line, and what a reader must make of it.
class PageModel {
 public:
  explicit PageModel(std::uint32_t seed) : random_(seed) {
    engines_ = {"0"};
    const std::size_t engines = pick(3) == 0 ? 1 + pick(40) : 1 + pick(3);
    while (engines_.size() < engines) engines_.push_back(std::to_string(engines_.size()));
    models_ = {"tiny"};
    if (pick(3) == 0) models_.push_back("org/big-7b");
  }

  [[nodiscard]] const std::string& page() const { return page_; }

  void write() {
    gauge("num_requests_running", &Reading::running);
    gauge("num_requests_waiting", &Reading::waiting);
    two_names("gpu_cache_usage_perc", "kv_cache_usage_perc");
    counter("prefix_cache_queries_total", &Reading::prefix_queries);
    counter("prefix_cache_hits_total", &Reading::prefix_hits);
    counter("prompt_tokens_total", &Reading::prompt_tokens);
    counter("prompt_tokens_cached_total", &Reading::prompt_tokens_cached);
    if (pick(2) == 0) {
      page_ += "process_start_time_seconds 1.5e+09" + end();
      start_time_ = 1.5e9;
    }
    maybe_noise();
    if (pick(3) == 0) page_ += "# EOF" + std::string(pick(2) == 0 ? "\n" : "\r\n");
    if (pick(4) == 0) page_ += "vllm:generation_tokens_total{engine=\"0\"} 1";
  }

  // In order of first mention.
  [[nodiscard]] std::vector<Reading> expected() const {
    std::vector<Reading> readings;
    for (const Key& key : order_) {
      readings.push_back(figures_.at(key));
      readings.back().engine = key.first;
      readings.back().model = key.second;
    }
    if (readings.empty() && !idle_.empty()) readings.emplace_back();
    for (Reading& reading : readings) {
      for (const Figure figure : idle_) reading.*figure = 0.0;
      reading.start_time = start_time_;
    }
    return readings;
  }

 private:
  using Key = std::pair<std::string, std::string>;
  using Figure = std::optional<double> Reading::*;

  [[nodiscard]] std::size_t pick(std::size_t below) { return random_() % below; }

  [[nodiscard]] std::string end() {
    const char* const ends[] = {"\n", "\n", "\n", "\r\n", " \n", " 1395066363000\n", "\n\n"};
    return ends[pick(7)];
  }

  [[nodiscard]] std::string blanks() { return pick(5) == 0 ? " " : ""; }

  [[nodiscard]] std::string prefix() { return pick(8) == 0 ? "vllm_" : "vllm:"; }

  // A whole number below 1000, spelled in one of many ways.
  [[nodiscard]] std::string spelled(unsigned value) {
    const std::string digits = std::to_string(value);
    switch (pick(6)) {
      case 0:
        return digits + ".0";
      case 1:
        return digits + "e+00";
      case 2:
        return digits + "0e-001";
      case 3:
        return "+" + digits;
      case 4:
        return digits + ".000";
      default:
        return digits;
    }
  }

  [[nodiscard]] std::string labels(const Key& key, const std::string& extra = "") {
    std::vector<std::string> parts = {"engine=\"" + key.first + "\"",
                                      "model_name=\"" + key.second + "\""};
    if (!extra.empty()) parts.push_back(extra);
    const char* const nasty[] = {R"(le="+Inf")",        R"(note="} 5")",
                                 R"(path="C:\\dir\\")", R"(say="\"engine=\\\"9\\\"\"")",
                                 R"(list="a,b={c}")",   R"(e="")"};
    for (std::size_t i = pick(3); i > 0; --i) parts.push_back(nasty[pick(6)]);
    std::shuffle(parts.begin(), parts.end(), random_);
    std::string text = "{" + blanks();
    for (const std::string& part : parts) {
      if (text.size() > 2) text += "," + blanks();
      text += part;
    }
    return text + (pick(6) == 0 ? ",}" : "}");
  }

  void maybe_noise() {
    const char* const noise[] = {
        "# HELP vllm:num_requests_running Number of requests {engine=\"0\"} 5",
        "# a comment",
        "python_gc_objects_collected_total{generation=\"0\"} 15344.0",
        "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 77",
        "vllm:iteration_tokens_total_count{engine=\"0\"} 77",
        "vllm:prompt_tokens_by_source_total{engine=\"0\",source=\"x\"} 77",
        "vllm:request_latency_bucket{le=\"+Inf\",engine=\"0\"} NaN",
        "{\"a.b\",engine=\"0\"} 77",
        "",
        "   ",
    };
    for (std::size_t i = pick(5); i > 0; --i) page_ += noise[pick(10)] + std::string("\n");
  }

  // Calls write_lines(key) for the engines that have the series, perhaps none.
  template <class WriteLines>
  void family(const std::string& name, const char* type, Figure figure, WriteLines write_lines) {
    maybe_noise();
    const bool is_declared = pick(2) == 0;
    if (is_declared) page_ += "# TYPE vllm:" + name + " " + type + "\n";
    bool has_samples = false;
    const std::size_t rare = pick(8) == 0 ? 1 : 6;
    for (const std::string& model : models_) {
      for (const std::string& engine : engines_) {
        if (pick(rare) == 0) continue;
        const Key key(engine, model);
        if (figures_.try_emplace(key).second) order_.push_back(key);
        write_lines(key);
        has_samples = true;
      }
    }
    if (is_declared && !has_samples) idle_.push_back(figure);
  }

  void gauge(const std::string& name, Figure figure) {
    family(name, "gauge", figure, [&](const Key& key) {
      if (pick(12) == 0) {
        page_ += prefix() + name + labels(key) + (pick(2) == 0 ? " NaN\n" : " +Inf\n");
        return;
      }
      double largest = 0.0;
      for (std::size_t processes = pick(4) == 0 ? 3 : 1, i = 0; i < processes; ++i) {
        const auto value = static_cast<unsigned>(pick(1000));
        largest = std::max(largest, static_cast<double>(value));
        page_ += prefix() + name + labels(key, "pid=\"" + std::to_string(i) + "\"") + " " +
                 spelled(value) + end();
      }
      figures_[key].*figure = largest;
    });
  }

  void counter(const std::string& name, Figure figure) {
    family(name, "counter", figure, [&](const Key& key) {
      double sum = 0.0;
      for (std::size_t parts = pick(4) == 0 ? 3 : 1, i = 0; i < parts; ++i) {
        const auto value = static_cast<unsigned>(pick(1000));
        sum += value;
        page_ += prefix() + name + labels(key, "part=\"" + std::to_string(i) + "\"") + " " +
                 spelled(value) + (pick(5) == 0 ? " # {id=\"}\"} 3.5\n" : end());
      }
      figures_[key].*figure = sum;
    });
  }

  void two_names(const std::string& old_name, const std::string& new_name) {
    family(new_name, "gauge", &Reading::kv_usage, [&](const Key& key) {
      const bool has_old = pick(2) == 0;
      const bool has_new = !has_old || pick(2) == 0;
      const std::string old_line = prefix() + old_name + labels(key) + " 0.25\n";
      const std::string new_line = prefix() + new_name + labels(key) + " 0.5\n";
      const bool old_first = pick(2) == 0;
      if (has_old && old_first) page_ += old_line;
      if (has_new) page_ += new_line;
      if (has_old && !old_first) page_ += old_line;
      figures_[key].kv_usage = has_new ? 0.5 : 0.25;
    });
  }

  std::mt19937 random_;
  std::vector<std::string> engines_;
  std::vector<std::string> models_;
  std::string page_;
  std::map<Key, Reading> figures_;
  std::vector<Key> order_;
  std::vector<Figure> idle_;  // declared, without a sample
  std::optional<double> start_time_;
};

std::uint32_t new_seed() {
  std::random_device device;
  return device();
}

// Of this process, so that a busy machine changes little.
double processor_seconds(std::string_view page) {
  const std::clock_t before = std::clock();
  (void)parse(VllmMetrics{}, page);
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

// In lines whose engines come in no order.
std::string shuffled_page_of_engines(std::size_t count) {
  std::string page;
  for (std::size_t i = 0; i < count; ++i) {
    page += "vllm:num_requests_running{engine=\"" + std::to_string(i * 7919 % count) + "\"} 1\n";
  }
  for (std::size_t i = 0; i < count; ++i) {
    page += "vllm:num_requests_waiting{engine=\"" + std::to_string(i * 104729 % count) + "\"} 1\n";
  }
  return page;
}

std::string page_of_engines(std::size_t count) {
  std::string page;
  for (const char* series :
       {"num_requests_running", "num_requests_waiting", "prompt_tokens_total"}) {
    for (std::size_t i = 0; i < count; ++i) {
      page += std::string("vllm:") + series + "{engine=\"" + std::to_string(i) +
              "\",model_name=\"m\"} " + std::to_string(i) + "\n";
    }
  }
  return page;
}

}  // namespace

TEST_CASE("random pages read as their writer knows") {
  const std::uint32_t seed = new_seed();
  CAPTURE(seed);
  for (std::uint32_t i = 0; i < 500; ++i) {
    PageModel model(seed + i);
    model.write();
    const Parsed parsed = parse(VllmMetrics{}, model.page());
    const std::vector<Reading> expected = model.expected();
    CAPTURE(i, model.page());
    REQUIRE(parsed.status == (expected.empty() ? ParseStatus::no_engine : ParseStatus::ok));
    REQUIRE(parsed.size() == expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
      CAPTURE(expected[k].engine, expected[k].model);
      REQUIRE(limpet_test::same(parsed.readings[k], expected[k]));
    }
  }
}

TEST_CASE("equal pages give equal readings in equal order") {
  const std::uint32_t seed = new_seed();
  CAPTURE(seed);
  PageModel model(seed);
  model.write();
  const std::string copy = model.page();
  CHECK(limpet_test::same(parse(VllmMetrics{}, model.page()), parse(VllmMetrics{}, copy)));
}

TEST_CASE("a random page that is cut or spoilt delivers all of it or nothing") {
  const std::uint32_t seed = new_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (std::uint32_t i = 0; i < 200; ++i) {
    PageModel model(seed + i);
    model.write();
    std::string page = model.page();
    if (page.empty()) continue;
    if (i % 2 == 0) {
      page.resize(random() % page.size());
    } else {
      for (int k = 0; k < 5; ++k) page[random() % page.size()] = static_cast<char>(random());
    }
    const Parsed parsed = parse(VllmMetrics{}, page);
    REQUIRE((parsed.status == ParseStatus::ok) == !parsed.readings.empty());
    for (const Reading& reading : parsed.readings) {
      REQUIRE(reading.kv_usage.value_or(0.0) <= 1.0);
      REQUIRE(reading.running.value_or(0.0) >= 0.0);
    }
  }
}

TEST_CASE("random bytes are survived") {
  const std::uint32_t seed = new_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string page(random() % 300, '\0');
    for (char& c : page) c = static_cast<char>(random());
    const Parsed parsed = parse(VllmMetrics{}, page);
    REQUIRE(parsed.status != ParseStatus::ok);
    REQUIRE(parsed.readings.empty());
  }
}

TEST_CASE("a page of a thousand engines is a thousand readings") {
  const std::string page = page_of_engines(1000);
  const Parsed parsed = parse(VllmMetrics{}, page);
  REQUIRE(parsed.size() == 1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    REQUIRE(parsed.readings[i].engine == std::to_string(i));
    REQUIRE(parsed.readings[i].waiting == static_cast<double>(i));
  }
}

TEST_CASE("time grows with the length of the page, whatever is on it") {
  // 32 times the engines. Searching all of them for each line would take 1024 times as long; the
  // bound leaves room for slower memory and noise.
  const std::string small = shuffled_page_of_engines(2'000);
  const std::string large = shuffled_page_of_engines(64'000);
  double small_seconds = 1e9;
  double large_seconds = 1e9;
  for (int round = 0; round < 5; ++round) {
    small_seconds = std::min(small_seconds, processor_seconds(small));
    large_seconds = std::min(large_seconds, processor_seconds(large));
  }
  CHECK(large_seconds < 250.0 * small_seconds);
}

TEST_CASE("a page of 50 MB is read, and a line of 50 MB too") {
  const std::string block = "vllm:request_latency_bucket{engine=\"0\",le=\"0.5\"} 42.0\n";
  std::string page;
  page.reserve(50'000'100);
  while (page.size() < 50'000'000) page += block;
  page += "vllm:num_requests_running 3\n";
  CHECK(parse(VllmMetrics{}, page).only().running == 3.0);

  std::fill(page.begin(), page.end(), '"');
  CHECK(parse(VllmMetrics{}, page).status == ParseStatus::malformed);
  const std::string_view begin = "vllm:num_requests_running{engine=\"";
  std::fill(page.begin(), page.end(), '\\');
  page.replace(0, begin.size(), begin);
  CHECK(parse(VllmMetrics{}, page).status == ParseStatus::malformed);
}

TEST_CASE("an engine of one's own needs a table of its series") {
  static constexpr limpet::EngineSeries series[] = {
      {"batch_size", limpet::ReadingField::running},
      {"queue_size", limpet::ReadingField::waiting},
  };
  static constexpr limpet::EngineFormat format = {
      .prefix = "mine", .series = series, .engine_label = "shard"};
  std::vector<Reading> readings;
  auto keep = [&](const Reading& reading) { readings.push_back(reading); };
  const ParseStatus status =
      limpet::read_engines("mine_batch_size{shard=\"a\"} 4\nmine:queue_size{shard=\"a\"} 7\n",
                           format, {}, limpet::ReadingSink(keep));
  REQUIRE(status == ParseStatus::ok);
  REQUIRE(readings.size() == 1);
  CHECK(readings[0].engine == "a");
  CHECK(readings[0].running == 4.0);
  CHECK(readings[0].waiting == 7.0);
}
