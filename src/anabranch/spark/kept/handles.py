"""Methods of the JVM as values, put together there: `java.lang.invoke` through py4j.

A composed handle runs as a whole in the JVM. So a loop over a connection is built from here, once,
without a class of ours in the JVM and without a call per round.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaObject, JVMView


@lru_cache(128)
def named(jvm: JVMView, name: str) -> Any:
    """A class of the JVM by its full name. Every part of a dotted name is a question to the JVM, so
    it is asked once."""
    found: Any = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(4)
def handles_of(jvm: JVMView) -> Handles:
    """Classes and methods that were looked up for one plan are there for the next."""
    return Handles(jvm)


class Handles:
    """Combinators; each gives a new `java.lang.invoke.MethodHandle`."""

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
        """By its full name; or a primitive type."""
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
        """The same with other static types; values are cast as they pass."""
        kind = self._types.methodType(result, self._classes(list(parameters)))
        return handle.asType(kind)

    def bound(self, handle: JavaObject, at: int, *values: Any) -> JavaObject:
        """`handle` with its arguments from number `at` on given."""
        array = self.array("java.lang.Object", *values)
        return self._combine.insertArguments(handle, at, array)

    def bound_long(self, handle: JavaObject, at: int, value: int) -> JavaObject:
        """py4j's numbers are ints, which a handle takes for a long only by its type."""
        kind = handle.type().changeParameterType(at, self.class_of("int"))
        return self.bound(handle.asType(kind), at, value)

    def then(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """`second` of what `first` gives."""
        return self._combine.filterReturnValue(first, second)

    def fed(self, handle: JavaObject, at: int, source: JavaObject) -> JavaObject:
        """`handle` with its argument `at` taken from `source`, whose arguments stand there now."""
        return self._combine.collectArguments(handle, at, source)

    def same(self, handle: JavaObject) -> JavaObject:
        """`handle`, whose two parameters are of one type, of the same value twice."""
        kind = handle.type()
        once = self._types.methodType(kind.returnType(), kind.parameterType(0))
        twice = self._arrays.newInstance(self.class_of("int"), 2)
        return self._combine.permuteArguments(handle, once, twice)

    def after(self, first: JavaObject, handle: JavaObject) -> JavaObject:
        """`handle`, after `first` of the same arguments, which gives nothing."""
        return self._combine.foldArguments(handle, first)

    def finally_(self, handle: JavaObject, cleanup: JavaObject) -> JavaObject:
        """`cleanup` of the same arguments, whether `handle` returns or throws."""
        throwable = self._classes([self.class_of("java.lang.Throwable")])
        after = self._combine.dropArguments(cleanup, 0, throwable)
        return self._combine.tryFinally(handle, after)

    def caught(self, handle: JavaObject, handler: JavaObject) -> JavaObject:
        """What `handler` gives of a Throwable if `handle` throws one."""
        throwable = self.class_of("java.lang.Throwable")
        return self._combine.catchException(handle, throwable, handler)

    def giving(self, handle: JavaObject, value: bool) -> JavaObject:
        """`value` after `handle`, which gives nothing."""
        return self.then(handle, self._combine.constant(self.boolean, value))

    def repeated(self, handle: JavaObject) -> JavaObject:
        """For as long as it gives true."""
        nothing = self._types.methodType(self.void)
        body = self._combine.empty(nothing)
        return self._combine.whileLoop(None, handle, body)

    def runnable(self, handle: JavaObject) -> JavaObject:
        kind = self.class_of("java.lang.Runnable")
        return self._proxies.asInterfaceInstance(kind, handle)
