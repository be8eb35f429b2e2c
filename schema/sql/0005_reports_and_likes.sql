-- Two tables that §7.6 needs and the specification forgot: reports of content, and who liked which comment.

CREATE TABLE IF NOT EXISTS wp_novel_reports (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  entity_type VARCHAR(20) COLLATE utf8mb4_nopad_bin NOT NULL,
  entity_id BIGINT UNSIGNED NOT NULL,
  reason VARCHAR(20) COLLATE utf8mb4_nopad_bin NOT NULL,
  detail VARCHAR(500) NULL,
  status TINYINT UNSIGNED NOT NULL DEFAULT 0,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY user_entity (user_id, entity_type, entity_id),
  KEY by_status (status, created_at, id),
  KEY by_entity (entity_type, entity_id, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_comment_likes (
  comment_id BIGINT UNSIGNED NOT NULL,
  user_id BIGINT UNSIGNED NOT NULL,
  created_at DATETIME NOT NULL,
  PRIMARY KEY (comment_id, user_id),
  KEY by_user (user_id, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
