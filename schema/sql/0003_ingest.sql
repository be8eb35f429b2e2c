-- Keys, requests, jobs and what they need (§6.7, §6.8, §6.10 to §6.13). Requests carry two columns more than the
-- specification has: the payload's hash and the answer, so that a retry gets the same answer byte for byte.

CREATE TABLE IF NOT EXISTS wp_novel_api_keys (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  key_name VARCHAR(120) NOT NULL,
  key_id VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL,
  secret_hash VARCHAR(255) NOT NULL,
  permissions VARCHAR(120) NOT NULL,
  is_active TINYINT UNSIGNED NOT NULL DEFAULT 1,
  last_used_at DATETIME NULL,
  created_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY key_id (key_id),
  KEY by_active (is_active)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ingest_requests (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  request_id CHAR(36) COLLATE utf8mb4_nopad_bin NOT NULL,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  job_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  idempotency_key VARCHAR(120) COLLATE utf8mb4_nopad_bin NOT NULL,
  status TINYINT UNSIGNED NOT NULL DEFAULT 0,
  total_items INT UNSIGNED NOT NULL DEFAULT 0,
  accepted_items INT UNSIGNED NOT NULL DEFAULT 0,
  rejected_items INT UNSIGNED NOT NULL DEFAULT 0,
  processed_items INT UNSIGNED NOT NULL DEFAULT 0,
  failed_items INT UNSIGNED NOT NULL DEFAULT 0,
  last_error TEXT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  payload_hash BINARY(32) NULL,
  response_json MEDIUMTEXT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY request_id (request_id),
  UNIQUE KEY idempotency (source, job_type, idempotency_key),
  KEY by_source (source, created_at),
  KEY by_status (status, updated_at),
  KEY source_idempotency_key (source, idempotency_key)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ingest_jobs (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  job_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  request_id CHAR(36) COLLATE utf8mb4_nopad_bin NOT NULL,
  idempotency_key VARCHAR(120) COLLATE utf8mb4_nopad_bin NOT NULL,
  external_ref VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
  payload_inline_json MEDIUMTEXT NULL,
  payload_blob_id BIGINT UNSIGNED NULL,
  payload_hash BINARY(32) NOT NULL,
  payload_size_bytes INT UNSIGNED NOT NULL DEFAULT 0,
  payload_encoding VARCHAR(20) NOT NULL DEFAULT 'none',
  payload_storage VARCHAR(20) NOT NULL DEFAULT 'inline',
  status TINYINT UNSIGNED NOT NULL DEFAULT 0,
  attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  max_attempts SMALLINT UNSIGNED NOT NULL DEFAULT 5,
  next_run_at DATETIME NOT NULL,
  locked_at DATETIME NULL,
  locked_by VARCHAR(64) COLLATE utf8mb4_nopad_bin NULL,
  last_error TEXT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY item (source, job_type, request_id, external_ref),
  KEY due (status, next_run_at, id),
  KEY source_external_ref (source, external_ref),
  KEY by_request (request_id),
  KEY source_idempotency_key (source, idempotency_key),
  KEY locked (status, locked_at),
  KEY by_payload_hash (payload_hash),
  KEY by_payload_blob (payload_blob_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ingest_payload_blobs (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  payload_blob LONGBLOB NOT NULL,
  payload_hash BINARY(32) NOT NULL,
  payload_size_bytes INT UNSIGNED NOT NULL,
  payload_encoding VARCHAR(20) NOT NULL DEFAULT 'gzip',
  created_at DATETIME NOT NULL,
  expires_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  KEY by_expires_at (expires_at),
  KEY by_created_at (created_at),
  KEY by_payload_hash (payload_hash)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_story_recount_queue (
  story_id BIGINT UNSIGNED NOT NULL,
  dirty_since DATETIME NOT NULL,
  next_run_at DATETIME NOT NULL,
  priority TINYINT UNSIGNED NOT NULL DEFAULT 0,
  touch_count INT UNSIGNED NOT NULL DEFAULT 1,
  locked_at DATETIME NULL,
  locked_by VARCHAR(64) COLLATE utf8mb4_nopad_bin NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (story_id),
  KEY due (priority DESC, next_run_at, story_id),
  KEY by_locked_at (locked_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_nonce_replay (
  nonce_hash BINARY(32) NOT NULL,
  key_id VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL,
  expires_at DATETIME NOT NULL,
  PRIMARY KEY (nonce_hash),
  KEY by_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
