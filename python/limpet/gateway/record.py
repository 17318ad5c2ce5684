# SPDX-License-Identifier: Apache-2.0
"""The access log: a line a request, for people or as JSON.

Says what was decided and what it cost. Session ids, keys and prompts are in no line.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import limpet
from limpet.gateway.errors import Refusal
from limpet.gateway.pool import Choice

access = logging.getLogger("limpet.access")


class Record:
    """What is to be said of one request once it has ended."""

    __slots__ = (
        "began", "error", "kind", "model", "outcome", "path", "pool", "replica",
        "retried", "source", "status", "tenant", "traceparent", "ttfb", "turn_class", "usage",
    )  # fmt: skip

    def __init__(self, path: str) -> None:
        self.began = time.time()
        self.path = path
        self.pool: str | None = None
        self.model: str | None = None
        self.tenant = ""
        self.kind = ""
        self.source = "none"
        self.replica: str | None = None
        self.outcome: str | None = None
        self.retried = False
        self.status: int | None = None
        self.ttfb: float | None = None
        self.usage: limpet.Usage | None = None
        self.turn_class: str | None = None
        self.error: str | None = None
        self.traceparent: bytes | None = None

    def asked(self, pool: str, model: str | None) -> None:
        self.pool = pool
        self.model = model

    def chosen(self, choice: Choice) -> None:
        self.outcome = choice.outcome
        self.replica = choice.target.name if choice.target is not None else None

    def used(self, usage: limpet.Usage | None, turn_class: limpet.TurnClass | None) -> None:
        self.usage = usage
        self.turn_class = None if turn_class is None else turn_class.value

    def refused(self, refusal: Refusal) -> None:
        self.status = refusal.status
        self.error = self.error or refusal.code

    def fields(self) -> dict[str, Any]:
        """Those that are known, in the order in which they are read."""
        usage = self.usage
        return {
            name: value
            for name, value in {
                "at": round(self.began, 3),
                "path": self.path[:200],
                "status": self.status,
                "seconds": round(time.time() - self.began, 4),
                "ttfb": None if self.ttfb is None else round(self.ttfb, 4),
                "pool": self.pool,
                "replica": self.replica,
                "outcome": self.outcome,
                "class": self.turn_class,
                "kind": self.kind or None,
                "key_source": self.source,
                "tenant": self.tenant or None,
                "retried": self.retried or None,
                "prompt_tokens": usage.prompt_tokens if usage else None,
                "cached_tokens": usage.cached_tokens if usage else None,
                "completion_tokens": usage.completion_tokens if usage else None,
                "error": self.error,
            }.items()
            if value is not None
        }


def write(record: Record, form: str) -> None:
    """One line to the logger limpet.access; `form` is text, json or off."""
    if form == "off":
        return
    fields = record.fields()
    if form == "json":
        access.info("%s", json.dumps(fields))
    else:
        access.info("%s", " ".join(f"{name}={_shown(value)}" for name, value in fields.items()))


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
