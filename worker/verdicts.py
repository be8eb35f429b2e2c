"""From what a handler says of an item to what is written: retries are counted here, and used up."""

import random
from collections.abc import Iterable, Sequence

from runtime.worker_settings import WorkerSettings
from store.jobs import COMPLETED, DEAD, FAILED, QUEUED, Job, Verdict
from worker import backoff
from worker.handler import Done, GiveUp, Outcome, TryAgain

UNEXPECTED = "apply_failed"
MAX_ERROR_CHARACTERS = 300


def of(outcomes: Iterable[Outcome], settings: WorkerSettings) -> list[Verdict]:
    """In the order of units and items."""
    verdicts = [_of(outcome, settings) for outcome in outcomes]
    verdicts.sort(key=lambda verdict: (verdict.job.unit.id, verdict.job.index))
    return verdicts


def unexpected(job: Job, error: BaseException) -> TryAgain:
    """An error that no handler foresaw. The text of a database's error says which column; it has no body in it."""
    # What cannot be written as UTF-8 would fail the transaction that is to say what failed.
    text = " ".join(str(error).encode(errors="replace").decode().split())[:MAX_ERROR_CHARACTERS]
    return TryAgain(job, UNEXPECTED, f"{type(error).__name__}: {text}")


def tally(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], dict[str, int]]:
    """How many of each outcome, by job type and source."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for verdict in verdicts:
        counts = found.setdefault((verdict.job.unit.job_type, verdict.job.unit.source), {})
        name = outcome_of(verdict)
        counts[name] = counts.get(name, 0) + 1
    return found


def outcome_of(verdict: Verdict) -> str:
    if verdict.status == COMPLETED:
        return "stale" if verdict.is_stale else "completed"
    return {QUEUED: "retried", FAILED: "failed", DEAD: "dead"}[verdict.status]


def _of(outcome: Outcome, settings: WorkerSettings) -> Verdict:
    failures = outcome.job.unit.attempts + 1
    match outcome:
        case Done(job, is_stale):
            return Verdict(job=job, status=COMPLETED, attempts=failures, is_stale=is_stale)
        case GiveUp(job, code, message):
            return Verdict(job=job, status=FAILED, attempts=failures, code=code, message=message)
        case TryAgain(job, code, message, story):
            if failures >= settings.max_attempts:
                return Verdict(job=job, status=DEAD, attempts=failures, code=code, message=message)
            jitter = random.random()  # noqa: S311  it spreads retries, and guards nothing
            delay = backoff.delay_seconds(failures, settings.retry_seconds, jitter=jitter)
            return Verdict(
                job=job,
                status=QUEUED,
                attempts=failures,
                # It has just killed no worker. What crashed is claimed alone, and so would never meet the chapter with
                # which it swaps numbers.
                crashes=0,
                code=code,
                message=message,
                delay_seconds=delay,
                waiting_for=story,
            )
