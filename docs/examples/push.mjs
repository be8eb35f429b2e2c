// node push.mjs stories|chapters BATCH.json
// Reads NOVEL_PUBLIC_URL, NOVEL_PUSH_KEY_ID and NOVEL_PUSH_SECRET. Node 18, no packages.
import { createHash, createHmac, randomBytes, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

const [kind, file] = process.argv.slice(2);
const { NOVEL_PUBLIC_URL, NOVEL_PUSH_KEY_ID, NOVEL_PUSH_SECRET } = process.env;
const path = `/wp-json/novel/v1/ingest/${kind}/bulk`;
const body = readFileSync(file);

const bodySha256 = createHash("sha256").update(body).digest("hex");
const timestamp = String(Math.floor(Date.now() / 1000));
const nonce = randomBytes(16).toString("hex");
const signed = `POST.${path}.${timestamp}.${nonce}.${bodySha256}`;
const answer = await fetch(NOVEL_PUBLIC_URL.replace(/\/$/, "") + path, {
  method: "POST",
  body,
  headers: {
    "Content-Type": "application/json",
    "X-Novel-Key-Id": NOVEL_PUSH_KEY_ID,
    "X-Novel-Timestamp": timestamp,
    "X-Novel-Nonce": nonce,
    "X-Novel-Request-Id": randomUUID(),
    "Idempotency-Key": bodySha256, // the same batch again: the same answer, and nothing twice
    "X-Novel-Signature": createHmac("sha256", NOVEL_PUSH_SECRET).update(signed).digest("hex"),
  },
});
console.log(answer.status, await answer.text());
process.exitCode = answer.ok ? 0 : 1;
