"""A step in Python: a DataFrame in, a DataFrame out. It runs in the driver; its UDFs run in Spark's Python workers."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

CENT = Decimal("0.01")


@F.udf("decimal(18,2)")
def converted(amount, per_euro):
    """Banker's rounding, which SQL's `round` is not. Raises for a rate of 0: that payment becomes a dead letter."""
    return (amount / per_euro).quantize(CENT, ROUND_HALF_EVEN)


def in_euro(rated: DataFrame) -> DataFrame:
    return rated.withColumn("amount_eur", converted(F.col("amount"), F.col("per_euro")))
