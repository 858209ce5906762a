"""Methods of the JVM as values, put together there: `java.lang.invoke` through py4j.

A composed handle runs as a whole in the JVM. So a loop over a connection is built from here, once,
without a class of ours in the JVM and without a call per round.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaObject, JVMView


class Handles:
    """Combinators; each gives a new `java.lang.invoke.MethodHandle`."""

    def __init__(self, jvm: JVMView) -> None:
        self._jvm = jvm
        self._invoke = jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()
        self.void = jvm.java.lang.Void.TYPE
        self.boolean = jvm.java.lang.Boolean.TYPE

    def class_of(self, name: str) -> JavaObject:
        return self._jvm.java.lang.Class.forName(name)

    def array(self, class_name: str, *items: Any) -> JavaObject:
        made = self._jvm.java.lang.reflect.Array.newInstance(self.class_of(class_name), len(items))
        for number, item in enumerate(items):
            self._jvm.java.lang.reflect.Array.set(made, number, item)
        return made

    def method(self, class_name: str, name: str, *parameters: str) -> JavaObject:
        """A method of a public class, which is the handle's first argument unless it is static.
        `parameters` name its classes, or primitive types."""
        types = [self._type(one) for one in parameters]
        found = self.class_of(class_name).getMethod(name, self._classes(types))
        return self._lookup.unreflect(found)

    def constructor(self, class_name: str, *parameters: str) -> JavaObject:
        types = [self._type(one) for one in parameters]
        found = self.class_of(class_name).getConstructor(self._classes(types))
        return self._lookup.unreflectConstructor(found)

    def _type(self, name: str) -> JavaObject:
        primitive = {"int": "Integer", "long": "Long", "boolean": "Boolean"}.get(name)
        return getattr(self._jvm.java.lang, primitive).TYPE if primitive else self.class_of(name)

    def _classes(self, types: list[JavaObject]) -> JavaObject:
        return self.array("java.lang.Class", *types)

    def typed(self, handle: JavaObject, result: JavaObject, *parameters: JavaObject) -> JavaObject:
        """The same with other static types; values are cast as they pass."""
        kind = self._invoke.MethodType.methodType(result, self._classes(list(parameters)))
        return handle.asType(kind)

    def bound(self, handle: JavaObject, at: int, *values: Any) -> JavaObject:
        """`handle` with its arguments from number `at` on given."""
        array = self.array("java.lang.Object", *values)
        return self._invoke.MethodHandles.insertArguments(handle, at, array)

    def bound_long(self, handle: JavaObject, at: int, value: int) -> JavaObject:
        """py4j's numbers are ints, which a handle takes for a long only by its type."""
        kind = handle.type().changeParameterType(at, self._type("int"))
        return self.bound(handle.asType(kind), at, value)

    def then(self, first: JavaObject, second: JavaObject) -> JavaObject:
        """`second` of what `first` gives."""
        return self._invoke.MethodHandles.filterReturnValue(first, second)

    def fed(self, handle: JavaObject, at: int, source: JavaObject) -> JavaObject:
        """`handle` with its argument `at` taken from `source`, whose arguments stand there now."""
        return self._invoke.MethodHandles.collectArguments(handle, at, source)

    def same(self, handle: JavaObject) -> JavaObject:
        """`handle`, whose two parameters are of one type, of the same value twice."""
        kind = handle.type()
        once = self._invoke.MethodType.methodType(kind.returnType(), kind.parameterType(0))
        twice = self._jvm.java.lang.reflect.Array.newInstance(self._type("int"), 2)
        return self._invoke.MethodHandles.permuteArguments(handle, once, twice)

    def after(self, first: JavaObject, handle: JavaObject) -> JavaObject:
        """`handle`, after `first` of the same arguments, which gives nothing."""
        return self._invoke.MethodHandles.foldArguments(handle, first)

    def finally_(self, handle: JavaObject, cleanup: JavaObject) -> JavaObject:
        """`cleanup` of the same arguments, whether `handle` returns or throws."""
        throwable = self._classes([self.class_of("java.lang.Throwable")])
        after = self._invoke.MethodHandles.dropArguments(cleanup, 0, throwable)
        return self._invoke.MethodHandles.tryFinally(handle, after)

    def caught(self, handle: JavaObject, handler: JavaObject) -> JavaObject:
        """What `handler` gives of a Throwable if `handle` throws one."""
        throwable = self.class_of("java.lang.Throwable")
        return self._invoke.MethodHandles.catchException(handle, throwable, handler)

    def giving(self, handle: JavaObject, value: bool) -> JavaObject:
        """`value` after `handle`, which gives nothing."""
        return self.then(handle, self._invoke.MethodHandles.constant(self.boolean, value))

    def repeated(self, handle: JavaObject) -> JavaObject:
        """For as long as it gives true."""
        nothing = self._invoke.MethodType.methodType(self.void)
        body = self._invoke.MethodHandles.empty(nothing)
        return self._invoke.MethodHandles.whileLoop(None, handle, body)

    def runnable(self, handle: JavaObject) -> JavaObject:
        kind = self.class_of("java.lang.Runnable")
        return self._invoke.MethodHandleProxies.asInterfaceInstance(kind, handle)
