"""Whether a key's stored hash agrees with our master key: asked once for each key, off the event loop.

With the wrong master key every signature fails, and the answers cannot say why. So the first wrong signature of a key
makes us look, in the background: the time of the answer must not tell that the key exists.
"""

import asyncio

from runtime import logs
from runtime.problems import Problem
from store import api_keys
from store.key_ring import Key

log = logs.get(__name__)

MAX_REMEMBERED = 1000


class HashChecks:
    def __init__(self, master_key: str) -> None:
        self._master_key = master_key
        self._agrees: dict[tuple[str, str], bool] = {}
        self._one_at_a_time = asyncio.Lock()
        """Each look costs a tenth of a second and megabytes: of many requests at once, one looks."""
        self._looking: asyncio.Task[None] | None = None

    async def agrees(self, key: Key) -> bool:
        """Whether the key was made under our master key."""
        return self._agrees.get((key.key_id, key.secret_hash)) or await self._look(key)

    def suspect(self, key: Key) -> None:
        """The signature was wrong: look, in a while, whether it is our master key that is wrong."""
        is_known = (key.key_id, key.secret_hash) in self._agrees
        if not is_known and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_quietly(key))

    async def _look(self, key: Key) -> bool:
        mark = key.key_id, key.secret_hash
        async with self._one_at_a_time:
            if mark not in self._agrees:
                await self._compare(mark, key)
            return self._agrees[mark]

    async def _compare(self, mark: tuple[str, str], key: Key) -> None:
        stored = api_keys.ApiKey(key.key_id, key.secret_hash, tuple(key.permissions))
        try:
            await asyncio.to_thread(api_keys.check_secret, stored, self._master_key)
            agrees = True
        except Problem as problem:
            log.error("api_key.hash_mismatch", key_id=key.key_id, problem=str(problem))
            agrees = False
        if len(self._agrees) >= MAX_REMEMBERED:
            self._agrees.clear()
        self._agrees[mark] = agrees

    async def _look_quietly(self, key: Key) -> None:
        await self._look(key)
