# SPDX-License-Identifier: Apache-2.0
"""`limpet engine`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from limpet.console import fail

if TYPE_CHECKING:
    from limpet.lab.server import Engine


def engine(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    profile: Annotated[
        str, typer.Option(help="The machine; `limpet simulate --list` shows them.")
    ] = "a4000-qwen3-4b",
    served_model_name: Annotated[
        str, typer.Option(help="What requests call the model. Default: the profile's name.")
    ] = "",
    data_parallel_size: Annotated[
        int, typer.Option(help="Ranks behind the port, each with a cache of its own.")
    ] = 1,
    balancer: Annotated[
        str,
        typer.Option(
            help="vLLM's own, for requests that name no rank: vllm-lb (mid 2026 on), vllm-lb-4w "
            "(before 0.14) or vllm-lb-blind (between the two)."
        ),
    ] = "vllm-lb",
    speed: Annotated[float, typer.Option(help="So many times faster than the real machine.")] = 1.0,
    kv_tokens: Annotated[
        int, typer.Option(help="Of each rank's KV cache. Default: the profile's.")
    ] = 0,
    block_size: Annotated[int, typer.Option(help="Tokens of a block of it.")] = 0,
    max_num_seqs: Annotated[int, typer.Option(help="Requests that run at once, a rank.")] = 0,
    max_model_len: Annotated[
        int, typer.Option(help="Longest prompt with its answer. Default: 32768, or what fits.")
    ] = 0,
    enable_prompt_tokens_details: Annotated[
        bool,
        typer.Option(
            "--enable-prompt-tokens-details/--no-enable-prompt-tokens-details",
            help="Whether usage says how many prompt tokens were cached.",
        ),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print where it listens as one JSON object.")
    ] = False,
) -> None:
    """A server that answers as vLLM does, on the simulator: no GPU, no model, real protocols.

    Two data-parallel ranks of a simulated RTX A4000, ten times as fast:

        limpet engine --data-parallel-size 2 --speed 10

    It speaks /v1/chat/completions, completions, messages, responses, embeddings and models, and has
    /metrics, /health and the rest. GET /lab/stats says what it has done; POST /lab/fault breaks it:

        curl -d '{"kind": "hang", "seconds": 30}' localhost:8000/lab/fault

    kinds: die, hang, slow (factor), 500 (count), cut (count, chunks), none. Each may end by itself
    after `seconds`. Answers are words without meaning: the same for the same prompt, as long as
    max_tokens says; above 1,024 or without it, 64 to 512 tokens, unless ignore_eos is set.
    """
    try:
        from limpet.lab.server import Engine  # noqa: PLC0415 (it needs packages that may lack)
    except ImportError as error:
        raise fail(f"the engine needs {error.name}: pip install 'limpet[lab]'") from None
    try:
        served = Engine(
            host=host,
            port=port,
            profile=profile,
            model=served_model_name,
            ranks=data_parallel_size,
            balancer=balancer,
            speed=speed,
            kv_tokens=kv_tokens,
            block_tokens=block_size,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            prompt_tokens_details=enable_prompt_tokens_details,
        )
        died = asyncio.run(_serve(served, as_json))
    except (ValueError, OverflowError) as error:
        raise fail(error) from None
    except OSError as error:
        number = error.errno or 0  # a name that does not resolve has a negative one
        why = os.strerror(number) if number > 0 else error.strerror or error
        raise fail(f"{host}:{port}: {why}") from None
    if died:
        raise typer.Exit(1)


async def _serve(served: Engine, as_json: bool) -> bool:
    """Until a signal comes; True: it died of a fault."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(each, stop.set)
    async with served:
        if as_json:
            print(json.dumps({"url": served.url, "model": served.core.model}), flush=True)
        else:
            machine = served.options.machine()
            print(
                f"{served.core.model} on {served.url}: {served.options.ranks} rank(s), "
                f"{machine.kv_tokens:,} tokens of KV cache each, {served.options.speed:g} x real "
                "time. Ctrl+C ends it.",
                flush=True,
            )
        stopped = asyncio.create_task(stop.wait())
        gone = asyncio.create_task(served.gone.wait())
        await asyncio.wait((stopped, gone), return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, gone):
            task.cancel()
        return served.gone.is_set()


def add_to(app: typer.Typer) -> None:
    app.command()(engine)
