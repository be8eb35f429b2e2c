"""The state of the queue as metrics, looked up when somebody asks: so they are right also when no worker runs."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from store import queue_status
from store.pool import Pool
from store.queue_status import Depth, Recounts, Task


async def read(pool: Pool) -> list[Metric]:
    """Depth and oldest due age of each source, recounts, and how far behind maintenance is."""
    async with pool.reading() as conn:
        return [
            *of_depths(await queue_status.depths_async(conn)),
            *of_recounts(await queue_status.recounts_async(conn)),
            *of_tasks(await queue_status.tasks_async(conn)),
        ]


def of_depths(depths: Iterable[Depth]) -> list[Metric]:
    waiting = GaugeMetricFamily("novel_queue_waiting_items", "Items in the queue", labels=("job_type", "source"))
    due = GaugeMetricFamily("novel_queue_due_items", "Items that are due", labels=("job_type", "source"))
    oldest = GaugeMetricFamily(
        "novel_queue_oldest_due_seconds",
        "How long the oldest item that is due has been so",
        labels=("job_type", "source"),
    )
    for depth in depths:
        labels = (depth.job_type, depth.source)
        waiting.add_metric(labels, depth.items)
        due.add_metric(labels, depth.due_items)
        oldest.add_metric(labels, depth.oldest_due_seconds or 0.0)
    return [waiting, due, oldest]


def of_recounts(recounts: Recounts) -> list[Metric]:
    return [
        GaugeMetricFamily("novel_recount_waiting_stories", "Stories to be counted again", value=recounts.stories),
        GaugeMetricFamily(
            "novel_recount_oldest_due_seconds",
            "How long the oldest recount that is due has been so",
            value=recounts.oldest_due_seconds or 0.0,
        ),
    ]


def of_tasks(tasks: Iterable[Task]) -> list[Metric]:
    lag = GaugeMetricFamily(
        "novel_upkeep_lag_seconds", "How old what a task of maintenance has left to do was", labels=("task",)
    )
    overdue = GaugeMetricFamily(
        "novel_upkeep_overdue_seconds", "Since when a task of maintenance should have begun", labels=("task",)
    )
    for task in tasks:
        lag.add_metric((task.task,), task.lag_seconds)
        overdue.add_metric((task.task,), task.overdue_seconds)
    return [lag, overdue]
