"""How long failures are borne with: a count and two clocks, over what failed and when.

    Kafka, a sink, the compiler,
    a worker that did not start,
    an executor that was lost       tried again, up to `RETRIES` times without a batch that ended
    the registry                    tried again for as long as `registry.wait` says, however often that is; then it is
                                    given up for this batch, which follows `unreadable`. What fails then is counted
    anything else                   not tried again

The registry's clock begins when the registry is first found silent, and again when something else fails in between:
only what was seen is held against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError, RegistryUnreachable
from penstock.spec.model import Pipeline

_BACK_OFF_S = (1, 2, 5, 10, 20, 30)  # a broker restart takes seconds; past these the last one repeats
RETRIES = 20  # about eight minutes without a single finished batch; then a person should look


@dataclass(frozen=True)
class Again:
    """The batch is tried again."""

    after_s: int
    give_up: bool = False  # without the registry


@dataclass
class Patience:
    """Made once per start. Not for two threads at once."""

    registry_wait_s: float | None  # None: there is no registry
    _in_a_row: int = 0
    _counted: int = 0  # of those: the ones that may not be more than RETRIES
    _silent_since: float | None = None
    _given_up: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline) -> Patience:
        return cls(pipeline.registry.wait.total_seconds() if pipeline.registry else None)

    def batch_done(self) -> None:
        self._in_a_row, self._counted, self._silent_since, self._given_up = 0, 0, None, False

    def failed(self, error: PenstockError, now: float) -> Again | None:
        """What to do about it; None: nothing but to stop. `now`: seconds on a clock that only goes forward."""
        if not error.retryable:
            return None
        self._in_a_row += 1
        after = _BACK_OFF_S[min(self._in_a_row, len(_BACK_OFF_S)) - 1]
        if isinstance(error, RegistryUnreachable) and self.registry_wait_s is not None and not self._given_up:
            self._silent_since = now if self._silent_since is None else self._silent_since
            self._given_up = now - self._silent_since >= self.registry_wait_s
            return Again(after, give_up=self._given_up)
        self._silent_since = None
        self._counted += 1
        return None if self._counted > RETRIES else Again(after)
