"""What a worker counts."""

from prometheus_client import Counter, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

CLAIMED = Counter("novel_queue_claimed_items_total", "Items that workers took from the queue", labelnames=("job_type",))
ENDED = Counter("novel_queue_items_total", "What became of items", labelnames=("job_type", "outcome"))
RESCUED = Counter("novel_queue_rescued_units_total", "Units taken from dead workers", labelnames=("reason",))
GIVEN_BACK = Counter("novel_queue_returned_units_total", "Units returned unstarted at a stop", labelnames=("job_type",))
FENCED = Counter("novel_queue_fence_rejections_total", "Work that was thrown away because its lease was lost")
BISECTED = Counter("novel_queue_bisections_total", "Sets that failed and were taken apart", labelnames=("job_type",))
CLAIM_SECONDS = Histogram("novel_queue_claim_seconds", "Time of one claim", labelnames=("job_type",), buckets=_SECONDS)
APPLY_SECONDS = Histogram(
    "novel_queue_apply_seconds", "Time from reading a set to its commit", labelnames=("job_type",), buckets=_SECONDS
)
