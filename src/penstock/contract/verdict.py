"""Contracts: every decoded record gets a verdict, the name of the first rule it broke, or none.

A record that did not decode has the verdict `!decode`, a null value that the spec drops `!tombstone`; the exclamation
mark keeps them apart from the rules, whose names begin with a letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.checkpoint.ledger import ViewCount
from penstock.errors import MARK, StepFailed, first_line
from penstock.spec.rules import Regex, Rule, sql_name
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DECODE = "!decode"
TOMBSTONE = "!tombstone"
_REPEATED = "_repeated"  # only while a `unique` rule is computed
UNREADABLE = "unreadable"  # what is said in the place of a rule, of a record that no rule could be asked about
STOP_MARK = f"penstock rule-stopped {MARK}"  # begins the engine's error text when a `stop` rule is broken
# What follows it: the view, the rule or `UNREADABLE`, where the record is, and values. Plans have the mark too.
_STOPPED = re.compile(rf"\[USER_RAISED_EXCEPTION\] {STOP_MARK} (.*?)(?: SQLSTATE: P0001)?$", re.MULTILINE)


@dataclass(frozen=True)
class Contract:
    """The rules of one view, and how many records each of them took."""

    view: str
    rules: tuple[Rule, ...]
    drop_tombstones: bool = False
    stop_unreadable: bool = False  # a record whose schema is unknown or does not fit stops the pipeline
    stop_unreadable_key: bool = False  # the same, of its key

    @property
    def deadly(self) -> list[str]:
        return [DECODE, *(r.name for r in self.rules if r.otherwise == "dead-letter")]

    @property
    def dropping(self) -> list[str]:
        return [*([TOMBSTONE] if self.drop_tombstones else []), *(r.name for r in self.rules if r.otherwise == "drop")]

    def counted(self, read: int, passed: int, by_verdict: Mapping[str, int], rejected: int = 0) -> ViewCount:
        """The books of a batch; `by_verdict`: how many records each verdict was given to."""
        dead = sum(by_verdict[name] for name in self.deadly)
        died = {name: by_verdict[name] for name in self.deadly if name != DECODE}
        return ViewCount(read, passed, dead, {name: by_verdict[name] for name in self.dropping}, rejected, died)

    @property
    def compares(self) -> bool:
        """Whether the verdict over a record depends on the others of its batch."""
        return any(rule.unique for rule in self.rules)

    def judged(self, decoded: DataFrame) -> DataFrame:
        """The same rows with the verdict in `_rule`: null for a record that passes."""
        try:
            return self._judged(decoded)
        except Exception as error:
            wrong = ((rule.name, why) for rule in self.rules if (why := _wrong(decoded, rule)))
            bad, why = next(wrong, ("", first_line(error)))
            raise StepFailed(
                f"rule '{bad}' of contract '{self.view}' is not a condition over its fields",
                cause=why,
                next_command=f"correct rule '{bad}' in the spec",
                facts={"view": self.view, "rule": bad},
            ) from None

    def _judged(self, decoded: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        rows, verdicts = decoded, self._before_rules(decoded)
        settled = [(F.col(record.RULE).isNotNull(), F.col(record.RULE)), *self._passing(decoded)]
        for rule in self.rules:
            if rule.unique:
                rows = _with_repetition(rows.withColumn(record.RULE, _first_of(verdicts)), rule.unique)
                verdicts, broken = list(settled), F.col(_REPEATED)
            else:
                if rule.regex:
                    _require_pattern(rule.regex)
                broken = ~F.coalesce(_tried(rule.condition or ""), F.lit(False))
            said = F.lit(rule.name)
            if rule.otherwise == "stop":
                text = F.concat(F.lit(f"{STOP_MARK} {self.view}.{rule.name}"), _position(), self._seen(rule, decoded))
                said = F.raise_error(text).cast("string")
            verdicts.append((broken, said))
            if rule.unique:
                rows, verdicts = rows.withColumn(record.RULE, _first_of(verdicts)).drop(_REPEATED), list(settled)
        return rows.withColumn(record.RULE, _first_of(verdicts))

    def _before_rules(self, decoded: DataFrame) -> list[tuple[Column, Column]]:
        """Verdicts over records that have no fields a rule could speak of; the first that holds counts."""
        from pyspark.sql import functions as F

        error = F.col(record.ERROR)
        found = []
        if self.stop_unreadable or self.stop_unreadable_key:
            strange = error["class"].isin(record.UNKNOWN_SCHEMA, record.INCOMPATIBLE_SCHEMA)
            if self.stop_unreadable != self.stop_unreadable_key:  # the reason of a key begins so
                of_key = error["reason"].startswith(record.OF_KEY)
                strange = strange & (of_key if self.stop_unreadable_key else ~of_key)
            said = F.concat(F.lit(f"{STOP_MARK} {self.view}.{UNREADABLE}"), _position(), F.lit("; "), error["reason"])
            found.append((strange, F.raise_error(said).cast("string")))
        if self.drop_tombstones:
            found.append((error["class"] == record.NULL_VALUE, F.lit(TOMBSTONE)))
        return [*found, (error.isNotNull(), F.lit(DECODE)), *self._passing(decoded)]

    def _passing(self, decoded: DataFrame) -> list[tuple[Column, Column]]:
        from pyspark.sql import functions as F

        return [(F.col(record.DELETED), F.lit(None).cast("string"))] if record.DELETED in decoded.columns else []

    @property
    def verdicts(self) -> list[str]:
        return [*self.deadly, *self.dropping]

    def counts(self) -> list[Column]:
        """Aggregates over judged rows: how many were read, how many passed, and one per verdict, in that order."""
        from pyspark.sql import functions as F

        verdict = F.col(record.RULE)
        counted = [F.lit(True), verdict.isNull(), *(verdict == name for name in self.verdicts)]
        return [F.count_if(column).alias(f"count_{i}") for i, column in enumerate(counted)]

    def dead_at(self) -> Column:
        """Aggregate over judged rows: topic, partition and offset of every dead one."""
        from pyspark.sql import functions as F

        at = F.col(record.KAFKA)
        dead = F.col(record.RULE).isin(self.deadly)
        return F.collect_list(F.when(dead, F.struct(at["topic"], at["partition"], at["offset"]))).alias("dead_at")

    def reason(self, judged: DataFrame) -> tuple[Column, Column, Column]:
        """Stage, error class and reason of a dead row."""
        from pyspark.sql import functions as F

        error, verdict = F.col(record.ERROR), F.col(record.RULE)
        seen = {r.name: F.concat(F.lit(f"{r.name}: not true: {r.text}"), self._seen(r, judged)) for r in self.rules}
        none = F.lit(None).cast("string")
        broken = reduce(lambda c, item: F.when(verdict == item[0], item[1]).otherwise(c), seen.items(), none)
        return (
            F.when(error.isNotNull(), F.lit(record.DECODE)).otherwise(F.lit(record.CONTRACT)),
            F.coalesce(error["class"], F.lit(record.BROKEN_RULE)),
            F.coalesce(error["reason"], broken),
        )

    def _seen(self, rule: Rule, rows: DataFrame) -> Column:
        """The values of the fields a rule speaks of: `; amount = -5.00`."""
        from pyspark.sql import functions as F

        names = fields_of(rule, rows.columns)
        parts = [
            F.concat(
                F.lit(f"; {name} = "), F.substring(F.coalesce(F.col(quoted(name)).cast("string"), F.lit("null")), 1, 80)
            )
            for name in names
        ]
        return F.concat(*parts) if parts else F.lit("")


def stopped_by(text: str) -> str | None:
    """What a broken `stop` rule said, out of the text of the engine's exception; None: there was none."""
    found = _STOPPED.search(text)
    return found[1].strip() if found else None


def fields_of(rule: Rule, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that a rule speaks of."""
    if rule.fields is not None:
        words = {name.split(".")[0].lower() for name in rule.fields}
        return tuple(name for name in columns if name.lower() in words)
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", rule.rule or ""))
    return tuple(name for name in columns if name in words and name not in (record.KAFKA, record.ERROR))


def _first_of(verdicts: list[tuple[Column, Column]]) -> Column:
    from pyspark.sql import functions as F

    (condition, said), *others = verdicts
    return reduce(lambda chain, each: chain.when(*each), others, F.when(condition, said))


def _with_repetition(rows: DataFrame, fields: list[str]) -> DataFrame:
    """`_repeated`: whether an earlier record of these, by partition and offset, has the same values. Records that have
    a verdict, are deletes or have a null there are not compared, and are spread over the tasks."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names, at = [F.expr(sql_name(name)) for name in fields], F.col(record.KAFKA)
    compared = reduce(lambda a, b: a & b, (name.isNotNull() for name in names), F.col(record.RULE).isNull())
    if record.DELETED in rows.columns:
        compared = compared & ~F.col(record.DELETED)
    order = [at["topic"], at["partition"], at["offset"]]
    apart = [F.when(~compared, part) for part in order]
    same = Window.partitionBy(*names, *apart).orderBy(*order)
    return rows.withColumn(_REPEATED, F.row_number().over(same) > 1)


def _tried(condition: str) -> Column:
    """The condition, null where it fails: a record it cannot be computed for breaks it and must not stop the batch.

    SQL has no word for that; the engine has the expression, and uses it for its own `try_` functions.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    spark: Any = SparkSession.getActiveSession()
    bridge = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils
    plain: Any = F.expr(f"({condition})")
    tried = spark._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(bridge.expression(plain._jc))
    return Column(bridge.column(tried))


def _require_pattern(regex: Regex) -> None:
    """Raises what Java has against it. The engine would say so in the first batch, or call every record wrong."""
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.getActiveSession()
    spark._jvm.java.util.regex.Pattern.compile(regex.matches)


def _wrong(rows: DataFrame, rule: Rule) -> str | None:
    """Why a rule is no condition; None where it is one."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, NullType

    try:
        if rule.unique:
            rows.groupBy(*(F.expr(sql_name(name)) for name in rule.unique)).count()
            return None
        if rule.regex:
            _require_pattern(rule.regex)
        kind = rows.select(F.expr(f"({rule.condition})")).schema[0].dataType
    except Exception as error:
        return first_line(error)
    if isinstance(kind, BooleanType | NullType):
        return None
    return f"{rule.condition} is a {kind.simpleString()}, and neither true nor false"


def _position() -> Column:
    from pyspark.sql import functions as F

    at = F.col(record.KAFKA)
    return F.concat(
        F.lit(" at "),
        at["topic"],
        F.lit("-"),
        at["partition"].cast("string"),
        F.lit(" offset "),
        at["offset"].cast("string"),
    )
