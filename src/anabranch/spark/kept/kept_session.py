"""What the kept queries of one Spark share: a session whose plans have one partition, a memory
manager for their evaluations, and the threads that run them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaObject, JVMView
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.kept.handles import Handles, handles_of, named
from anabranch.spark.kept.loops import KeptLoops
from anabranch.spark.kept.task import in_a_task

EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_SETTINGS = {
    # Inputs and all that comes of them are one partition: no exchange is ever needed.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.maxSinglePartitionBytes": f"{2**63 - 1}b",
    # Planned once, for whatever comes: nothing is decided by what was seen before.
    "spark.sql.adaptive.enabled": "false",
    # A broadcast is a job.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizeNullAwareAntiJoin": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # An aggregate's first hash table is made anew for each evaluation.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "10",
}
_EXCLUDED = "org.apache.spark.sql.catalyst.optimizer.MergeSubplans"
"""It has several scalar subqueries share one of structs; here each is evaluated by itself."""
_PAGE = "256k"
"""An evaluation of a few rows takes some pages, which are cleared first."""
_OF_THE_HEAP = 0.3

_SESSION = "org.apache.spark.sql.classic.SparkSession"

_known: WeakKeyDictionary[SparkSession, KeptSession] = WeakKeyDictionary()
_lock = threading.Lock()


class KeptSession:
    """`settings` are those of the session it was made of."""

    def __init__(self, user: SparkSession, settings: JavaObject) -> None:
        jvm = user._jvm
        assert jvm is not None
        self.jvm: JVMView = jvm
        self.handles: Handles = handles_of(jvm)
        self.settings = settings
        self.planning = threading.Lock()
        """Around views and what reads them."""
        self.user = user
        self.java: JavaObject = user._jsparkSession.cloneSession()
        conf = self.java.sessionState().conf()
        for key, value in _SETTINGS.items():
            conf.setConfString(key, value)
        asked = conf.getConfString(EXCLUDED_RULES, "")
        conf.setConfString(EXCLUDED_RULES, ",".join(filter(None, [asked, _EXCLUDED])))
        self.one_partition: JavaObject = user._jsc.parallelize(
            named(jvm, "java.util.ArrayList")(), 1
        ).rdd()
        self._memory = self._own_memory(user)
        self._properties = {one: self._read_by_tasks(one) for one in (False, True)}
        self.loops = KeptLoops(jvm, self.active)
        self.tried = False
        """Whole queries were tried out on known content."""
        self.distrusted = ""
        """Why nothing is to be kept, if this Spark was seen to give something else."""

    @classmethod
    def of(cls, user: SparkSession) -> KeptSession:
        """The one for queries of `user` as it is set now."""
        settings = user._jsparkSession.sessionState().conf().getAllConfs()
        with _lock:
            known = _known.get(user)
            if known is None or not known.settings.equals(settings):
                known = _known[user] = cls(user, settings)
            return known

    def _own_memory(self, user: SparkSession) -> JavaObject:
        """A memory manager apart from that of Spark's tasks."""
        handles = self.handles
        conf = user._jsc.sc().getConf().clone().set("spark.buffer.pageSize", _PAGE)
        heap = named(self.jvm, "java.lang.Runtime").getRuntime().maxMemory()
        make = handles.constructor(
            "org.apache.spark.memory.UnifiedMemoryManager",
            "org.apache.spark.SparkConf",
            "long",
            "long",
            "int",
        )
        make = handles.bound_long(handles.bound_long(make, 2, 0), 1, int(heap * _OF_THE_HEAP))
        make = handles.bound(handles.bound(make, 1, 1), 0, conf)
        return make.invokeWithArguments(handles.array("java.lang.Object"))

    def _read_by_tasks(self, compiled: bool) -> JavaObject:
        """The settings as tasks find them. Of a task that is not `compiled` only whole stages are:
        their code is made once."""
        properties = named(self.jvm, "java.util.Properties")()
        settings = self.java.sessionState().conf().getAllConfs()
        properties.putAll(
            named(self.jvm, "scala.jdk.javaapi.CollectionConverters").asJava(settings)
        )
        if not compiled:
            properties.setProperty("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        return properties

    def in_a_task(self, work: JavaObject, *, compiled: bool) -> JavaObject:
        return in_a_task(self.handles, self._memory, self._properties[compiled], work)

    @contextmanager
    def active(self) -> Iterator[None]:
        """What this thread has Spark plan meanwhile follows the settings of this session."""
        sessions = named(self.jvm, _SESSION)
        before = sessions.getActiveSession()
        sessions.setActiveSession(self.java)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def frame(self, logical: JavaObject) -> DataFrame:
        """Its methods in Python are those of the user's session; it is planned in this one."""
        dataset = self.handles.module("org.apache.spark.sql.classic.Dataset$")
        return DataFrame(dataset.ofRows(self.java, logical), self.user)

    def sql(self, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
        """The query over `views`, by their names."""
        with self.planning:
            for name, frame in views.items():
                frame.createOrReplaceTempView(name)
            try:
                return DataFrame(self.java.sql(text), self.user)
            finally:
                for name in views:
                    self.java.catalog().dropTempView(name)
