# SPDX-License-Identifier: Apache-2.0
"""Anthropic's messages, as vLLM answers them."""

from __future__ import annotations

from typing import Any

from limpet.lab import text
from limpet.lab.wire import Ask, Refusal, Reply, chat_prompt, event, messages_of
from limpet.lab.wire import read as read_ask


class Messages:
    path = "/v1/messages"
    prefix = "chatcmpl-"

    def prompt(self, body: dict[str, Any]) -> bytes:
        before = b""
        if body.get("tools"):
            before += text.message("tools", body["tools"])
        if body.get("system"):
            before += text.message("system", body["system"])
        return chat_prompt(before, messages_of(body))

    def ask(self, body: dict[str, Any]) -> Ask:
        prompt = self.prompt(body)
        if body.get("max_tokens") is None:
            raise Refusal.bad("max_tokens: Field required", "max_tokens")
        return read_ask(body, [prompt], ("max_tokens",))

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        return refusal.anthropic()

    def whole(self, reply: Reply) -> dict[str, Any]:
        return {
            "id": reply.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": text.text(reply.said(0))}],
            "model": reply.ask.model,
            "stop_reason": _stop_reason(reply),
            "usage": _usage(reply),
        }

    def opened(self, reply: Reply) -> list[bytes]:  # noqa: ARG002
        return []

    def began(self, reply: Reply, index: int) -> list[bytes]:
        message: dict[str, Any] = {
            "id": reply.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": reply.ask.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": reply.usage()[0], "output_tokens": 0},
        }
        block = {"type": "text", "text": ""}
        return [
            _event({"type": "message_start", "message": message}),
            _event({"type": "content_block_start", "content_block": block, "index": index}),
        ]

    def more(self, reply: Reply, index: int, said: bytes, last: bool) -> bytes:  # noqa: ARG002
        delta = {"type": "text_delta", "text": text.text(said)}
        return _event({"type": "content_block_delta", "delta": delta, "index": index})

    def ended(self, reply: Reply) -> list[bytes]:
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        return [
            _event({"type": "content_block_stop", "index": 0}),
            _event({"type": "message_delta", "delta": delta, "usage": _usage(reply)}),
            _event({"type": "message_stop"}),
        ]


def _event(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])


def _stop_reason(reply: Reply) -> str:
    return "end_turn" if reply.stopped(0) else "max_tokens"


def _usage(reply: Reply) -> dict[str, int]:
    prompt, cached, said = reply.usage()
    if not reply.details:
        return {"input_tokens": prompt, "output_tokens": said}
    return {
        "input_tokens": prompt - cached,
        "output_tokens": said,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }
