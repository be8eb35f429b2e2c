-- What the door of the ingest API needs beside the specification's tables: the terms under which a key is valid,
-- counters for quotas while Redis is away, which key made a request, and what a waiting unit weighs.

CREATE TABLE IF NOT EXISTS wp_novel_api_key_terms (
  key_id VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL,
  sources TEXT COLLATE utf8mb4_nopad_bin NULL,
  expires_at DATETIME NULL,
  locked_until DATETIME NULL,
  revoked_at DATETIME NULL,
  PRIMARY KEY (key_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_rate_windows (
  scope VARCHAR(120) COLLATE utf8mb4_nopad_bin NOT NULL,
  bucket BIGINT UNSIGNED NOT NULL,
  requests INT UNSIGNED NOT NULL DEFAULT 0,
  bytes BIGINT UNSIGNED NOT NULL DEFAULT 0,
  expires_at DATETIME NOT NULL,
  PRIMARY KEY (scope, bucket),
  KEY by_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

ALTER TABLE wp_novel_ingest_requests ADD COLUMN key_id VARCHAR(64) COLLATE utf8mb4_nopad_bin NULL;

ALTER TABLE wp_novel_ingest_jobs ADD COLUMN payload_offset INT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_ready ADD COLUMN items SMALLINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE wp_novel_ingest_ready ADD COLUMN payload_bytes INT UNSIGNED NOT NULL DEFAULT 0;
