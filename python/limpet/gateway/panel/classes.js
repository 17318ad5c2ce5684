// SPDX-License-Identifier: Apache-2.0
//
// The classes of turns: was a turn a prefix hit, and if not, was it routing, the engine's eviction
// or the client, and what did it cost? The rules are the ledger's (limpet/ledger/turns.hpp).

import { arrange, byId, setAttribute, setText, stamp } from "./dom.js";
import { count, percent, shareOf } from "./format.js";

const meanings = {
  hit: "the engine reused at least 90 % of what the turn's home had read before",
  partial: "went home, and the engine reused some of it",
  cold: "first turn, or next to nothing to reuse",
  misrouted: "did not go home, and so found too little",
  lost: "went home, and the engine had evicted it",
  diverged: "the client changed the beginning of the prompt",
  unmeasured: "the engine did not say how much it reused",
};

const rows = new Map();

export function showClasses(classes) {
  const said = new Map(classes.map((entry) => [entry.class, entry]));
  const turns = classes.reduce((sum, entry) => sum + entry.turns, 0);
  const misses = classes.filter((entry) => entry.class !== "hit");
  const dearest = Math.max(...misses.map((entry) => entry.computed_tokens));
  const names = [...new Set([...Object.keys(meanings), ...said.keys()])];
  for (const name of names) {
    if (!rows.has(name)) rows.set(name, newRow(name));
    const { elements: [row], parts } = rows.get(name);
    const entry = said.get(name) ?? { turns: 0, computed_tokens: 0 };
    const computed = entry.computed_tokens;
    setText(parts.turns, count(entry.turns));
    setText(parts.share, percent(shareOf(entry.turns, turns)));
    setText(parts.computed_tokens, count(computed));
    const isDearest = name !== "hit" && computed > 0 && computed === dearest;
    setAttribute(row, "class", isDearest ? "dearest" : "");
  }
  arrange(byId("class-rows"), names.map((name) => rows.get(name).elements[0]));
}

function newRow(name) {
  const row = stamp("class-row");
  setText(row.elements[0].querySelector("th"), name);
  setText(row.elements[0].querySelector(".meaning"), meanings[name] ?? "");
  return row;
}
