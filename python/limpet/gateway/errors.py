# SPDX-License-Identifier: Apache-2.0
"""The gateway's own refusals, in the shape that the client's protocol expects.

Anthropic's for /v1/messages, OpenAI's for everything else. Texts never quote what a prompt holds.
"""

from __future__ import annotations

import json

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Refusal(Exception):
    """An answer that the gateway gives itself."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self, path: str) -> bytes:
        if path.startswith("/v1/messages"):
            kind = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error")
            return json.dumps(
                {"type": "error", "error": {"type": kind, "message": self.message}}
            ).encode()
        return json.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": _OPENAI_TYPES.get(self.status, "invalid_request_error"),
                    "param": self.param,
                    "code": self.code,
                }
            }
        ).encode()

    def event(self, path: str) -> bytes:
        """body() as an event of a stream that has begun."""
        return event_of(path, self.body(path))

    def headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers


def event_of(path: str, body: bytes) -> bytes:
    """An error's body, JSON, as an event of a stream, in the form of the path's protocol."""
    kind = b"event: error\n" if path.startswith("/v1/messages") else b""
    return kind + b"data: " + b" ".join(body.split()) + b"\n\n"
