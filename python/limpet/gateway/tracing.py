# SPDX-License-Identifier: Apache-2.0
"""A span a turn with OpenTelemetry's gen_ai attributes, where that is installed and configured.

Without the package, and without a tracer provider, nothing is made. The client's traceparent is the
span's parent, and goes on to the engine as it came. No ids of sessions, no prompts.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from limpet.gateway.record import Record

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_trace = _import("opentelemetry.trace")
_propagate = _import("opentelemetry.propagate")


def span(record: Record) -> None:
    """Of a turn that has ended."""
    operation = _OPERATIONS.get(record.path)
    if _trace is None or operation is None or record.pool is None:
        return
    parent = None
    if record.traceparent is not None:
        carrier = {"traceparent": record.traceparent.decode("latin-1")}
        parent = _propagate.extract(carrier)
    made = _trace.get_tracer("limpet.gateway").start_span(
        f"{operation} {record.model or record.pool}",
        context=parent,
        kind=_trace.SpanKind.SERVER,
        start_time=int(record.began * 1e9),
        attributes={name: value for name, value in _attributes(record, operation).items()
                    if value is not None},
    )  # fmt: skip
    if record.error is not None:
        made.set_status(_trace.Status(_trace.StatusCode.ERROR, record.error))
    made.end(int(time.time() * 1e9))


def _attributes(record: Record, operation: str) -> dict[str, Any]:
    usage = record.usage
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.completion_tokens if usage else None,
        "gen_ai.server.time_to_first_token": record.ttfb,
        "http.response.status_code": record.status,
        "error.type": record.error,
        "limpet.pool": record.pool,
        "limpet.replica": record.replica,
        "limpet.outcome": record.outcome,
        "limpet.class": record.turn_class,
        "limpet.key_source": record.source,
    }
