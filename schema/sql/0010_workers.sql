-- What workers need beside the queue's tables: who a worker is, what its lease weighs, when a waiting unit was due, a
-- way from a blob to one of its items, the fraction of a second in which the source changed something, and the tries
-- of a recount.

ALTER TABLE wp_novel_workers ADD COLUMN pid_namespace BIGINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_workers ADD COLUMN process_start BIGINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_leases ADD COLUMN items SMALLINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_leases ADD COLUMN payload_bytes INT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_leases ADD COLUMN next_run_at DATETIME(6) NULL;

ALTER TABLE wp_novel_ingest_leases ADD INDEX by_request (request_id);

ALTER TABLE wp_novel_ingest_jobs ADD INDEX by_blob_item (payload_blob_id, item_index);

ALTER TABLE wp_novel_stories ADD COLUMN source_microsecond MEDIUMINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_chapters ADD COLUMN source_microsecond MEDIUMINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_story_recount_queue ADD COLUMN attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0;
