"""`python -m bench.worker`: one system in a process of its own, with one JVM for all that it is asked to do.

Orders come as lines of JSON; each is answered by a file in its directory (what Spark prints can then do no harm). It
ends when its input ends.
"""

from __future__ import annotations

import sys
import traceback

from bench.cases import DECODE, PENSTOCK
from bench.order import Answer, Order, answer, order_from


def main() -> None:
    for line in sys.stdin:
        order = order_from(line)
        try:
            said = _do(order)
        except BaseException as error:
            traceback.print_exc()
            said = Answer(error=f"{type(error).__name__}: {error}".splitlines()[0])
        answer(order, said)


def _do(order: Order) -> Answer:
    if order.work == DECODE:
        from bench import decode

        return decode.ours(order) if order.system == PENSTOCK else decode.stock(order)
    if order.system == PENSTOCK:
        from bench import ours

        ours.run(order)
    else:
        from bench import plain

        plain.run(order)
    return Answer()


if __name__ == "__main__":
    main()
