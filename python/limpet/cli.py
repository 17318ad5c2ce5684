# SPDX-License-Identifier: Apache-2.0
"""The command `limpet`: what can be done with the router from a shell."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
except ImportError as _error:
    raise SystemExit(f"the command line needs {_error.name}: pip install 'limpet[cli]'") from _error

import limpet
from limpet import sim_cli
from limpet.console import fail
from limpet.decisions import replay
from limpet.gateway import cli as gateway_cli
from limpet.lab import cli as lab_cli
from limpet.lab import compare_cli

app = typer.Typer(
    help="Send every turn of an LLM conversation to the replica that still holds its prefix cache.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

sim_cli.add_to(app)
gateway_cli.add_to(app)
lab_cli.add_to(app)
compare_cli.add_to(app)

_SCORERS = {
    "weighted_load": limpet.WeightedLoad,
    "least_in_flight": limpet.LeastInFlight,
    "least_pending_prefill": limpet.LeastPendingPrefill,
    "round_robin": limpet.RoundRobin,
    "power_of_two": limpet.PowerOfTwo,
    "tokens_times_batch": limpet.TokensTimesBatch,
}
_OVERFLOW = {
    "spill_above": limpet.SpillAbove,
    "never_spill": limpet.NeverSpill,
    "bounded_load": limpet.BoundedLoad,
    "move_if_cheaper": limpet.MoveIfCheaper,
    "move_when_full": limpet.MoveWhenFull,
}


def policy(spec: str, known: dict[str, Any], option: str) -> Any:
    """A policy from `NAME[:OPTION=VALUE,...]`."""
    name, _, rest = spec.partition(":")
    if name not in known:
        raise fail(f"{option} {spec}: no such policy; there are: {', '.join(known)}")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        field, equals, value = item.partition("=")
        try:
            options[field] = json.loads(value) if equals else True
        except json.JSONDecodeError:
            raise fail(f"{option} {spec}: {field}={value} is not a number or true/false") from None
    try:
        return known[name](**options)
    except (TypeError, ValueError) as error:
        raise fail(f"{option} {spec}: {error}") from None


@app.command("replay-decisions")
def replay_decisions(
    file: Annotated[Path, typer.Argument(help="A record: one JSON object a line.")],
    scorer: Annotated[
        str, typer.Option(help=f"NAME[:OPTION=VALUE,...]; one of {', '.join(_SCORERS)}.")
    ] = "weighted_load",
    overflow: Annotated[
        str, typer.Option(help=f"NAME[:OPTION=VALUE,...]; one of {', '.join(_OVERFLOW)}.")
    ] = "spill_above",
    capacity: Annotated[int, typer.Option(help="Pins that the store holds.")] = 8192,
    show: Annotated[int, typer.Option(help="Differences to print.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="All differences, as one JSON object.")
    ] = False,
) -> None:
    """Replay a record of decisions, and say where these policies would have decided otherwise.

    Each turn is compared on its own: the replay follows the recorded decision before it goes on.
    With the policies that were recorded there is no difference. A threshold of 4 instead:

        limpet replay-decisions today.jsonl --overflow spill_above:threshold=4
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise fail(f"{file}: {error}") from None
    options = {
        "scorer": policy(scorer, _SCORERS, "--scorer"),
        "overflow": policy(overflow, _OVERFLOW, "--overflow"),
    }
    try:
        options["pins"] = limpet.ShardedPins(capacity=capacity)
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
            task = bar.add_task("replaying", total=len(lines))
            found = replay(lines, progress=lambda line: bar.update(task, completed=line), **options)
    except ValueError as error:
        raise fail(f"{file}: {error}") from None

    elsewhere = sum(difference.elsewhere for difference in found.differences)
    if as_json:
        differences = [
            {
                "line": d.line,
                "key": d.key,
                "recorded": {"replica": d.recorded[0], "outcome": d.recorded[1]},
                "replayed": {"replica": d.replayed[0], "outcome": d.replayed[1]},
                "reason": d.reason,
            }
            for d in found.differences
        ]
        json.dump(
            {"turns": found.turns, "elsewhere": elsewhere, "differences": differences},
            sys.stdout,
            indent=2,
        )
        print()
        return
    console = Console()
    if found.differences:
        table = Table("line", "conversation", "recorded", "replayed", "why")
        for d in found.differences[:show]:
            key = "-" if d.key is None else d.key[:8]
            table.add_row(str(d.line), key, _text(d.recorded), _text(d.replayed), d.reason)
        console.print(table)
        if len(found.differences) > show:
            console.print(f"and {len(found.differences) - show} more (--show, --json)")
    console.print(
        f"{found.turns} turns: {elsewhere} would have gone elsewhere, "
        f"{len(found.differences) - elsewhere} to the same replica with another outcome."
    )


def _text(decision: tuple[str | None, str]) -> str:
    replica, outcome = decision
    return outcome if replica is None else f"{replica} ({outcome})"


@app.command()
def version() -> None:
    """Print the version, and where the C++ headers are."""
    print(limpet.__version__)
    print(inspect.cleandoc(f"headers: {limpet.get_include()}"))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
