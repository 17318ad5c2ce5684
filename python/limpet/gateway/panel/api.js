// SPDX-License-Identifier: Apache-2.0
//
// The gateway's admin API as the page uses it. Addresses are relative to the page, so that a proxy
// may serve it below a prefix. The feed of states is read with fetch, because an EventSource cannot
// send the token's header.

// The gateway writes a state about once a second; a feed that is silent for longer is lost.
const silenceLimit = 5000; // ms

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  get refused() {
    return this.status === 401 || this.status === 403;
  }
}

// What to tell a person; the browser's own words for a lost connection say nothing.
export function wordsOf(error) {
  if (error instanceof TypeError) return "the gateway does not answer";
  return error.name === "TimeoutError" ? "the gateway takes too long" : error.message;
}

export class Api {
  constructor(token) {
    this.token = token;
  }

  pools() {
    return this.#json("pools");
  }

  timeline(pool, seconds) {
    return this.#json(`${at(pool)}/timeline?seconds=${seconds}`);
  }

  decision(pool, id) {
    return this.#json(`${at(pool)}/decisions/${encodeURIComponent(id)}`);
  }

  setAffinity(pool, affinity) {
    return this.#post(`${at(pool)}/affinity`, { affinity });
  }

  // null: auto.
  setThreshold(pool, threshold) {
    return this.#post(`${at(pool)}/threshold`, { threshold });
  }

  // `change`: "drain", "up" or "down".
  setReplica(pool, name, change) {
    return this.#post(`${at(pool)}/replicas/${encodeURIComponent(name)}/${change}`, {});
  }

  // The states of a pool as they come. Throws when the feed ends, breaks or falls silent.
  async *states(pool, signal) {
    const giveUp = new AbortController();
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => giveUp.abort(new Error("the feed fell silent")), silenceLimit);
    };
    try {
      heard();
      const answer = await this.#fetch(`${at(pool)}/events`, {
        signal: AbortSignal.any([signal, giveUp.signal]),
      });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error("the gateway ended the feed");
        heard();
        text += value.replaceAll("\r", "");
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const state = stateIn(event);
          if (state) yield state;
        }
      }
    } finally {
      clearTimeout(silence);
      giveUp.abort();
    }
  }

  #post(path, body) {
    const headers = { "content-type": "application/json" };
    return this.#json(path, { method: "POST", headers, body: JSON.stringify(body) });
  }

  async #json(path, options = {}) {
    const limit = { signal: AbortSignal.timeout(10_000), ...options };
    return (await this.#fetch(path, limit)).json();
  }

  async #fetch(path, options) {
    const headers = { ...options.headers };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    const answer = await fetch(`api/${path}`, { cache: "no-store", ...options, headers });
    if (!answer.ok) throw new ApiError(answer.status, await messageOf(answer));
    return answer;
  }
}

const at = (pool) => `pools/${encodeURIComponent(pool)}`;

function stateIn(event) {
  const lines = event.split("\n");
  if (!lines.some((line) => /^event: ?state$/.test(line))) return null;
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
  return JSON.parse(data.join("\n"));
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the gateway answered ${answer.status}`;
  }
}
