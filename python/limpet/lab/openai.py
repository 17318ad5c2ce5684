# SPDX-License-Identifier: Apache-2.0
"""OpenAI's chat completions, completions and embeddings, as vLLM answers them."""

from __future__ import annotations

import random
import zlib
from typing import Any

from limpet.lab import text
from limpet.lab.wire import DONE, FINGERPRINT, Ask, Refusal, Reply, chat_prompt, event, messages_of
from limpet.lab.wire import read as read_ask


def _finish(reply: Reply, index: int) -> str:
    return "stop" if reply.stopped(index) else "length"


def _counts(reply: Reply) -> dict[str, Any]:
    prompt, _, said = reply.usage()
    return {"prompt_tokens": prompt, "total_tokens": prompt + said, "completion_tokens": said}


def _usage(reply: Reply, created: int | None) -> dict[str, Any]:
    details = None
    if reply.details:
        details = {
            "cached_tokens": reply.usage()[1],
            "created_cache_tokens": created,
            "multimodal_tokens": None,
        }
    return {
        **_counts(reply),
        "prompt_tokens_details": details,
        "completion_tokens_details": None,
    }


class Chat:
    path = "/v1/chat/completions"
    prefix = "chatcmpl-"

    def ask(self, body: dict[str, Any]) -> Ask:
        tools = body.get("tools")
        before = text.message("tools", tools) if tools else b""
        prompt = chat_prompt(before, messages_of(body))
        return read_ask(body, [prompt], ("max_completion_tokens", "max_tokens"))

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        return refusal.openai()

    def whole(self, reply: Reply) -> dict[str, Any]:
        said = reply.said(0)
        message = {
            "role": "assistant",
            "content": text.text(said),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish(reply, 0),
            "stop_reason": None,
            "token_ids": text.ids(said) if reply.ask.return_token_ids else None,
            "routed_experts": None,
        }
        prompt_ids = text.ids(reply.turns[0].prompt) if reply.ask.return_token_ids else None
        return {
            "id": reply.id,
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.ask.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _usage(reply, 0),
            "prompt_logprobs": None,
            "prompt_token_ids": prompt_ids,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def opened(self, reply: Reply) -> list[bytes]:  # noqa: ARG002
        return []

    def began(self, reply: Reply, index: int) -> list[bytes]:
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        ids = text.ids(reply.turns[0].prompt) if reply.ask.return_token_ids else None
        first = self._chunk(reply, [choice]) | {"prompt_token_ids": ids, "prompt_text": None}
        return [event(self._counted(reply, first))]

    def more(self, reply: Reply, index: int, said: bytes, last: bool) -> bytes:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": text.text(said)},
            "logprobs": None,
            "finish_reason": _finish(reply, index) if last else None,
        }
        if last:
            choice["stop_reason"] = None
        choice["token_ids"] = text.ids(said) if reply.ask.return_token_ids else None
        return event(self._counted(reply, self._chunk(reply, [choice])))

    def ended(self, reply: Reply) -> list[bytes]:
        if not reply.ask.include_usage:
            return [DONE]
        usage = _counts(reply)
        if reply.details:
            cached = {"cached_tokens": reply.usage()[1], "created_cache_tokens": 0}
            usage["prompt_tokens_details"] = cached
        last = self._chunk(reply, []) | {"usage": usage, "system_fingerprint": FINGERPRINT}
        return [event(last), DONE]

    def _chunk(self, reply: Reply, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": reply.id,
            "object": "chat.completion.chunk",
            "created": reply.created,
            "model": reply.ask.model,
            "choices": choices,
        }

    def _counted(self, reply: Reply, chunk: dict[str, Any]) -> dict[str, Any]:
        if reply.ask.include_usage and reply.ask.continuous_usage:
            chunk["usage"] = _counts(reply)
        return chunk


class Completions:
    path = "/v1/completions"
    prefix = "cmpl-"

    def ask(self, body: dict[str, Any]) -> Ask:
        ask = read_ask(body, prompts_of(body.get("prompt"), "prompt"), ("max_tokens",))
        ask.max_tokens = ask.max_tokens or 16  # as OpenAI's
        return ask

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        return refusal.openai()

    def whole(self, reply: Reply) -> dict[str, Any]:
        choices = []
        for index, turn in enumerate(reply.turns):
            said = reply.said(index)
            shown = reply.ask.return_token_ids
            choices.append(
                {
                    "index": index,
                    "text": text.text(said),
                    "logprobs": None,
                    "finish_reason": _finish(reply, index),
                    "stop_reason": None,
                    "token_ids": text.ids(said) if shown else None,
                    "prompt_logprobs": None,
                    "prompt_token_ids": text.ids(turn.prompt) if shown else None,
                    "routed_experts": None,
                }
            )
        return {
            "id": reply.id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.ask.model,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _usage(reply, None),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def opened(self, reply: Reply) -> list[bytes]:  # noqa: ARG002
        return []

    def began(self, reply: Reply, index: int) -> list[bytes]:  # noqa: ARG002
        return []

    def more(self, reply: Reply, index: int, said: bytes, last: bool) -> bytes:
        shown = reply.ask.return_token_ids
        first = shown and reply.sent[index] == 0
        choice = {
            "index": index,
            "text": text.text(said),
            "logprobs": None,
            "finish_reason": _finish(reply, index) if last else None,
            "stop_reason": None,
            "prompt_token_ids": text.ids(reply.turns[index].prompt) if first else None,
            "token_ids": text.ids(said) if shown else None,
        }
        counted = reply.ask.include_usage and reply.ask.continuous_usage
        usage = _counts(reply) if counted else None
        return event(self._chunk(reply, [choice]) | {"usage": usage})

    def ended(self, reply: Reply) -> list[bytes]:
        if not reply.ask.include_usage:
            return [DONE]
        usage = _counts(reply)
        if reply.details:
            usage["prompt_tokens_details"] = {"cached_tokens": reply.usage()[1]}
        return [event(self._chunk(reply, []) | {"usage": usage}), DONE]

    def _chunk(self, reply: Reply, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": reply.id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.ask.model,
            "choices": choices,
        }


class Embeddings(Completions):
    """A prefill whose one token nobody sees; the vector follows from the text alone."""

    path = "/v1/embeddings"
    prefix = "embd-"

    def ask(self, body: dict[str, Any]) -> Ask:
        ask = read_ask(body, prompts_of(body.get("input"), "input"), ())
        ask.max_tokens, ask.stream = 1, False
        return ask

    def whole(self, reply: Reply) -> dict[str, Any]:
        prompt = reply.usage()[0]
        data = [
            {"index": i, "object": "embedding", "embedding": _vector(turn.prompt)}
            for i, turn in enumerate(reply.turns)
        ]
        return {
            "id": reply.id,
            "object": "list",
            "created": reply.created,
            "model": reply.ask.model,
            "data": data,
            "usage": {
                "prompt_tokens": prompt,
                "total_tokens": prompt,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }


def _vector(prompt: bytes) -> list[float]:
    draw = random.Random(zlib.crc32(prompt))
    return [round(draw.uniform(-1, 1), 6) for _ in range(64)]


def prompts_of(given: Any, name: str) -> list[bytes]:
    """A text, token ids, or a list of either."""
    if isinstance(given, str):
        return [text.tokens(given)]
    if not isinstance(given, list) or not given:
        raise Refusal.bad(f"{name} must be a text, token ids, or a list of those", name)
    if isinstance(given[0], int):
        return [_from_ids(given, name)]
    return [text.tokens(p) if isinstance(p, str) else _from_ids(p, name) for p in given]


def _from_ids(given: Any, name: str) -> bytes:
    try:
        return text.from_ids(given)
    except (TypeError, OverflowError):
        raise Refusal.bad(f"{name}: token ids must be numbers below 2^32", name) from None
