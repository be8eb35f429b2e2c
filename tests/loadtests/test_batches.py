"""The batches that benchmarks push: sized as the specification says, and taken by the door as they are."""

import gzip
import hashlib
import json
from datetime import UTC, datetime

import pytest
import zstandard

from ingest import batch, envelope
from loadtests.bench import batches
from loadtests.bench.batches import ESCAPED, FORMS, GZIP, JSON, ZSTD, Batch, Form


def payload(prepared: Batch) -> bytes:
    match prepared.encoding:
        case "zstd":
            return zstandard.ZstdDecompressor().decompress(prepared.body)
        case "gzip":
            return gzip.decompress(prepared.body)
    return prepared.body


def test_chapters_are_spread_around_12_kb_with_a_long_tail() -> None:
    sizes = sorted(len(text.encode()) for text in batches.texts())
    assert len(sizes) == 300
    assert sum(sizes) / 300 == pytest.approx(12_000, rel=0.01)
    assert sizes[284] <= 24_000 <= sizes[285]  # p95
    assert sizes[296] <= 96_000 <= sizes[297]  # p99
    assert sizes[-1] <= 128_000
    assert sizes != [len(text.encode()) for text in batches.texts()]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_batch_is_taken_whole_by_the_door(form: Form) -> None:
    one, other = batches.prepared(batches.texts(), form, count=2)
    checked = batch.check(
        envelope.read(payload(one)), batch.chapters_kind(content_encoding="gzip"), now=datetime.now(UTC)
    )
    assert (checked.total, checked.accepted, checked.errors, checked.warnings) == (300, 300, [], [])
    assert one.sha256 == hashlib.sha256(one.body).hexdigest()
    assert one.size == len(payload(one))
    assert (
        json.loads(payload(one))["items"][0]["source_story_id"]
        != json.loads(payload(other))["items"][0]["source_story_id"]
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_large_batch_comes_near_to_the_limit_and_stays_below_it(form: Form) -> None:
    (large,) = batches.prepared(batches.large_texts(form), form, count=1)
    assert 0.98 * (12 << 20) < large.size <= 12 << 20
    assert large.items == 300


def test_forms_are_what_they_say() -> None:
    written = {form: batches.prepared(batches.texts()[:3], form, count=1)[0] for form in FORMS}
    assert written[ESCAPED].body.isascii()
    assert not written[JSON].body.isascii()
    assert payload(written[ZSTD]) == payload(written[GZIP]) == written[JSON].body
    assert json.loads(written[ESCAPED].body) == json.loads(written[JSON].body)
