# SPDX-License-Identifier: Apache-2.0
"""limpet.toml: what it can say, and what is refused by file, table, key and value."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("limpet.gateway.settings")
from limpet.gateway import settings as s

EXAMPLE = Path(__file__).parents[2] / "examples" / "limpet.toml"
POOL = {"replica": [{"url": "http://a:1"}]}


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(s.SettingsError) as error:
        s.parse(document, "limpet.toml")
    return str(error.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_the_example_can_be_read_and_shows_the_defaults() -> None:
    read = s.load(EXAMPLE)
    assert read.server == s.ServerSettings()
    assert read.admin == s.AdminSettings()
    assert read.limits == s.Limits()
    assert read.timeouts == s.Timeouts()
    assert read.health == s.HealthSettings()
    assert read.metrics == s.MetricsSettings()
    (pool,) = read.pools
    assert pool.models == ("Qwen/Qwen3-4B",)
    assert pool.gate == s.GateSettings()
    assert [replica.name for replica in pool.replicas] == ["gpu0", "gpu1"]
    assert read.keys == (s.KeySettings(hashlib.sha256(b"key").hexdigest(), "team-a"),)


def test_the_example_documents_every_option() -> None:
    text = EXAMPLE.read_text()
    tables = {
        "server": s.ServerSettings,
        "admin": s.AdminSettings,
        "limits": s.Limits,
        "timeouts": s.Timeouts,
        "health": s.HealthSettings,
        "metrics": s.MetricsSettings,
        "pool": s.PoolSettings,
        "pool.gate": s.GateSettings,
        "pool.replica": s.ReplicaSettings,
        "key": s.KeySettings,
    }
    parts = re.split(r"^\[+([a-z.]+)\]+", text, flags=re.MULTILINE)
    sections: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        sections[name] = sections.get(name, "") + body
    assert sections.keys() == tables.keys()
    for name, table in tables.items():
        options = {field.name for field in dataclasses.fields(table)} - {"replicas", "gate"}
        shown = set(re.findall(r"^(?:# )?([a-z0-9_]+) = ", sections[name], re.MULTILINE))
        assert shown == options, name


def test_what_is_not_said_has_its_default() -> None:
    read = s.parse({"pool": [POOL]}, "limpet.toml")
    assert read == s.Settings(pools=(s.PoolSettings(replicas=(s.ReplicaSettings("http://a:1"),)),))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, "limpet.toml: pool = []: no replica"),
        ({"servr": {}}, "limpet.toml: [servr]: no such table; there are: server, admin"),
        ({"server": 3}, "limpet.toml: [server]: must be a table"),
        ({"server": {"prt": 1}}, "limpet.toml: [server]: prt = 1: no such key; there are: host"),
        ({"server": {"port": "x"}}, "limpet.toml: [server]: port = 'x': must be a whole number"),
        ({"server": {"port": True}}, "limpet.toml: [server]: port = True: must be a whole number"),
        ({"server": {"port": 70000}}, "limpet.toml: [server]: port = 70000: a port is 0"),
        ({"server": {"access_log": "x"}}, "[server]: access_log = 'x': one of text, json, off"),
        ({"server": {"session_headers": "x"}}, "session_headers = 'x': must be a list of texts"),
        ({"admin": {"token": "a", "token_env": "b"}}, "token_env = 'b': give token or token_env"),
        ({"limits": {"body_bytes": 1}}, "[limits]: body_bytes = 1: must be at least 1024"),
        ({"timeouts": {"idle": 0}}, "[timeouts]: idle = 0: must be at least 0.01"),
        ({"timeouts": {"idle": float("nan")}}, "[timeouts]: idle = nan: must be at least 0.01"),
        ({"health": {"failures": 0}}, "[health]: failures = 0: must be at least 1"),
        ({"metrics": {"interval": -1}}, "[metrics]: interval = -1: must be at least 0.01"),
        ({"pool": {}}, "[[pool]]: is a list of tables"),
        ({"pool": [3]}, "[[pool]] 1: must be a table"),
        ({"pool": [{}]}, "[[pool]] 1: replica = []: pool 'default' has no replica"),
        ({"pool": [{"replica": [{}]}]}, "[[pool]] 1: [[pool.replica]] 1: 'url' is missing"),
        ({"pool": [{"replica": [{"url": "a:1"}]}]}, "[[pool.replica]] 1: url = 'a:1': an address"),
        ({"pool": [{"replica": [{"url": "http://a:x"}]}]}, "url = 'http://a:x': an address"),
        ({"pool": [{"replica": [{"url": "http://u@a"}]}]}, "url = 'http://u@a': no user in it"),
        ({"pool": [{**POOL, "kind": "tgi"}]}, "kind = 'tgi': one of vllm, sglang, llamacpp"),
        ({"pool": [{**POOL, "threshold": 0}]}, "threshold = 0: must be at least 1"),
        ({"pool": [{**POOL, "aliases": ["a"]}]}, "a pool without models takes every name"),
        ({"pool": [{"replica": POOL["replica"] * 2}]}, "replica = 'a:1': is there twice"),
        ({"pool": [POOL, POOL]}, "pool = 'default': is there twice"),
        (
            {"pool": [POOL, {**POOL, "name": "b"}]},
            "pools 'default' and 'b' would both take every model",
        ),
        (
            {"pool": [{**POOL, "models": ["m"]}, {**POOL, "name": "b", "models": ["m"]}]},
            "models = 'm': is pool 'default''s already",
        ),
        ({"pool": [POOL], "key": [{"tenant": "a"}]}, "[[key]] 1: 'sha256' is missing"),
        (
            {"pool": [POOL], "key": [{"sha256": "secret-in-clear", "tenant": "a"}]},
            "[[key]] 1: sha256 = 'secret-i...': 64 hexadecimal digits",
        ),
        ({"pool": [POOL], "key": [{"sha256": "0" * 64, "tenant": ""}]}, "belongs to a tenant"),
    ],
)
def test_an_error_names_file_table_key_and_value(document: dict[str, Any], says: str) -> None:
    message = refused(document)
    assert says in message
    assert message.startswith("limpet.toml: ")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    with pytest.raises(s.SettingsError, match=r"limpet.toml: No such file"):
        s.load(file)
    file.write_text("[server]\nport =\n")
    with pytest.raises(s.SettingsError, match=r"limpet.toml: .*line 2"):
        s.load(file)
    file.write_bytes(b"\xff")
    with pytest.raises(s.SettingsError, match=r"limpet.toml: .*utf-8"):
        s.load(file)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://a:1", "http://a:1"),
        ("http://a:1/", "http://a:1"),
        ("http://a:1/v1/", "http://a:1"),
        ("https://a/prefix/v1", "https://a/prefix"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_may_end_in_v1(url: str, endpoint: str) -> None:
    assert s.ReplicaSettings(url).url == endpoint


def test_each_rank_behind_an_address_is_a_replica() -> None:
    assert s.ReplicaSettings("http://a:1").names() == ["a:1"]
    assert s.ReplicaSettings("http://a:1", data_parallel_size=2).names() == [
        "a:1-rank0",
        "a:1-rank1",
    ]
    assert s.ReplicaSettings("http://a:1", name="gpu", data_parallel_size=2).names() == [
        "gpu-rank0",
        "gpu-rank1",
    ]
