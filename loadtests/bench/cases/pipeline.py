"""Chapters of 12 KB from the HTTP door to the tables, beside two connections that do nothing but write them."""

from loadtests.bench import pipeline
from loadtests.bench.case import Case
from loadtests.bench.pipeline import Crew

CASES = [
    Case(
        name="queue.pipeline",
        title="Chapters of 12 KB from HTTP to the tables against two bare pymysql connections that write the same rows",
        unit="items",
        ours=pipeline.ours(Crew()),
        bare=pipeline.bare,
        target=0.5,
        needs_catalogue=False,
        stage=pipeline.stage,
    ),
]
