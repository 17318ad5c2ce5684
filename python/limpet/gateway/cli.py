# SPDX-License-Identifier: Apache-2.0
"""`limpet serve`, `limpet doctor` and `limpet explain`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from limpet.console import fail
from limpet.gateway.settings import (
    PoolSettings,
    ReplicaSettings,
    Settings,
    SettingsError,
    load,
)

_stderr = Console(stderr=True)


def serve(
    replica: Annotated[
        list[str] | None, typer.Option(help="Base URL of an engine; once for each.")
    ] = None,
    data_parallel_size: Annotated[
        int, typer.Option(min=1, help="Ranks behind each --replica, as vLLM was started with.")
    ] = 1,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, help="The engines' option of that name; a quarter of it spills."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Names that clients may ask for; without, the engine says no to others."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="limpet.toml: several pools, keys, limits. SIGHUP reads it again."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on: 127.0.0.1 unless given.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on: 8080 unless given.")] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            help="Port of the panel, the admin API and /metrics, on loopback: 8081 unless given."
        ),
    ] = None,
    access_log: Annotated[
        str | None, typer.Option(help="A line a request: text (as without), json or off.")
    ] = None,
) -> None:
    """Run the gateway: every turn of a conversation goes to the engine that holds its prefix.

    Two servers:

        limpet serve --replica http://gpu0:8000 --replica http://gpu1:8000

    One vLLM with four data-parallel ranks:

        limpet serve --replica http://gpu0:8000 --data-parallel-size 4

    Several pools, keys and limits (examples/limpet.toml documents every option):

        limpet serve --config limpet.toml

    The admin token is in the file, in LIMPET_ADMIN_TOKEN, or made at the start and printed with
    the panel's address.
    """
    try:
        from limpet.gateway import server  # noqa: PLC0415
    except ImportError as error:
        raise fail(f"limpet serve needs {error.name}: pip install 'limpet[gateway]'") from None

    def settings() -> Settings:
        if config is not None:
            read = load(config)
            if replica or model:
                raise SettingsError("--replica and --model stand in the configuration file")
        elif not replica:
            raise SettingsError("nothing to send to: --replica URL, or --config FILE")
        else:
            pool = PoolSettings(
                models=tuple(model or ()),
                replicas=tuple(
                    ReplicaSettings(
                        url, data_parallel_size=data_parallel_size, max_num_seqs=max_num_seqs
                    )
                    for url in replica
                ),
            )
            read = Settings(pools=(pool,))
        front: dict[str, Any] = {"host": host, "port": port, "access_log": access_log}
        given = {name: value for name, value in front.items() if value is not None}
        read = dataclasses.replace(read, server=dataclasses.replace(read.server, **given))
        if admin_port is not None:
            read = dataclasses.replace(read, admin=dataclasses.replace(read.admin, port=admin_port))
        return read

    try:
        first = settings()
        token, made = _token(first)
    except SettingsError as error:
        raise fail(error) from None
    _log_to_the_terminal()

    def ready(where: server.Ready) -> None:
        for pool in first.pools:
            count = sum(len(r.names()) for r in pool.replicas)
            _say(f"pool {pool.name}: {count} replica{'s' * (count != 1)}, "
                 f"models {', '.join(pool.models) or 'as the engine says'}")  # fmt: skip
        _say(f"serving on {where.url}/v1")
        _say(f"panel on {where.admin_url}/limpet/{f'#token={token}' if made else ''}")

    run = server.serve(first, token, load=settings if config else None, ready=ready)
    try:
        _run(run)
    except SettingsError as error:
        raise fail(error) from None


def _run(work: Any) -> None:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _say(text: str) -> None:
    _stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _token(settings: Settings) -> tuple[str, bool]:
    """The admin token, and whether it was made up just now."""
    admin = settings.admin
    if admin.token_env:
        token = os.environ.get(admin.token_env, "")
        if not token:
            raise SettingsError(f"[admin]: token_env = {admin.token_env!r}: it is not set")
        return token, False
    token = admin.token or os.environ.get("LIMPET_ADMIN_TOKEN", "")
    return (token, False) if token else (secrets.token_urlsafe(24), True)


def _log_to_the_terminal() -> None:
    """Warnings to standard error, the access log to standard output."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    access = logging.getLogger("limpet.access")
    access.setLevel(logging.INFO)
    access.propagate = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access.addHandler(handler)


def doctor(
    urls: Annotated[list[str], typer.Argument(help="Base URLs of engines.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each question.")] = 10.0,
    api_key: Annotated[
        str, typer.Option(envvar="LIMPET_ENGINE_KEY", help="The engines' own key.")
    ] = "",
) -> None:
    """Check engines: version, prefix caching, token details, ranks, metrics; say what to change.

    Asks for two tokens at each engine and rank. Exit code 1 where something must be changed.
    """
    try:
        from limpet.gateway import doctor as checks  # noqa: PLC0415
    except ImportError as error:
        raise fail(f"limpet doctor needs {error.name}: pip install 'limpet[gateway]'") from None
    try:
        found = asyncio.run(checks.examine(urls, timeout, api_key))
    except SettingsError as error:
        raise fail(error) from None
    if as_json:
        checked = {url: [vars(c) for c in each] for url, each in found.items()}
        json.dump(checked, sys.stdout, indent=2)
        print()
    else:
        for url, each in found.items():
            table = Table("", "", "found", "what to change", title=url, title_justify="left")
            for c in each:
                table.add_row({"ok": "✓", "warn": "!", "fail": "✗"}[c.verdict], c.name, c.found,
                              c.advice)  # fmt: skip
            Console().print(table)
    if any(c.verdict == "fail" for each in found.values() for c in each):
        raise typer.Exit(1)


def explain(
    session: Annotated[str, typer.Option(help="The conversation's id, as its client sends it.")],
    gateway: Annotated[
        str, typer.Option(help="The admin address of a gateway that runs.")
    ] = "http://127.0.0.1:8081",
    token: Annotated[str, typer.Option(envvar="LIMPET_ADMIN_TOKEN", help="Its admin token.")] = "",
    pool: Annotated[str, typer.Option(help="Which pool.")] = "default",
    agent: Annotated[str, typer.Option(help="The sub-agent's id, if it is one.")] = "",
    tenant: Annotated[str, typer.Option(help="Whose conversation, where there are keys.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say where a conversation's next turn would go, and why. Changes nothing."""
    from urllib.error import HTTPError, URLError  # noqa: PLC0415
    from urllib.parse import quote  # noqa: PLC0415
    from urllib.request import Request, urlopen  # noqa: PLC0415

    request = Request(
        f"{gateway.rstrip('/')}/limpet/api/pools/{quote(pool, safe='')}/explain",
        json.dumps({"session": session, "agent": agent, "tenant": tenant}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urlopen(request, timeout=10) as answer:
            found = json.load(answer)
    except HTTPError as error:
        raise fail(f"{gateway}: {error.code} {error.read(500).decode(errors='replace')}") from None
    except (URLError, OSError, ValueError) as error:
        raise fail(f"{gateway}: {getattr(error, 'reason', error)}") from None
    if as_json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    console = Console()
    console.print(f"{found['outcome']}: {found['replica'] or 'no replica'} ({found['reason']})",
                  markup=False)  # fmt: skip
    table = Table("replica", "standing", "in flight", "live", "kv", "score", "terms")
    for row in found["rows"]:
        table.add_row(
            row["name"] + (" (home)" if row["home"] else ""),
            row["standing"],
            str(row["in_flight"]),
            str(row["live_conversations"]),
            "-" if row["kv_usage"] is None else f"{row['kv_usage']:.2f}",
            "-" if row["score"] is None else f"{row['score']:.2f}",
            " + ".join(f"{term} {value:.2f}" for term, value in row["terms"].items()),
        )
    console.print(table)


def add_to(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(doctor)
    app.command()(explain)
