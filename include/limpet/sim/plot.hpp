// SPDX-License-Identifier: Apache-2.0
//
// Reports as pictures and as a sentence: an SVG with what matters over the number of sessions, one
// line a policy, and advice for whoever does not want to read a table.
//
// Text in, text out: open the SVG in any browser. Reports of one policy must be in the order of
// their sessions at once.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <limpet/sim/report.hpp>

namespace limpet::sim {

class Plot {
 public:
  [[nodiscard]] static std::string svg(const std::vector<Report>& reports) {
    Plot plot(reports);
    plot.panel(0, "TTFB p50, s (log)", Scale::log, [](const Report& r) { return r.ttfb.p50; });
    plot.panel(1, "TTFB p95, s (log)", Scale::log, [](const Report& r) { return r.ttfb.p95; });
    plot.panel(2, "prompt tokens from cache, %", Scale::linear,
               [](const Report& r) { return 100 * r.from_cache; });
    plot.panel(3, "output tokens/min", Scale::linear,
               [](const Report& r) { return r.output_tokens_per_minute; });
    plot.legend();
    return plot.text_ + "</svg>\n";
  }

 private:
  enum class Scale : std::uint8_t { linear, log };

  static constexpr double width = 420, height = 260, left = 60, top = 30, gap = 60;

  explicit Plot(const std::vector<Report>& reports) : reports_(reports) {
    for (const Report& r : reports) {
      if (std::find(policies_.begin(), policies_.end(), r.policy) == policies_.end()) {
        policies_.push_back(r.policy);
      }
      most_seats_ = std::max(most_seats_, r.seats);
    }
    const double legend_height = 18.0 * static_cast<double>(policies_.size()) + 20;
    format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" "
        "viewBox=\"0 0 %.0f %.0f\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        2 * (width + left + gap), 2 * (height + top + gap) + legend_height);
  }

  template <class Value>
  void panel(int index, const char* title, Scale scale, Value value) {
    const double x0 = left + (index % 2) * (width + left + gap);
    const double y0 = top + (index / 2) * (height + top + gap);
    double low = scale == Scale::log ? 1e9 : 0.0;
    double high = 1e-9;
    for (const Report& r : reports_) {
      high = std::max(high, value(r));
      if (scale == Scale::log) low = std::min(low, std::max(1e-3, value(r)));
    }
    if (scale == Scale::log) {
      low = std::pow(10.0, std::floor(std::log10(low)));
      high = std::pow(10.0, std::ceil(std::log10(std::max(high, 10 * low))));
    }
    const auto y = [&](double v) {
      const double share = scale == Scale::log
                               ? std::log10(std::max(v, low) / low) / std::log10(high / low)
                               : (v - low) / (high - low);
      return y0 + height * (1 - share);
    };
    const auto x = [&](std::uint32_t seats) { return x0 + width * seats / most_seats_; };
    format("<text x=\"%.0f\" y=\"%.0f\" font-weight=\"bold\">%s</text>\n", x0, y0 - 10, title);
    for (const double tick : ticks(low, high, scale)) {
      format(
          "<path d=\"M%.1f %.1fh%.0f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" "
          "text-anchor=\"end\">%g</text>\n",
          x0, y(tick), width, x0 - 6, y(tick) + 4, tick);
    }
    std::vector<std::uint32_t> seen;
    for (const Report& r : reports_) {
      if (std::find(seen.begin(), seen.end(), r.seats) != seen.end()) continue;
      seen.push_back(r.seats);
      format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%u</text>\n", x(r.seats),
             y0 + height + 16, r.seats);
    }
    format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">sessions at once</text>\n",
           x0 + width / 2, y0 + height + 34);
    for (std::size_t p = 0; p < policies_.size(); ++p) {
      std::string points;
      for (const Report& r : reports_) {
        if (r.policy != policies_[p]) continue;
        char point[64];
        std::snprintf(point, sizeof point, "%.1f,%.1f ", x(r.seats), y(value(r)));
        points += point;
      }
      format("<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
             points.c_str(), colour(p), dashes(p));
    }
  }

  void legend() {
    const double y0 = 2 * (height + top + gap);
    for (std::size_t p = 0; p < policies_.size(); ++p) {
      const double y = y0 + 18.0 * static_cast<double>(p);
      format(
          "<path d=\"M%.0f %.1fh40\" stroke=\"%s\" stroke-width=\"2\"%s/><text x=\"%.0f\" "
          "y=\"%.1f\">%s</text>\n",
          left, y, colour(p), dashes(p), left + 50, y + 4, policies_[p].c_str());
    }
  }

  [[nodiscard]] static std::vector<double> ticks(double low, double high, Scale scale) {
    std::vector<double> at;
    if (scale == Scale::log) {
      for (double tick = low; tick <= high * 1.01; tick *= 10) at.push_back(tick);
      return at;
    }
    const double step = std::pow(10.0, std::floor(std::log10(high)));
    for (double tick = 0; tick <= high; tick += high / step < 3 ? step / 2 : step)
      at.push_back(tick);
    return at;
  }

  // Colours that the colour-blind can tell apart (Okabe and Ito); further lines are dashed.
  [[nodiscard]] static const char* colour(std::size_t line) noexcept {
    constexpr std::array colours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#000000"};
    return colours[line % colours.size()];
  }
  [[nodiscard]] static const char* dashes(std::size_t line) noexcept {
    return line < 7 ? "" : line < 14 ? " stroke-dasharray=\"6 3\"" : " stroke-dasharray=\"2 3\"";
  }

  template <class... Values>
  void format(const char* form, Values... values) {
    std::vector<char> line(static_cast<std::size_t>(std::snprintf(nullptr, 0, form, values...)) +
                           1);
    std::snprintf(line.data(), line.size(), form, values...);
    text_ += line.data();
  }

  const std::vector<Report>& reports_;
  std::vector<std::string> policies_;
  std::uint32_t most_seats_ = 1;
  std::string text_;
};

// What to do, in a sentence or two, from the reports of a policy and of the one it would replace;
// where the caches are too small for it, another of the reports that does better there is named.
[[nodiscard]] inline std::string advice(const std::vector<Report>& reports,
                                        std::string_view candidate, std::string_view today) {
  const auto find = [&](std::string_view policy, std::uint32_t seats) -> const Report* {
    for (const Report& r : reports) {
      if (r.policy == policy && r.seats == seats) return &r;
    }
    return nullptr;
  };
  const Report* best_ours = nullptr;
  const Report* best_theirs = nullptr;
  std::uint32_t full_from = 0;  // sessions from which caches are too small for affinity to help
  for (const Report& ours : reports) {
    if (ours.policy != candidate) continue;
    const Report* theirs = find(today, ours.seats);
    if (theirs == nullptr) continue;
    const double gain = ours.output_tokens_per_minute / theirs->output_tokens_per_minute;
    if (best_ours == nullptr ||
        gain > best_ours->output_tokens_per_minute / best_theirs->output_tokens_per_minute) {
      best_ours = &ours;
      best_theirs = theirs;
    }
    if (full_from == 0 && ours.from_cache < 0.5) full_from = ours.seats;
  }
  if (best_ours == nullptr) return "Nothing to compare.\n";
  char text[512];
  const double gain =
      100 * (best_ours->output_tokens_per_minute / best_theirs->output_tokens_per_minute - 1);
  std::snprintf(
      text, sizeof text,
      "At %u sessions at once %s %s: %+.0f %% output tokens, median wait %.2f s instead of "
      "%.2f s, %.0f %% of prompt tokens from cache instead of %.0f %%.",
      best_ours->seats, gain >= 3 ? "use" : "there is little to gain from",
      std::string(candidate).c_str(), gain, best_ours->ttfb.p50, best_theirs->ttfb.p50,
      100 * best_ours->from_cache, 100 * best_theirs->from_cache);
  std::string sentence = text;
  if (full_from == 0) return sentence + "\n";
  const Report& full = *find(candidate, full_from);
  const Report* better = nullptr;
  for (const Report& r : reports) {
    const double least =
        better == nullptr ? 1.03 * full.output_tokens_per_minute : better->output_tokens_per_minute;
    if (r.seats == full_from && r.output_tokens_per_minute > least) better = &r;
  }
  std::snprintf(text, sizeof text,
                " From %u on the conversations no longer fit the caches: ", full_from);
  sentence += text;
  if (better == nullptr) {
    return sentence + "add replicas, or let fewer in at once, as limpet-gate does.\n";
  }
  std::snprintf(text, sizeof text,
                "add replicas, or use %s: %+.0f %% output tokens against %s, median wait %.2f s "
                "instead of %.2f s, 95 %% of the turns within %.1f s instead of %.1f s.",
                better->policy.c_str(),
                100 * (better->output_tokens_per_minute / full.output_tokens_per_minute - 1),
                full.policy.c_str(), better->ttfb.p50, full.ttfb.p50, better->ttfb.p95,
                full.ttfb.p95);
  return sentence + text + "\n";
}

}  // namespace limpet::sim
