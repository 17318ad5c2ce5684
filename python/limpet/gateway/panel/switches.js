// SPDX-License-Identifier: Apache-2.0
//
// What the page can change: affinity, the spill threshold, and the life of a replica. A change is
// carried out at once, said in words and offered for undoing; only setting a replica down asks
// first, because its conversations move and their history is read again, which no undo brings back.

import { wordsOf } from "./api.js";
import { byId, setAttribute, setText } from "./dom.js";
import { wantedOf } from "./replicas.js";

export class Switches {
  #state = null;
  #edited = false; // the threshold is being typed
  #undo = null;
  #asked = null; // {affinity}: not answered yet; the switch stands there and the next press goes by it
  #changes = Promise.resolve(); // carried out one after the other, in the order they were asked for
  #api; // {setAffinity(value), setThreshold(value), setReplica(name, change)} -> state
  #changed; // told the new state

  constructor(api, changed) {
    this.#api = api;
    this.#changed = changed;
    const threshold = byId("threshold");
    byId("affinity").addEventListener("click", () =>
      this.#setAffinity(this.#affinity() === "on" ? "off" : "on"));
    threshold.addEventListener("input", () => { this.#edited = true; });
    threshold.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#showThreshold(false);
    });
    byId("threshold-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const value = Number(threshold.value);
      if (threshold.value && threshold.checkValidity()) this.#setThreshold(value);
      else this.#say("The spill threshold is a whole number from 1 to 1,000,000.", { error: true });
    });
    byId("threshold-auto").addEventListener("click", () => this.#setThreshold(null));
    byId("undo").addEventListener("click", () => {
      byId("dismiss").focus();
      this.#undo();
    });
    byId("dismiss").addEventListener("click", () => {
      byId("affinity").focus();
      this.clear();
    });
  }

  show(state) {
    this.#state = state;
    setAttribute(byId("affinity"), "aria-checked", this.#affinity() === "on");
    setText(byId("rule"), `affinity ${state.affinity}, ${thresholdWords(state.spill_threshold)}`);
    this.#showThreshold(this.#edited);
  }

  clear() {
    byId("message").hidden = true;
  }

  async changeReplica(replica, change) {
    const { name } = replica;
    const before = wantedOf(replica);
    if (change === "down" && !(await confirmDown(replica))) return;
    const words = {
      drain: `${name} is draining: it serves its own conversations and takes no new ones.`,
      up: `${name} may take new conversations.`,
      down: `${name} is down: its conversations move at their next turn.`,
    };
    const back = { up: "up", draining: "drain", down: "down" }[before];
    await this.#carryOut(() => this.#api.setReplica(name, change), words[change], async () => {
      const undone = `Undone: ${name} is to be ${before}.`;
      await this.#carryOut(() => this.#api.setReplica(name, back), undone);
    });
  }

  #affinity() {
    return (this.#asked ?? this.#state).affinity;
  }

  async #setAffinity(affinity) {
    const asked = { affinity };
    this.#asked = asked;
    this.show(this.#state);
    const words = affinity === "on"
      ? "Affinity is on: turns go home."
      : "Affinity is off: each turn is left to the engine's own balancer.";
    await this.#carryOut(() => this.#api.setAffinity(affinity), words, () =>
      this.#setAffinity(affinity === "on" ? "off" : "on"));
    if (this.#asked !== asked) return;
    this.#asked = null;
    this.show(this.#state);
  }

  async #setThreshold(value) {
    const { auto, value: before } = this.#state.spill_threshold;
    const words = value === null
      ? "The spill threshold is automatic."
      : `The spill threshold is ${value}.`;
    await this.#carryOut(() => this.#api.setThreshold(value), words, () =>
      this.#setThreshold(auto ? null : before), () => { this.#edited = false; });
  }

  #carryOut(...change) {
    this.#changes = this.#changes.then(() => this.#carryOutNow(...change));
    return this.#changes;
  }

  async #carryOutNow(ask, words, undo = null, done = () => {}) {
    try {
      const state = await ask();
      done();
      this.#changed(state);
      this.#say(words, { undo });
    } catch (error) {
      this.#say(`Not changed: ${wordsOf(error)}`, { error: true });
    }
  }

  #showThreshold(edited) {
    this.#edited = edited;
    const { value, auto } = this.#state.spill_threshold;
    byId("threshold-form").hidden = value === null && !auto;
    if (!edited) byId("threshold").value = value ?? "";
    setAttribute(byId("threshold-auto"), "aria-pressed", auto);
  }

  #say(words, { undo = null, error = false }) {
    this.#undo = undo;
    byId("message").hidden = false;
    byId("message").classList.toggle("error", error);
    byId("undo").hidden = undo === null;
    setText(byId("message-words"), words);
  }
}

function thresholdWords({ value, auto }) {
  if (value === null) return auto ? "spill threshold auto" : "no spill threshold";
  return `spill threshold ${value}${auto ? " (auto)" : ""}`;
}

function confirmDown({ name, pins }) {
  const dialog = byId("confirm");
  setText(byId("confirm-title"), `Set ${name} down?`);
  setText(byId("confirm-words"), `Turns in flight end as they are. ${pins} pinned conversations ` +
    "move to other replicas at their next turn, which read their history again.");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
