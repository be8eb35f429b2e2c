"""Pushing, working and striking go side by side: none gets far ahead of the others, so strikes find work under way.

Each is measured by the share of it that is done. Pushing waits for the strikes, and strikes wait until what was pushed
is worked off. Some of that may have to wait for what is not pushed yet: so a strike waits for no more than a while.
"""

import threading

PUSH_SLACK, STRIKE_SLACK = 0.1, 0.05


class Pace:
    def __init__(self, *, batches: int, strikes: int) -> None:
        self._batches, self._strikes = batches, strikes
        self._struck = 0
        self._share_done = 0.0
        self._changed = threading.Condition()
        self._is_over = False

    def done(self, share: float) -> None:
        """So much of all items has ended."""
        self._share_done = share

    def struck(self) -> None:
        with self._changed:
            self._struck += 1
            self._changed.notify_all()

    def wait_to_push(self, place: int) -> bool:
        """Wait for the turn of a batch, by its place among all; False: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or place / self._batches <= self._share_struck() + PUSH_SLACK)
            return not self._is_over

    def may_strike(self) -> bool:
        return not self.has_struck_all() and self._share_struck() <= self._share_done + STRIKE_SLACK

    def has_struck_all(self) -> bool:
        return self._struck >= self._strikes

    def end(self) -> None:
        """Let everybody go who waits."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _share_struck(self) -> float:
        return self._struck / self._strikes if self._strikes else 1.0
