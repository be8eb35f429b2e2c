<?php
// php push.php stories|chapters BATCH.json
// Reads NOVEL_PUBLIC_URL, NOVEL_PUSH_KEY_ID and NOVEL_PUSH_SECRET. PHP 8, no extensions.
[, $kind, $file] = $argv;
$path = "/wp-json/novel/v1/ingest/$kind/bulk";
$body = file_get_contents($file);

$body_sha256 = hash('sha256', $body);
$timestamp = (string) time();
$nonce = bin2hex(random_bytes(16));
$signed = "POST.$path.$timestamp.$nonce.$body_sha256";
$uuid = vsprintf('%s%s-%s-4%.3s-8%.3s-%s%s%s', str_split(bin2hex(random_bytes(16)), 4));
$headers = [
    'Content-Type: application/json',
    'X-Novel-Key-Id: ' . getenv('NOVEL_PUSH_KEY_ID'),
    "X-Novel-Timestamp: $timestamp",
    "X-Novel-Nonce: $nonce",
    "X-Novel-Request-Id: $uuid",
    "Idempotency-Key: $body_sha256", // the same batch again: the same answer, and nothing twice
    'X-Novel-Signature: ' . hash_hmac('sha256', $signed, getenv('NOVEL_PUSH_SECRET')),
];
$request = ['method' => 'POST', 'header' => $headers, 'content' => $body, 'ignore_errors' => true, 'timeout' => 60];
$answer = file_get_contents(
    rtrim(getenv('NOVEL_PUBLIC_URL'), '/') . $path,
    context: stream_context_create(['http' => $request]),
);
if ($answer === false) {
    exit(1); // PHP has said why
}
$status = (int) explode(' ', $http_response_header[0])[1];
echo "$status $answer\n";
exit($status < 300 ? 0 : 1);
