"""Counts of requests in this process alone, for what must not cost the database a write."""

from collections import OrderedDict, deque

from store.rate_windows import STEPS, Limit

MAX_SCOPES = 20_000


class LocalWindows:
    """The counts of each scope, of few scopes: who was not seen for longest is forgotten first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, deque[tuple[int, int]]] = OrderedDict()

    def take(self, scope: str, limit: Limit, *, now: float) -> int:
        """Count a request; 0, or the seconds after which it is worth trying again."""
        steps = self._seen.setdefault(scope, deque())
        self._seen.move_to_end(scope)
        if len(self._seen) > MAX_SCOPES:
            self._seen.popitem(last=False)
        current = int(now // limit.step_seconds)
        while steps and steps[0][0] <= current - STEPS:
            steps.popleft()
        if sum(count for _, count in steps) >= limit.requests:
            return max(1, (steps[0][0] + STEPS) * limit.step_seconds - int(now))
        count = steps.pop()[1] if steps and steps[-1][0] == current else 0
        steps.append((current, count + 1))
        return 0
