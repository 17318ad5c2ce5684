# SPDX-License-Identifier: Apache-2.0
"""identify(), Usage.parse() and UsageScanner: what they take; they agree with a plain model."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import limpet
import plain_identity
import plain_usage
import pytest

if not limpet._core.has_wire:
    pytest.skip("built without simdjson", allow_module_level=True)

DATA = Path(
    os.environ.get("LIMPET_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data")
)
UUID = "00000001-1111-4222-8333-000000000001"
BODY = json.dumps({"metadata": {"session_id": "s"}})


def as_dict(identity: limpet.Identity) -> dict[str, str]:
    return {
        "session": identity.session or "",
        "agent": identity.agent or "",
        "parent": identity.parent or "",
        "source": identity.source.name,
        "kind": identity.kind.name,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Session-Id": "s"},
        {b"x-session-id": b"s"},
        [("x_session_id", "s")],
        [(b"x-session-id", b"s")],
        [[b"x-session-id", b"s"]],
        (("x-session-id", "s"),),
        iter([("x-session-id", "s")]),
        type("Mapping", (), {"items": lambda _: [("x-session-id", "s")]})(),
    ],
    ids=["dict", "bytes", "pairs", "bytes pairs", "asgi", "tuple", "iterator", "mapping"],
)
def test_headers_may_be_mappings_or_pairs_of_str_or_bytes(headers: Any) -> None:
    identity = limpet.identify(headers, b"")
    assert identity.session == "s"
    assert identity.field == "x-session-id"
    assert identity.source is limpet.IdentitySource.session_header


@pytest.mark.parametrize("make", [str, str.encode, lambda t: bytearray(t.encode())])
def test_a_body_may_be_str_bytes_or_a_buffer(make: Any) -> None:
    assert limpet.identify([], make(BODY)).session == "s"
    if make is not str:
        assert limpet.identify([], memoryview(make(BODY))).session == "s"


def test_a_long_body_is_read_with_the_interpreter_set_free() -> None:
    body = json.dumps({"pad": "x" * 500_000, "session_id": "s"})
    assert limpet.identify({}, body).session == "s"
    assert limpet.identify({}, bytearray(body.encode())).session == "s"
    assert limpet.identify({}, body, max_body_bytes=1000).body_status.name == "too_large"


def test_what_nobody_named_is_none() -> None:
    identity = limpet.identify({}, None)
    assert (identity.session, identity.agent, identity.parent) == (None, None, None)
    assert identity.field is None
    assert identity.key(tenant="t") is None
    assert identity.parent_key(tenant="t") is None
    assert identity.kind is limpet.RequestKind.main
    assert identity.source is limpet.IdentitySource.none
    assert identity.body_status is limpet.BodyStatus.unread


def test_the_operators_headers_come_first() -> None:
    headers = {"x-session-id": "s", "X-Own": "own"}
    identity = limpet.identify(headers, session_headers=["x_own"])
    assert (identity.session, identity.field) == ("own", "x_own")
    assert identity.source is limpet.IdentitySource.configured_header


def test_arguments_of_a_wrong_type_are_type_errors_that_name_the_argument() -> None:
    wrong: list[Any] = [7, [1], [("a",)], [("a", 1)], {"a": 1}, ["ab"]]
    for headers in wrong:
        with pytest.raises((TypeError, ValueError), match=r"header|iterable"):
            limpet.identify(headers, b"")
    with pytest.raises(TypeError, match="body"):
        limpet.identify({}, wrong[0])
    with pytest.raises(TypeError, match="session_headers"):
        limpet.identify({}, b"", session_headers="x-own")
    with pytest.raises(ValueError, match="secret"):
        limpet.identify({"x-session-id": "s"}).key(secret=b"short")


def test_what_a_client_sends_never_raises() -> None:
    headers: list[Any] = [("x-session-id", "\udc80"), (b"x-session-id", b"\xff"), ("", "")]
    for body in (b"\xff", b"{", b"[" * 100_000, b'{"messages":' + b"[" * 100_000, b"null"):
        identity = limpet.identify(headers, body)
        assert identity.session is None
        assert identity.body_status is limpet.BodyStatus.malformed


def test_a_key_routes_and_depends_on_tenant_and_secret() -> None:
    secret = bytes(range(16))
    child = limpet.identify({"x-claude-code-session-id": UUID, "x-claude-code-agent-id": "a"})
    main = limpet.identify({"x-claude-code-session-id": UUID})
    assert child.kind is limpet.RequestKind.subagent
    assert child.parent_key(tenant="t") == main.key(tenant="t") != child.key(tenant="t")
    assert main.key(tenant="t") != main.key(tenant="u")
    k0, k1 = (int.from_bytes(secret[i : i + 8], "little") for i in (0, 8))
    expected = plain_identity.key_of([b"t", UUID.encode(), b"a"], k0, k1)
    key = child.key(tenant="t", secret=secret)
    assert key is not None
    assert bytes(key) == expected
    router = limpet.Router(["a", "b"])
    with router.route(main.key(tenant="t")) as lease:
        home = lease.replica.name
    with router.route(main.key(tenant="t")) as lease:
        assert (lease.replica.name, lease.outcome) == (home, limpet.Outcome.sticky)


def test_reprs_say_what_was_found() -> None:
    identity = limpet.identify({"x-session-id": "s"})
    assert repr(identity) == (
        "<Identity session='s' agent=None parent=None source=session_header kind=main>"
    )
    assert repr(limpet.UsageScanner()) == "<UsageScanner usage=None>"


def test_usage_of_an_answer_and_of_a_stream() -> None:
    answer = {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    assert limpet.Usage.parse(json.dumps(answer)) == limpet.Usage(
        prompt_tokens=9, completion_tokens=2
    )
    assert limpet.Usage.parse(b"{}") is None
    stream = f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n".encode()
    scanner = limpet.UsageScanner()
    assert scanner.usage is None
    for at in range(len(stream)):
        scanner.feed(memoryview(stream)[at : at + 1])
    assert scanner.usage == limpet.Usage(prompt_tokens=9, completion_tokens=2)
    before = scanner.failed
    scanner.feed('data: {"error": {"code": 500}}\n\n')
    assert (before, scanner.failed) == (False, True)
    wrong: Any = 7
    with pytest.raises(TypeError, match="chunk"):
        scanner.feed(wrong)


# Random requests against the plain model ----------------------------------------------------------

IDS = ["s", "session-1", UUID, "", " ", "a b", "x" * 256, "x" * 257, "é", "ses_1"]
TEXTS = ["hi", "fix it", "", " hi", "<system-reminder>Monday</system-reminder>", "é\u2603😀",
         "<system-reminder>a</system-reminder>\nhi", "<environment_context>x", "<b>hi</b>",
         "# AGENTS.md instructions for /\n<INSTRUCTIONS>x</INSTRUCTIONS>hi",
         "x-anthropic-billing-header: a=1; cc_is_subagent=true;\nhi", "This is the end",
         "This is the Qwen Code. We are setting up the context for our chat.\nhi"]  # fmt: skip
HEADERS = [name for _, names in plain_identity.SESSION_HEADERS for name in names]
HEADERS += [*plain_identity.PARENT_HEADERS.values(), "x-claude-code-agent-id"]
HEADERS += ["x-claude-code-parent-agent-id", "x-request-id", "traceparent", "X_Session_ID"]


def random_headers(rng: random.Random) -> list[tuple[str, str]]:
    pairs = [(rng.choice(HEADERS), rng.choice(IDS)) for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        pairs.append(("User-Agent", rng.choice(["opencode/1", "curl/8", "claude-cli/2"])))
    if rng.random() < 0.1:
        kind = rng.choice(["main", "auxiliary", "compaction", "workflow", "?"])
        pairs.append(("x-claude-code-request-class", kind))
    if rng.random() < 0.1:
        pairs.append(("x-openai-subagent", rng.choice(["compact", "review", ""])))
    if rng.random() < 0.1:
        kind = rng.choice(["turn", "memory", "compaction"])
        pairs.append(("x-codex-turn-metadata", json.dumps({"request_kind": kind})))
    rng.shuffle(pairs)
    return pairs


def random_content(rng: random.Random) -> Any:
    if rng.random() < 0.5:
        return rng.choice([*TEXTS, None, 7])
    blocks: list[Any] = []
    for _ in range(rng.randrange(4)):
        kind = rng.choice(["text", "input_text", "image", None])
        block: dict[str, Any] = {"text": rng.choice(TEXTS)} if rng.random() < 0.9 else {}
        blocks.append(block if kind is None else block | {"type": kind})
    return blocks


def random_messages(rng: random.Random) -> Any:
    if rng.random() < 0.1:
        return rng.choice([None, "hi", [], {}, [7, "x"]])
    messages: list[Any] = []
    for _ in range(rng.randrange(1, 5)):
        role = rng.choice(["user", "user", "system", "assistant", "developer", "tool"])
        messages.append({"content": random_content(rng), "role": role})
        if rng.random() < 0.1:
            messages.append({"type": rng.choice(["function_call", "message", "reasoning"])})
    return messages


def random_user_id(rng: random.Random) -> Any:
    return rng.choice(
        [
            json.dumps({"device_id": "d", "session_id": rng.choice(IDS)}),
            f"user_{'ab' * 32}_account__session_{UUID}",
            f"user_{'ab' * 32}_account_{UUID}_session_{UUID}",
            f"user_{'ab' * 31}_account__session_{UUID}",
            "someone@example.com",
            7,
        ]
    )


def random_body(rng: random.Random) -> dict[str, Any]:
    makers: dict[str, Any] = {
        "model": lambda: "m",
        "messages": lambda: random_messages(rng),
        "metadata": lambda: rng.choice(
            [{"user_id": random_user_id(rng)}, {"session_id": rng.choice(IDS)}, None]
        ),
        "session_id": lambda: rng.choice([*IDS, 7]),
        "prompt_cache_key": lambda: rng.choice(IDS),
        "conversation": lambda: rng.choice([*IDS, {"id": rng.choice(IDS)}, {}]),
        "system": lambda: random_content(rng),
        "instructions": lambda: rng.choice(TEXTS),
        "tools": lambda: rng.choice([[], [{"name": "t"}], None]),
        "max_tokens": lambda: rng.choice([1, 128, 129, 32000, None, -1]),
        "max_output_tokens": lambda: rng.choice([16, 4096]),
        "client_metadata": lambda: rng.choice(
            [
                {"x-openai-subagent": rng.choice(["compact", "review"])},
                {"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})},
                {},
            ]
        ),
        "pad": lambda: "x" * rng.choice([0, 5000]),
    }
    if rng.random() < 0.3:
        makers["input"] = makers.pop("messages")
    names = [
        name for name in makers if rng.random() < (0.8 if name in ("messages", "input") else 0.25)
    ]
    rng.shuffle(names)
    return {name: makers[name]() for name in names}


def random_text(rng: random.Random, body: dict[str, Any]) -> bytes:
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
    text = json.dumps(body, separators=separators, ensure_ascii=rng.random() < 0.5).encode()
    damage = rng.random()
    if damage < 0.05:
        return text[: rng.randrange(len(text))]
    if damage < 0.1:
        return text + rng.choice([b"x", b"{}", b"\xff"])
    if damage < 0.15:
        return b'{"session_id":"a",' + text[1:].lstrip() if len(body) else text
    return text


def test_identify_agrees_with_the_plain_model_on_random_requests() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(6000):
        headers = random_headers(rng)
        body = random_text(rng, random_body(rng))
        found = as_dict(limpet.identify(headers, body))
        assert found == plain_identity.identify(headers, body), (headers, body)


def random_counts(rng: random.Random) -> Any:
    counts: dict[str, Any] = {
        name: rng.choice([0, 5, 1793, 2**40, 2**60, None, -1, 1.5, "7", True])
        for name in plain_usage.FIELDS
        if rng.random() < 0.4
    }
    if rng.random() < 0.5:
        name = rng.choice(["prompt_tokens_details", "input_tokens_details"])
        counts[name] = rng.choice([None, {"cached_tokens": rng.choice([0, 64, None])}, {}, [1]])
    return rng.choice([counts, counts, counts, None, [counts]])


def random_document(rng: random.Random) -> Any:
    usage = {"usage": random_counts(rng)}
    text = rng.choice(["", 'say \\"usage\\": {', "\\", '"', "\u2603"])
    return rng.choice(
        [
            usage,
            {"choices": [{"delta": {"content": text}, **usage}]},
            {"choices": [], "text": text, **usage},
            {"response": {"tools": [usage], "output": text, **usage}},
            {"type": "message_start", "message": usage},
            {"metadata": usage, "a": [[{"b": text}]]},
            {"message": text, "response": [usage]},
        ]
    )


def answers(rng: random.Random) -> Iterator[str]:
    yield json.dumps(random_document(rng), indent=rng.choice([None, 2]))
    end = rng.choice(["\n", "\r\n", "\r"])
    lines = ""
    for _ in range(rng.randrange(6)):
        lines += rng.choice(["", ": ping" + end, "event: x" + end, "id: 1" + end])
        lines += "data: " + json.dumps(random_document(rng)) + end + end
    yield lines + rng.choice(["", "data: [DONE]" + end + end])


def test_the_scanner_agrees_with_the_plain_model_on_random_answers() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(3000):
        for answer in answers(rng):
            expected = plain_usage.usage(answer)
            data = answer.encode()
            scanner = limpet.UsageScanner()
            at = 0
            while at < len(data):
                size = rng.randrange(1, 60)
                scanner.feed(data[at : at + size])
                at += size
            for found in (scanner.usage, limpet.Usage.parse(answer)):
                figures = found and (
                    found.prompt_tokens,
                    found.cached_tokens,
                    found.completion_tokens,
                )
                assert figures == expected, answer


# Real requests and answers ------------------------------------------------------------------------


def test_real_requests_agree_with_the_plain_model() -> None:
    files = sorted((DATA / "agent_requests").glob("*.json"))
    if not files:
        pytest.skip(f"{DATA}/agent_requests is absent; set LIMPET_SHARED_DATA")
    for file in files:
        request = json.loads(file.read_text())
        headers = [(name, value) for name, value in request["headers"]]
        body = json.dumps(request["body"]).encode()
        for some in (headers, []):
            found = as_dict(limpet.identify(some, body))
            assert found == plain_identity.identify(some, body), file.name


def test_real_answers_agree_with_the_plain_model() -> None:
    files = sorted((DATA / "vllm_0.32" / "responses").glob("*_single.txt"))
    if not files:
        pytest.skip(f"{DATA}/vllm_0.32 is absent; set LIMPET_SHARED_DATA")
    for file in files:
        _, status, rest = file.read_text().partition("--- HTTP ")
        if not status:
            continue
        answer = rest.partition("\n}\n\n")[2]
        found = limpet.Usage.parse(answer)
        figures = found and (found.prompt_tokens, found.cached_tokens, found.completion_tokens)
        assert figures == plain_usage.usage(answer), file.name


# Prefixes and JSON metrics ------------------------------------------------------------------------


def test_the_ledger_sees_a_changed_prompt_by_its_prefix_chain() -> None:
    def body(*texts: str) -> bytes:
        messages = [{"role": "user", "content": text} for text in texts]
        return json.dumps({"messages": messages}).encode()

    router = limpet.Router(["a"])
    ledger = limpet.Ledger()
    said = limpet.Usage(prompt_tokens=1000, cached_tokens=0)
    classes = []
    for prompt in (body("one"), body("one", "two"), body("1", "two", "three")):
        with router.route("k") as lease:
            chain = limpet.prefix_chain(prompt)
            classes.append(ledger.record(lease.decision, said, chain).turn_class.name)
    assert classes == ["cold", "lost", "diverged"]
    assert limpet.prefix_chain("no JSON") == []


def test_json_metrics_are_named_by_pointer() -> None:
    parser = limpet.JsonMetrics(engines="/loads", engine="/rank", running="/reqs")
    page = json.dumps({"loads": [{"rank": 0, "reqs": 3}, {"rank": 1, "reqs": 5}]})
    readings = parser.parse(page.encode())
    assert not isinstance(readings, limpet.ParseStatus)
    assert [(reading.engine, reading.running) for reading in readings] == [("0", 3.0), ("1", 5.0)]
    assert parser.parse(b"{") is limpet.ParseStatus.malformed
    assert repr(parser) == "JsonMetrics(engines='/loads', engine='/rank', running='/reqs')"

    router = limpet.Router(metrics=parser)
    router.add_replica("a", endpoint="http://host", engine="1")
    assert router.observe("http://host", page) is limpet.ParseStatus.ok
    assert router.snapshot().replicas[0].running == 5.0


def test_json_metrics_that_name_nothing_or_no_pointer_are_refused() -> None:
    with pytest.raises(ValueError, match="name a figure"):
        limpet.JsonMetrics(engines="/loads")
    with pytest.raises(ValueError, match="running"):
        limpet.JsonMetrics(running="reqs")
    with pytest.raises(TypeError, match="no field"):
        limpet.JsonMetrics(speed="/x")  # type: ignore[call-arg]
