// SPDX-License-Identifier: Apache-2.0
//
// The last hour of prompt tokens, read from cache against computed, as stacked areas. The gateway
// counts in steps of a second; an hour is drawn in means of ten seconds: a prompt is counted
// in one second, and 3,600 spikes show nothing. Means are aligned to the clock, so that a mean once
// drawn stays. Drawn by Plotly, fetched when first needed: the tables do not wait for it.

import { byId, setText } from "./dom.js";
import { count, percent, shareOf } from "./format.js";

const steps = { 300: 1, 900: 3, 3600: 10 }; // s of range: s of a mean
const spans = { 300: "5 minutes", 900: "15 minutes", 3600: "hour" };

export class Timeline {
  #fetch;
  #drawn = null; // what is on the page: {cached, computed, now}
  #timer = 0;
  #range = 3600;
  #plotly = null;

  // `fetch(seconds)` -> {now, cached, computed}
  constructor(fetch) {
    this.#fetch = fetch;
    for (const choice of document.querySelectorAll("input[name=range]")) {
      choice.addEventListener("change", () => {
        this.#range = Number(choice.value);
        this.follow();
      });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#timer) this.follow();
    });
  }

  // Draws now and then again at every step, until stop().
  follow() {
    this.stop();
    const again = () => {
      if (!document.hidden) this.#refresh();
    };
    this.#timer = setInterval(again, 1000 * Math.max(2, steps[this.#range]));
    this.#refresh();
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
  }

  // Another pool's hour is not this one's.
  clear() {
    this.#drawn = null;
    setText(byId("chart-words"), "");
    if (window.Plotly) window.Plotly.purge("chart");
  }

  async #refresh() {
    const range = this.#range;
    const [timer, fetched] = [this.#timer, await this.#fetch(range).catch(() => null)];
    // A failed fetch leaves the old drawing: the feed says that it is old.
    if (!fetched || timer !== this.#timer) return;
    this.#drawn = means(fetched, steps[range]);
    const [cached, computed] = [total(fetched.cached), total(fetched.computed)];
    setText(byId("chart-words"), cached + computed === 0 ?
      `No prompt token was read in the last ${spans[range]}.` :
      `Last ${spans[range]}: ${count(cached)} prompt tokens read from cache and ` +
        `${count(computed)} computed, ${percent(shareOf(cached, cached + computed))} from cache; ` +
        `${steps[range] === 1 ? "steps of a second" : `means of ${steps[range]} s`}.`);
    await this.#draw();
  }

  async #draw() {
    if (!this.#drawn) return;
    this.#plotly ??= loadPlotly();
    const Plotly = await this.#plotly;
    if (!Plotly) {
      setText(byId("chart"), "The chart needs Plotly, which this gateway does not have: " +
        "pip install 'limpet[gateway]'.");
      return;
    }
    if (this.#drawn) await Plotly.react("chart", traces(this.#drawn), layout(), options);
  }
}

function loadPlotly() {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = "plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });
}

const total = (values) => values.reduce((sum, value) => sum + value, 0);

// {x, cached, computed}: tokens a second, each a mean over at most `step` seconds. The first and
// the last may be shorter, and are means over what they have.
function means({ now, cached, computed }, step) {
  const x = [];
  const sums = { cached: [], computed: [] };
  const first = Math.floor(now) - cached.length + 1;
  for (let place = 0; place < cached.length;) {
    const start = first + place;
    const end = Math.min(cached.length, place + step - (start % step));
    x.push(localTime(start));
    sums.cached.push(total(cached.slice(place, end)) / (end - place));
    sums.computed.push(total(computed.slice(place, end)) / (end - place));
    place = end;
  }
  return { x, ...sums };
}

// Plotly draws dates as UTC; a date without a zone is taken as it stands.
function localTime(unix) {
  const zone = new Date(unix * 1000).getTimezoneOffset() * 60;
  return new Date((unix - zone) * 1000).toISOString().slice(0, 19).replace("T", " ");
}

function traces({ x, cached, computed }) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const area = (name, y, ink) => ({
    name, x, y, stackgroup: "tokens", type: "scatter", mode: "lines",
    line: { shape: "hv", width: 0 }, fillcolor: colour(ink),
    hovertemplate: `%{y:,.0f} ${name}<extra></extra>`,
  });
  return [area("read from cache", cached, "--cached"), area("computed", computed, "--computed")];
}

function layout() {
  const style = getComputedStyle(document.documentElement);
  const [ink, quiet, line, paper] = ["--ink", "--quiet", "--line", "--surface"].map((name) =>
    style.getPropertyValue(name).trim());
  const axis = { gridcolor: line, linecolor: line, zeroline: false, fixedrange: true,
    tickfont: { color: quiet } };
  return {
    height: 230, margin: { l: 46, r: 8, t: 8, b: 28 }, showlegend: false, dragmode: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.fontFamily, size: 12, color: ink },
    hovermode: "x unified", hoverlabel: { bgcolor: paper, bordercolor: line, font: { color: ink } },
    xaxis: { ...axis, type: "date", showgrid: false, nticks: 7, tickformat: "%H:%M",
      hoverformat: "%H:%M:%S" },
    yaxis: { ...axis, rangemode: "tozero", autorangeoptions: { include: 100 }, tickformat: "~s",
      nticks: 5 },
  };
}

const options = { displayModeBar: false, responsive: true };
