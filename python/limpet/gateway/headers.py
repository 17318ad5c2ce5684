# SPDX-License-Identifier: Apache-2.0
"""Which headers pass, and which concern one connection alone.

Everything passes as it came but hop-by-hop headers, those that `Connection` names, and what the
gateway must say itself: Host and Content-Length of a body that it has read whole, and the rank.
Response headers keep their bytes; request headers go through an HTTP client that writes text, so
one whose value is no UTF-8 is refused instead of being changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from multidict import CIMultiDict

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
RANK = b"x-data-parallel-rank"
# Expect was answered when the body was read.
_NOT_FORWARDED = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
_NOTHING: frozenset[bytes] = frozenset()


class BadHeader(ValueError):
    """A header that cannot be passed on unchanged; the message names it."""


def named_by_connection(values: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower() for value in values for token in value.split(b",") if token.strip()
    )


def to_engine(headers: RawHeaders, drop: frozenset[bytes] = _NOTHING) -> CIMultiDict[str]:
    """The headers of a request, names in lower case, as the engine gets them.

    BadHeader where a value is no UTF-8.
    """
    connection = [value for name, value in headers if name == b"connection"]
    gone = _NOT_FORWARDED | drop
    if connection:
        gone |= named_by_connection(connection)
    passed: CIMultiDict[str] = CIMultiDict()
    for name, value in headers:
        if name not in gone:
            try:
                passed.add(name.decode("ascii"), value.decode())
            except UnicodeDecodeError:
                raise BadHeader(
                    f"header {name.decode('latin-1')!r} is neither ASCII nor UTF-8"
                ) from None
    return passed


def to_client(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """The headers of an answer as the client gets them, names in lower case."""
    lowered = [(name.lower(), value) for name, value in headers]
    connection = [value for name, value in lowered if name == b"connection"]
    gone = HOP_BY_HOP | named_by_connection(connection) if connection else HOP_BY_HOP
    return [header for header in lowered if header[0] not in gone]
