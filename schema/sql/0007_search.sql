-- Search in Vietnamese: names and aliases of a story, folded (đ = d, no accents) and each token padded to at least
-- three letters, so that FULLTEXT keeps two-letter syllables whatever innodb_ft_min_token_size is.

ALTER TABLE wp_novel_stories ADD COLUMN search_text TEXT COLLATE utf8mb4_nopad_bin NULL;

ALTER TABLE wp_novel_stories ADD FULLTEXT INDEX search (search_text);
