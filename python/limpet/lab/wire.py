# SPDX-License-Identifier: Apache-2.0
"""What the four protocols have in common: the request that was asked, the reply that is under way,
a refusal, JSON and server-sent events as vLLM writes them.

Field names, their order and null are those of answers recorded from vLLM 0.32.0; where none was
recorded (streamed completions, embeddings) those of its sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from limpet.lab import text
from limpet.lab.core import Turn

FINGERPRINT = "vllm-0.32.0-limpet"

# Above it max_tokens is taken as the limit that agents set, not as a wish.
_WISHED_AT_MOST = 1_024


class Refusal(Exception):  # noqa: N818 (an answer, not a failure)
    """A request that gets an error for an answer."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    @classmethod
    def bad(cls, message: str, param: str | None = None) -> Refusal:
        return cls(400, "BadRequestError", message, param)

    def openai(self) -> dict[str, Any]:
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}

    def anthropic(self) -> dict[str, Any]:
        return {"type": "error", "error": {"type": self.kind, "message": str(self)}}


@dataclass
class Ask:
    """A request, read."""

    body: dict[str, Any]
    model: str
    prompts: list[bytes]
    max_tokens: int | None  # None: whatever fits
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0

    def output_tokens(self, prompt: bytes, max_model_len: int) -> int:
        """How long the answer to that prompt gets. Refusal: it does not fit."""
        used = text.count(prompt)
        asked = self.max_tokens
        if used + (asked or 1) > max_model_len:
            raise Refusal.bad(
                f"This model's maximum context length is {max_model_len} tokens. However, you "
                f"requested {asked or 1} output tokens and your prompt contains at least {used} "
                f"input tokens, for a total of at least {used + (asked or 1)} tokens. Please "
                "reduce the length of the input prompt or the number of requested output tokens. "
                f"(parameter=input_tokens, value={used})",
                "input_tokens",
            )
        limit = max_model_len - used if asked is None else asked
        if asked is not None and (self.ignore_eos or asked <= _WISHED_AT_MOST):
            return limit
        return min(limit, max(text.length(prompt), self.min_tokens))


@dataclass
class Reply:
    """The answer to an Ask, while it is being made."""

    ask: Ask
    turns: list[Turn]
    id: str
    created: int
    details: bool  # usage tells of cached tokens
    max_tokens: list[int]
    sent: list[int] = field(default_factory=list)  # tokens that have left, of each turn
    events: int = 0  # of them that carried tokens
    text: str = ""  # that has left, for protocols that repeat it at the end

    def usage(self) -> tuple[int, int, int]:
        """Prompt tokens, those of them that were cached, tokens of the answer."""
        return (
            sum(turn.prompt_tokens for turn in self.turns),
            sum(turn.cached for turn in self.turns),
            sum(turn.generated for turn in self.turns),
        )

    def said(self, index: int, since: int = 0) -> bytes:
        turn = self.turns[index]
        return turn.answer[since * text.TOKEN_BYTES : turn.generated * text.TOKEN_BYTES]

    def stopped(self, index: int) -> bool:
        """Whether it ended by itself; otherwise max_tokens ended it."""
        return self.turns[index].generated < self.max_tokens[index]


class Api(Protocol):
    """One endpoint's way to ask and to answer."""

    @property
    def prefix(self) -> str:
        """Of the ids of its answers."""

    def ask(self, body: dict[str, Any]) -> Ask:
        """Reads a body; Refusal for one that makes no sense."""

    def whole(self, reply: Reply) -> dict[str, Any]: ...

    def opened(self, reply: Reply) -> list[bytes]:
        """Events that leave at once, before anything has been computed."""

    def began(self, reply: Reply, index: int) -> list[bytes]:
        """Events that precede the first token of a turn."""

    def more(self, reply: Reply, index: int, said: bytes, last: bool) -> bytes:
        """The event that carries new tokens."""

    def ended(self, reply: Reply) -> list[bytes]: ...

    def refusal(self, refusal: Refusal) -> dict[str, Any]: ...


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event(value: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event. A lone surrogate, which JSON may hold and UTF-8 not, stays escaped."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(value)}\n\n".encode("utf-8", "backslashreplace")


DONE = b"data: [DONE]\n\n"


def read(body: dict[str, Any], prompts: list[bytes], limits: tuple[str, ...]) -> Ask:
    """The parameters that all protocols share. `limits`: what they call max_tokens."""
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refusal.bad("stream_options must be an object", "stream_options")
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise Refusal.bad("model must be a string", "model")
    if body.get("n", 1) not in (1, None):
        raise Refusal.bad("n: this server gives one answer to a prompt", "n")
    max_tokens = None
    for name in limits:
        value = body.get(name)
        if value is None or max_tokens is not None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Refusal.bad(f"{name} must be at least 1, got {value!r}.", name)
        max_tokens = value
    min_tokens = body.get("min_tokens") or 0
    if not isinstance(min_tokens, int) or min_tokens < 0:
        raise Refusal.bad(f"min_tokens must be at least 0, got {min_tokens!r}.", "min_tokens")
    if any(not prompt for prompt in prompts) or not prompts:
        raise Refusal.bad("The prompt is empty.", "prompt")
    return Ask(
        body,
        model or "",
        prompts,
        max_tokens,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(body.get("return_token_ids")),
        ignore_eos=bool(body.get("ignore_eos")),
        min_tokens=min_tokens,
    )


def messages_of(body: dict[str, Any], field_name: str = "messages") -> list[dict[str, Any]]:
    messages = body.get(field_name)
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise Refusal.bad(f"{field_name} must be a list of objects", field_name)
    if not messages:
        raise Refusal.bad(f"{field_name} must not be empty", field_name)
    return messages


# Of a message: its frame, and what an answer carries that comes back in the next request.
_NO_TEXT = {"role", "content", "type", "id", "status", "phase"}


def chat_prompt(before: bytes, messages: list[dict[str, Any]]) -> bytes:
    """The prompt that a chat comes to: what stands before it, its messages, the answer's begin."""
    parts = [before]
    for each in messages:
        others = {k: v for k, v in each.items() if k not in _NO_TEXT}
        parts.append(text.message(str(each.get("role", "")), each.get("content"), **others))
    parts.append(text.answer_begins())
    return b"".join(parts)
