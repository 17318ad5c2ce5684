# SPDX-License-Identifier: Apache-2.0
"""Usage of an engine's answer, as the documents say it: slow, plain, standard json.

test_wire.py compares it with limpet.UsageScanner on random answers. Takes whole answers that are
well-formed.
"""

from __future__ import annotations

import json
import re
from typing import Any

FIELDS = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


def events(stream: str) -> list[str]:
    """The data of each event that a blank line ends."""
    found: list[str] = []
    lines: list[str] = []
    for line in re.split(r"\r\n|\r|\n", stream):
        if line == "":
            if lines:
                found.append("\n".join(lines))
            lines = []
        elif line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
    return found


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1 << 53


def usages(document: Any) -> list[dict[str, Any]]:
    """Where engines put it: usage, response.usage, message.usage; in the order of the document."""
    found = []
    for name, value in document.items() if isinstance(document, dict) else []:
        if name == "usage" and isinstance(value, dict):
            found.append(value)
        elif name in ("response", "message") and isinstance(value, dict):
            found += [value["usage"]] if isinstance(value.get("usage"), dict) else []
    return found


def usage(answer: str) -> tuple[int, int | None, int] | None:
    """(prompt, cached, completion) tokens; cached is None where nothing said it."""
    documents = [answer] if answer.lstrip().startswith(("{", "[")) else events(answer)
    said: dict[str, int] = {}
    for text in documents:
        if text == "[DONE]":
            continue
        for counts in usages(json.loads(text)):
            said |= {name: counts[name] for name in FIELDS if whole(counts.get(name))}
            for details in ("prompt_tokens_details", "input_tokens_details"):
                nested = counts.get(details)
                if isinstance(nested, dict) and whole(nested.get("cached_tokens")):
                    said["cached"] = nested["cached_tokens"]
    completion = said.get("completion_tokens", said.get("output_tokens", 0))
    cached = said.get("cached", said.get("cache_read_input_tokens"))
    if "prompt_tokens" in said:
        return said["prompt_tokens"], cached, completion
    if "input_tokens" not in said:
        return None
    beside = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return said["input_tokens"] + sum(said.get(name, 0) for name in beside), cached, completion
