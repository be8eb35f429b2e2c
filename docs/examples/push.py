# python3 push.py stories|chapters BATCH.json
# Reads NOVEL_PUBLIC_URL, NOVEL_PUSH_KEY_ID and NOVEL_PUSH_SECRET. Python 3, nothing else.
import hashlib
import hmac
import http.client
import os
import pathlib
import secrets
import sys
import time
import urllib.parse
import uuid

kind, file = sys.argv[1:]
url = urllib.parse.urlsplit(os.environ["NOVEL_PUBLIC_URL"])
path = f"/wp-json/novel/v1/ingest/{kind}/bulk"
body = pathlib.Path(file).read_bytes()

body_sha256 = hashlib.sha256(body).hexdigest()
timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
signed = f"POST.{path}.{timestamp}.{nonce}.{body_sha256}"
headers = {
    "Content-Type": "application/json",
    "X-Novel-Key-Id": os.environ["NOVEL_PUSH_KEY_ID"],
    "X-Novel-Timestamp": timestamp,
    "X-Novel-Nonce": nonce,
    "X-Novel-Request-Id": str(uuid.uuid4()),
    "Idempotency-Key": body_sha256,  # the same batch again: the same answer, and nothing twice
    "X-Novel-Signature": hmac.new(os.environ["NOVEL_PUSH_SECRET"].encode(), signed.encode(), "sha256").hexdigest(),
}
connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
connection = connect(url.netloc, timeout=60)
connection.request("POST", url.path.rstrip("/") + path, body, headers)
answer = connection.getresponse()
sys.stdout.write(f"{answer.status} {answer.read().decode()}\n")
sys.exit(answer.status >= 300)
