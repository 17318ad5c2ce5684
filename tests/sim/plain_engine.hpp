// SPDX-License-Identifier: Apache-2.0
//
// A slow and plain model of one engine, written from the rules and not from the code: real token
// numbers instead of hashes, a block known by the whole text before it, lists that are searched and
// shifted. Random histories must give the same steps here and in limpet::sim::Engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace plain {

using Text = std::vector<int>;

struct Request {
  std::uint64_t id;
  Text text;  // prompt and answer
  std::size_t prompt;
  std::size_t said = 0;
  std::size_t computed = 0;
  std::vector<std::size_t> blocks;
  bool seen_before = false;
};

struct Step {
  std::vector<std::pair<std::uint64_t, std::size_t>> tokens;  // request, its new tokens, in order
  std::size_t pairs_twice = 0;                                // 2 x sum of n (context + n / 2)
  std::size_t decode_context = 0;
  std::vector<std::pair<std::uint64_t, std::size_t>> first;  // request, tokens it found cached
  std::vector<std::uint64_t> finished;
};

class Engine {
 public:
  Engine(std::size_t blocks, std::size_t block, std::size_t seats, std::size_t budget)
      : block_(block), seats_(seats), budget_(budget), text_of_(blocks), holders_(blocks, 0) {
    for (std::size_t b = 0; b < blocks; ++b) queue_.push_back(b);
  }

  void submit(Request request) { waiting_.push_back(std::move(request)); }

  bool abort(std::uint64_t id) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].id != id) continue;
      give_back(running_[i]);
      running_.erase(running_.begin() + static_cast<long>(i));
      return true;
    }
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].id != id) continue;
      waiting_.erase(waiting_.begin() + static_cast<long>(i));
      return true;
    }
    return false;
  }

  [[nodiscard]] bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t free_blocks() const { return queue_.size(); }

  std::size_t preemptions = 0;
  std::size_t queries = 0;
  std::size_t hits = 0;

  Step step() {
    Step step;
    std::size_t budget = budget_;
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const std::uint64_t id = running_[i].id;
      const std::size_t n =
          std::min(running_[i].prompt + running_[i].said - running_[i].computed, budget);
      bool gone = false;
      while (missing(running_[i], running_[i].computed + n) > queue_.size()) {
        preempted = true;
        ++preemptions;
        Request last = running_.back();
        running_.pop_back();
        give_back(last);
        gone = last.id == id;
        waiting_.push_front(last);
        if (gone) break;
      }
      if (gone) break;
      take(running_[i], running_[i].computed + n);
      note(step, running_[i], n);
      budget -= n;
    }
    while (!preempted && !waiting_.empty() && budget > 0 && running_.size() < seats_) {
      Request& r = waiting_.front();
      const std::size_t known = r.prompt + r.said;
      std::vector<std::size_t> found;
      while ((found.size() + 1) * block_ <= known - 1) {
        const std::size_t end = (found.size() + 1) * block_;
        const auto copies =
            copies_.find(Text(r.text.begin(), r.text.begin() + static_cast<long>(end)));
        if (copies == copies_.end()) break;
        found.push_back(copies->second.front());
      }
      std::size_t idle = 0;
      for (const std::size_t b : found) idle += holders_[b] == 0 ? 1 : 0;
      const std::size_t whole = (known + block_ - 1) / block_;
      if (whole - found.size() + idle > queue_.size()) break;
      for (const std::size_t b : found) {
        if (holders_[b]++ == 0) queue_.erase(std::find(queue_.begin(), queue_.end(), b));
      }
      r.blocks = found;
      r.computed = found.size() * block_;
      if (!r.seen_before) {
        queries += known;
        hits += r.computed;
        cached_[r.id] = r.computed;
      }
      r.seen_before = true;
      running_.push_back(r);
      waiting_.pop_front();
      Request& now = running_.back();
      const std::size_t n = std::min(known - now.computed, budget);
      take(now, now.computed + n);
      note(step, now, n);
      budget -= n;
    }
    for (const auto& [id, n] : step.tokens) {
      for (Request& r : running_) {
        if (r.id != id) continue;
        r.computed += n;
        if (r.computed < r.prompt + r.said) continue;
        if (++r.said == 1) step.first.emplace_back(id, cached_[id]);
      }
    }
    for (std::size_t i = 0; i < running_.size();) {
      if (running_[i].prompt + running_[i].said < running_[i].text.size()) {
        ++i;
        continue;
      }
      step.finished.push_back(running_[i].id);
      give_back(running_[i]);
      running_.erase(running_.begin() + static_cast<long>(i));
    }
    return step;
  }

 private:
  std::size_t missing(const Request& r, std::size_t tokens) const {
    const std::size_t needed = (tokens + block_ - 1) / block_;
    return needed > r.blocks.size() ? needed - r.blocks.size() : 0;
  }

  void take(Request& r, std::size_t tokens) {
    while (missing(r, tokens) > 0) {
      const std::size_t b = queue_.front();
      queue_.pop_front();
      if (!text_of_[b].empty()) {
        auto& copies = copies_[text_of_[b]];
        copies.erase(std::find(copies.begin(), copies.end(), b));
        if (copies.empty()) copies_.erase(text_of_[b]);
        text_of_[b].clear();
      }
      holders_[b] = 1;
      r.blocks.push_back(b);
    }
    for (std::size_t i = 0; (i + 1) * block_ <= tokens; ++i) {
      if (!text_of_[r.blocks[i]].empty()) continue;
      text_of_[r.blocks[i]].assign(r.text.begin(),
                                   r.text.begin() + static_cast<long>((i + 1) * block_));
      copies_[text_of_[r.blocks[i]]].push_back(r.blocks[i]);
    }
  }

  void give_back(Request& r) {
    std::vector<std::size_t> full;
    std::vector<std::size_t> open;
    for (std::size_t i = r.blocks.size(); i-- > 0;) {
      if (--holders_[r.blocks[i]] > 0) continue;
      (text_of_[r.blocks[i]].empty() ? open : full).push_back(r.blocks[i]);
    }
    queue_.insert(queue_.begin(), open.begin(), open.end());
    queue_.insert(queue_.end(), full.begin(), full.end());
    r.blocks.clear();
    r.computed = 0;
  }

  static void note(Step& step, const Request& r, std::size_t n) {
    step.tokens.emplace_back(r.id, n);
    if (n == 1 && r.said > 0) {
      step.decode_context += r.computed + 1;
    } else {
      step.pairs_twice += n * (2 * r.computed + n);
    }
  }

  std::size_t block_, seats_, budget_;
  std::vector<Text> text_of_;
  std::vector<int> holders_;
  std::map<Text, std::vector<std::size_t>> copies_;  // oldest first
  std::deque<std::size_t> queue_;
  std::vector<Request> running_;
  std::deque<Request> waiting_;
  std::map<std::uint64_t, std::size_t> cached_;
};

}  // namespace plain
