-- Whose turn a task of maintenance is and how it went, and what the queue did in each minute.

CREATE TABLE IF NOT EXISTS wp_novel_upkeep (
  task VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  holder VARCHAR(64) COLLATE utf8mb4_nopad_bin NULL,
  held_until DATETIME(6) NOT NULL,
  next_run_at DATETIME(6) NOT NULL,
  finished_at DATETIME(6) NULL,
  seconds DOUBLE NOT NULL DEFAULT 0,
  changed_rows BIGINT UNSIGNED NOT NULL DEFAULT 0,
  lag_seconds DOUBLE NOT NULL DEFAULT 0,
  place VARCHAR(191) COLLATE utf8mb4_nopad_bin NULL,
  PRIMARY KEY (task)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ingest_minutes (
  minute DATETIME NOT NULL,
  job_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  accepted INT UNSIGNED NOT NULL DEFAULT 0,
  completed INT UNSIGNED NOT NULL DEFAULT 0,
  stale INT UNSIGNED NOT NULL DEFAULT 0,
  retried INT UNSIGNED NOT NULL DEFAULT 0,
  failed INT UNSIGNED NOT NULL DEFAULT 0,
  dead INT UNSIGNED NOT NULL DEFAULT 0,
  waiting_items INT UNSIGNED NOT NULL DEFAULT 0,
  oldest_due_seconds INT UNSIGNED NOT NULL DEFAULT 0,
  PRIMARY KEY (minute, job_type, source)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
