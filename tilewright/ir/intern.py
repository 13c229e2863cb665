"""The table that makes equal expressions identical.

A plain dict maps the parts of a node to the node. It sweeps itself: whenever it has doubled since
the last sweep, entries that only the table refers to are dropped. Dicts keep insertion order and
parts are inserted before the whole, so one pass from the newest entry to the oldest frees whole
dead trees, and the memory of a process that compiles all day does not grow.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, TypeVar

Node = TypeVar("Node")
Key = tuple[Any, ...]

#: `sys.getrefcount` of a node that only a local name and the argument refer to.
_UNUSED = sys.getrefcount(object()) + 1


class InternTable:
    """Maps the parts of a node to the one node made of them."""

    def __init__(self, first_sweep: int = 30_000) -> None:
        self.nodes: dict[Key, Any] = {}
        self.find = self.nodes.get
        self._first_sweep = self._sweep_at = first_sweep
        self._lock = threading.RLock()

    def add(self, key: Key, node: Node) -> Node:
        """Insert `node`, or return the equal one that another thread inserted meanwhile."""
        with self._lock:
            if len(self.nodes) >= self._sweep_at:
                self.sweep()
            return self.nodes.setdefault(key, node)

    def sweep(self) -> None:
        """Drop the nodes that are in use nowhere else."""
        with self._lock:
            keys, kept = list(self.nodes), list[tuple[Key, Any]]()
            while keys:
                # No reference to a key that is done may be kept here: keys refer to the parts.
                key = keys.pop()
                node = self.nodes.pop(key)
                # Popped before counting: if another thread took the node, the count shows it.
                if sys.getrefcount(node) > _UNUSED:
                    kept.append((key, node))
            self.nodes.update(reversed(kept))
            self._sweep_at = max(self._first_sweep, 2 * len(self.nodes))
