// SPDX-License-Identifier: Apache-2.0
//
// Fits a profile's step time to measurements of a real engine.
//
// Give it the requests that a real engine served (recording.hpp), and a profile whose capacities
// are those of that engine; it replays them with other coefficients until first bytes and ends
// agree best. A handful is enough if they differ: a long cold prompt, the same again, a short one,
// several at once. Nelder and Mead's simplex (1965) over the logarithms of the coefficients: no
// derivatives, any scale, always positive. Cost: some hundred replays. Deterministic.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <limpet/sim/engine.hpp>
#include <limpet/sim/recording.hpp>
#include <limpet/sim/step_time.hpp>

namespace limpet::sim {

struct CalibrateOptions {
  int replays = 1'500;  // the most that are tried
  // Of every request's times, how much of an absolute error counts as nothing, in s: clocks are
  // read by busy processes, and a relative error of 1 ms should not weigh as much as one of 1 s.
  double tolerance = 0.03;
  std::size_t every = 1;  // look at every nth request only, so that the others can check the fit
};

// Root mean square of the logarithmic errors of time to first byte and of decode time: 0.1 is 10 %.
[[nodiscard]] inline double misfit(const EngineProfile& profile,
                                   const std::vector<Measured>& measured,
                                   const CalibrateOptions& options = {}) {
  const std::vector<Timing> simulated = replay(profile, measured);
  double sum = 0;
  double count = 0;
  const auto add = [&](double ours, double theirs) {
    const double error = std::log((ours + options.tolerance) / (theirs + options.tolerance));
    sum += error * error;
    ++count;
  };
  for (std::size_t i = 0; i < measured.size(); i += options.every) {
    const Measured& m = measured[i];
    add(simulated[i].first - m.sent, m.first - m.sent);
    if (m.output_tokens > 1) add(simulated[i].end - simulated[i].first, m.end - m.first);
  }
  return std::sqrt(sum / count);
}

class Calibration {
 public:
  // Returns `start` with the step time and front end that fit best. Coefficients that are 0 in
  // `start` stay 0: leave out what the measurements cannot tell.
  [[nodiscard]] static EngineProfile fit(const EngineProfile& start,
                                         const std::vector<Measured>& measured,
                                         const CalibrateOptions& options = {}) {
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < coefficients; ++i) {
      EngineProfile probe = start;
      if (coefficient(probe, i) > 0) free.push_back(i);
    }
    const auto with = [&](const std::vector<double>& logs) {
      EngineProfile profile = start;
      for (std::size_t i = 0; i < free.size(); ++i)
        coefficient(profile, free[i]) = std::exp(logs[i]);
      return profile;
    };
    std::vector<double> first;
    for (const std::size_t i : free) {
      EngineProfile probe = start;
      first.push_back(std::log(coefficient(probe, i)));
    }
    int left = options.replays;
    const auto cost = [&](const std::vector<double>& logs) {
      --left;
      return misfit(with(logs), measured, options);
    };
    // A simplex that has collapsed in a dimension is spread again around the best point so far.
    std::vector<double> best = first;
    for (double spread = 0.5; left > 0 && spread > 0.02; spread /= 2) {
      best = descend(best, spread, left, cost);
    }
    return with(best);
  }

 private:
  static constexpr std::size_t coefficients = 7;

  static double& coefficient(EngineProfile& profile, std::size_t index) noexcept {
    StepTime& step = profile.step;
    const std::array<double*, coefficients> all = {
        &step.weights,      &step.per_token, &step.per_pair,    &step.per_context,
        &step.per_sequence, &step.fixed,     &profile.front_end};
    return *all[index];
  }

  template <class Cost>
  static std::vector<double> descend(const std::vector<double>& around, double spread, int& left,
                                     Cost& cost) {
    struct Vertex {
      std::vector<double> at;
      double cost;
    };
    const std::size_t n = around.size();
    std::vector<Vertex> simplex{{around, cost(around)}};
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> at = around;
      at[i] += spread;
      simplex.push_back({at, cost(at)});
    }
    const auto by_cost = [](const Vertex& a, const Vertex& b) { return a.cost < b.cost; };
    while (left > 0) {
      std::stable_sort(simplex.begin(), simplex.end(), by_cost);
      if (simplex.back().cost - simplex.front().cost < 1e-5) break;
      std::vector<double> centre(n, 0.0);
      for (std::size_t v = 0; v < n; ++v) {
        for (std::size_t i = 0; i < n; ++i) centre[i] += simplex[v].at[i] / static_cast<double>(n);
      }
      const auto towards = [&](double factor) {  // from the centre, away from the worst
        std::vector<double> at(n);
        for (std::size_t i = 0; i < n; ++i) {
          at[i] = centre[i] + factor * (centre[i] - simplex[n].at[i]);
        }
        const double its_cost = cost(at);
        return Vertex{std::move(at), its_cost};
      };
      Vertex reflected = towards(1.0);
      if (reflected.cost < simplex.front().cost) {
        Vertex expanded = towards(2.0);
        simplex[n] = expanded.cost < reflected.cost ? expanded : reflected;
      } else if (reflected.cost < simplex[n - 1].cost) {
        simplex[n] = reflected;
      } else {
        Vertex contracted = towards(reflected.cost < simplex[n].cost ? 0.5 : -0.5);
        if (contracted.cost < std::min(reflected.cost, simplex[n].cost)) {
          simplex[n] = contracted;
        } else {  // nothing better on that line: shrink towards the best
          for (std::size_t v = 1; v <= n; ++v) {
            for (std::size_t i = 0; i < n; ++i) {
              simplex[v].at[i] = (simplex[v].at[i] + simplex[0].at[i]) / 2;
            }
            simplex[v].cost = cost(simplex[v].at);
          }
        }
      }
    }
    return std::min_element(simplex.begin(), simplex.end(), by_cost)->at;
  }
};

[[nodiscard]] inline EngineProfile calibrate(const EngineProfile& start,
                                             const std::vector<Measured>& measured,
                                             const CalibrateOptions& options = {}) {
  return Calibration::fit(start, measured, options);
}

}  // namespace limpet::sim
