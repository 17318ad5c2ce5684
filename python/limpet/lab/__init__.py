# SPDX-License-Identifier: Apache-2.0
"""A laboratory for those who route to vLLM and have no GPU: servers that answer as vLLM does, with
the simulator's scheduler, cache and time behind them.

    async with limpet.lab.Engine(profile="a4000-qwen3-4b", ranks=2, speed=10) as engine:
        ...  # engine.url speaks vLLM's protocols

Needs `pip install 'limpet[lab]'`. `limpet engine --help` is the same on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.lab.core import Options
    from limpet.lab.server import Engine, EngineProcess

__all__ = ["Engine", "EngineProcess", "Options"]


def __getattr__(name: str) -> Any:
    """On first use, so that the command line works without the packages that a server needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from limpet.lab import server  # noqa: PLC0415

    return getattr(server, name)
