// SPDX-License-Identifier: Apache-2.0
//
// The last decisions, newest first, each opening into its explanation: every replica as the router
// saw it, and its score by term. While somebody reads one the list is held, so that it does not run
// away; what is on the page still learns its class and its tokens, which come when a turn ends.

import { wordsOf } from "./api.js";
import { arrange, byId, discloses, setAttribute, setText, stamp } from "./dom.js";
import { age, clock, count, percent, score, unknown } from "./format.js";

const few = 20; // rows shown until asked for all

// A gateway that starts again counts its decisions from one again.
const keyOf = ({ id, at }) => `${id}@${at}`;

const said = (text) => (text === null || text === undefined ? unknown : text.replaceAll("_", " "));

export class DecisionTable {
  #rows = new Map(); // key -> row, in the order shown
  #latest = [];
  #all = false;
  #held = false;
  #heldByReading = false;
  #explain;

  // `explain(id)` -> the decision with its rows
  constructor(explain) {
    this.#explain = explain;
    byId("hold").addEventListener("click", () => this.#hold(!this.#held, false));
    byId("more").addEventListener("click", () => {
      this.#all = !this.#all;
      this.#render();
    });
  }

  show(decisions) {
    this.#latest = decisions;
    this.#render();
  }

  // Another pool, another list.
  clear() {
    this.#rows.clear();
    this.#latest = [];
    this.#hold(false, false);
  }

  #hold(held, byReading) {
    this.#held = held;
    this.#heldByReading = held && byReading;
    setAttribute(byId("hold"), "aria-pressed", held);
    this.#render();
  }

  #render() {
    const latest = new Map(this.#latest.map((decision) => [keyOf(decision), decision]));
    const top = [...latest.keys()].slice(0, this.#all ? latest.size : few);
    // Held: the rows that are there. Otherwise the newest, and whatever is open or focused.
    const shown = [...this.#rows.keys()];
    const keys = this.#held ? shown
      : [...top, ...shown.filter((key) => !top.includes(key) && this.#inUse(key))];
    const rows = new Map();
    for (const key of keys) {
      const row = this.#rows.get(key) ?? this.#newRow(latest.get(key).id);
      if (latest.has(key)) fill(row.parts, latest.get(key));
      rows.set(key, row);
    }
    this.#rows = rows;
    arrange(byId("decision-rows"), [...rows.values()].flatMap((row) => row.elements));
    setText(byId("newer"), this.#held ? this.#newerWords() : "");
    byId("no-decisions").hidden = rows.size > 0;
    byId("more").hidden = latest.size <= few;
    setText(byId("more"), this.#all ? `Show the last ${few}` : `Show the last ${latest.size}`);
  }

  #newerWords() {
    const newer = this.#latest.findIndex((one) => this.#rows.has(keyOf(one)));
    return newer < 0 ? `held, ${this.#latest.length} or more newer` : `held, ${newer} newer`;
  }

  #inUse(key) {
    const { elements: [main, detail] } = this.#rows.get(key);
    const focused = document.activeElement;
    return !detail.hidden || main.contains(focused) || detail.contains(focused);
  }

  #newRow(id) {
    const row = stamp("decision-row");
    const [main, detail] = row.elements;
    row.parts.at = main.querySelector(".disclosure");
    discloses(row.parts.at, detail, (open) => {
      if (open) this.#open(id, detail);
      const reading = [...this.#rows.values()].some(({ elements }) => !elements[1].hidden);
      if (reading && !this.#held) this.#hold(true, true);
      else if (!reading && this.#heldByReading) this.#hold(false, false);
    });
    return row;
  }

  async #open(id, detail) {
    const words = detail.querySelector(".words");
    if (!words.textContent) setText(words, "asking the gateway");
    try {
      explanation(await this.#explain(id), detail);
    } catch (error) {
      detail.querySelector(".wide").hidden = true;
      setText(words, `No explanation: ${wordsOf(error)}`);
    }
  }
}

function fill(parts, decision) {
  setText(parts.at, clock(decision.at));
  setText(parts.outcome, said(decision.outcome));
  setAttribute(parts.outcome, "class", `outcome ${decision.outcome}`);
  setText(parts.reason, said(decision.reason));
  setText(parts.replica, decision.replica ?? unknown);
  setText(parts.home, decision.home ?? unknown);
  setText(parts.kind, said(decision.kind));
  setText(parts.class, said(decision.class));
  setText(parts.prompt_tokens, count(decision.prompt_tokens));
  setText(parts.cached_tokens, count(decision.cached_tokens));
}

// How the replica of an outcome is found; a reason that says it otherwise comes first.
const rule = {
  "placed beside its parent": "The parent's home had room, so no score was compared.",
  "home is overloaded, nobody is better": "No other replica had fewer turns in flight.",
  "a side call follows home and pins nothing": "",
  placed: "The lowest score got the conversation.",
  moved: "The lowest score among the others got the conversation.",
  spilled: "The fewest turns in flight among the others got this one turn; the pin stays.",
  sticky: "Nothing was compared; the scores say where a new conversation would have gone.",
  balanced: "The fewest turns in flight got the turn; nothing was pinned.",
  client_pinned: "The client chose; the scores say where a new conversation would have gone.",
};

function explanation(decision, detail) {
  const sentence = decision.replica === null ? "Sent to no replica" : `Sent to ${decision.replica}`;
  setText(detail.querySelector(".words"), `${sentence} (${said(decision.outcome)}): ` +
    `${said(decision.reason)}. ${rule[decision.reason] ?? rule[decision.outcome] ?? ""}`);
  if (decision.rows.length === 0) return;
  const terms = [...new Set(decision.rows.flatMap((row) => Object.keys(row.terms)))];
  const table = detail.querySelector("table");
  const [groups, heads] = table.tHead.rows;
  groups.querySelector(".score-group").colSpan = terms.length + 1;
  while (heads.cells.length > 6) heads.lastElementChild.remove();
  for (const term of [...terms, "score"]) heads.append(cell("th", title(term)));
  table.tBodies[0].replaceChildren(...decision.rows.map((row) => {
    const line = document.createElement("tr");
    const name = cell("th", row.home ? `${row.name} (home)` : row.name);
    name.scope = "row";
    line.className = row.standing;
    line.append(name, cell("td", row.overloaded ? `${row.standing}, overloaded` : row.standing));
    line.cells[0].className = line.cells[1].className = "";
    for (const text of [
      count(row.in_flight), count(row.live_conversations), percent(row.kv_usage),
      age(row.reading_age), ...terms.map((term) => score(row.terms[term])), score(row.score),
    ]) line.append(cell("td", text));
    return line;
  }));
  detail.querySelector(".wide").hidden = false;
}

const title = (term) => said(term[0].toUpperCase() + term.slice(1)).replace(/^Kv\b/, "KV");

function cell(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = "n";
  if (tag === "th") made.scope = "col";
  return made;
}
