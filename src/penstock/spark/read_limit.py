"""The cap of a query that runs, changed in the engine.

Spark asks a source for its limit once, when it plans the query, and keeps it in `StreamExecution.uniqueSources`. From
there every trigger takes it, so an entry that is replaced counts from the next batch on. It is an internal field:
`Throttle.probe` tries whether it is there and can be replaced. Where not, the query is stopped and started again at a
batch boundary (`lifecycle.stream`), which needs nothing of Spark that is not public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LIMITS = "org.apache.spark.sql.connector.read.streaming"
_POOL, _COLLECTOR = "java.lang.management.MemoryPoolMXBean", "java.lang.management.GarbageCollectorMXBean"
_OLD = ("Old", "Tenured")  # how the pool is called in which what lives long ends up


class NotChangeable(Exception):
    """This Spark does not keep the limit where it was found before."""


@dataclass(frozen=True)
class Throttle:
    """The cap of one started query. Called from the thread that runs its batches: the source is planned by then."""

    query: StreamingQuery

    def probe(self, cap: int) -> None:
        """Replace the limit by the same one. Raises NotChangeable."""
        self.set(cap)

    def set(self, cap: int) -> None:
        """From the next batch on. Raises NotChangeable; the old cap then stays."""
        from py4j.protocol import Py4JError

        try:
            self._set(cap)
        except (Py4JError, AttributeError, TypeError, ValueError) as error:
            raise NotChangeable(f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]) from error

    def _set(self, cap: int) -> None:
        # The wrapper that users have, and below it the execution that has the field.
        execution: Any = self.query._jsq.streamingQuery()
        sources = execution.uniqueSources()
        if sources.size() != 1:
            raise NotChangeable(f"the query has {sources.size()} sources, not one")
        source = sources.head()._1()
        limit = self._capped(sources.head()._2(), cap)
        replace = getattr(execution, "uniqueSources_$eq")  # Scala's name of an assignment
        replace(sources.updated(source, limit))
        if not execution.uniqueSources().head()._2().equals(limit):
            raise NotChangeable("the limit of the source was not replaced")

    def _capped(self, limit: Any, cap: int) -> Any:
        """The same limit with another cap. `min_offsets` is a second limit beside it, and stays."""
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        kind = gateway.jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        most = kind.maxRows(cap)
        if _is(limit, "ReadMaxRows"):
            return most
        if not _is(limit, "CompositeReadLimit"):
            raise NotChangeable(f"the limit of the source is {limit.toString()}")
        parts = [most if _is(part, "ReadMaxRows") else part for part in limit.getReadLimits()]
        made = gateway.new_array(kind, len(parts))
        for at, part in enumerate(parts):
            made[at] = part
        return kind.compositeLimit(made)


def _is(limit: Any, name: str) -> bool:
    return bool(limit.getClass().getName() == f"{_LIMITS}.{name}")


@dataclass
class Heap:
    """How full the heap of the driver's JVM is: what survives a full collection, as a share of what there can be.

    In `local` mode tasks run in it too. What Python workers and the executors of a cluster hold is not in it.
    """

    _collections: int | None = field(default=None, init=False)
    _found: tuple[Any, list[Any]] | None = field(default=None, init=False)

    def after_collection(self) -> float | None:
        """None when there was no full collection since the last call: what is garbage is then not known."""
        from py4j.protocol import Py4JError

        try:
            return self._after_collection()
        except (Py4JError, AttributeError, TypeError):
            return None  # another JVM; nothing is known about its memory

    def _after_collection(self) -> float | None:
        if self._found is None:
            self._found = self._find()
        pool, collectors = self._found
        if pool is None:
            return None
        count = sum(_ask(_COLLECTOR, "getCollectionCount", collector) for collector in collectors)
        before, self._collections = self._collections, count
        if before is None or count == before:
            return None
        used = _ask(_POOL, "getCollectionUsage", pool)
        most = used.getMax() if used is not None else 0
        return used.getUsed() / most if most > 0 else None

    @staticmethod
    def _find() -> tuple[Any, list[Any]]:
        """The pool of what lives long, and the collectors that clean it; none where a collector has no such pool."""
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        beans = gateway.jvm.java.lang.management.ManagementFactory
        pools = beans.getMemoryPoolMXBeans()
        pool = next((each for each in pools if any(word in _ask(_POOL, "getName", each) for word in _OLD)), None)
        if pool is None:
            return None, []
        # G1 counts its collector of the young among them, and that one does not tell what survives.
        own = {name for name in _ask(_POOL, "getMemoryManagerNames", pool) if "Young" not in name}
        collectors = [bean for bean in beans.getGarbageCollectorMXBeans() if _ask(_COLLECTOR, "getName", bean) in own]
        return pool, collectors


def _ask(interface: str, method: str, bean: Any) -> Any:
    """Call a method of a bean through its interface: its own class is closed to others since Java 9."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    none = gateway.new_array(gateway.jvm.java.lang.Object, 0)
    kinds = gateway.new_array(gateway.jvm.java.lang.Class, 0)
    return gateway.jvm.java.lang.Class.forName(interface).getMethod(method, kinds).invoke(bean, none)
