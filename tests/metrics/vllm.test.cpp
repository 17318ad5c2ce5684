// SPDX-License-Identifier: Apache-2.0
//
// VllmMetrics on recorded pages, whose figures were read off by eye, and on every trap of the
// format that a vLLM page can set.
#include <limpet/metrics/vllm.hpp>

#include "catch.hpp"
#include "support/readings.hpp"
#include "support/shared_data.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace {

using limpet::ParseStatus;
using limpet::Reading;
using limpet::VllmMetrics;
using limpet_test::parse;
using limpet_test::Parsed;

const std::optional<double> unknown;

Parsed vllm(std::string_view page) {
  return parse(VllmMetrics{}, page);
}

std::string recorded(std::string_view name) {
  return "vllm_0.32/metrics/metrics_" + std::string(name) + ".txt";
}

}  // namespace

TEST_CASE("a recorded page of one busy vLLM reads as the eye reads it") {
  const std::string file = recorded("single_under_load");
  const auto page = limpet_tests::shared_data(file);
  if (!page) SKIP(limpet_tests::missing_data(file));
  const Parsed parsed = vllm(*page);
  REQUIRE(parsed.status == ParseStatus::ok);
  REQUIRE(parsed.size() == 1);
  const Reading& reading = parsed.only();
  CHECK(reading.engine == "0");
  CHECK(reading.model == "tiny");
  CHECK(reading.running == 32.0);
  CHECK(reading.waiting == 8.0);
  CHECK(reading.kv_usage == 0.00781297686626381);
  CHECK(reading.prefix_queries == 65031.0);
  CHECK(reading.prefix_hits == 27520.0);
  CHECK(reading.prompt_tokens == 65031.0);
  CHECK(reading.prompt_tokens_cached == 27520.0);
  CHECK(reading.kv_capacity_tokens == 2097152.0);
  CHECK(reading.start_time == 1795997945.82);
}

TEST_CASE("a recorded page of one idle vLLM reads as the eye reads it") {
  const std::string file = recorded("single_idle");
  const auto page = limpet_tests::shared_data(file);
  if (!page) SKIP(limpet_tests::missing_data(file));
  const Parsed parsed = vllm(*page);
  REQUIRE(parsed.status == ParseStatus::ok);
  REQUIRE(parsed.size() == 1);
  const Reading& reading = parsed.only();
  CHECK(reading.engine == "0");
  CHECK(reading.running == 0.0);
  CHECK(reading.waiting == 0.0);
  CHECK(reading.kv_usage == 0.0);
  CHECK(reading.prefix_queries == 0.0);
  CHECK(reading.prefix_hits == 0.0);
  CHECK(reading.prompt_tokens == 0.0);
  CHECK(reading.kv_capacity_tokens == 2097152.0);
  CHECK(reading.start_time == 1795997945.82);
}

TEST_CASE("a recorded page of two data-parallel ranks is two readings") {
  const std::string file = recorded("dp2_asc1_under_load");
  const auto page = limpet_tests::shared_data(file);
  if (!page) SKIP(limpet_tests::missing_data(file));
  const Parsed parsed = vllm(*page);
  REQUIRE(parsed.status == ParseStatus::ok);
  REQUIRE(parsed.size() == 2);
  for (const char* engine : {"0", "1"}) {
    CAPTURE(engine);
    const Reading& reading = parsed.engine(engine);
    CHECK(reading.model == "tiny");
    CHECK(reading.running == 28.0);
    CHECK(reading.waiting == 12.0);
    CHECK(reading.kv_usage == 0.26588465298142716);
    CHECK(reading.prefix_hits == 0.0);
    CHECK(reading.prompt_tokens_cached == 0.0);
    CHECK(reading.kv_capacity_tokens == 32768.0);
    CHECK(reading.start_time == 1795999283.46);
  }
  CHECK(parsed.readings[0].engine == "0");
  CHECK(parsed.engine("0").prefix_queries == 8737.0);
  CHECK(parsed.engine("1").prefix_queries == 8739.0);
  CHECK(parsed.engine("0").prompt_tokens == 8425.0);
  CHECK(parsed.engine("1").prompt_tokens == 8427.0);
}

TEST_CASE("a recorded page of two idle ranks is two readings of nothing to do") {
  const std::string file = recorded("dp2_asc1_idle");
  const auto page = limpet_tests::shared_data(file);
  if (!page) SKIP(limpet_tests::missing_data(file));
  const Parsed parsed = vllm(*page);
  REQUIRE(parsed.size() == 2);
  for (const Reading& reading : parsed.readings) {
    CHECK(reading.running == 0.0);
    CHECK(reading.kv_usage == 0.0);
    CHECK(reading.prompt_tokens == 0.0);
    CHECK(reading.kv_capacity_tokens == 32768.0);
  }
}

TEST_CASE("a recorded page cut anywhere is refused, or reads as what is left of it") {
  const std::string file = recorded("dp2_asc1_under_load");
  const auto recording = limpet_tests::shared_data(file);
  if (!recording) SKIP(limpet_tests::missing_data(file));
  const std::string_view page = *recording;
  std::size_t refused = 0;
  for (std::size_t cut = 1; cut < page.size(); cut += 3) {
    const std::size_t line_start = page.rfind('\n', cut - 1) + 1;  // 0 where there is none
    const std::string_view left = page.substr(line_start, cut - line_start);
    const Parsed parsed = vllm(page.substr(0, cut));
    // Of a HELP text it can't be told whether it was cut, so a page may not end in one.
    const bool is_whole_line = left.empty() || (page[cut] == '\n' && !left.starts_with("# HELP"));
    const bool has_value =
        !left.starts_with('#') && left.find(' ') != std::string_view::npos && !left.ends_with(' ');
    CAPTURE(cut, std::string(left));
    if (is_whole_line) {
      REQUIRE(parsed.status != ParseStatus::malformed);
    } else if (!has_value) {
      REQUIRE(parsed.status == ParseStatus::malformed);
      ++refused;
    }
    if (parsed.status != ParseStatus::ok) REQUIRE(parsed.readings.empty());
  }
  CHECK(refused > page.size() / 5);
}

TEST_CASE("a colon in a series name may arrive as an underscore") {
  const Parsed parsed = vllm("vllm_num_requests_running{engine=\"0\"} 3\n");
  CHECK(parsed.only().running == 3.0);
  CHECK(vllm("vllm.num_requests_running 3\n").status == ParseStatus::no_engine);
  CHECK(vllm("xvllm:num_requests_running 3\n").status == ParseStatus::no_engine);
}

TEST_CASE("labels come in any order, with unknown ones between") {
  const Parsed parsed = vllm(
      "vllm:num_requests_running{model_name=\"m\",pod=\"p-1\",engine=\"3\"} 3\n"
      "vllm:num_requests_waiting{engine=\"3\",zone=\"z\",model_name=\"m\"} 4\n");
  CHECK(parsed.only().engine == "3");
  CHECK(parsed.only().model == "m");
  CHECK(parsed.only().running == 3.0);
  CHECK(parsed.only().waiting == 4.0);
}

TEST_CASE("a label value with braces, commas, quotes and escapes hides nothing") {
  const Parsed parsed =
      vllm(R"(vllm:num_requests_running{note="} 9 {engine=\"7\",",engine="0",model_name="a\\b"} 3)"
           "\n");
  CHECK(parsed.only().engine == "0");
  CHECK(parsed.only().model == R"(a\\b)");
  CHECK(parsed.only().running == 3.0);
}

TEST_CASE("of the lines of several server processes the largest gauge counts") {
  const Parsed parsed = vllm(
      "vllm:num_requests_running{engine=\"0\",pid=\"11\"} 3\n"
      "vllm:num_requests_running{engine=\"0\",pid=\"12\"} 5\n"
      "vllm:num_requests_running{engine=\"0\",pid=\"13\"} 0\n");
  CHECK(parsed.only().running == 5.0);
}

TEST_CASE("counters of several server processes are parts of one and add up") {
  const Parsed parsed = vllm(
      "vllm:prompt_tokens_total{engine=\"0\",pid=\"11\"} 300\n"
      "vllm:prompt_tokens_total{engine=\"0\",pid=\"12\"} 500\n");
  CHECK(parsed.only().prompt_tokens == 800.0);
}

TEST_CASE("families without a sample are those of an idle engine, not of none") {
  const Parsed parsed = vllm(
      "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
      "# TYPE vllm:num_requests_waiting gauge\n"
      "# HELP vllm:kv_cache_usage_perc KV-cache usage.\n"
      "# TYPE vllm:kv_cache_usage_perc gauge\n");
  REQUIRE(parsed.status == ParseStatus::ok);
  CHECK(parsed.only().engine.empty());
  CHECK(parsed.only().running == 0.0);
  CHECK(parsed.only().waiting == 0.0);
  CHECK(parsed.only().kv_usage == 0.0);
  CHECK(parsed.only().prompt_tokens == unknown);
}

TEST_CASE("a family without a sample is 0 for every engine that other families name") {
  const Parsed parsed = vllm(
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_waiting{engine=\"0\"} 1\n"
      "vllm:num_requests_waiting{engine=\"1\"} 2\n");
  REQUIRE(parsed.size() == 2);
  CHECK(parsed.engine("0").running == 0.0);
  CHECK(parsed.engine("1").running == 0.0);
  CHECK(parsed.engine("1").waiting == 2.0);
}

TEST_CASE("a family that has samples says nothing of an engine without one") {
  const Parsed parsed = vllm(
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\"} 1\n"
      "vllm:num_requests_waiting{engine=\"1\"} 2\n");
  CHECK(parsed.engine("0").running == 1.0);
  CHECK(parsed.engine("1").running == unknown);
}

TEST_CASE("a gauge that is NaN, infinite or negative is unknown, not 0") {
  for (const char* value : {"NaN", "+Inf", "-Inf", "-1", "1e999"}) {
    CAPTURE(value);
    const Parsed parsed =
        vllm("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running " +
             std::string(value) + "\nvllm:num_requests_waiting 2\n");
    CHECK(parsed.only().running == unknown);
    CHECK(parsed.only().waiting == 2.0);
  }
}

TEST_CASE("exponents are read however they are written") {
  const Parsed parsed = vllm(
      "vllm:prompt_tokens_total 6.5e+010\nvllm:prefix_cache_hits_total 1.2E3\n"
      "vllm:kv_cache_usage_perc 5e-01\n");
  CHECK(parsed.only().prompt_tokens == 65'000'000'000.0);
  CHECK(parsed.only().prefix_hits == 1200.0);
  CHECK(parsed.only().kv_usage == 0.5);
}

TEST_CASE("timestamps, exemplars, CRLF, blank lines and EOF change no figure") {
  const Parsed parsed = vllm(
      "# TYPE vllm:prompt_tokens counter\r\n"
      "vllm:prompt_tokens_total{engine=\"0\"} 7 1395066363000 # {trace_id=\"a\"} 1 "
      "1520879607.789\r\n"
      "\r\n"
      "  vllm:num_requests_running{engine=\"0\"}   3   1395066363000  \r\n"
      "# EOF\r\n");
  REQUIRE(parsed.status == ParseStatus::ok);
  CHECK(parsed.only().prompt_tokens == 7.0);
  CHECK(parsed.only().running == 3.0);
}

TEST_CASE("OpenMetrics declares a counter without the _total of its samples") {
  const Parsed parsed = vllm("# TYPE vllm:prompt_tokens counter\n# EOF\n");
  CHECK(parsed.only().prompt_tokens == 0.0);
  CHECK(parsed.only().prompt_tokens_cached == unknown);
}

TEST_CASE("a series may be named in quotes among its labels") {
  const Parsed parsed = vllm("{\"vllm:num_requests_running\",engine=\"0\"} 3\n{\"a.b\"} 1\n");
  CHECK(parsed.only().engine == "0");
  CHECK(parsed.only().running == 3.0);
}

TEST_CASE("the last line needs no newline") {
  CHECK(vllm("vllm:num_requests_running 3").only().running == 3.0);
  CHECK(vllm("vllm:num_requests_running 3\n# EOF").only().running == 3.0);
}

TEST_CASE("a page cut in the middle of a line changes nothing") {
  for (const char* end :
       {"vllm:num_requests_wai", "vllm:num_requests_waiting", "vllm:num_requests_waiting{engine=\"",
        "vllm:x_bucket{le=\"0.", "vllm:num_requests_waiting{engine=\"0\"}", "vllm:x 1e+",
        "# HELP vllm:x Hal", "# TYPE vllm:x his", "# EO"}) {
    CAPTURE(end);
    const Parsed parsed = vllm("vllm:num_requests_running 3\n" + std::string(end));
    CHECK(parsed.status == ParseStatus::malformed);
    CHECK(parsed.readings.empty());
  }
}

TEST_CASE("a broken line anywhere spoils the page") {
  for (const char* line :
       {"vllm:num_requests_waiting{engine=0} 1", "vllm:num_requests_waiting x",
        "vllm:num_requests_waiting", "<html>", "not a sample", "1 2", "\x01\x02"}) {
    CAPTURE(line);
    const Parsed parsed = vllm("vllm:num_requests_running 3\n" + std::string(line) +
                               "\nvllm:num_requests_running 3\n");
    CHECK(parsed.status == ParseStatus::malformed);
    CHECK(parsed.readings.empty());
  }
}

TEST_CASE("series whose names begin like ours are other series") {
  const Parsed parsed = vllm(
      "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 8\n"
      "vllm:iteration_tokens_total_count{engine=\"0\"} 8\n"
      "vllm:prompt_tokens_by_source_total{engine=\"0\",source=\"local_compute\"} 8\n"
      "vllm:prompt_tokens_cached_by_source_total{engine=\"0\",source=\"device\"} 8\n"
      "vllm:external_prefix_cache_queries_total{engine=\"0\"} 8\n"
      "vllm:num_requests_running_total{engine=\"0\"} 8\n"
      "vllm:kv_cache_usage_percent{engine=\"0\"} 0.8\n");
  CHECK(parsed.status == ParseStatus::no_engine);
  CHECK(parsed.readings.empty());
}

TEST_CASE("the kv_ and gpu_ names of one thing are never added up, and kv_ is preferred") {
  const std::string gpu = "vllm:gpu_cache_usage_perc 0.25\nvllm:gpu_prefix_cache_hits_total 10\n";
  const std::string kv = "vllm:kv_cache_usage_perc 0.25\nvllm:prefix_cache_hits_total 11\n";
  for (const std::string& page : {gpu + kv, kv + gpu}) {
    CHECK(vllm(page).only().kv_usage == 0.25);
    CHECK(vllm(page).only().prefix_hits == 11.0);
  }
  CHECK(vllm(gpu).only().kv_usage == 0.25);
  CHECK(vllm(gpu).only().prefix_hits == 10.0);
  CHECK(vllm("vllm:kv_cache_usage_perc NaN\n" + gpu).only().kv_usage == 0.25);
}

TEST_CASE("usage above 1 is 1") {
  CHECK(vllm("vllm:kv_cache_usage_perc 1.0000001\n").only().kv_usage == 1.0);
}

TEST_CASE("several models behind one page are a reading each, and a pool reads its own") {
  const std::string page =
      "vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 1\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"b\\\"\"} 2\n";
  CHECK(vllm(page).size() == 2);
  CHECK(parse(VllmMetrics{.model = "a"}, page).only().running == 1.0);
  CHECK(parse(VllmMetrics{.model = "b\""}, page).only().running == 2.0);
  CHECK(parse(VllmMetrics{.model = "c"}, page).status == ParseStatus::no_engine);
  CHECK(parse(VllmMetrics{.model = "c"}, "vllm:num_requests_running 3\n").only().running == 3.0);
}

TEST_CASE("the size of the cache is told by tokens, else by blocks") {
  CHECK(vllm("vllm:cache_config_info{block_size=\"16\",kv_cache_size_tokens=\"1000\","
             "num_gpu_blocks=\"573\"} 1.0\n")
            .only()
            .kv_capacity_tokens == 1000.0);
  CHECK(vllm("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"573\"} 1.0\n")
            .only()
            .kv_capacity_tokens == 9168.0);
  CHECK(vllm("vllm:cache_config_info{kv_cache_size_tokens=\"None\",num_gpu_blocks=\"573\","
             "block_size=\"16\"} 1.0\n")
            .only()
            .kv_capacity_tokens == 9168.0);
  CHECK(vllm("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n")
            .only()
            .kv_capacity_tokens == unknown);
}

TEST_CASE("blocks are printed as the sum of all engines, for each of them") {
  const Parsed parsed = vllm(
      "vllm:cache_config_info{block_size=\"32\",engine=\"0\",num_gpu_blocks=\"2048\"} 1.0\n"
      "vllm:cache_config_info{block_size=\"32\",engine=\"1\",num_gpu_blocks=\"2048\"} 1.0\n");
  CHECK(parsed.engine("0").kv_capacity_tokens == 32768.0);
  CHECK(parsed.engine("1").kv_capacity_tokens == 32768.0);
}

TEST_CASE("a series without the model's label is of the engine's only model") {
  const Parsed parsed = vllm(
      "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2\n"
      "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"100\"} 1.0\n"
      "vllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"200\"} 1.0\n");
  REQUIRE(parsed.size() == 2);
  CHECK(parsed.engine("0").kv_capacity_tokens == 100.0);
  CHECK(parsed.engine("1").kv_capacity_tokens == 200.0);
}

TEST_CASE("a series without the model's label is of no model where the engine has two") {
  const std::string page =
      "vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 1\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"b\"} 2\n"
      "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"100\"} 1.0\n";
  const Parsed parsed = vllm(page);
  REQUIRE(parsed.size() == 2);
  CHECK(parsed.readings[0].kv_capacity_tokens == unknown);
  CHECK(parsed.readings[1].kv_capacity_tokens == unknown);
  CHECK(parse(VllmMetrics{.model = "a"}, page).only().kv_capacity_tokens == unknown);
}

TEST_CASE("the start time is the process's, else that of a counter") {
  CHECK(vllm("process_start_time_seconds 1.5e+09\nvllm:prompt_tokens_created 1.6e+09\n"
             "vllm:num_requests_running 0\n")
            .only()
            .start_time == 1.5e9);
  CHECK(vllm("vllm:prefix_cache_queries_created 1.7e+09\nvllm:prompt_tokens_created 1.6e+09\n")
            .only()
            .start_time == 1.6e9);
  CHECK(vllm("vllm:num_requests_running 0\n").only().start_time == unknown);
}

TEST_CASE("a page of a process that is no engine holds no reading") {
  CHECK(vllm("process_start_time_seconds 1.5e+09\npython_info{version=\"3.11\"} 1.0\n").status ==
        ParseStatus::no_engine);
  CHECK(vllm("").status == ParseStatus::no_engine);
  CHECK(vllm("\n\n# EOF\n").status == ParseStatus::no_engine);
  CHECK(vllm("sglang:num_running_reqs 1\n").status == ParseStatus::no_engine);
  CHECK(vllm("# TYPE vllm:prompt_tokens_created gauge\n").status == ParseStatus::no_engine);
}

TEST_CASE("a restarted engine's counters and start time tell") {
  const Parsed before = vllm("process_start_time_seconds 1.5e+09\nvllm:prompt_tokens_total 900\n");
  const Parsed after = vllm("process_start_time_seconds 1.6e+09\nvllm:prompt_tokens_total 5\n");
  CHECK(*after.only().prompt_tokens < *before.only().prompt_tokens);
  CHECK(after.only().start_time != before.only().start_time);
}
