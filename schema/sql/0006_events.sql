-- The event log: one row for every visible change, written in the transaction that makes the change. Cache
-- invalidation, feeds and webhooks read it with a cursor each.

CREATE TABLE IF NOT EXISTS wp_novel_events (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  event_type VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  chapter_id BIGINT UNSIGNED NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  KEY by_created_at (created_at),
  KEY by_story (story_id, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
