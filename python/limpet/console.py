# SPDX-License-Identifier: Apache-2.0
"""What the commands share on a terminal."""

from __future__ import annotations

import typer
from rich.console import Console


def fail(message: object) -> typer.Exit:
    """The message on standard error, and exit code 2."""
    Console(stderr=True).print(f"limpet: {message}", markup=False, highlight=False)
    return typer.Exit(2)
