// SPDX-License-Identifier: Apache-2.0
//
// The metrics parsers, and Reading, which a parser written in Python makes.
#include "arguments.hpp"
#include "bind.hpp"
#include "enums.hpp"
#include "policies.hpp"

#include <limpet/metrics/llamacpp.hpp>
#include <limpet/metrics/sglang.hpp>
#include <limpet/metrics/vllm.hpp>

#include <pybind11/stl.h>

#ifdef LIMPET_PYTHON_WIRE
#include <limpet/metrics/json.hpp>
#endif

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace limpet::python {

namespace {

using Figure = std::optional<double> Reading::*;

struct NamedFigure {
  const char* name;
  Figure figure;
};

constexpr NamedFigure figures[] = {
    {"running", &Reading::running},
    {"waiting", &Reading::waiting},
    {"kv_usage", &Reading::kv_usage},
    {"prefix_queries", &Reading::prefix_queries},
    {"prefix_hits", &Reading::prefix_hits},
    {"prompt_tokens", &Reading::prompt_tokens},
    {"prompt_tokens_cached", &Reading::prompt_tokens_cached},
    {"kv_capacity_tokens", &Reading::kv_capacity_tokens},
    {"start_time", &Reading::start_time},
};

[[nodiscard]] OwnedReading make_reading(const std::string& engine, const std::string& model,
                                        const py::kwargs& given) {
  OwnedReading reading{.figures = {}, .engine = engine, .model = model};
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const NamedFigure* found = nullptr;
    for (const NamedFigure& figure : figures) {
      if (name == figure.name) found = &figure;
    }
    if (found == nullptr) throw py::type_error("Reading has no figure \"" + name + "\"");
    if (value.is_none()) continue;
    const double number = number_from(value, found->name);
    if (!std::isfinite(number) || number < 0.0) {
      refuse_value(found->name, value, "a figure is finite and not negative; None: unknown");
    }
    reading.figures.*(found->figure) = number;
  }
  return reading;
}

void bind_reading(py::module_& module) {
  py::class_<OwnedReading> type(
      module, "Reading",
      "One engine's gauges and counters from one metrics page; None: the page did not "
      "say.\n\nrunning "
      "and waiting are requests, kv_usage is 0..1, the others tokens since the engine started, "
      "start_time seconds since the Unix epoch.");
  type.def(py::init(&make_reading), py::kw_only(), py::arg("engine") = "", py::arg("model") = "");
  type.def_readonly("engine", &OwnedReading::engine);
  type.def_readonly("model", &OwnedReading::model);
  for (const auto& [name, figure] : figures) {
    type.def_property_readonly(
        name, [figure = figure](const OwnedReading& reading) { return reading.figures.*figure; });
  }
  type.def("__repr__", [](const OwnedReading& reading) {
    std::string text = "Reading(engine=" + py::repr(py::str(reading.engine)).cast<std::string>();
    for (const auto& [name, figure] : figures) {
      if (const auto& number = reading.figures.*figure) {
        text += std::string(", ") + name + "=" + repr_of(*number);
      }
    }
    return text + ")";
  });
}

template <class Parser>
[[nodiscard]] py::object parse(const Parser& parser, const py::bytes& page) {
  py::list readings;
  auto collect = [&](const Reading& reading) {
    OwnedReading owned{reading, std::string(reading.engine), std::string(reading.model)};
    owned.figures.engine = {};
    owned.figures.model = {};
    readings.append(std::move(owned));
  };
  const ParseStatus status = parser.parse(std::string_view(page), ReadingSink(collect));
  if (status != ParseStatus::ok) return member_of(status);
  return readings;
}

template <class Parser>
py::class_<Parser> bind_parser(py::module_& module, const char* name, const char* doc) {
  py::class_<Parser> type(module, name, doc);
  type.def("parse", &parse<Parser>, py::arg("page"),
           "A list of Readings, one an engine, or the ParseStatus that says why there are none.");
  return type;
}

template <class Parser>
void bind_parser_of_model(py::module_& module, const char* name, const char* doc) {
  bind_parser<Parser>(module, name, doc)
      .def(py::init([](std::optional<std::string> model) { return Parser{model.value_or("")}; }),
           py::kw_only(), py::arg("model") = py::none())
      .def_property_readonly("model",
                             [](const Parser& parser) -> std::optional<std::string> {
                               if (parser.model.empty()) return std::nullopt;
                               return parser.model;
                             })
      .def("__repr__", [name](const Parser& parser) {
        const py::object model =
            parser.model.empty() ? py::object(py::none()) : py::object(py::str(parser.model));
        return std::string(name) + "(model=" + py::repr(model).cast<std::string>() + ")";
      });
}

#ifdef LIMPET_PYTHON_WIRE

struct NamedPointer {
  const char* name;
  std::string JsonMetricsOptions::* pointer;
};

constexpr NamedPointer pointers[] = {
    {"engines", &JsonMetricsOptions::engines},
    {"engine", &JsonMetricsOptions::engine},
    {"model", &JsonMetricsOptions::model},
    {"running", &JsonMetricsOptions::running},
    {"waiting", &JsonMetricsOptions::waiting},
    {"kv_usage", &JsonMetricsOptions::kv_usage},
    {"prefix_queries", &JsonMetricsOptions::prefix_queries},
    {"prefix_hits", &JsonMetricsOptions::prefix_hits},
    {"prompt_tokens", &JsonMetricsOptions::prompt_tokens},
    {"prompt_tokens_cached", &JsonMetricsOptions::prompt_tokens_cached},
    {"kv_capacity_tokens", &JsonMetricsOptions::kv_capacity_tokens},
    {"start_time", &JsonMetricsOptions::start_time},
};

[[nodiscard]] JsonMetrics make_json_metrics(const py::kwargs& given) {
  JsonMetricsOptions options;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const NamedPointer* found = nullptr;
    for (const NamedPointer& pointer : pointers) {
      if (name == pointer.name) found = &pointer;
    }
    if (found == nullptr) throw py::type_error("JsonMetrics has no field \"" + name + "\"");
    if (!value.is_none()) options.*(found->pointer) = text_from(value, found->name);
  }
  return JsonMetrics(std::move(options));
}

void bind_json_metrics(py::module_& module) {
  bind_parser<JsonMetrics>(
      module, "JsonMetrics",
      "A metrics page in JSON, its fields named by JSON pointers: `engines` to "
      "the array of engines, the others into one of them.")
      .def(py::init(&make_json_metrics))
      .def("__repr__", [](const JsonMetrics& parser) {
        std::string text = "JsonMetrics(";
        for (const auto& [name, pointer] : pointers) {
          const std::string& value = parser.options().*pointer;
          if (value.empty()) continue;
          text += text.back() == '(' ? "" : ", ";
          text += std::string(name) + "=" + py::repr(py::str(value)).cast<std::string>();
        }
        return text + ")";
      });
}

#endif

}  // namespace

AnyMetricsParser metrics_from(const py::object& policy, Scripts& scripts) {
  return policy_from<AnyMetricsParser, VllmMetrics, SglangMetrics, LlamaCppMetrics
#ifdef LIMPET_PYTHON_WIRE
                     ,
                     JsonMetrics
#endif
                     >(policy, "metrics", {"parse"}, scripts.metrics, ScriptedMetrics{&scripts});
}

void bind_metrics(py::module_& module) {
  bind_reading(module);
  bind_parser_of_model<VllmMetrics>(
      module, "VllmMetrics",
      "The default: the metrics page of a vLLM server. Set `model` to the first "
      "--served-model-name "
      "where several models answer behind one page; None: every engine on it.");
  bind_parser_of_model<SglangMetrics>(
      module, "SglangMetrics",
      "The metrics page of an SGLang server (--enable-metrics). `model`: its --served-model-name; "
      "None: every engine on the page.");
  bind_parser<LlamaCppMetrics>(module, "LlamaCppMetrics",
                               "The metrics page of llama.cpp's llama-server (--metrics).")
      .def(py::init<>())
      .def("__repr__", [](const LlamaCppMetrics&) { return "LlamaCppMetrics()"; });
#ifdef LIMPET_PYTHON_WIRE
  bind_json_metrics(module);
#endif
}

}  // namespace limpet::python
