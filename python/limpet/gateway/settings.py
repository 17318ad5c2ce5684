# SPDX-License-Identifier: Apache-2.0
"""The gateway's configuration: what limpet.toml can say, and what it must not.

examples/limpet.toml documents every option. An error names file, table, key and value, and what
would be right. Nothing here changes after it was read; a reload reads the file again.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

KINDS = ("vllm", "sglang", "llamacpp")
ACCESS_LOGS = ("text", "json", "off")


class SettingsError(ValueError):
    """Configuration that makes no sense; the message says where and what."""


def _require(right: bool, key: str, value: object, rule: str) -> None:
    if not right:
        raise SettingsError(f"{key} = {value!r}: {rule}")


def _at_least(settings: object, least: float, *keys: str) -> None:
    for key in keys:
        value = getattr(settings, key)
        _require(value >= least, key, value, f"must be at least {least:g}")


def _port(key: str, port: int) -> None:
    _require(0 <= port <= 65535, key, port, "a port is 0 (any that is free) to 65535")


@dataclass(frozen=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    drain_seconds: float = 30.0
    access_log: str = "text"
    response_headers: bool = True
    strip_billing_line: bool = False
    keepalive_comment: float = 0.0
    session_headers: tuple[str, ...] = ()
    tracing: bool = True

    def __post_init__(self) -> None:
        _port("port", self.port)
        _at_least(self, 0, "drain_seconds", "keepalive_comment")
        _require(
            self.access_log in ACCESS_LOGS,
            "access_log",
            self.access_log,
            f"one of {', '.join(ACCESS_LOGS)}",
        )


@dataclass(frozen=True)
class AdminSettings:
    host: str = "127.0.0.1"
    port: int = 8081
    token: str = ""
    token_env: str = ""

    def __post_init__(self) -> None:
        _port("port", self.port)
        _require(
            not (self.token and self.token_env),
            "token_env",
            self.token_env,
            "give token or token_env, not both",
        )


@dataclass(frozen=True)
class Limits:
    header_bytes: int = 65536
    body_bytes: int = 33554432
    concurrent_per_tenant: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        _at_least(self, 1024, "header_bytes", "body_bytes")
        _at_least(self, 0, "concurrent_per_tenant", "waiting")


@dataclass(frozen=True)
class Timeouts:
    connect: float = 5.0
    request_body: float = 60.0
    idle: float = 600.0

    def __post_init__(self) -> None:
        _at_least(self, 0.01, "connect", "request_body", "idle")


@dataclass(frozen=True)
class HealthSettings:
    failures: int = 3
    interval: float = 2.0
    timeout: float = 2.0
    stall_after: float = 30.0

    def __post_init__(self) -> None:
        _at_least(self, 1, "failures")
        _at_least(self, 0.01, "interval", "timeout")
        _at_least(self, 0, "stall_after")


@dataclass(frozen=True)
class MetricsSettings:
    interval: float = 5.0
    timeout: float = 2.0

    def __post_init__(self) -> None:
        _at_least(self, 0.01, "interval", "timeout")


@dataclass(frozen=True)
class ReplicaSettings:
    url: str
    name: str = ""
    data_parallel_size: int = 1
    first_engine: int = 0
    max_num_seqs: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", endpoint_of(self.url))
        _at_least(self, 1, "data_parallel_size")
        _at_least(self, 0, "first_engine")
        if self.max_num_seqs is not None:
            _at_least(self, 1, "max_num_seqs")

    def names(self) -> list[str]:
        """Of the replicas behind this endpoint, one a rank."""
        name = self.name or urlsplit(self.url).netloc
        if self.data_parallel_size == 1:
            return [name]
        return [f"{name}-rank{rank}" for rank in range(self.data_parallel_size)]


@dataclass(frozen=True)
class GateSettings:
    """Admission for conversations that outgrow the caches: the options of limpet.WorkingSetGate."""

    enabled: bool = False
    theta: float = 0.95
    max_wait: float = 60.0
    min_turns: int = 2
    grace: float = 2.0
    deadline: float = 600.0
    max_waiting: int = 1024
    shared_prefix_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    automatic: bool = False

    def __post_init__(self) -> None:
        _require(0 < self.theta <= 2, "theta", self.theta, "a share above 0 and at most 2")
        _at_least(self, 0, "max_wait", "grace", "deadline", "max_waiting")
        _at_least(self, 1, "min_turns")
        for key in ("shared_prefix_tokens", "kv_capacity_tokens"):
            value = getattr(self, key)
            _require(value is None or value >= 0, key, value, "must be at least 0")

    def options(self) -> dict[str, Any]:
        """As limpet.WorkingSetGate takes them."""
        options = dataclasses.asdict(self)
        del options["enabled"]
        return options | {"deadline": self.deadline or None}


@dataclass(frozen=True)
class PoolSettings:
    name: str = "default"
    models: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    kind: str = "vllm"
    threshold: int | None = None
    pins: int = 8192
    block_tokens: int = 16
    api_key_env: str = ""
    replicas: tuple[ReplicaSettings, ...] = ()
    gate: GateSettings = field(default_factory=GateSettings)

    def __post_init__(self) -> None:
        _require(bool(self.name), "name", self.name, "a pool needs a name")
        _require("/" not in self.name, "name", self.name, "stands in addresses, so no slash")
        _require(self.kind in KINDS, "kind", self.kind, f"one of {', '.join(KINDS)}")
        _require(bool(self.replicas), "replica", [], f"pool {self.name!r} has no replica")
        _at_least(self, 1, "pins", "block_tokens")
        if self.threshold is not None:
            _at_least(self, 1, "threshold")
        _require(
            bool(self.models) or not self.aliases,
            "aliases",
            self.aliases,
            "a pool without models takes every name",
        )
        seen: set[str] = set()
        for replica in self.replicas:
            for name in replica.names():
                _require(name not in seen, "replica", name, "is there twice; give them names")
                seen.add(name)


@dataclass(frozen=True)
class KeySettings:
    sha256: str
    tenant: str

    def __post_init__(self) -> None:
        _require(
            re.fullmatch(r"[0-9a-f]{64}", self.sha256) is not None,
            "sha256",
            self.sha256[:8] + "...",
            "64 hexadecimal digits, as `printf %s KEY | sha256sum` prints them",
        )
        _require(bool(self.tenant), "tenant", self.tenant, "a key belongs to a tenant")


@dataclass(frozen=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    limits: Limits = field(default_factory=Limits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    health: HealthSettings = field(default_factory=HealthSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    pools: tuple[PoolSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()

    def __post_init__(self) -> None:
        _require(bool(self.pools), "pool", [], "no replica to send anything to")
        names: set[str] = set()
        models: dict[str, str] = {}
        open_pool = ""
        for pool in self.pools:
            _require(pool.name not in names, "pool", pool.name, "is there twice")
            names.add(pool.name)
            for model in (*pool.models, *pool.aliases):
                other = models.setdefault(model, pool.name)
                _require(other == pool.name, "models", model, f"is pool {other!r}'s already")
            if not pool.models:
                _require(
                    not open_pool,
                    "models",
                    [],
                    f"pools {open_pool!r} and {pool.name!r} would both take every model",
                )
                open_pool = pool.name


def endpoint_of(url: str) -> str:
    """A base URL without a slash or /v1 at its end; SettingsError where it is none."""
    parts = urlsplit(url)
    try:
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        right = False
    _require(right, "url", url, "an address such as http://10.0.0.1:8000")
    _require(not parts.query and not parts.fragment, "url", url, "an address without ? and #")
    _require(not parts.username, "url", url, "no user in it; the engine's key is api_key_env")
    return url.rstrip("/").removesuffix("/v1")


# Reading a file -----------------------------------------------------------------------------------

_TABLES: dict[str, type] = {
    "server": ServerSettings,
    "admin": AdminSettings,
    "limits": Limits,
    "timeouts": Timeouts,
    "health": HealthSettings,
    "metrics": MetricsSettings,
}
_WHAT: dict[str, tuple[Any, str]] = {
    "str": (str, "a text"),
    "int": (int, "a whole number"),
    "int | None": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
}
_Table = TypeVar("_Table")


def load(path: Path) -> Settings:
    """The settings in `path`. SettingsError names file, table, key and value."""
    try:
        toml: Any = importlib.import_module("tomllib")  # of the standard library from 3.11 on
    except ImportError:
        raise SettingsError(f"{path}: reading it needs Python 3.11 or newer") from None
    try:
        document = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{path}: {error}") from None
    return parse(document, str(path))


def parse(document: dict[str, Any], file: str) -> Settings:
    """The settings that a parsed limpet.toml holds."""
    known = [*_TABLES, "pool", "key"]
    for name in document:
        if name not in known:
            raise SettingsError(f"{file}: [{name}]: no such table; there are: {', '.join(known)}")
    parts: dict[str, Any] = {
        name: _table(cls, document[name], f"{file}: [{name}]")
        for name, cls in _TABLES.items()
        if name in document
    }
    parts["keys"] = tuple(
        _table(KeySettings, item, f"{file}: [[key]] {number}")
        for number, item in enumerate(_list(document.get("key", []), f"{file}: [[key]]"), 1)
    )
    parts["pools"] = tuple(
        _pool(item, f"{file}: [[pool]] {number}")
        for number, item in enumerate(_list(document.get("pool", []), f"{file}: [[pool]]"), 1)
    )
    return _made(Settings, parts, file)


def _pool(item: object, where: str) -> PoolSettings:
    if not isinstance(item, dict):
        raise SettingsError(f"{where}: must be a table")
    rest = {key: value for key, value in item.items() if key not in ("replica", "gate")}
    replicas = _list(item.get("replica", []), f"{where}: replica")
    return _table(
        PoolSettings,
        rest,
        where,
        gate=_table(GateSettings, item.get("gate", {}), f"{where}: [pool.gate]"),
        replicas=tuple(
            _table(ReplicaSettings, one, f"{where}: [[pool.replica]] {number}")
            for number, one in enumerate(replicas, 1)
        ),
    )


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise SettingsError(f"{where}: is a list of tables, written with double brackets")
    return value


def _table(cls: type[_Table], item: object, where: str, **made: Any) -> _Table:
    if not isinstance(item, dict):
        raise SettingsError(f"{where}: must be a table")
    options = {f.name: f for f in dataclasses.fields(cls) if f.name not in ("replicas", "gate")}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in item.items():
        if key not in options:
            raise SettingsError(
                f"{where}: {key} = {value!r}: no such key; there are: {', '.join(options)}"
            )
        kind = str(options[key].type)
        if kind.startswith("tuple"):
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise SettingsError(f"{where}: {key} = {value!r}: must be a list of texts")
            values[key] = tuple(value)
            continue
        types, name = _WHAT[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise SettingsError(f"{where}: {key} = {value!r}: must be {name}")
        values[key] = value
    return _made(cls, {**values, **made}, where)


def _made(cls: type[_Table], values: dict[str, Any], where: str) -> _Table:
    try:
        return cls(**values)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None
    except TypeError as error:  # a key that has no default
        missing = str(error).rsplit(": ", 1)[-1]
        raise SettingsError(f"{where}: {missing} is missing") from None
