"""The schema version as a service sees it: at its start, and in its readiness."""

from asyncmy.errors import ProgrammingError

from schema import version
from store import errors
from store.pool import Pool


async def current(pool: Pool) -> int:
    async with pool.reading() as conn:
        try:
            row = await conn.fetch_one(version.SELECT_VERSION)
        except ProgrammingError as error:
            if errors.number(error) != version.NO_SUCH_TABLE:
                raise
            row = None
    return version.parse(row[0] if row else None)


async def require(pool: Pool) -> None:
    """Raise SchemaOutdated, whose message says which command mends it."""
    version.require(await current(pool), place=pool.address.place)
