"""Methods of the JVM as values, put together there by `java.lang.invoke` through py4j, and one
binary connection with it, on loopback.

A composed handle runs as a whole in the JVM. So a loop over a connection is built from here, once,
without a class of ours in the JVM and without a call per round.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader
from typing import Any, cast

import pyarrow as pa
from py4j.java_gateway import JavaObject, JVMView


@lru_cache(128)
def named(jvm: JVMView, name: str) -> Any:
    """A class of the JVM by its full name. Every part of a dotted name is a question to the JVM, so
    it is asked once.
    """
    found: Any = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(4)
def handles_of(jvm: JVMView) -> Handles:
    """Classes and methods that were looked up for one plan are there for the next."""
    return Handles(jvm)


class Handles:
    """Combinators; each returns a new `java.lang.invoke.MethodHandle`."""

    def __init__(self, jvm: JVMView) -> None:
        self._combine = named(jvm, "java.lang.invoke.MethodHandles")
        self._types = named(jvm, "java.lang.invoke.MethodType")
        self._proxies = named(jvm, "java.lang.invoke.MethodHandleProxies")
        self._arrays = named(jvm, "java.lang.reflect.Array")
        self._by_name = named(jvm, "java.lang.Class")
        self._lookup = self._combine.publicLookup()
        boxes = {"int": "Integer", "long": "Long", "boolean": "Boolean", "void": "Void"}
        self._classes_known: dict[str, JavaObject] = {
            name: named(jvm, f"java.lang.{box}").TYPE for name, box in boxes.items()
        }
        self._found: dict[tuple[str, ...], JavaObject] = {}
        self.void = self.class_of("void")
        self.boolean = self.class_of("boolean")

    def class_of(self, name: str) -> JavaObject:
        """The class of this full name, or a primitive type."""
        if name not in self._classes_known:
            self._classes_known[name] = self._by_name.forName(name)
        return self._classes_known[name]

    def module(self, class_name: str) -> JavaObject:
        """A Scala object."""
        key = ("module", class_name)
        if key not in self._found:
            self._found[key] = self.class_of(class_name).getField("MODULE$").get(None)
        return self._found[key]

    def array(self, class_name: str, *items: Any) -> JavaObject:
        made = self._arrays.newInstance(self.class_of(class_name), len(items))
        for number, item in enumerate(items):
            self._arrays.set(made, number, item)
        return made

    def method(self, class_name: str, name: str, *parameters: str) -> JavaObject:
        """A method of a public class, which is the handle's first argument unless it is static.
        `parameters` name its classes, or primitive types."""
        key = ("method", class_name, name, *parameters)
        if key not in self._found:
            types = self._classes([self.class_of(one) for one in parameters])
            found = self.class_of(class_name).getMethod(name, types)
            self._found[key] = self._lookup.unreflect(found)
        return self._found[key]

    def constructor(self, class_name: str, *parameters: str) -> JavaObject:
        key = ("constructor", class_name, *parameters)
        if key not in self._found:
            types = self._classes([self.class_of(one) for one in parameters])
            found = self.class_of(class_name).getConstructor(types)
            self._found[key] = self._lookup.unreflectConstructor(found)
        return self._found[key]

    def _classes(self, types: list[JavaObject]) -> JavaObject:
        return self.array("java.lang.Class", *types)

    def typed(self, handle: JavaObject, result: JavaObject, *parameters: JavaObject) -> JavaObject:
        """The same handle with other static types; values are cast as they pass."""
        kind = self._types.methodType(result, self._classes(list(parameters)))
        return handle.asType(kind)

    def bound(self, handle: JavaObject, at: int, *values: Any) -> JavaObject:
        """`handle` with its arguments from number `at` on given."""
        array = self.array("java.lang.Object", *values)
        return self._combine.insertArguments(handle, at, array)

    def bound_long(self, handle: JavaObject, at: int, value: int) -> JavaObject:
        """The handle with a long bound: py4j's numbers are ints, which a handle takes for a long
        only by its type.
        """
        kind = handle.type().changeParameterType(at, self.class_of("int"))
        return self.bound(handle.asType(kind), at, value)

    def then(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """`second` applied to the result of `first`."""
        return self._combine.filterReturnValue(first, second)

    def fed(self, handle: JavaObject, at: int, source: JavaObject) -> JavaObject:
        """`handle` with its argument `at` taken from `source`, whose arguments stand there now."""
        return self._combine.collectArguments(handle, at, source)

    def same(self, handle: JavaObject) -> JavaObject:
        """`handle`, whose two parameters are of one type, with the same value twice."""
        kind = handle.type()
        once = self._types.methodType(kind.returnType(), kind.parameterType(0))
        return self._combine.permuteArguments(handle, once, self._ints(0, 0))

    def _ints(self, *values: int) -> JavaObject:
        made = self._arrays.newInstance(self.class_of("int"), len(values))
        for number, value in enumerate(values):
            self._arrays.setInt(made, number, value)
        return made

    def after(self, first: JavaObject, handle: JavaObject) -> JavaObject:
        """`handle`, after `first` with the same arguments, which returns nothing."""
        return self._combine.foldArguments(handle, first)

    def finally_(self, handle: JavaObject, cleanup: JavaObject) -> JavaObject:
        """`handle`, then `cleanup` with the same arguments, whether `handle` returns or throws."""
        throwable = self._classes([self.class_of("java.lang.Throwable")])
        after = self._combine.dropArguments(cleanup, 0, throwable)
        return self._combine.tryFinally(handle, after)

    def caught(self, handle: JavaObject, handler: JavaObject) -> JavaObject:
        """The result of `handler` for a Throwable if `handle` throws one."""
        throwable = self.class_of("java.lang.Throwable")
        return self._combine.catchException(handle, throwable, handler)

    def giving(self, handle: JavaObject, value: bool) -> JavaObject:
        """`value` after `handle`, which gives nothing."""
        return self.then(handle, self._combine.constant(self.boolean, value))

    def repeated(self, handle: JavaObject) -> JavaObject:
        """Repeats the handle for as long as it returns true."""
        nothing = self._types.methodType(self.void)
        body = self._combine.empty(nothing)
        return self._combine.whileLoop(None, handle, body)

    def ignoring(self, handle: JavaObject, at: int, *classes: JavaObject) -> JavaObject:
        """`handle` with more parameters, from number `at` on, that it does not look at."""
        return self._combine.dropArguments(handle, at, self._classes(list(classes)))

    def swapped(self, handle: JavaObject) -> JavaObject:
        """`handle`, of two parameters, with these in the other order."""
        kind = handle.type()
        other = self._types.methodType(
            kind.returnType(), kind.parameterType(1), self._classes([kind.parameterType(0)])
        )
        return self._combine.permuteArguments(handle, other, self._ints(1, 0))

    def chosen(self, test: JavaObject, yes: JavaObject, no: JavaObject) -> JavaObject:
        """`yes` or `no`, of the same parameters, by `test` of the first of them."""
        return self._combine.guardWithTest(test, yes, no)

    def constant(self, value: JavaObject | None) -> JavaObject:
        return self._combine.constant(self.class_of("java.lang.Object"), value)

    def identity(self) -> JavaObject:
        return self._combine.identity(self.class_of("java.lang.Object"))

    def thrown(self, result: JavaObject) -> JavaObject:
        """(Throwable) → never a `result`."""
        return self._combine.throwException(result, self.class_of("java.lang.Throwable"))

    def of_handles(self, *types: JavaObject) -> JavaObject:
        """(MethodHandle, …) → nothing: calls the handle, whose parameters are of `types`."""
        kind = self._types.methodType(self.void, self._classes(list(types)))
        return self._combine.invoker(kind)

    def interface(self, name: str, handle: JavaObject) -> JavaObject:
        """An object with the one method of interface `name`, which is `handle`."""
        return self._proxies.asInterfaceInstance(self.class_of(name), handle)

    def until_interrupted(self, rows: JavaObject) -> JavaObject:
        """(TaskContext) → Iterator: `rows`, which end with an error once the task is to stop."""
        context, iterator = "org.apache.spark.TaskContext", "scala.collection.Iterator"
        watch = self.constructor("org.apache.spark.InterruptibleIterator", context, iterator)
        watch = self.typed(watch, *map(self.class_of, (iterator, context, iterator)))
        return self.same(self.fed(watch, 1, rows))


_PATIENCE_S = 10.0
_SECRET_BYTES = 32
_BUFFER = 1 << 16
"""Small messages cross in one call each way: after every call this thread waits for its turn among
Python's threads again."""


class Channel:
    """`jvm_side` is a `SocketChannel`; our side reads and writes exactly what it is told to."""

    def __init__(self, jvm: JVMView) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(_PATIENCE_S)
            address = named(jvm, "java.net.InetSocketAddress")(
                "127.0.0.1", listener.getsockname()[1]
            )
            self.jvm_side: JavaObject = named(jvm, "java.nio.channels.SocketChannel").open(address)
            options = named(jvm, "java.net.StandardSocketOptions")
            self.jvm_side.setOption(options.TCP_NODELAY, True)
            secret = secrets.token_bytes(_SECRET_BYTES)
            self.jvm_side.write(named(jvm, "java.nio.ByteBuffer").wrap(secret))
            self._socket = _accepted(listener, secret)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = cast(BufferedReader, self._socket.makefile("rb", buffering=_BUFFER))

    def send(self, *pieces: bytes | pa.Buffer) -> None:
        if sum(map(len, pieces)) < _BUFFER:
            self._socket.sendall(b"".join(pieces))
            return
        for piece in pieces:
            self._socket.sendall(piece)

    def receive_number(self) -> int:
        return int.from_bytes(self.receive(4), "big", signed=True)

    def receive(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        got = 0
        while got < size:
            more = self._received.readinto(buffer[got:])
            if not more:
                raise EOFError("the JVM has closed the connection")
            got += more
        return buffer

    def shut(self) -> None:
        """Called from another thread than the one that reads: wakes whoever sends or waits for an
        answer, who then closes it.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes it, and wakes whoever sends or waits for an answer."""
        self.shut()
        with suppress(OSError):
            self._received.close()
            self._socket.close()


def _accepted(listener: socket.socket, secret: bytes) -> socket.socket:
    """The connection that knows the secret. Another process of this machine may have connected
    first.
    """
    while True:
        found, _ = listener.accept()
        found.settimeout(_PATIENCE_S)
        with suppress(OSError):
            told = found.recv(len(secret), socket.MSG_WAITALL)
            if hmac.compare_digest(told, secret):
                found.settimeout(None)
                return found
        found.close()
