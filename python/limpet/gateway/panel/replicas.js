// SPDX-License-Identifier: Apache-2.0
//
// The table of replicas: what the gateway counted beside what the engine reported, and how old that
// report is. A reading that the router no longer trusts is marked, and so are its figures.

import { arrange, byId, discloses, partsOf, setAttribute, setText, stamp } from "./dom.js";
import { age, count, moment, percent, shareOf, unknown } from "./format.js";

const defaultMaxAge = 15; // s, as RouterOptions::reading_max_age
const counted = ["in_flight", "sticky", "spilled_in", "placed", "running", "waiting"];
const detailed = [
  "live_conversations", "pins", "spilled_out", "moved", "balanced", "client_pinned", "failed",
  "restarts", "max_num_seqs", "prefix_queries", "prefix_hits",
];

export class ReplicaTable {
  #rows = new Map();
  #change;
  #totals = partsOf(byId("replica-totals"));

  // `change(replica, "drain" | "up" | "down")` carries out what a button asks for.
  constructor(change) {
    this.#change = change;
  }

  show(state) {
    for (const [name, row] of this.#rows) {
      if (state.replicas.some((replica) => replica.name === name)) continue;
      if (row.elements.some((element) => element.contains(document.activeElement))) {
        byId("replicas-title").focus();
      }
      this.#rows.delete(name);
    }
    const elements = [];
    for (const replica of state.replicas) {
      if (!this.#rows.has(replica.name)) this.#rows.set(replica.name, this.#newRow(replica.name));
      const row = this.#rows.get(replica.name);
      fill(row, replica, state);
      elements.push(...row.elements);
    }
    arrange(byId("replica-rows"), elements);
    fillTotals(this.#totals, state.replicas);
  }

  #newRow(name) {
    const row = stamp("replica-row");
    const [main, detail] = row.elements;
    const button = main.querySelector(".disclosure");
    setText(button, name);
    discloses(button, detail);
    row.parts.switch.addEventListener("click", () =>
      this.#change(row.replica, wantedOf(row.replica) === "up" ? "drain" : "up"));
    row.parts.down.addEventListener("click", () => this.#change(row.replica, "down"));
    return row;
  }
}

// What its operator wants of it; its state may be worse.
export const wantedOf = (replica) => replica.wanted ?? replica.state;

function stateWords({ state, health, leaving }) {
  const more = [health === "ok" ? null : health, leaving ? "leaving" : null].filter(Boolean);
  return [state, ...more].join(", ");
}

function fill(row, replica, state) {
  const { elements: [main], parts } = row;
  row.replica = replica;
  for (const name of [...counted, ...detailed]) setText(parts[name], count(replica[name]));

  const wanted = wantedOf(replica);
  setText(parts.state, stateWords(replica));
  setAttribute(parts.state, "class", `state ${replica.state}`);
  setText(parts.switch, wanted === "up" ? "Drain" : "Take up");
  setAttribute(parts.switch, "aria-label", `${parts.switch.textContent} ${replica.name}`);
  setAttribute(parts.down, "aria-label", `Set down ${replica.name}`);
  parts.switch.disabled = Boolean(replica.leaving);
  parts.down.disabled = Boolean(replica.leaving) || wanted === "down";

  setText(parts.kv_usage, percent(replica.kv_usage));
  const bar = main.querySelector(".gauge");
  bar.hidden = replica.kv_usage === null;
  bar.firstElementChild.style.inlineSize = `${100 * Math.min(1, replica.kv_usage ?? 0)}%`;

  setText(parts.prefix_hit_rate, percent(replica.prefix_hit_rate));
  setText(parts.prefix_hit_note, hitNote(replica, state.now));

  const limit = state.reading_max_age ?? defaultMaxAge;
  const stale = replica.reading_age !== null && replica.reading_age > limit;
  setText(parts.reading_age, age(replica.reading_age) + (stale ? ", stale" : ""));
  main.classList.toggle("stale-reading", stale);

  setText(parts.endpoint, replica.endpoint);
  setText(parts.rank, replica.rank === null ? unknown : String(replica.rank));
}

function hitNote(replica, now) {
  if (replica.prefix_hit_rate === null) return "";
  const since = replica.prefix_hit_since === null ? [] :
    [`since ${moment(replica.prefix_hit_since, now)}`];
  const recent = replica.prefix_hit_rate_5m === null ? [] :
    [`5 min: ${percent(replica.prefix_hit_rate_5m)}`];
  return [...since, ...recent].join(", ");
}

// Sums of what is known; a column that nobody reports stays unknown.
function fillTotals(parts, replicas) {
  const sum = (name) => {
    const said = replicas.map((replica) => replica[name]).filter((value) => value !== null);
    return said.length ? said.reduce((total, value) => total + value, 0) : null;
  };
  for (const name of counted) setText(parts[name], count(sum(name)));
  const up = replicas.filter((replica) => replica.state === "up").length;
  setText(parts.up, `${up} of ${replicas.length} up`);
  setText(parts.prefix_hits, percent(shareOf(sum("prefix_hits"), sum("prefix_queries"))));
}
