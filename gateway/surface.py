"""Which operation of the Compute API a request is for: built, not built, gone, or in no version of it.

What has a handler is built; the rest of the table (`operations.py`) answers 501, 404 or 410 as Nova's versions say, so
that a client can tell "not built here" from "no such thing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.faults import Fault, not_found
from gateway.microversions import Version
from gateway.operations import REMOVED, Operation
from gateway.request import Handler, HandlerKey


@dataclass(frozen=True, slots=True)
class Match:
    """One operation, and what the path says where that has variables."""

    operation: Operation
    params: Mapping[str, str]


class _Leaf:
    """What one path of the table does with one method."""

    __slots__ = ("actions", "names", "operation")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names  # of the path's variables
        self.operation: Operation | None = None
        self.actions: dict[str, Operation] = {}

    def add(self, operation: Operation) -> None:
        if operation.action is None:
            self.operation = operation
        else:
            self.actions[operation.action] = operation


class _Node:
    """One segment of the paths, and what can follow it."""

    __slots__ = ("fixed", "leaves", "variable")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.leaves: dict[str, list[_Leaf]] = {}  # by method


class Matches:
    """What a path is for, as far as path and method tell; the version or the body's action tells the rest."""

    __slots__ = ("_leaves",)

    def __init__(self, leaves: Sequence[tuple[_Leaf, tuple[str, ...]]]) -> None:
        self._leaves = leaves

    @property
    def take_action(self) -> bool:
        return bool(self._leaves[0][0].actions)

    def at(self, version: Version) -> Match:
        """Raises:
        Fault: 404, that version has none of them.
        """
        for leaf, values in self._leaves:
            if leaf.operation is not None and leaf.operation.serves(version):
                return Match(leaf.operation, dict(zip(leaf.names, values, strict=True)))
        raise not_found()

    def action(self, name: str, version: Version) -> Match:
        """Raises:
        Fault: 400 for an unknown action, 404 for one that is not of this version.
        """
        leaf, values = self._leaves[0]
        operation = leaf.actions.get(name)
        if operation is None:
            raise Fault(400, f"There is no such action: {name[:100]}")
        if not operation.serves(version):
            raise not_found()
        return Match(operation, dict(zip(leaf.names, values, strict=True)))


class Surface:
    def __init__(self, operations: Sequence[Operation], handlers: Mapping[HandlerKey, Handler]) -> None:
        """Raises:
        ValueError: a handler for an operation that the table does not have.
        """
        self.operations = [operation for operation in operations if not operation.tells_versions]
        if strangers := set(handlers) - {operation.key for operation in self.operations}:
            raise ValueError(f"the compute API has no operation {min(strangers)}")
        self._handlers = dict(handlers)
        self._root = _Node()
        for operation in self.operations:
            segments = _segments(operation.path)
            names = tuple(segment[1:-1] for segment in segments if segment.startswith("{"))
            leaves = self._node(segments).leaves.setdefault(operation.method, [])
            leaf = next((leaf for leaf in leaves if leaf.names == names), None)
            if leaf is None:
                leaf = _Leaf(names)
                leaves.append(leaf)
            leaf.add(operation)

    def match(self, method: str, path: str) -> Matches | None:
        """What a path below the version prefix and project id is for; None when Nova has no such route.

        A fixed segment goes before a variable one, where both lead to an operation with that method.
        """
        leaves = list(self._found(self._root, method, _segments(path), 0, ()))
        return Matches(leaves) if leaves else None

    def starts(self, segment: str) -> bool:
        """Whether some path begins with it."""
        return segment in self._root.fixed

    def handler(self, operation: Operation) -> Handler:
        """Raises:
        Fault: 410, it is gone from Nova; 501, it is not built here.
        """
        handler = self._handlers.get(operation.key)
        if handler is not None:
            return handler
        if operation.kind == REMOVED:
            raise Fault(410, f"{operation} was removed from the Compute API.")
        raise Fault(501, f"{operation} is not implemented.")

    def unbuilt(self) -> list[Operation]:
        """What answers 501."""
        return [one for one in self.operations if one.kind != REMOVED and one.key not in self._handlers]

    def _node(self, segments: Sequence[str]) -> _Node:
        node = self._root
        for segment in segments:
            if segment.startswith("{"):
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.fixed.setdefault(segment, _Node())
        return node

    def _found(
        self, node: _Node, method: str, segments: Sequence[str], depth: int, values: tuple[str, ...]
    ) -> Iterator[tuple[_Leaf, tuple[str, ...]]]:
        if depth == len(segments):
            for leaf in node.leaves.get(method, ()):
                yield leaf, values
            return
        segment = segments[depth]
        fixed = node.fixed.get(segment)
        if fixed is not None:
            yield from self._found(fixed, method, segments, depth + 1, values)
        if node.variable is not None and segment:
            yield from self._found(node.variable, method, segments, depth + 1, (*values, segment))


def _segments(path: str) -> list[str]:
    """One slash at the end makes no difference."""
    inner = path.removeprefix("/").removesuffix("/")
    return inner.split("/") if inner else []
