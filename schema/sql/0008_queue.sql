-- What the queue needs beside §6.7: a narrow table of units that wait (a chunk of one request's jobs, or a single job),
-- polled in index order and deleted by primary key; a table of units that a worker holds; and one heartbeat row per
-- worker process. Finished jobs stay in wp_novel_ingest_jobs and never slow a claim.

CREATE TABLE IF NOT EXISTS wp_novel_ingest_ready (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  job_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  request_id CHAR(36) COLLATE utf8mb4_nopad_bin NOT NULL,
  payload_blob_id BIGINT UNSIGNED NULL,
  first_item SMALLINT UNSIGNED NOT NULL,
  last_item SMALLINT UNSIGNED NOT NULL,
  attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  crashes SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  waiting_for VARCHAR(191) COLLATE utf8mb4_nopad_bin NULL,
  next_run_at DATETIME(6) NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  KEY due (job_type, source, next_run_at, id),
  KEY waiting (source, waiting_for)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ingest_leases (
  id BIGINT UNSIGNED NOT NULL,
  worker_id BIGINT UNSIGNED NOT NULL,
  job_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  request_id CHAR(36) COLLATE utf8mb4_nopad_bin NOT NULL,
  payload_blob_id BIGINT UNSIGNED NULL,
  first_item SMALLINT UNSIGNED NOT NULL,
  last_item SMALLINT UNSIGNED NOT NULL,
  attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  crashes SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  created_at DATETIME(6) NOT NULL,
  claimed_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  KEY by_worker (worker_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_workers (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  kind VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  host VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
  boot_id CHAR(36) COLLATE utf8mb4_nopad_bin NOT NULL,
  pid INT UNSIGNED NOT NULL,
  started_at DATETIME(6) NOT NULL,
  heartbeat_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

ALTER TABLE wp_novel_ingest_jobs ADD COLUMN item_index SMALLINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_jobs ADD COLUMN crashes SMALLINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_jobs ADD COLUMN is_stale TINYINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_jobs ADD COLUMN error_code VARCHAR(40) COLLATE utf8mb4_nopad_bin NULL;
