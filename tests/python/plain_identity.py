# SPDX-License-Identifier: Apache-2.0
"""Which conversation a request belongs to, as the documents say it: slow, plain, standard json.

test_wire.py compares it with limpet.identify() on random requests. It shares no code with it: the
hash is SipHash-1-3 with 128 bits of output, written from the paper.
"""

from __future__ import annotations

import json
import re
from typing import Any

SESSION_HEADERS = [
    ("limpet_header", ["x-limpet-conversation-id"]),
    ("claude_code_header", ["x-claude-code-session-id"]),
    ("codex_header", ["thread-id", "session-id", "conversation-id"]),
    ("session_header", ["x-session-id", "x-session-affinity", "x-opencode-session"]),
    (
        "gateway_header",
        [
            "x-litellm-session-id",
            "x-dynamo-session-id",
            "x-smg-routing-key",
            "x-bf-session-id",
            "x-grok-conv-id",
            "x-amp-thread-id",
            "x-openwebui-chat-id",
            "x-task-id",
            "x-roo-task-id",
            "x-aibrix-session-key",
        ],
    ),
]
PARENT_HEADERS = {
    "limpet_header": "x-limpet-parent-id",
    "codex_header": "x-codex-parent-thread-id",
    "session_header": "x-parent-session-id",
    "gateway_header": "x-dynamo-parent-session-id",
}
PREAMBLES = [
    r"<(system-reminder|local-command-caveat|environment_context|user_instructions"
    r"|permissions instructions|recommended_plugins|skills_instructions|INSTRUCTIONS"
    r"|session_context|environment_details)>.*?(</\1>|\Z)",
    r"x-anthropic-billing-header:[^\n]*(\n|\Z)",
    r"# AGENTS\.md instructions.*?(</INSTRUCTIONS>|\Z)",
    r"This is the [^\n]*setting up the context for our chat.*",
]
AGENTS = ("claude-cli/", "codex_", "opencode/", "QwenCode/")
SIDE_CALL_MAX_BYTES = 4096


class MalformedError(Exception):
    """The body cannot be read."""


def siphash(data: bytes, k0: int = 0, k1: int = 0) -> bytes:
    """SipHash-1-3-128 of whole 64-bit words, as (hi, lo) in big-endian order."""
    mask = (1 << 64) - 1
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & mask

    def turn() -> None:
        v[0] = (v[0] + v[1]) & mask
        v[2] = (v[2] + v[3]) & mask
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[1]) & mask
        v[0] = (v[0] + v[3]) & mask
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)

    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xEE
    for _ in range(3):
        turn()
    high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for _ in range(3):
        turn()
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")


def key_of(parts: list[bytes], k0: int = 0, k1: int = 0) -> bytes:
    """Each part after its length, in whole words, closed by a 1."""
    data = b""
    for part in parts:
        data += len(part).to_bytes(8, "little") + part + b"\0" * (-len(part) % 8)
    return siphash(data + (1).to_bytes(8, "little"), k0, k1)


def id_of(value: Any) -> str:
    """The value if it is an id, else an empty text."""
    return value if isinstance(value, str) and re.fullmatch(r"[!-~]{1,256}", value) else ""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise MalformedError
    return dict(pairs)


def read_json(text: str | bytes) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise MalformedError from error


def own_text(text: str) -> str:
    while True:
        text = text.lstrip(" \t\r\n")
        for preamble in PREAMBLES:
            match = re.match(preamble, text, re.DOTALL)
            if match:
                text = text[match.end() :]
                break
        else:
            return text


def fingerprint(body: dict[str, Any]) -> str:
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        blocks = [{"text": content}] if isinstance(content, str) else content
        digest = b""
        for block in blocks if isinstance(blocks, list) else []:
            if not isinstance(block, dict) or not isinstance(block.get("text"), str):
                continue
            if block.get("type") not in (None, "text", "input_text"):
                continue
            own = own_text(block["text"])
            if own:
                digest = key_of([b"user", digest.hex().encode(), own.encode()])
        if digest:
            return digest.hex()
    return ""


def claude_session(user: Any) -> str:
    if not isinstance(user, str):
        return ""
    uuid = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    match = re.fullmatch(f"user_[0-9a-fA-F]{{64}}_account_(?:{uuid})?_session_({uuid})", user)
    if match:
        return match[1]
    return id_of(json_member(user, "session_id"))


def json_member(text: Any, name: str) -> Any:
    try:
        value = read_json(text) if isinstance(text, str) and text.startswith("{") else None
    except MalformedError:
        return None
    return value.get(name) if isinstance(value, dict) else None


def codex_kind(subagent: str, request_kind: Any) -> str:
    if subagent == "compact" or request_kind == "compaction":
        return "compaction"
    if request_kind == "memory":
        return "side_call"
    return "subagent" if subagent else ""


def kind_by_headers(headers: dict[str, str]) -> str:
    classes = {"main": "main", "subagent": "subagent", "workflow": "subagent"}
    classes |= {"compaction": "compaction", "auxiliary": "side_call"}
    said = classes.get(headers.get("x-claude-code-request-class", ""), "")
    if not said and headers.get("x-claude-code-compaction"):
        said = "compaction"
    turn = headers.get("x-codex-turn-metadata", "")
    return said or codex_kind(
        headers.get("x-openai-subagent", ""), json_member(turn, "request_kind")
    )


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    blocks = value if isinstance(value, list) else []
    return [b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)]


def looks_like_side_call(body: dict[str, Any], user_agent: str) -> bool:
    messages = body.get("messages", body.get("input"))
    messages = [{"role": "user"}] if isinstance(messages, str) else messages
    messages = [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    roles = [m.get("role") or m.get("type") for m in messages]
    prompt = texts(body.get("system")) + texts(body.get("instructions"))
    instructed = any(prompt) or "system" in roles or "developer" in roles
    users = roles.count("user")
    if body.get("tools") or not instructed or users == 0:
        return False
    if any(role not in ("user", "system", "developer", "message") for role in roles):
        return False
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    limits = [body[name] for name in names if isinstance(body.get(name), int)]
    small = any(0 <= limit <= 128 for limit in limits)
    return small or users > 1 or user_agent.startswith(AGENTS)


def identify(pairs: list[tuple[str, str]], body_bytes: bytes) -> dict[str, str]:
    """session, agent, parent, source and kind; an empty text for none."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        folded = name.lower().replace("_", "-")
        usable = id_of(value) if any(folded in names for _, names in SESSION_HEADERS) else value
        if usable and folded not in headers:
            headers[folded] = usable

    found = {"session": "", "agent": "", "parent": "", "source": "none", "kind": ""}
    for source, names in SESSION_HEADERS:
        values = [headers[name] for name in names if name in headers]
        if values:
            found |= {"session": values[0], "source": source}
            break
    source = found["source"]
    if source == "claude_code_header":
        found["agent"] = id_of(headers.get("x-claude-code-agent-id"))
        if found["agent"]:
            parent = id_of(headers.get("x-claude-code-parent-agent-id"))
            found["parent"] = parent or found["session"]
    elif source in PARENT_HEADERS:
        found["parent"] = id_of(headers.get(PARENT_HEADERS[source]))

    kind = kind_by_headers(headers) or ("subagent" if found["parent"] else "")
    guess = not kind and len(body_bytes) <= SIDE_CALL_MAX_BYTES and source != "limpet_header"
    if body_bytes and (guess or not found["session"]):
        try:
            body = read_json(body_bytes)
            if not isinstance(body, dict):
                raise MalformedError
        except MalformedError:
            return found | {"kind": kind or "main"}
        if not found["session"]:
            found |= session_by_body(body)
        client = body.get("client_metadata")
        client = client if isinstance(client, dict) else {}
        kind = kind or codex_kind(
            id_of(client.get("x-openai-subagent")),
            json_member(client.get("x-codex-turn-metadata"), "request_kind"),
        )
        first = next(iter(filter(None, texts(body.get("system")))), "")
        line = first.split("\n", 1)[0]
        if line.startswith("x-anthropic-billing-header:") and "cc_is_subagent=true" in line:
            kind = kind or "subagent"
        if guess and not kind and looks_like_side_call(body, headers.get("user-agent", "")):
            kind = "side_call"
    return found | {"kind": kind or "main"}


def session_by_body(body: dict[str, Any]) -> dict[str, str]:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    session = claude_session(metadata.get("user_id"))
    if session:
        return {"session": session, "source": "claude_code_body"}
    conversation = body.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    fields = [metadata.get("session_id"), body.get("session_id"), body.get("prompt_cache_key")]
    for session in map(id_of, [*fields, conversation]):
        if session:
            return {"session": session, "source": "body_field"}
    session = fingerprint(body)
    return {"session": session, "source": "fingerprint" if session else "none"}
