#!/bin/sh
# sh push.sh stories|chapters BATCH.json
# Reads NOVEL_PUBLIC_URL, NOVEL_PUSH_KEY_ID and NOVEL_PUSH_SECRET. Needs curl and openssl.
set -eu
path="/wp-json/novel/v1/ingest/$1/bulk"

sha256() { openssl dgst -sha256 -r | cut -d ' ' -f 1; }
# HMAC by hand, because others could see a secret among openssl's arguments: the secret, filled up with zeros to
# 64 bytes, each combined with a constant.
padded() {
    for byte in $({ printf %s "$NOVEL_PUSH_SECRET"; head -c 64 /dev/zero; } | head -c 64 | od -An -v -tu1); do
        printf "\\$(printf %03o $((byte ^ $1)))"
    done
}
hmac() { { padded 92; { padded 54; printf %s "$1"; } | openssl dgst -sha256 -binary; } | sha256; }

body_sha256=$(sha256 < "$2")
timestamp=$(date +%s)
nonce=$(openssl rand -hex 16)
uuid=$(openssl rand -hex 16 | sed 's/\(.\{8\}\)\(.\{4\}\).\(.\{3\}\).\(.\{3\}\)\(.\{12\}\).*/\1-\2-4\3-8\4-\5/')

# The Idempotency-Key is the same for the same batch: it gets the same answer again, and nothing is taken twice.
curl --silent --show-error --max-time 60 --data-binary "@$2" --write-out ' %{http_code}\n' \
    --header "Content-Type: application/json" \
    --header "X-Novel-Key-Id: $NOVEL_PUSH_KEY_ID" \
    --header "X-Novel-Timestamp: $timestamp" \
    --header "X-Novel-Nonce: $nonce" \
    --header "X-Novel-Request-Id: $uuid" \
    --header "Idempotency-Key: $body_sha256" \
    --header "X-Novel-Signature: $(hmac "POST.$path.$timestamp.$nonce.$body_sha256")" \
    --fail-with-body "${NOVEL_PUBLIC_URL%/}$path"
