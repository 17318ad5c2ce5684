# SPDX-License-Identifier: Apache-2.0
"""What a request says of itself: its body, the model it asks for, who sent it, what it belongs to.

Bodies are read whole, up to a limit, since model and conversation stand in them, and go on as the
same bytes. Everything that is wrong raises a Refusal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import limpet
from limpet.gateway.errors import Refusal
from limpet.gateway.headers import RANK, RawHeaders
from limpet.gateway.pool import Ask
from limpet.gateway.settings import Limits

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

# Whose prompts grow from turn to turn; everything else is balanced.
CONVERSATIONAL = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}
)
# Nearly every client writes the model first; then the body need not be parsed for it.
_MODEL_FIRST = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\]*)"\s*[,}]')
_MODEL_IN_FORM = re.compile(rb'name="model"[^\r\n]*(?:\r\n[^\r\n]+)*\r\n\r\n([^\r\n]*)\r\n')
_BILLING = "x-anthropic-billing-header"


class ClientGone(Exception):
    """The client went away before it had sent its request."""


def check_headers(headers: RawHeaders, limits: Limits) -> None:
    size = sum(len(name) + len(value) for name, value in headers) + 4 * len(headers)
    if size > limits.header_bytes:
        raise Refusal(
            431, f"the headers are longer than {limits.header_bytes} bytes", "headers_too_large"
        )


async def read_body(receive: Receive, announced: bytes | None, limit: int) -> bytes:
    """The whole body. Refusal for one over `limit` bytes."""
    if announced is not None and (not announced.isdigit() or int(announced) > limit):
        raise _too_large(limit)
    parts: bytes | bytearray = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        if len(parts) + len(part) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(parts) + part if parts else part
        if not isinstance(parts, bytearray):
            parts = bytearray(parts)
        parts += part


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the request's body is longer than {limit} bytes", "body_too_large")


def model_of(body: bytes, content_type: bytes) -> str | None:
    """The model that a body asks for. Refusal for one that says nothing of the kind."""
    first = _MODEL_FIRST.match(body)
    if first is not None:
        return first[1].decode("utf-8", "replace")
    if content_type.startswith(b"multipart/form-data"):
        form = _MODEL_IN_FORM.search(body)
        return form[1].decode("utf-8", "replace") if form is not None else None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the request's body is no JSON", "invalid_json") from None
    if not isinstance(document, dict):
        raise Refusal(400, "the request's body is no JSON object", "invalid_json")
    model = document.get("model")
    if model is not None and not isinstance(model, str):
        raise Refusal(400, "model must be a text", "invalid_model", param="model")
    return model


def streams(body: bytes) -> bool:
    """Whether a body, JSON, asks for a stream."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("stream") is True


def key_of(headers: MutableMapping[bytes, bytes]) -> bytes:
    """The API key that a client sent, as OpenAI's or as Anthropic's clients do; b"" for none."""
    bearer = headers.get(b"authorization", b"")
    if bearer[:7].lower() == b"bearer ":
        return bearer[7:].strip()
    return headers.get(b"x-api-key", b"").strip()


def digest_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def ask_of(
    path: str,
    headers: RawHeaders,
    found: MutableMapping[bytes, bytes],
    body: bytes,
    tenant: str,
    secret: bytes,
    session_headers: tuple[str, ...],
) -> tuple[Ask, str]:
    """What the router is to be asked, and where the conversation's name was found."""
    rank = found.get(RANK, b"")
    named = int(rank) if rank.isdigit() and len(rank) < 6 else None
    if path not in CONVERSATIONAL:
        return Ask(rank=named), "none"
    identity = limpet.identify(headers, body, session_headers=session_headers)
    return (
        Ask(
            key=identity.key(tenant, secret=secret),
            parent=identity.parent_key(tenant, secret=secret),
            side_call=identity.kind is limpet.RequestKind.side_call,
            kind=identity.kind.value,
            rank=named,
            steerable=path != "/v1/responses",
        ),
        identity.source.value,
    )


def without_billing_line(body: bytes) -> bytes:
    """Without a leading billing block of the system prompt; every other byte as it was."""
    if _BILLING.encode() not in body:
        return body
    try:
        text = body.decode()
        document = json.loads(text)
        block = document["system"][0]
        if not block["text"].startswith(_BILLING):
            return body
        start = _value_of(text, "system")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return body
    opening = start + 1
    _, end = json.JSONDecoder().raw_decode(text, _skip(text, opening, ""))
    end = _skip(text, end, "")
    return (text[:opening] + text[end + (text[end] == ",") :]).encode()


def _value_of(text: str, wanted: str) -> int:
    """Where the value of the last such key of the outermost object begins. `text` is valid."""
    decoder = json.JSONDecoder()
    found, at = -1, text.index("{") + 1
    while (at := _skip(text, at, ",")) < len(text) and text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, at, ":")
        if key == wanted:
            found = at
        _, at = decoder.raw_decode(text, at)
    return found


def _skip(text: str, at: int, mark: str) -> int:
    while text[at].isspace() or text[at] == mark:
        at += 1
    return at
