// SPDX-License-Identifier: Apache-2.0
//
// The panel: signs in, follows one pool's feed and hands each state to the parts of the page. A
// lost feed is said, with the time of the figures still shown, and tried again with growing pauses.
// The token stays in this tab's session storage and never in an address.

import { Api, wordsOf } from "./api.js";
import { showClasses } from "./classes.js";
import { DecisionTable } from "./decisions.js";
import { byId, setText } from "./dom.js";
import { age, clock, count, percent, shareOf } from "./format.js";
import { ReplicaTable } from "./replicas.js";
import { Switches } from "./switches.js";
import { Timeline } from "./timeline.js";

const tokenKey = "limpet-admin-token";
const longestPause = 15; // s between two attempts
const longestDelay = 5; // s that a state of the feed may be late; behind more, a clock was set back

let api = new Api(takeToken());
let pool = new URLSearchParams(location.search).get("pool");
let last = null; // the state on the page
let answered = 0; // s, the gateway's time of the last answer to a change
let following = null; // AbortController of the feed
let wake = () => {}; // ends a pause before its time

const switches = new Switches({
  setAffinity: (value) => api.setAffinity(pool, value),
  setThreshold: (value) => api.setThreshold(pool, value),
  setReplica: (name, change) => api.setReplica(pool, name, change),
}, (state) => {
  if (state.pool !== pool) return; // another has been chosen meanwhile
  answered = state.now;
  show(state);
});
const replicas = new ReplicaTable((replica, change) => switches.changeReplica(replica, change));
const timeline = new Timeline((seconds) => api.timeline(pool, seconds));
const decisions = new DecisionTable((id) => api.decision(pool, id));

byId("pool").addEventListener("change", (event) => choose(event.target.value));
byId("retry").addEventListener("click", () => wake());
window.addEventListener("online", () => wake());
byId("forget").addEventListener("click", () => {
  sessionStorage.removeItem(tokenKey);
  api = new Api(null);
  signIn("");
});
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  api = new Api(byId("token").value);
  byId("token").value = "";
  follow();
});
follow();

// From the address, which forgets it at once, or from this tab's storage.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return sessionStorage.getItem(tokenKey);
  history.replaceState(null, "", location.pathname + location.search);
  sessionStorage.setItem(tokenKey, given);
  return given;
}

function choose(name) {
  pool = name;
  const query = new URLSearchParams({ pool });
  history.replaceState(null, "", `${location.pathname}?${query}`);
  follow();
}

// Follows the chosen pool until another is chosen, a token is refused or the page goes.
async function follow() {
  following?.abort();
  following = new AbortController();
  const { signal } = following;
  last = null;
  byId("panel").hidden = true;
  decisions.clear();
  timeline.clear();
  switches.clear();
  feedIs("connecting", "connecting");
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      await findPool(signal);
      for await (const state of api.states(pool, signal)) {
        if (signal.aborted) return;
        if (failures >= 0) {
          failures = -1; // the next failure is the first of its row
          feedIs("live", "live");
          timeline.follow();
        }
        // Written before the change whose answer overtook it.
        if (state.now < answered && answered - state.now < longestDelay) continue;
        show(state);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.refused) {
        sessionStorage.removeItem(tokenKey);
        signIn(api.token ? "The gateway refuses this token." : "");
        return;
      }
      timeline.stop();
      document.body.classList.toggle("stale", last !== null);
      const pause = Math.min(longestPause, 2 ** Math.max(0, failures));
      const figures = last ? `; figures of ${clock(last.now)}` : "";
      feedIs("lost", `feed lost: ${wordsOf(error)}${figures}`);
      await countDown(pause, signal);
    }
  }
}

async function findPool(signal) {
  const { pools } = await api.pools();
  if (signal.aborted) return;
  if (api.token) sessionStorage.setItem(tokenKey, api.token);
  if (pools.length === 0) throw new Error("the gateway has no pool");
  const names = pools.map((one) => one.name);
  if (!names.includes(pool)) pool = names[0];
  const options = names.map((name) => new Option(name, name, false, name === pool));
  byId("pool").replaceChildren(...options);
  byId("pool-choice").hidden = false;
  const { models } = pools.find((one) => one.name === pool);
  setText(byId("models"), models.length ? `serves ${models.join(", ")}` : "");
  document.title = `${pool} · Limpet`;
  byId("sign-in").hidden = true;
  byId("forget").hidden = !api.token;
}

function show(state) {
  document.body.classList.remove("stale");
  last = state;
  byId("panel").hidden = false;
  switches.show(state);
  replicas.show(state);
  showFacts(state);
  showClasses(state.classes);
  decisions.show(state.decisions);
}

function showFacts(state) {
  const sum = (name) => state.replicas.reduce((total, replica) => total + replica[name], 0);
  const { cached, computed } = state.last_hour;
  const share = percent(shareOf(cached, cached + computed));
  setText(byId("sticky-share"), percent(state.sticky_share));
  setText(byId("cache-share"), share);
  setText(byId("cache-share-note"), `of ${count(cached + computed)} prompt tokens`);
  setText(byId("hour-share"), share);
  setText(byId("in-flight"), count(sum("in_flight")));
  const live = sum("live_conversations");
  setText(byId("in-flight-note"), `${count(live)} live conversation${live === 1 ? "" : "s"}`);
  const { turns, longest, reasons } = state.waiting;
  setText(byId("waiting"), count(turns));
  const why = Object.entries(reasons).map(([reason, number]) =>
    `${reason.replaceAll("_", " ")}: ${count(number)}`);
  const waits = turns ? [`longest ${age(longest)}`, ...why].join("; ") : "no turn waits";
  setText(byId("waiting-note"), waits);
  setText(byId("refused"), count(state.refused));
  const retried = state.retried ? `; ${count(state.retried)} were retried elsewhere` : "";
  setText(byId("refused-note"), `no replica could take them${retried}`);
  setText(byId("unrouted"), count(state.unrouted));
}

function feedIs(state, words) {
  byId("feed").dataset.state = state;
  byId("retry").hidden = state !== "lost";
  setText(byId("feed-words"), words);
  setText(byId("feed-countdown"), "");
}

// A pause that the page counts down, cut short by "Try now" or a network that is back.
async function countDown(seconds, signal) {
  for (let left = seconds; left > 0; left -= 1) {
    setText(byId("feed-countdown"), `next try in ${left} s`);
    const woken = await new Promise((resolve) => {
      wake = () => resolve(true);
      setTimeout(resolve, 1000, false);
    });
    if (signal.aborted) return; // another pool is being followed by now
    if (woken) break;
  }
  wake = () => {};
  setText(byId("feed-countdown"), "trying");
}

function signIn(complaint) {
  following?.abort();
  timeline.stop();
  document.body.classList.remove("stale");
  for (const id of ["panel", "pool-choice", "forget"]) byId(id).hidden = true;
  setText(byId("models"), "");
  feedIs("signed-out", "signed out");
  byId("sign-in").hidden = false;
  setText(byId("sign-in-error"), complaint);
  byId("token").focus();
}
