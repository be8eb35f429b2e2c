"""Every driver that is installed beside pymysql, at the three things we do most. For information: no targets."""

from collections.abc import Iterator

from loadtests.bench import drivers
from loadtests.bench.case import Case
from loadtests.bench.cases import bulk_insert, list_read, point_read
from loadtests.bench.drivers import Driver

GROUP = "drivers"


def _of(driver: Driver) -> Iterator[Case]:
    yield Case(
        name=f"{GROUP}.point_read.{driver.name}",
        title=f"One story by its id: bare {driver.name} against pymysql",
        unit="reads",
        ours=drivers.reading(driver, point_read.SELECT_STORY, point_read.story_ids),
        bare=drivers.reading(drivers.PYMYSQL, point_read.SELECT_STORY, point_read.story_ids),
        in_quick=False,
    )
    yield Case(
        name=f"{GROUP}.list_read.{driver.name}",
        title=f"Twenty stories: bare {driver.name} against pymysql",
        unit="lists",
        ours=drivers.reading(driver, list_read.SELECT_PAGE, list_read.statuses),
        bare=drivers.reading(drivers.PYMYSQL, list_read.SELECT_PAGE, list_read.statuses),
        in_quick=False,
    )
    yield Case(
        name=f"{GROUP}.bulk_insert.{driver.name}",
        title=f"300 chapters and their texts in a transaction: bare {driver.name} against pymysql",
        unit="chapters",
        ours=drivers.inserting(driver, bulk_insert.batches),
        bare=drivers.inserting(drivers.PYMYSQL, bulk_insert.batches),
        needs_catalogue=False,
        in_quick=False,
        stage=bulk_insert.stage,
    )


CASES = [
    case for driver in drivers.ALL if driver is not drivers.PYMYSQL and driver.is_installed for case in _of(driver)
]
