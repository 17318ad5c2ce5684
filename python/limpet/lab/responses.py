# SPDX-License-Identifier: Apache-2.0
"""OpenAI's responses, as vLLM answers them."""

from __future__ import annotations

from typing import Any

from limpet.lab import text
from limpet.lab.wire import Ask, Refusal, Reply, chat_prompt, event, messages_of
from limpet.lab.wire import read as read_ask


class Responses:
    path = "/v1/responses"
    prefix = "resp_"

    def ask(self, body: dict[str, Any]) -> Ask:
        before = b""
        if body.get("tools"):
            before += text.message("tools", body["tools"])
        if body.get("instructions"):
            before += text.message("system", body["instructions"])
        given = body.get("input")
        if body.get("previous_response_id") is not None:
            raise Refusal.bad(
                "previous_response_id: answers are not stored", "previous_response_id"
            )
        messages = [{"role": "user", "content": given}]
        if not isinstance(given, str):
            messages = messages_of(body, "input")
        return read_ask(body, [chat_prompt(before, messages)], ("max_output_tokens",))

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        return refusal.openai()

    def whole(self, reply: Reply) -> dict[str, Any]:
        return _response(reply, text.text(reply.said(0)))

    def opened(self, reply: Reply) -> list[bytes]:
        response = _response(reply, None)
        return [
            _event({"response": response, "sequence_number": 0, "type": "response.created"}),
            _event({"response": response, "sequence_number": 1, "type": "response.in_progress"}),
        ]

    def began(self, reply: Reply, index: int) -> list[bytes]:
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return [
            _event(
                {
                    "item": _item(reply, [], "in_progress"),
                    "output_index": index,
                    "sequence_number": 2,
                    "type": "response.output_item.added",
                }
            ),
            _event(
                {
                    "content_index": 0,
                    "item_id": _item_id(reply),
                    "output_index": index,
                    "part": part,
                    "sequence_number": 3,
                    "type": "response.content_part.added",
                }
            ),
        ]

    def more(self, reply: Reply, index: int, said: bytes, last: bool) -> bytes:  # noqa: ARG002
        delta = text.text(said)
        reply.text += delta
        reply.events += 1
        return _event(
            {
                "content_index": 0,
                "delta": delta,
                "item_id": _item_id(reply),
                "logprobs": [],
                "output_index": index,
                "sequence_number": 3 + reply.events,
                "type": "response.output_text.delta",
            }
        )

    def ended(self, reply: Reply) -> list[bytes]:
        number = 4 + reply.events
        place = {"content_index": 0, "item_id": _item_id(reply)}
        return [
            _event(
                {
                    **place,
                    "logprobs": [],
                    "output_index": 0,
                    "sequence_number": number,
                    "text": reply.text,
                    "type": "response.output_text.done",
                }
            ),
            _event(
                {
                    **place,
                    "output_index": 0,
                    "part": _part(reply.text),
                    "sequence_number": number + 1,
                    "type": "response.content_part.done",
                }
            ),
            _event(
                {
                    "item": _item(reply, [_part(reply.text)], "completed"),
                    "output_index": 0,
                    "sequence_number": number + 2,
                    "type": "response.output_item.done",
                }
            ),
            _event(
                {
                    "response": _response(reply, reply.text),
                    "sequence_number": number + 3,
                    "type": "response.completed",
                }
            ),
        ]


def _event(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])


def _item_id(reply: Reply) -> str:
    return "msg_" + reply.id.removeprefix("resp_")


def _part(said: str) -> dict[str, Any]:
    return {"annotations": [], "text": said, "type": "output_text", "logprobs": None}


def _item(reply: Reply, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    return {
        "id": _item_id(reply),
        "content": content,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, cached, said = reply.usage()
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": cached if reply.details else 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": said,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + said,
    }


def _response(reply: Reply, said: str | None) -> dict[str, Any]:
    """The response object; without a text it has only begun."""
    body = reply.ask.body
    status, incomplete, output = "in_progress", None, []
    if said is not None:
        status = "completed" if reply.stopped(0) else "incomplete"
        incomplete = None if reply.stopped(0) else {"reason": "max_output_tokens"}
        output = [_item(reply, [_part(said)], "completed")]
    return {
        "id": reply.id,
        "created_at": reply.created,
        "incomplete_details": incomplete,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata"),
        "model": reply.ask.model,
        "object": "response",
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature", 1.0),
        "tool_choice": body.get("tool_choice", "auto" if body.get("tools") else "none"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "background": False,
        "max_output_tokens": reply.max_tokens[0],
        "max_tool_calls": None,
        "previous_response_id": None,
        "prompt": None,
        "reasoning": body.get("reasoning"),
        "service_tier": "auto",
        "status": status,
        "text": body.get("text"),
        "top_logprobs": None,
        "truncation": "disabled",
        "usage": None if said is None else _usage(reply),
        "user": body.get("user"),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }
