-- Stories, their names and genres, chapters and their bodies (§6.1 to §6.6). Identifiers compare byte by byte; bodies
-- are LONGBLOB, because they hold compressed bytes.

CREATE TABLE IF NOT EXISTS wp_novel_stories (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  source VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL,
  source_story_id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
  slug VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
  title VARCHAR(255) NOT NULL,
  title_original VARCHAR(255) NULL,
  author_name VARCHAR(191) NULL,
  status TINYINT UNSIGNED NOT NULL DEFAULT 0,
  cover_url VARCHAR(1024) NULL,
  summary MEDIUMTEXT NULL,
  language VARCHAR(10) NOT NULL DEFAULT 'vi',
  chapter_count INT UNSIGNED NOT NULL DEFAULT 0,
  word_count INT UNSIGNED NOT NULL DEFAULT 0,
  popularity_score DECIMAL(14,4) NOT NULL DEFAULT 0,
  rating_avg DECIMAL(4,2) NULL,
  rating_count INT UNSIGNED NOT NULL DEFAULT 0,
  last_chapter_no DECIMAL(10,2) NULL,
  cache_version INT UNSIGNED NOT NULL DEFAULT 0,
  view_count BIGINT UNSIGNED NOT NULL DEFAULT 0,
  published_at DATETIME NULL,
  updated_at_source DATETIME NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  deleted_at DATETIME NULL,
  PRIMARY KEY (id),
  UNIQUE KEY source_story (source, source_story_id),
  UNIQUE KEY source_slug (source, slug),
  KEY list_updated (deleted_at, status, updated_at, id),
  KEY list_popular (deleted_at, status, popularity_score, id),
  KEY list_newest (deleted_at, status, published_at, id),
  KEY source_updated (deleted_at, source, status, updated_at, id),
  KEY source_popular (deleted_at, source, status, popularity_score, id),
  KEY source_newest (deleted_at, source, status, published_at, id),
  KEY by_updated_at_source (updated_at_source),
  KEY by_author (author_name),
  FULLTEXT KEY names (title, title_original, author_name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_story_aliases (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  story_id BIGINT UNSIGNED NOT NULL,
  alias VARCHAR(255) NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY story_alias (story_id, alias),
  FULLTEXT KEY alias (alias)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_genres (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  slug VARCHAR(120) COLLATE utf8mb4_nopad_bin NOT NULL,
  name VARCHAR(120) NOT NULL,
  created_at DATETIME NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY slug (slug),
  UNIQUE KEY name (name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_story_genres (
  story_id BIGINT UNSIGNED NOT NULL,
  genre_id BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (story_id, genre_id),
  KEY by_genre (genre_id, story_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_chapters (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  story_id BIGINT UNSIGNED NOT NULL,
  source_chapter_id VARCHAR(191) COLLATE utf8mb4_nopad_bin NULL,
  chapter_no DECIMAL(10,2) NOT NULL,
  slug VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
  title VARCHAR(255) NOT NULL,
  is_published TINYINT UNSIGNED NOT NULL DEFAULT 1,
  word_count INT UNSIGNED NOT NULL DEFAULT 0,
  read_count BIGINT UNSIGNED NOT NULL DEFAULT 0,
  published_at DATETIME NULL,
  updated_at_source DATETIME NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  deleted_at DATETIME NULL,
  PRIMARY KEY (id),
  UNIQUE KEY story_number (story_id, chapter_no),
  UNIQUE KEY story_slug (story_id, slug),
  UNIQUE KEY story_source_chapter (story_id, source_chapter_id),
  KEY story_updated_at_source (story_id, updated_at_source),
  KEY list_number (story_id, is_published, deleted_at, chapter_no, id),
  KEY list_published (story_id, is_published, deleted_at, published_at, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;

CREATE TABLE IF NOT EXISTS wp_novel_chapter_content (
  chapter_id BIGINT UNSIGNED NOT NULL,
  content_raw LONGBLOB NOT NULL,
  content_html LONGBLOB NULL,
  content_hash BINARY(32) NULL,
  content_size INT UNSIGNED NOT NULL DEFAULT 0,
  content_encoding VARCHAR(10) NOT NULL DEFAULT 'none',
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (chapter_id),
  KEY by_hash (content_hash)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
