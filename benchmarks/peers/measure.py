# SPDX-License-Identifier: Apache-2.0
"""Loads proxies in front of the same engines, in turns, and prints what each took.

Run by run.sh, which builds and installs what is needed. All proxies stay up for the whole run; one
at a time is under load. In each round each of them, in an order that rotates, serves wrk with 32
connections and then with one. A proxy's processor time is that of its processes during the first,
divided by the requests; the time it adds is its median with one connection less that of the engine
itself in the same round. Every answer is counted by its status, and one of each proxy is compared
with the engine's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "bench"
TICK = 1e6 / os.sysconf("SC_CLK_TCK")  # us
SESSIONS = 256
BODY = '{"model":"m","messages":[{"role":"user","content":"%s"}]}' % ("x" * 971)

# Each request belongs to one of the sessions, which all proxies take from the same header.
LOAD = """
local body = [==[%s]==]
local requests, at = {}, 0
function init(args)
  for i = 1, %d do
    requests[i] = wrk.format("POST", "/v1/chat/completions",
      {["Content-Type"] = "application/json", ["X-Session-ID"] = "session-" .. i}, body)
  end
  at = math.random(#requests)
end
function request()
  at = at %% #requests + 1
  return requests[at]
end
"""

HAPROXY = """
global
  nbthread {threads}
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
backend engines
  stick-table type string len 64 size 100k expire 30m
  stick on req.hdr(x-session-id)
  balance leastconn
{servers}
frontend all
  bind 127.0.0.1:{port}
  default_backend engines
"""

NGINX = """
daemon off;
worker_processes {threads};
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream engines {{
    hash $http_x_session_id consistent;
{servers}
    keepalive 64;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_pass http://engines;
    }}
  }}
}}
"""


@dataclass
class Subject:
    name: str
    port: int
    processes: list[subprocess.Popen[bytes]]
    rates: list[float] = field(default_factory=list)  # requests/s
    medians: list[float] = field(default_factory=list)  # us, one connection
    added: list[float] = field(default_factory=list)  # us
    cpu: list[float] = field(default_factory=list)  # us a request


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def ask(port: int) -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        BODY.encode(),
        {"Content-Type": "application/json", "X-Session-ID": "first"},
    )
    with urllib.request.urlopen(request, timeout=5) as response:
        answer: bytes = response.read()
        return answer


def wait_for(subject: Subject) -> None:
    """Until it passes a turn on; RuntimeError where it does not within a minute."""
    for _ in range(600):
        try:
            if b'"cached_tokens":192' in ask(subject.port):
                return
        except OSError:
            pass
        if any(process.poll() is not None for process in subject.processes):
            break
        time.sleep(0.1)
    raise RuntimeError("it does not pass a request on")


def cpu_ticks(processes: list[subprocess.Popen[bytes]]) -> int:
    """Processor time of these and of their children, in clock ticks."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = int(fields[11]) + int(fields[12])
    ours = {process.pid for process in processes}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours)


def load(script: Path, port: int, connections: int, seconds: int) -> tuple[int, float, float]:
    """Requests, requests/s and median us."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"], check=True, capture_output=True, text=True
    )
    text = done.stdout
    if wrong := re.search(r"(Non-2xx|Socket errors).*", text):
        raise RuntimeError(f"port {port}: {wrong[0]}")
    median = re.search(r"50%\s+([\d.]+)(us|ms|s)", text)
    count = re.search(r"(\d+) requests in", text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert median and count and rate, text
    scale = {"us": 1.0, "ms": 1e3, "s": 1e6}[median[2]]
    return int(count[1]), float(rate[1]), float(median[1]) * scale


def subjects(folder: Path, engines: list[int], threads: int) -> dict[str, Callable[[], Subject]]:
    urls = [f"http://127.0.0.1:{port}" for port in engines]

    def start(name: str, port: int, command: list[str]) -> Subject:
        log = (folder / f"{name.partition(' ')[0].replace('/', '-')}.log").open("wb")
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        return Subject(name, port, [process])

    def needs(program: str) -> str:
        found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
        if found is None:
            raise RuntimeError(f"no {program}")
        return found

    def gateway() -> Subject:
        port = free_port()
        command = [str(BUILD / "examples" / "gateway"), "--listen", f"127.0.0.1:{port}"]
        command += ["--threads", str(threads)]
        for url in urls:
            command += ["--replica", url]
        return start("examples/gateway.cpp", port, command)

    def vllm_router(policy: str) -> Subject:
        port = free_port()
        command = [needs(str(ROOT / "build" / "peers" / "bin" / "vllm-router"))]
        command += ["--worker-urls", *urls, "--policy", policy, "--log-level", "error"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--prometheus-port", str(free_port())]
        return start(f"vllm-router 0.1.17 {policy}", port, command)

    def haproxy() -> Subject:
        port = free_port()
        servers = "\n".join(f"  server e{p} 127.0.0.1:{p}" for p in engines)
        config = folder / "haproxy.cfg"
        config.write_text(HAPROXY.format(threads=threads, port=port, servers=servers))
        return start("haproxy stick-table", port, [needs("haproxy"), "-f", str(config)])

    def nginx() -> Subject:
        port = free_port()
        servers = "\n".join(f"    server 127.0.0.1:{p};" for p in engines)
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(threads=threads, port=port, servers=servers, folder=folder))
        return start("nginx hash consistent", port, [needs("nginx"), "-c", str(config)])

    return {
        "gateway": gateway,
        "vllm-router": lambda: vllm_router("consistent_hash"),
        "vllm-router-sticky": lambda: vllm_router("sticky_least_loaded"),
        "haproxy": haproxy,
        "nginx": nginx,
    }


def spread(values: list[float], digits: int = 0) -> str:
    low, high = min(values), max(values)
    middle = statistics.median(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each load (default 4)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="of each proxy (default: cores)"
    )
    parser.add_argument("--only", default="", help="names, with commas between them")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is missing, and with it the load", file=sys.stderr)
        return 1

    folder = Path(tempfile.mkdtemp(prefix="limpet-peers-"))
    script = folder / "load.lua"
    script.write_text(LOAD % (BODY, SESSIONS))
    engine_ports = [free_port() for _ in range(3)]
    engine = str(BUILD / "benchmarks" / "peer_engine")
    engines = [subprocess.Popen([engine, str(port)]) for port in engine_ports]
    direct = Subject("the engine itself", engine_ports[0], engines[:1])
    measured, missing = [direct], []
    try:
        wait_for(direct)
        for name, start in subjects(folder, engine_ports, options.threads).items():
            if options.only and name not in options.only.split(","):
                continue
            try:
                subject = start()
            except RuntimeError as error:
                missing.append(f"{name}: {error}")
                continue
            measured.append(subject)
            try:
                wait_for(subject)
            except RuntimeError as error:
                missing.append(f"{subject.name}: {error}")
                subject.port = 0
        running = [subject for subject in measured if subject.port]
        for number in range(options.rounds):
            turn = number % len(running)
            for subject in running[turn:] + running[:turn]:
                load(script, subject.port, 32, 1)  # connections, pins
                before = cpu_ticks(subject.processes)
                count, rate, _ = load(script, subject.port, 32, options.seconds)
                subject.cpu.append((cpu_ticks(subject.processes) - before) * TICK / count)
                subject.rates.append(rate)
                subject.medians.append(load(script, subject.port, 1, options.seconds // 2)[2])
                print(".", end="", file=sys.stderr, flush=True)
            for subject in running:
                subject.added.append(subject.medians[-1] - direct.medians[-1])
        print(file=sys.stderr)
    except RuntimeError as error:
        print(f"\n{error}; the logs are in {folder}", file=sys.stderr)
        return 1
    finally:
        for process in [*engines, *(p for s in measured[1:] for p in s.processes)]:
            process.terminate()
        for process in [*engines, *(p for s in measured[1:] for p in s.processes)]:
            process.wait(30)
    shutil.rmtree(folder)

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    print(
        f"machine: {cpu[1] if cpu else '?'}, {os.cpu_count()} cores shared with engines and wrk, "
        f"load {os.getloadavg()[0]:.1f}, {os.uname().release}"
    )
    print(
        f"{options.rounds} rounds, medians (lowest to highest); {options.threads} threads a proxy\n"
    )
    print("| | requests/s, 32 connections | us added, one connection | processor us a request |")
    print("|---|---|---|---|")
    for subject in running:
        added = spread(subject.added) if subject is not direct else ""
        print(f"| {subject.name} | {spread(subject.rates)} | {added} | {spread(subject.cpu, 1)} |")
    for line in missing:
        print(f"not measured: {line}")

    ahead = True
    if not any(subject.name.startswith("vllm-router") for subject in running):
        print("\nnot decided: whether examples/gateway.cpp is ahead of vllm-router 0.1.17")
    ours = next((s for s in running if s.name.startswith("examples/")), None)
    for rival in running if ours else []:
        if ours and rival.name.startswith("vllm-router"):
            rate_ratio = [a / b for a, b in zip(ours.rates, rival.rates, strict=True)]
            time_ratio = [a / b for a, b in zip(ours.cpu, rival.cpu, strict=True)]
            holds = statistics.median(rate_ratio) > 1 and statistics.median(time_ratio) < 1
            ahead = ahead and holds
            print(
                f"\nexamples/gateway.cpp / {rival.name}: requests/s {spread(rate_ratio, 2)}, "
                f"processor time {spread(time_ratio, 2)}: {'holds' if holds else 'DOES NOT HOLD'}"
            )
    return 0 if ahead else 1


if __name__ == "__main__":
    sys.exit(main())
