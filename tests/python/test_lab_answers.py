# SPDX-License-Identifier: Apache-2.0
"""What the simulated server answers: as recorded from vLLM, with the usage that was asked for."""

from __future__ import annotations

import json
import time
from itertools import groupby
from typing import Any

import limpet
import pytest
from lab_client import (
    FORMS,
    body,
    events,
    in_two_parts,
    recorded,
    recorded_answer,
    said,
    serving,
    usage,
)
from limpet import sim
from limpet.lab import text

PROMPT = "engine server class beta gamma " * 200


def tokens(prompt: int, cached: int, completion: int) -> limpet.Usage:
    return limpet.Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def shape(value: Any) -> Any:
    """Names in their order, and of each value its kind."""
    if isinstance(value, dict):
        return [(name, shape(each)) for name, each in value.items()]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return "number" if isinstance(value, int | float) else type(value).__name__


WHOLE = [
    ("chat_warm_single.txt", "/v1/chat/completions"),
    ("completions_warm_single.txt", "/v1/completions"),
    ("messages_warm_single.txt", "/v1/messages"),
    ("responses_warm_single.txt", "/v1/responses"),
]
STREAMED = [
    ("chat_stream_warm_single.txt", "/v1/chat/completions"),
    ("messages_stream_single.txt", "/v1/messages"),
    ("responses_stream_single.txt", "/v1/responses"),
]


@pytest.mark.parametrize(("file", "path"), WHOLE)
async def test_a_whole_answer_has_the_recorded_fields_in_their_order(file: str, path: str) -> None:
    headers, answer = recorded_answer(file)
    async with serving(model="tiny") as (_, client):
        ours = await client.post(path, json=body(path, PROMPT, model="tiny"))
    assert ours.status_code == 200
    assert list(ours.headers) == list(headers)
    assert ours.headers["content-type"] == headers["content-type"]
    assert shape(ours.json()) == shape(json.loads(answer))
    assert ": " not in ours.text.split("usage")[1]  # spaced as vLLM does: not at all


@pytest.mark.parametrize(("file", "path"), STREAMED)
async def test_a_stream_has_the_recorded_events_in_their_order(file: str, path: str) -> None:
    headers, answer = recorded_answer(file)
    ours = await in_two_parts(path, body(path, PROMPT, model="tiny", stream=True), model="tiny")
    assert list(ours.headers) == list(headers)
    assert ours.headers["content-type"] == headers["content-type"]
    assert answer.endswith("data: [DONE]") == ours.text.endswith("data: [DONE]\n\n")
    # How many tokens an event brings depends on how busy either machine was.
    shapes = [[each for each, _ in groupby(map(shape, events(s)))] for s in (answer, ours.text)]
    assert shapes[0] == shapes[1]


async def test_an_unknown_model_gets_the_recorded_error() -> None:
    headers, answer = recorded_answer("chat_unknown_model_single.txt")
    async with serving(model="tiny") as (_, client):
        ours = await client.post("/v1/chat/completions", json=body(FORMS[0], "hi", model="nope"))
        anthropic = await client.post("/v1/messages", json=body("/v1/messages", "hi", model="nope"))
    assert ours.status_code == 404
    assert ours.text == answer
    assert list(ours.headers) == list(headers)
    assert anthropic.status_code == 404
    message = "The model `nope` does not exist. Valid aliases: tiny."
    error = {"type": "NotFoundError", "message": message}
    assert anthropic.json() == {"type": "error", "error": error}


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_says_what_was_asked_and_what_was_cached(path: str, stream: bool) -> None:
    async with serving() as (_, client):
        answers = []
        for max_tokens in (8, 8, 40):
            asked = body(path, PROMPT, max_tokens, stream=stream)
            answers.append(await client.post(path, json=asked))
    cold, warm, longer = (usage(answer) for answer in answers)
    assert cold.prompt_tokens is not None
    # 6,200 characters are 1,550 tokens; the rest are the marks of a message and its role.
    assert 1_550 <= cold.prompt_tokens < 1_570
    assert cold == tokens(cold.prompt_tokens, 0, 8)
    block = sim.profiles()["a4000-qwen3-4b"].block_tokens
    reused = (cold.prompt_tokens - 1) // block * block
    assert warm == tokens(cold.prompt_tokens, reused, 8)
    assert longer == tokens(cold.prompt_tokens, reused, 40)
    texts = [said(path, answer) for answer in answers]
    assert texts[0] == texts[1] == texts[2][: len(texts[0])]
    assert len(texts[2]) == 4 * 40


async def test_the_next_turn_reuses_the_answer_too() -> None:
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "first"}]
    async with serving() as (_, client):
        path = "/v1/chat/completions"
        first = await client.post(path, json={"messages": messages, "max_tokens": 100})
        messages += [first.json()["choices"][0]["message"], {"role": "user", "content": "second"}]
        second = await client.post(path, json={"messages": messages, "max_tokens": 4})
    had = usage(first)
    assert had.completion_tokens == 100
    assert had.prompt_tokens is not None
    # The last token of an answer is never computed.
    assert usage(second).cached_tokens == (had.prompt_tokens + 100 - 1) // 16 * 16


async def test_without_details_usage_is_silent_about_the_cache() -> None:
    async with serving(prompt_tokens_details=False) as (_, client):
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages"):
            for stream in (False, True):
                answer = await client.post(path, json=body(path, "hi", stream=stream))
                assert usage(answer).cached_tokens is None
                assert usage(answer).completion_tokens == 8


async def test_continuous_usage_counts_up() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"prompt": "hi", "max_tokens": 8, "stream": True, "stream_options": options}
    answer = await in_two_parts("/v1/completions", asked)
    counted = [event["usage"]["completion_tokens"] for event in events(answer.text)]
    assert counted == [3, 8, 8]


async def test_token_ids_come_back_and_go_in_again() -> None:
    asked = {"prompt": PROMPT, "max_tokens": 20, "return_token_ids": True}
    async with serving() as (_, client):
        choice = (await client.post("/v1/completions", json=asked)).json()["choices"][0]
        streamed = await client.post("/v1/completions", json=asked | {"stream": True})
        again = choice["prompt_token_ids"] + choice["token_ids"] + [1, 2, 3]
        next_turn = await client.post("/v1/completions", json={"prompt": again, "max_tokens": 1})
    assert len(choice["token_ids"]) == 20
    assert choice["prompt_token_ids"] == text.ids(text.tokens(PROMPT))
    choices = [event["choices"][0] for event in events(streamed.text)]
    assert choices[0]["prompt_token_ids"] == choice["prompt_token_ids"]
    assert [number for each in choices for number in each["token_ids"]] == choice["token_ids"]
    assert usage(next_turn) == tokens(len(again), (len(again) - 4) // 16 * 16, 1)


async def test_several_prompts_get_an_answer_each() -> None:
    async with serving() as (_, client):
        path = "/v1/completions"
        alone = [await client.post(path, json=body(path, each)) for each in ("one", "two")]
        both = await client.post(path, json={"prompt": ["one", "two"], "max_tokens": 8})
        ids = [text.ids(text.tokens(each)) for each in ("one", "two")]
        by_ids = await client.post(path, json={"prompt": ids, "max_tokens": 8})
    assert [each["text"] for each in both.json()["choices"]] == [said(path, a) for a in alone]
    assert by_ids.json()["choices"] == both.json()["choices"]
    assert usage(both) == tokens(2, 0, 16)


async def test_an_answer_without_a_wish_ends_where_the_model_stops() -> None:
    path = "/v1/chat/completions"
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    async with serving() as (_, client):
        free, limited, forced, least = [
            (await client.post(path, json=chat | options)).json()
            for options in (
                {},
                {"max_tokens": 32_000},
                {"max_tokens": 2_000, "ignore_eos": True},
                {"max_tokens": 2_000, "min_tokens": 700},
            )
        ]
    assert free["choices"][0]["finish_reason"] == "stop"
    assert 64 <= free["usage"]["completion_tokens"] <= 512
    assert limited["usage"] == free["usage"] | {
        "prompt_tokens_details": limited["usage"]["prompt_tokens_details"]
    }
    assert forced["choices"][0]["finish_reason"] == "length"
    assert forced["usage"]["completion_tokens"] == 2_000
    assert least["usage"]["completion_tokens"] == 700


async def test_equal_requests_get_equal_bytes_where_that_was_asked_for() -> None:
    answers: list[list[bytes]] = []
    for _ in range(2):
        async with serving(reproducible=True) as (_, client):
            sent = [await client.post(path, json=body(path, PROMPT)) for path in FORMS]
            answers.append([answer.content for answer in sent])
    assert answers[0] == answers[1]
    async with serving(reproducible=True) as (_, client):
        other = await client.post(FORMS[0], json=body(FORMS[0], PROMPT + "."))
    assert other.content != answers[0][0]


async def test_embeddings_follow_from_the_text() -> None:
    async with serving() as (engine, client):
        asked = {"input": ["one", "two", "one"]}
        answer = (await client.post("/v1/embeddings", json=asked)).json()
        assert engine.stats()["finished"] == 3
    vectors = [each["embedding"] for each in answer["data"]]
    assert vectors[0] == vectors[2] != vectors[1]
    assert answer["usage"]["prompt_tokens"] == 3


async def test_counted_tokens_are_those_that_a_request_is_charged() -> None:
    asked = body("/v1/messages", PROMPT) | {"system": "Be brief.", "tools": [{"name": "ls"}]}
    async with serving() as (_, client):
        counted = await client.post("/v1/messages/count_tokens", json=asked)
        answer = await client.post("/v1/messages", json=asked)
        bad = await client.post("/v1/messages/count_tokens", content=b"{")
    assert counted.json() == {"input_tokens": usage(answer).prompt_tokens}
    assert (bad.status_code, bad.json()["type"]) == (400, "error")


async def test_no_token_comes_before_its_time() -> None:
    machine = sim.EngineProfile()
    machine.front_end, machine.step.fixed = 2.0, 1.0
    began = time.monotonic()
    async with serving(profile=machine, model="m", speed=40.0) as (_, client):
        await client.post(FORMS[0], json=body(FORMS[0], "hi"))
    # 2 s of front end and eight steps of a second each, all 40 times as fast.
    assert time.monotonic() - began >= 10.0 / 40.0


async def test_the_small_pages() -> None:
    async with serving(model="tiny", max_model_len=9_000) as (engine, client):
        models = (await client.get("/v1/models")).json()["data"]
        assert [(each["id"], each["max_model_len"]) for each in models] == [("tiny", 9_000)]
        assert (await client.get("/version")).json() == {"version": "0.32.0"}
        for page in ("/health", "/ping"):
            answer = await client.get(page)
            assert (answer.status_code, answer.text) == (200, "")
        missing = await client.get("/v1/nothing")
        assert missing.status_code == 404
        assert missing.json()["error"]["message"] == "Not Found"
        await client.post(FORMS[0], json=body(FORMS[0], PROMPT))
        assert (await client.post("/reset_prefix_cache")).status_code == 200
        again = await client.post(FORMS[0], json=body(FORMS[0], PROMPT))
        assert usage(again).cached_tokens == 0
        assert engine.stats()["requests"] == {FORMS[0]: 2}


BAD = [
    (b"{", "JSON decode error: "),
    (b"[]", "The body must be a JSON object"),
    (b"[" * 100_000, "JSON decode error: "),
    (b'{"messages": []}', "messages must not be empty"),
    (b'{"messages": "hi"}', "messages must be a list of objects"),
    (b'{"messages": [{}], "max_tokens": 0}', "max_tokens must be at least 1, got 0."),
    (b'{"messages": [{}], "max_tokens": "x"}', "max_tokens must be at least 1, got 'x'."),
    (b'{"messages": [{}], "model": 7}', "model must be a string"),
    (b'{"messages": [{}], "n": 2}', "n: this server gives one answer to a prompt"),
    (b'{"messages": [{}], "stream_options": 1}', "stream_options must be an object"),
]


@pytest.mark.parametrize(("sent", "message"), BAD)
async def test_a_bad_body_is_refused_in_the_protocols_own_shape(sent: bytes, message: str) -> None:
    async with serving() as (engine, client):
        openai = await client.post("/v1/chat/completions", content=sent)
        anthropic = await client.post("/v1/messages", content=sent)
        assert engine.stats()["in_flight"] == 0
    assert (openai.status_code, anthropic.status_code) == (400, 400)
    assert openai.json()["error"]["message"].startswith(message)
    assert openai.json()["error"]["code"] == 400
    assert anthropic.json()["type"] == "error"
    assert anthropic.json()["error"]["type"] == "BadRequestError"


@pytest.mark.parametrize("prompt", [None, [], "", ["a", ""], [-1], [2**32], [[1], ["a"]], [1, "a"]])
async def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    async with serving() as (_, client):
        answer = await client.post("/v1/completions", json={"prompt": prompt})
    assert answer.status_code == 400, answer.text


async def test_what_does_not_fit_the_context_is_refused_as_vllm_does() -> None:
    async with serving(max_model_len=2_000) as (_, client):
        fits = await client.post("/v1/completions", json={"prompt": [7] * 1_990, "max_tokens": 10})
        answer = await client.post(
            "/v1/completions", json={"prompt": [7] * 1_991, "max_tokens": 10}
        )
    assert fits.status_code == 200
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "This model's maximum context length is 2000 tokens. However, you requested 10 "
        "output tokens and your prompt contains at least 1991 input tokens, for a total of at "
        "least 2001 tokens. Please reduce the length of the input prompt or the number of "
        "requested output tokens. (parameter=input_tokens, value=1991)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }


async def test_the_metrics_page_reads_as_a_real_one_and_says_what_was_served() -> None:
    real = recorded("metrics/metrics_dp2_asc1_under_load.txt").splitlines()
    names = {line.split("{")[0].split(" ")[0] for line in real if not line.startswith("#")}
    heads = {line for line in real if line.startswith("#")}
    async with serving(ranks=2, model="tiny") as (engine, client):
        for _ in range(2):
            await client.post(
                FORMS[0], json=body(FORMS[0], PROMPT), headers={"X-data-parallel-rank": "1"}
            )
        page = (await client.get("/metrics")).text
        url = engine.url
    for line in page.splitlines():
        if line.startswith("#"):
            assert line in heads
        else:
            assert line.split("{")[0].split(" ")[0] in names
    router = limpet.Router()
    for rank in range(2):
        router.add_replica(f"rank{rank}", endpoint=url, rank=rank, engine=str(rank))
    assert router.observe(url, page) == limpet.ParseStatus.ok
    read = [(r.running, r.kv_usage, r.prefix_hits) for r in router.snapshot().replicas]
    # 6,200 characters, two roles' names and four marks are 1,557 tokens, of which 97 blocks.
    assert read == [(0, 0, 0), (0, 0, 1_552)]
