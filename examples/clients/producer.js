// Put tasks in line: node producer.js QUEUE PARAMETERS... [--key KEY] [--in SECONDS] [--retry POLICY]
// Prints the id of each task. Written from docs/protocol.md, "create".
"use strict";
const { createHash, randomBytes, randomUUID } = require("node:crypto");
const { parseArgs } = require("node:util");
const { Redis } = require("./redis.js");

const NAMESPACE = Buffer.from("17761b3b95be5b30861e66b389d901b0", "hex");
const KEEP = 86_400;

// Return the id that a key stands for in a queue: a UUID of version 5.
function idOfKey(queue, key) {
  const id = createHash("sha1").update(NAMESPACE).update(`${queue}\0${key}`).digest().subarray(0, 16);
  id[6] = (id[6] & 0x0f) | 0x50;
  id[8] = (id[8] & 0x3f) | 0x80;
  return id.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// Put a task in line, or have it join the line at `eta`; return its id.
async function enqueue(redis, queue, parameters, { key, eta, retry } = {}) {
  const isText = typeof parameters === "string";
  const task = key === undefined ? randomUUID() : idOfKey(queue, key);
  const hash = `blueque_task_${task}`, kept = `blueque_key_${task}`, now = Date.now() / 1000;
  const keyed = key === undefined ? [] : ["key", key, "keep", KEEP, "enqueued_by", randomBytes(8).toString("hex")];
  const isLater = eta !== undefined && eta > now;
  // To count what is in line, see "Room" in docs/protocol/placement.md.
  const [[most]] = isLater ? [[null]] : await redis.plain([["HMGET", `blueque_queue_${queue}`, "max_pending", "discard"]]);
  if (most !== null) throw new Error(`queue ${queue} is bounded, and this producer does not count its tasks`);
  const look = [["WATCH", hash], ["EXISTS", hash]];
  if (key !== undefined) look.push(["HGET", hash, "enqueued_by"], ["MGET", kept]);
  return redis.transact(look, ([exists, , [wasDeleted] = [null]]) => {
    if (exists || wasDeleted !== null) return { answer: task };
    return { answer: task, change: [
      ["HSET", hash, "status", isLater ? "scheduled" : "pending", "queue", queue,
        "parameters", isText ? parameters : JSON.stringify(parameters), "created", now, "updated", now,
        ...(isText ? [] : ["parameters_encoding", "json"]), ...(retry ? ["retry", retry] : []), ...keyed,
        ...(isLater ? ["eta", eta] : [])],
      ["ZINCRBY", "blueque_queues", 0, queue],
      isLater ? ["ZADD", `blueque_scheduled_tasks_${queue}`, eta, task] : ["LPUSH", `blueque_pending_tasks_${queue}`, task],
      ["ZADD", `blueque_tasks_${queue}`, now, task],
      ...(isLater ? [] : [["ZADD", `blueque_wake_${queue}`, 0, 0]]),
    ] };
  });
}

async function main() {
  const option = { type: "string" };
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { key: option, in: option, retry: option } });
  const [queue, ...parameters] = positionals;
  const redis = new Redis(process.env.BLUEQUE_REDIS_URL || "redis://localhost:6379/0");
  const eta = values.in && Date.now() / 1000 + Number(values.in);
  for (const text of parameters) console.log(await enqueue(redis, queue, text, { ...values, eta }));
  redis.close();
}

module.exports = { enqueue, idOfKey };
if (require.main === module) main().catch((error) => { console.error(error.message); process.exitCode = 1; });
