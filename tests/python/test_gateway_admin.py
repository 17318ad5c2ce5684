# SPDX-License-Identifier: Apache-2.0
"""The admin API and /metrics: who may use them, what they say, what the switches do."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.server", exc_type=ImportError)
import gateway_rig as rigs
from gateway_rig import TOKEN, Client, engines, gateway, settings_for
from limpet.gateway.settings import PoolSettings, ReplicaSettings, ServerSettings

POOL = "/limpet/api/pools/default"


async def test_the_admin_surface_is_closed_without_its_token() -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet, keys=rigs.keys(a="ka"))) as rig:
        reads = ["/metrics", "/limpet/api/pools", POOL, f"{POOL}/timeline", f"{POOL}/events",
                 f"{POOL}/decisions/1"]  # fmt: skip
        writes = [f"{POOL}/affinity", f"{POOL}/threshold", f"{POOL}/explain",
                  f"{POOL}/replicas/x/drain"]  # fmt: skip
        for token in ("", "wrong", "ka", TOKEN + "x", TOKEN[:-1]):
            for path in reads:
                answer = await rig.admin(path, token=token)
                assert answer.status == 401, (path, token)
                assert answer.json.keys() == {"error"}
            for path in writes:
                assert (await rig.admin(path, {"affinity": "off"}, token=token)).status == 401
        assert (await rig.state())["affinity"] == "on"
        assert (await rig.admin("/metrics")).status == 200


async def test_an_inference_key_is_needed_where_there_are_keys_and_goes_no_further() -> None:
    async with (
        engines(1) as (engine,),
        gateway(settings_for(engine, keys=rigs.keys(a="ka"))) as rig,
    ):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": TOKEN}):
            for path in ("/v1/chat/completions", "/v1/messages"):
                answer = await rig.ask({"model": "m"}, headers=headers, path=path)
                assert answer.status == 401
            assert (
                await rig.ask(b"", method="GET", path="/v1/models", headers=headers)
            ).status == 401
        assert engine.requests == []
        for headers in ({"authorization": "Bearer ka"}, {"x-api-key": "ka"}):
            assert (await rig.ask({"model": "m"}, headers=headers)).status == 200
            names = {name.lower() for name, _ in engine.requests[-1].headers}
            assert not names & {b"authorization", b"x-api-key"}


async def test_tenants_do_not_share_or_steer_conversations() -> None:
    async with (
        engines(2) as fleet,
        gateway(settings_for(*fleet, keys=rigs.keys(a="ka", b="kb"))) as rig,
    ):

        def bearer(key: str) -> dict[str, str]:
            return {"authorization": f"Bearer {key}"}

        mine = await rig.ask({"model": "m"}, "s", headers=bearer("ka"))
        theirs = await rig.ask({"model": "m"}, "s", headers=bearer("kb"))
        # The same id is another conversation: placed by itself, on the other replica.
        assert [a.header("x-limpet-outcome") for a in (mine, theirs)] == ["placed", "placed"]
        assert mine.header("x-limpet-replica") != theirs.header("x-limpet-replica")
        for key, first in (("ka", mine), ("kb", theirs)):
            again = await rig.ask({"model": "m"}, "s", headers=bearer(key))
            assert again.header("x-limpet-replica") == first.header("x-limpet-replica")
        for tenant, first in (("a", mine), ("b", theirs)):
            explained = await rig.admin(f"{POOL}/explain", {"session": "s", "tenant": tenant})
            assert explained.json["replica"] == first.header("x-limpet-replica")
            assert explained.json["outcome"] == "sticky"


async def test_the_state_tells_what_happened() -> None:
    async def script(seen: rigs.Seen, reply: rigs.Reply) -> None:
        cached = seen.json["cached"]
        await reply.whole(json.dumps({"usage": rigs.usage(1000, cached, 24)}).encode())

    async with engines(2, script) as fleet, gateway(settings_for(*fleet)) as rig:
        messages: list[Any] = [{"role": "user", "content": "x" * 50}]
        for cached in (0, 1000, 500):
            answer = await rig.ask({"model": "m", "cached": cached, "messages": messages}, "s")
            messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        state = await rig.state()
        assert state["affinity"] == "on"
        assert state["spill_threshold"] == {"value": 8, "auto": True}
        assert state["sticky_share"] == 1.0
        assert state["last_hour"] == {"cached": 1500, "computed": 1500}
        classes = {row["class"]: row for row in state["classes"]}
        assert {name: row["turns"] for name, row in classes.items() if row["turns"]} == {
            "cold": 1,
            "hit": 1,
            "partial": 1,
        }
        # 992 tokens could be reused (whole blocks below the prompt's last token), 500 were.
        assert classes["partial"]["computed_tokens"] == 492
        newest = state["decisions"][0]
        assert newest["replica"] == newest["home"] == answer.header("x-limpet-replica")
        assert (newest["outcome"], newest["class"]) == ("sticky", "partial")
        assert (newest["prompt_tokens"], newest["cached_tokens"]) == (1000, 500)
        assert [decision["id"] for decision in state["decisions"]] == [3, 2, 1]
        row = (await rig.replicas())[newest["replica"]]
        assert (row["placed"], row["sticky"], row["pins"], row["in_flight"]) == (1, 2, 1, 0)

        timeline = (await rig.admin(f"{POOL}/timeline?seconds=60")).json
        assert len(timeline["cached"]) == len(timeline["computed"]) == 60
        assert (sum(timeline["cached"]), sum(timeline["computed"])) == (1500, 1500)
        assert (await rig.admin(f"{POOL}/timeline?seconds=0")).status == 400


async def test_a_decision_keeps_its_explanation_as_it_was() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        first = await rig.turn("a")
        for number in range(5):
            await rig.turn(f"later-{number}")
        explained = (await rig.admin(f"{POOL}/decisions/1")).json
        assert explained["outcome"] == "placed"
        assert {row["live_conversations"] for row in explained["rows"]} == {0}
        (chosen,) = [row for row in explained["rows"] if row["standing"] == "chosen"]
        assert chosen["name"] == first.header("x-limpet-replica")
        assert chosen["terms"].keys() >= {"in_flight", "live_conversations"}
        assert (await rig.admin(f"{POOL}/decisions/99")).status == 404


async def test_the_switches_do_what_they_say_and_the_feed_tells_at_once() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet)) as rig:
        one, two = (engine.name for engine in fleet)
        await rig.switch(one, "drain")
        assert (await rig.replicas())[one]["state"] == "draining"
        assert {(await rig.turn(f"d{n}")).header("x-limpet-replica") for n in range(4)} == {two}
        await rig.switch(one, "up")
        await rig.switch(two, "down")
        assert {(await rig.turn(f"d{n}")).header("x-limpet-replica") for n in range(4)} == {one}
        await rig.switch(two, "up")

        threshold = (await rig.admin(f"{POOL}/threshold", {"threshold": 1})).json["spill_threshold"]
        assert threshold == {"value": 1, "auto": False}
        hold = asyncio.Event()

        async def held(seen: rigs.Seen, reply: rigs.Reply) -> None:
            await hold.wait()
            await rigs.answer(seen, reply)

        home = next(engine for engine in fleet if engine.name == one)
        home.script, count = held, len(home.requests)
        first = asyncio.create_task(rig.turn("d0"))
        await home.got(count + 1)
        spilled = await rig.turn("d1")
        assert (spilled.header("x-limpet-outcome"), spilled.header("x-limpet-replica")) == (
            "spilled",
            two,
        )
        hold.set()
        assert (await first).header("x-limpet-outcome") == "sticky"
        auto = (await rig.admin(f"{POOL}/threshold", {"threshold": None})).json["spill_threshold"]
        assert auto == {"value": 8, "auto": True}

        seen = asyncio.create_task(rig.until(lambda state: state["affinity"] == "off"))
        await rig.admin(f"{POOL}/affinity", {"affinity": "off"})
        assert (await seen)["affinity"] == "off"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"{POOL}/affinity", {"affinity": "maybe"}, 400),
        (f"{POOL}/affinity", {}, 400),
        (f"{POOL}/threshold", {}, 400),
        (f"{POOL}/threshold", {"threshold": 0}, 400),
        (f"{POOL}/threshold", {"threshold": True}, 400),
        (f"{POOL}/threshold", {"threshold": "8"}, 400),
        (f"{POOL}/threshold", [8], 400),
        (f"{POOL}/threshold", {"threshold": 1, "x": "y" * 5000}, 413),
        (f"{POOL}/replicas/nobody/drain", {}, 404),
        ("/limpet/api/pools/nobody/affinity", {"affinity": "on"}, 404),
        (f"{POOL}/explain", {"session": ""}, 400),
        (f"{POOL}/explain", {"session": 3}, 400),
    ],
)
async def test_a_switch_that_makes_no_sense_is_refused_and_changes_nothing(
    path: str, body: Any, status: int
) -> None:
    async with engines(1) as fleet, gateway(settings_for(*fleet)) as rig:
        answer = await rig.admin(path, body)
        assert answer.status == status
        assert isinstance(answer.json["error"]["message"], str)
        state = await rig.state()
        assert (state["affinity"], state["spill_threshold"]["auto"]) == ("on", True)


async def test_the_panels_files_need_no_token_and_nothing_else_is_served() -> None:
    async with (
        engines(1) as fleet,
        gateway(settings_for(*fleet)) as rig,
        Client(rig.admin_url) as c,
    ):
        await c.send("GET", "/", [])
        assert (await c.answer()).header("location") == "/limpet/"
        await c.send("GET", "/limpet/plotly.min.js", [])
        chart = await c.answer()
        assert (chart.status, chart.header("content-type")) == (
            200,
            "text/javascript; charset=utf-8",
        )
        assert "default-src 'self'" in (chart.header("content-security-policy") or "")
        for path in ("/limpet/../admin.py", "/limpet/%2e%2e%2fadmin.py", "/limpet/..%2Fadmin.py",
                     "/limpet/nothing.js", "/limpet/api"):  # fmt: skip
            await c.send("GET", path, [])
            assert (await c.answer()).status in (401, 404), path


async def test_metrics_are_prometheus_text_without_ids() -> None:
    async with engines(2) as fleet, gateway(settings_for(*fleet, keys=rigs.keys(a="ka"))) as rig:
        for _ in range(3):
            await rig.ask({"model": "m"}, "secret-session", headers={"x-api-key": "ka"})
        page = (await rig.admin("/metrics")).body.decode()
        samples = {}
        for line in page.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name not in samples
                samples[name] = float(value)
                assert name.startswith("limpet_")
        home = next(engine.name for engine in fleet if engine.requests)
        at = f'pool="default",replica="{home}"'
        assert samples[f'limpet_replica_turns_total{{{at},outcome="sticky"}}'] == 2
        assert samples[f'limpet_replica_turns_total{{{at},outcome="placed"}}'] == 1
        assert samples[f"limpet_replica_in_flight{{{at}}}"] == 0
        assert samples[f"limpet_replica_pending_prefill_tokens{{{at}}}"] == 0
        assert samples['limpet_answers_total{pool="default",status="200"}'] == 3
        assert samples['limpet_ttfb_seconds_count{pool="default"}'] == 3
        assert samples['limpet_ttfb_seconds_bucket{pool="default",le="+Inf"}'] == 3
        assert samples['limpet_turns_total{pool="default",class="cold"}'] == 3
        assert "secret-session" not in page
        assert "ka" not in {part.strip('"') for part in page.replace("=", ",").split(",")}


@pytest.mark.parametrize("form", ["text", "json"])
async def test_logs_tell_what_was_decided_and_never_a_session_a_key_or_a_prompt(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = ServerSettings(port=0, access_log=form)
    settings: dict[str, Any] = {"server": server, "keys": rigs.keys(team="secret-key")}
    async with engines(2) as fleet, gateway(settings_for(*fleet, **settings)) as rig:
        with caplog.at_level(logging.DEBUG):
            key = {"authorization": "Bearer secret-key"}
            body = {"model": "m", "messages": [{"role": "user", "content": "secret-prompt"}]}
            home = (await rig.ask(body, "secret-session", headers=key)).header("x-limpet-replica")
            await rig.ask(body, "secret-session", headers=key)
            await rig.ask({**body, "model": "nope"}, "secret-session", headers=key)
            await rig.ask(b"secret-prompt", "secret-session", headers=key)
            await rig.ask(body, "secret-session", headers={"authorization": "Bearer secret-wrong"})
            await fleet[0].die()
            await fleet[1].die()
            await rig.ask(body, "secret-session", headers=key)
    assert "secret" not in caplog.text
    lines = [r.message for r in caplog.records if r.name == "limpet.access"]
    assert len(lines) == 6
    if form == "json":
        first, second, unknown = map(json.loads, lines[:3])
        assert (first["outcome"], second["outcome"]) == ("placed", "sticky")
        assert second["replica"] == home
        assert (second["class"], second["prompt_tokens"], second["status"]) == ("cold", 100, 200)
        assert (second["tenant"], second["key_source"]) == ("team", "session_header")
        assert (unknown["status"], unknown["error"]) == (404, "model_not_found")
    else:
        assert f"replica={home} outcome=sticky class=cold" in lines[1]


async def test_models_are_those_of_all_pools() -> None:
    async with engines(3) as (one, two, three):
        one.models, two.models = ["a", "shared"], ["b", "shared"]
        pools = tuple(
            PoolSettings(name=n, models=(n,), replicas=(ReplicaSettings(e.url),))
            for n, e in (("a", one), ("b", two), ("c", three))
        )
        async with gateway(settings_for(one, pools=pools)) as rig:
            await three.die()
            models = (await rig.ask(b"", method="GET", path="/v1/models")).json
            assert models["object"] == "list"
            # The one that does not answer is there by the name that its pool is configured for.
            assert [model["id"] for model in models["data"]] == ["a", "shared", "b", "c"]
            assert (await rig.admin("/limpet/api/pools")).json == {
                "pools": [{"name": n, "models": [n]} for n in ("a", "b", "c")]
            }


async def test_a_turn_is_a_span_with_gen_ai_attributes_where_tracing_is_installed() -> None:
    sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    trace: Any = importlib.import_module("opentelemetry.trace")
    spans = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with engines(1) as (engine,), gateway(settings_for(engine)) as rig:
        await rig.ask({"model": "m"}, "secret-session", headers={"traceparent": parent})
        assert engine.requests[0].header("traceparent") == parent.encode()
    (span,) = spans.get_finished_spans()
    assert span.name == "chat m"
    assert format(span.parent.span_id, "016x") == "b7ad6b7169203331"
    assert span.attributes["gen_ai.request.model"] == "m"
    assert span.attributes["gen_ai.usage.input_tokens"] == 100
    assert span.attributes["gen_ai.usage.output_tokens"] == 5
    assert span.attributes["limpet.outcome"] == "placed"
    assert "secret-session" not in str(span.to_json())
