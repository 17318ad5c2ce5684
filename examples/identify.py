# SPDX-License-Identifier: Apache-2.0
"""Prints who a request belongs to, and why.

    python examples/identify.py                     four requests as agents send them
    python examples/identify.py request.json ...    files with "headers" (pairs) and "body"

The key is what a router pins: it depends on the tenant, so equal session ids of two tenants differ.
"""

import json
import sys
from pathlib import Path

import limpet

SESSION = "4f6c1c1e-9a53-4d0b-8a2e-0f7b6f3c2d10"
USER = json.dumps({"device_id": "d", "account_uuid": "", "session_id": SESSION})
TITLE = [
    {"role": "system", "content": "You write titles."},
    {"role": "user", "content": "Write a title for this:"},
    {"role": "user", "content": "fix the build"},
]
CHAT = {"messages": [{"role": "user", "content": "fix the build"}]}
REQUESTS = {
    "a sub-agent of Claude Code": (
        [("X-Claude-Code-Session-Id", SESSION), ("X-Claude-Code-Agent-Id", "a1")],
        {},
    ),
    "Claude Code behind a proxy": ([], {"metadata": {"user_id": USER}}),
    "opencode's title call": ([("x-session-id", "ses_1")], {"messages": TITLE}),
    "a client that names nothing": ([], CHAT),
}


def describe(title: str, headers: list[tuple[str, str]], body: object) -> None:
    identity = limpet.identify(headers, json.dumps(body))
    print(title)
    print(f"  session  {identity.session}")
    print(f"  why      {identity.source.name}: {identity.field}")
    print(f"  agent    {identity.agent}   parent {identity.parent}")
    print(f"  kind     {identity.kind.name}   body {identity.body_status.name}")
    print(f"  key      {identity.key(tenant='team-a')!r}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            request = json.loads(Path(name).read_text())
            describe(name, [tuple(pair) for pair in request["headers"]], request["body"])
    else:
        for title, (headers, body) in REQUESTS.items():
            describe(title, headers, body)
