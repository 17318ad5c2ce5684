# SPDX-License-Identifier: Apache-2.0
"""A real gateway before real (simulated) engines, each a process, and a client that keeps its own
books: what the answers said they read from cache and computed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from panel.scripted_gateway import TOKEN

MODEL = "tiny"
RANKS = 2
NAMES = [f"gpu-rank{rank}" for rank in range(RANKS)]
# Words that no page and no answer of the admin API may hold.
SESSION = "session-5d1f6c0e"
SECRET = "marmalade"

_SETTINGS = """
[server]
port = {port}
drain_seconds = 0.0
[admin]
port = {admin_port}
[metrics]
interval = 0.2
[health]
interval = 0.2
[[pool]]
name = "coder"
models = ["{model}"]
aliases = ["latest"]
[[pool.replica]]
url = "{engine}"
name = "gpu"
data_parallel_size = {ranks}
max_num_seqs = 32
"""


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "limpet.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "LIMPET_ADMIN_TOKEN": TOKEN},
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def _said(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line that matches; fails with all that was said when the process ends first."""
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError("".join(lines))


@dataclass
class Fleet:
    """`turn()` sends a conversation's next turn and waits for its answer's end."""

    folder: Path
    engine: str
    gateway: subprocess.Popen[str] | None = None
    url: str = ""
    admin: str = ""
    cached: int = 0  # by the usage of every answer
    computed: int = 0
    usages: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    said: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    @property
    def panel(self) -> str:
        return f"{self.admin}/limpet/"

    def start_gateway(self) -> None:
        """On free ports the first time, and from then on on the same."""
        ports = [int(url.rsplit(":", 1)[1]) if url else 0 for url in (self.url, self.admin)]
        settings = self.folder / "limpet.toml"
        settings.write_text(
            _SETTINGS.format(
                port=ports[0], admin_port=ports[1], model=MODEL, engine=self.engine, ranks=RANKS
            )
        )
        self.gateway = _start("serve", "--config", str(settings), "--access-log", "off")
        self.url = _said(self.gateway, r"serving on (http://\S+)/v1")[1]
        self.admin = _said(self.gateway, r"panel on (http://\S+?)/limpet/")[1]

    def stop_gateway(self) -> None:
        assert self.gateway is not None
        _end(self.gateway)

    def turn(self, conversation: str, words: int = 400, max_tokens: int = 16) -> None:
        messages = self.said.setdefault(conversation, [])
        text = " ".join(f"{SECRET} {conversation} {len(messages)} {n}" for n in range(words))
        messages.append({"role": "user", "content": text})
        body = {"model": MODEL, "messages": messages, "max_tokens": max_tokens}
        answer = self._post(
            f"{self.url}/v1/chat/completions",
            body,
            {"x-claude-code-session-id": f"{SESSION}-{conversation}"},
        )
        messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.usages.setdefault(conversation, []).append({**usage, "cached_tokens": cached})
        self.cached += cached
        self.computed += usage["prompt_tokens"] - cached

    def fault(self, **how: Any) -> None:
        self._post(f"{self.engine}/lab/fault", how, {})

    def empty_caches(self) -> None:
        with urlopen(Request(f"{self.engine}/reset_prefix_cache", b""), timeout=20):
            pass

    def get(self, path: str) -> Any:
        """What the admin API says of the pool to somebody who does not look at the panel."""
        address = f"{self.admin}/limpet/api/pools/coder{path}"
        request = Request(address, headers={"authorization": f"Bearer {TOKEN}"})
        with urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("")
        return found

    def decisions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.state()["decisions"]
        return found

    def counter(self, series: str, rank: int) -> float:
        """A number from the engine's own metrics page."""
        with urlopen(f"{self.engine}/metrics", timeout=20) as answer:
            page = answer.read().decode()
        lines = [line for line in page.splitlines() if line.startswith(f"vllm:{series}{{")]
        (line,) = (line for line in lines if f'engine="{rank}"' in line)
        return float(line.split("} ")[1])

    @staticmethod
    def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        request = Request(
            url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
        )
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def running(folder: Path) -> Iterator[Fleet]:
    """One engine of two ranks, thirty times faster than the machine it models."""
    arguments = f"--served-model-name {MODEL} --data-parallel-size {RANKS} --speed 30 --port 0"
    engine = _start("engine", *arguments.split(), "--json")
    try:
        fleet = Fleet(folder, json.loads(_said(engine, r"\{.*\}")[0])["url"])
        fleet.start_gateway()
        try:
            yield fleet
        finally:
            fleet.stop_gateway()
    finally:
        _end(engine)
