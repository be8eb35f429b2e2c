-- What readers keep: progress, bookmarks, history, ratings, comments, and how they stay logged in (§6.14 to §6.19).

CREATE TABLE IF NOT EXISTS wp_novel_reading_progress (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  chapter_id BIGINT UNSIGNED NOT NULL,
  chapter_no DECIMAL(10,2) NOT NULL,
  scroll_position FLOAT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY user_story (user_id, story_id),
  KEY user_recent (user_id, updated_at, story_id),
  KEY by_story (story_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_bookmarks (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  status TINYINT UNSIGNED NOT NULL DEFAULT 0,
  notify_new_chapter TINYINT UNSIGNED NOT NULL DEFAULT 1,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY user_story (user_id, story_id),
  KEY user_status (user_id, status, updated_at),
  KEY user_recent (user_id, updated_at, story_id),
  KEY by_story (story_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_reading_history (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  chapter_id BIGINT UNSIGNED NOT NULL,
  read_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY user_chapter (user_id, chapter_id),
  KEY user_story (user_id, story_id, read_at),
  KEY user_recent (user_id, read_at, story_id, chapter_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_ratings (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  score TINYINT UNSIGNED NOT NULL,
  review_text TEXT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY user_story (user_id, story_id),
  KEY story_newest (story_id, created_at, id),
  KEY story_score (story_id, score, created_at, id),
  KEY by_user (user_id, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_comments (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  story_id BIGINT UNSIGNED NOT NULL,
  chapter_id BIGINT UNSIGNED NULL,
  parent_id BIGINT UNSIGNED NULL,
  content TEXT NOT NULL,
  likes_count INT UNSIGNED NOT NULL DEFAULT 0,
  is_pinned TINYINT UNSIGNED NOT NULL DEFAULT 0,
  is_hidden TINYINT UNSIGNED NOT NULL DEFAULT 0,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  deleted_at DATETIME NULL,
  PRIMARY KEY (id),
  KEY chapter_time (chapter_id, deleted_at, is_hidden, is_pinned, created_at, id),
  KEY story_time (story_id, deleted_at, is_hidden, is_pinned, created_at, id),
  KEY chapter_top (chapter_id, deleted_at, is_hidden, is_pinned, likes_count, created_at, id),
  KEY story_top (story_id, deleted_at, is_hidden, is_pinned, likes_count, created_at, id),
  KEY by_user (user_id, created_at),
  KEY replies (parent_id, deleted_at, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_refresh_tokens (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id BIGINT UNSIGNED NOT NULL,
  token_hash BINARY(32) NOT NULL,
  device_id VARCHAR(120) COLLATE utf8mb4_nopad_bin NULL,
  user_agent_hash BINARY(32) NULL,
  ip_hash BINARY(32) NULL,
  issued_at DATETIME NOT NULL,
  expires_at DATETIME NOT NULL,
  last_used_at DATETIME NULL,
  revoked_at DATETIME NULL,
  PRIMARY KEY (id),
  UNIQUE KEY token_hash (token_hash),
  KEY user_active (user_id, revoked_at, expires_at),
  KEY by_expires_at (expires_at),
  KEY by_last_used_at (last_used_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
