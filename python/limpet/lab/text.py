# SPDX-License-Identifier: Apache-2.0
"""Text as tokens and back, prompts as token sequences, and what the lab's model says.

A token is four bytes of UTF-8, the last one of a text padded with zeros: about as many as a real
tokenizer makes of English, and a text that has only grown keeps all tokens but the last. Marks that
no UTF-8 text contains stand between messages, so a conversation's next prompt begins with the last
one and its answer, token for token. Tokens are kept as bytes, which is how limpet._core takes them.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from array import array
from collections.abc import Iterable
from typing import Any

TOKEN_BYTES = 4
_BEGIN = b"\xff\x00\x00\x01"  # of a message: its role follows
_BODY = b"\xff\x00\x00\x02"
_END = b"\xff\x00\x00\x03"

# Four bytes each, with the space last: a client that strips an answer changes its last token only.
_WORDS = (
    "the and for not you all new now way may day get has him his how its let old our out own put "
    "run say see set she sum ten too top try two use who why yes yet add age ago aim air any arm "
    "art ask bad bag big bit box but buy can car cut dry due eat end far few fit fix fly"
)
_ANSWER = [f"{word} ".encode() for word in _WORDS.split()]


def tokens(text: str) -> bytes:
    """The tokens of a text. A lone surrogate becomes a question mark."""
    data = text.encode("utf-8", "replace")
    return data + bytes(-len(data) % TOKEN_BYTES)


def from_ids(ids: Iterable[int]) -> bytes:
    """Tokens given as numbers. OverflowError or TypeError for what is none."""
    return array("I", ids).tobytes()


def ids(data: bytes) -> list[int]:
    return array("I", data).tolist()


def text(data: bytes) -> str:
    """The text of tokens; marks have none."""
    return data.replace(b"\x00", b"").decode("utf-8", "replace")


def count(data: bytes) -> int:
    return len(data) // TOKEN_BYTES


def message(role: str, content: Any, **others: Any) -> bytes:
    """One message of a chat as the model sees it; `others` (tool calls, names) where they are."""
    extra = {name: value for name, value in others.items() if value}
    shown = flat(content) + (_json(extra) if extra else "")
    return _BEGIN + tokens(role) + _BODY + tokens(shown) + _END


def answer_begins() -> bytes:
    return _BEGIN + tokens("assistant") + _BODY


def flat(content: Any) -> str:
    """The text of a content: a string, or blocks of which those that are no text become JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    shown = []
    for block in content:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            shown.append(block["text"])
        else:
            shown.append(block if isinstance(block, str) else _json(block))
    return "".join(shown)


def _json(value: Any) -> str:
    """Without the marks of clients that say where to cache, which a model is not shown."""
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if name != "cache_control"}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def length(prompt: bytes) -> int:
    """Where the model stops by itself: 64 to 512 tokens, by the prompt alone."""
    return int(64 * 8 ** random.Random(zlib.crc32(prompt)).random())


def answer(prompt: bytes, tokens_wanted: int) -> bytes:
    """So many tokens, by the prompt alone: a shorter answer is the beginning of a longer one."""
    return b"".join(random.Random(~zlib.crc32(prompt)).choices(_ANSWER, k=tokens_wanted))


assert array("I").itemsize == TOKEN_BYTES, sys.platform
