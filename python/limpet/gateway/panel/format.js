// SPDX-License-Identifier: Apache-2.0
//
// How figures are written on the panel: plain grouped digits, shares in percent, ages in the unit
// that fits. null is what nobody has said and becomes a dash, never 0.

export const unknown = "–";

const digits = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clockOf = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const minuteOf = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const dayOf = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

const known = (value) => value !== null && value !== undefined;

export const count = (value) => (known(value) ? digits.format(value) : unknown);

export const percent = (share) => (known(share) ? `${(100 * share).toFixed(1)} %` : unknown);

// A share of nothing is unknown.
export const shareOf = (part, whole) => (whole > 0 ? part / whole : null);

export const score = (value) => (known(value) ? value.toFixed(2) : unknown);

export function age(seconds) {
  if (!known(seconds)) return unknown;
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

// Local time of the reader; `unix` in seconds.
export const clock = (unix) => (known(unix) ? clockOf.format(unix * 1000) : unknown);

// With the day, where it is not today's.
export function moment(unix, now) {
  const [then, today] = [new Date(unix * 1000), new Date(now * 1000)];
  const time = minuteOf.format(then);
  return then.toDateString() === today.toDateString() ? time : `${dayOf.format(then)} ${time}`;
}
