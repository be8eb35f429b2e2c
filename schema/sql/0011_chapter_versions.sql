-- What a chapter's body was before it was changed: the last few, each as it was stored.

CREATE TABLE IF NOT EXISTS wp_novel_chapter_versions (
  chapter_id BIGINT UNSIGNED NOT NULL,
  version INT UNSIGNED NOT NULL,
  content_raw LONGBLOB NOT NULL,
  content_hash BINARY(32) NULL,
  content_size INT UNSIGNED NOT NULL DEFAULT 0,
  content_encoding VARCHAR(10) NOT NULL DEFAULT 'none',
  created_at DATETIME NOT NULL,
  replaced_at DATETIME NOT NULL,
  PRIMARY KEY (chapter_id, version)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
