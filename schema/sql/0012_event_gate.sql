-- One row, locked by whoever appends events until its COMMIT: so the order of ids is the order of commits, and a reader
-- with a cursor never skips an event that is committed late.

CREATE TABLE IF NOT EXISTS wp_novel_event_gate (
  id TINYINT UNSIGNED NOT NULL,
  passed BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
