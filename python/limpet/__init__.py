# SPDX-License-Identifier: Apache-2.0
"""Sends every turn of a conversation to the replica that still holds its prefix cache.

    router = limpet.Router(["gpu0", "gpu1"], max_num_seqs=32)
    with router.route("conversation-key") as lease:
        reply = await post(lease.replica.name, body)

The router is the C++ one, its policies chosen at run time. A policy can be one of those below or
any object with the methods of a protocol in limpet.policies. Times are seconds, token counts whole
tokens, ratios 0..1; None is unknown. Everything here is thread-safe.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from limpet import _core
except ImportError as _error:
    raise ImportError(
        f"limpet's compiled half, limpet._core, is missing from {Path(__file__).parent} or was "
        f"built for another Python than this {sys.version_info.major}.{sys.version_info.minor} "
        f"({_error}). Install it with `pip install .` in the root of the sources, and run Python "
        "elsewhere than in their python/ folder."
    ) from _error

from limpet import lab, sim
from limpet._core import (
    AdjustableSpill,
    Affinity,
    BoundedLoad,
    ClassTotal,
    Decision,
    ExplainedReplica,
    Explanation,
    GateReason,
    Home,
    KeyHash,
    Lease,
    LeastInFlight,
    LeastPendingPrefill,
    Ledger,
    LlamaCppMetrics,
    LocalPins,
    ManualClock,
    MoveIfCheaper,
    MoveWhenFull,
    NeverSpill,
    Outcome,
    OverflowView,
    ParentHint,
    ParseStatus,
    PowerOfTwo,
    PromptTokens,
    Reading,
    Reason,
    RecordedTurn,
    RendezvousPins,
    Replica,
    ReplicaId,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    RoundRobin,
    Router,
    ScoreContext,
    SglangMetrics,
    ShardedPins,
    Snapshot,
    SpillAbove,
    Standing,
    SteadyClock,
    TicketState,
    Timeline,
    TokensTimesBatch,
    TurnClass,
    Usage,
    Verdict,
    VllmMetrics,
    WeightedLoad,
    __version__,
)
from limpet.gate import GateRefusedError, GateReplica, GateSnapshot, GateTicket, WorkingSetGate

__all__ = [
    "AdjustableSpill",
    "Affinity",
    "BoundedLoad",
    "ClassTotal",
    "Decision",
    "ExplainedReplica",
    "Explanation",
    "GateReason",
    "GateRefusedError",
    "GateReplica",
    "GateSnapshot",
    "GateTicket",
    "Home",
    "KeyHash",
    "Lease",
    "LeastInFlight",
    "LeastPendingPrefill",
    "Ledger",
    "LlamaCppMetrics",
    "LocalPins",
    "ManualClock",
    "MoveIfCheaper",
    "MoveWhenFull",
    "NeverSpill",
    "Outcome",
    "OverflowView",
    "ParentHint",
    "ParseStatus",
    "PowerOfTwo",
    "PromptTokens",
    "Reading",
    "Reason",
    "RecordedTurn",
    "RendezvousPins",
    "Replica",
    "ReplicaId",
    "ReplicaLoad",
    "ReplicaSnapshot",
    "ReplicaState",
    "RoundRobin",
    "Router",
    "ScoreContext",
    "SglangMetrics",
    "ShardedPins",
    "Snapshot",
    "SpillAbove",
    "Standing",
    "SteadyClock",
    "TicketState",
    "Timeline",
    "TokensTimesBatch",
    "TurnClass",
    "Usage",
    "Verdict",
    "VllmMetrics",
    "WeightedLoad",
    "WorkingSetGate",
    "__version__",
    "get_include",
    "lab",
    "sim",
]

# What needs simdjson: absent from a build that did not find it.
if _core.has_wire:
    from limpet._core import (
        BodyStatus,
        Identity,
        IdentitySource,
        JsonMetrics,
        RequestKind,
        UsageScanner,
        identify,
        prefix_chain,
    )

    __all__ += [
        "BodyStatus",
        "Identity",
        "IdentitySource",
        "JsonMetrics",
        "RequestKind",
        "UsageScanner",
        "identify",
        "prefix_chain",
    ]


def get_include() -> str:
    """The folder of the C++ headers that this package carries, for a compiler's -I."""
    return str(Path(_core.__file__).parent / "include")
