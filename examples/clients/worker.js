// Run the tasks of a queue, each with a program: node worker.js QUEUE PROGRAM [ARGUMENTS...]
// The program gets the parameters on its input. What it prints is the result; a line "progress: TEXT" on its error output
// is progress. Written from docs/protocol.md.
"use strict";
const { spawn } = require("node:child_process");
const { randomBytes } = require("node:crypto");
const { readFileSync, readlinkSync } = require("node:fs");
const { hostname } = require("node:os");
const { createInterface } = require("node:readline");
const { Redis, Lost, Refused, sleep } = require("./redis.js");

const BEAT = Number(process.env.BEAT || 10), LEASE = 6 * BEAT, LOST_AFTER = 60 * BEAT;
const OUTCOME = ["result", "result_encoding", "error", "error_type", "traceback", "exit_code", "signal", "memory_peak",
  "cpu_seconds", "leaked", "lost_node", "last_seen", "finished"];
const OWNER = ["node", "token", "pid", "pid_start", "boot", "ns", "started", "reclaimed_node", "files", "progress",
  "progress_at", "progress_first", "lock", "counted", "devices", "stack"];
const TASK = ["status", "queue", "node", "token", "pid", "finished_by", "error_type", "cancel", "retry", "interruptions", "files",
  "priority", "needs", "lock", "counted", "attempt", "events", "started", "dependents", "group",
  "reclaimed_node", "pid_start", "interrupt", "interrupted_at", "requeued", "stack", "eta", "created", "updated", "start_before",
  "expired_to", "broken", "broken_by", "inputs", "keep", "enqueued_by", "tags"];
// The events by which a task ends, or by which one that has ended runs again.
const SETTLED = ["complete", "failed", "cancelled", "retried", "postponed", "requeued", "restored", "reasserted"];
const POLICY = { max: 3, backoff: 10, factor: 2, jitter: 0.1, on: [], exit_codes: [], interruptions: 3 };

const clock = () => Date.now() / 1000;
const random = () => randomBytes(16).toString("hex");
const zip = (names, values) => Object.fromEntries(names.map((name, n) => [name, values[n]]));
const pairs = (flat) => Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, n) => flat.slice(2 * n, 2 * n + 2)));
const flat = (fields) => Object.entries(fields).filter(([, value]) => value !== undefined && value !== null).flat();
const log = (text) => console.error(text);

// What tells a process from a later one with the same pid.
function identity(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return {
    pid_start: stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19],
    boot: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
    ns: readlinkSync("/proc/self/ns/pid").match(/\d+/)[0],
  };
}

// Return the line of a task: its name, its key, its priority and the lock that its tasks need.
function lineOf(queue, { priority, needs }) {
  const name = [priority || 0, ...(needs ? [needs] : [])].join(",");
  const lock = (needs || "").match(/(?:^|,)lock:([^=]+)=(\d+)$/);
  return {
    name, priority: priority || 0, key: name === "0" ? `blueque_pending_tasks_${queue}` : `blueque_line_${name}_${queue}`,
    lock: lock && decodeURIComponent(lock[1]),
  };
}

const listLine = (queue, line) => [
  ...(line.name === "0" ? [] : [["ZADD", `blueque_lines_${queue}`, line.priority, line.name]]),
  ...(line.lock ? [["SADD", `blueque_waiting_${line.lock}`, `${line.name}_${queue}`]] : []),
];

// The commands of NOTE. past: the fields of the task. facts: in the order of the page.
function note(queue, task, what, by, past, facts, now, attempt = Number(past.attempt || 0)) {
  const told = { event: what, at: now, attempt, by, ...facts };
  for (const [name, value] of Object.entries(told)) if (typeof value === "string") told[name] = value.slice(0, 500);
  const text = JSON.stringify(told), count = Number(past.events || 0);
  const day = `blueque_stats_${new Date(now * 1000).toISOString().slice(0, 10)}_${queue}`, totals = `blueque_totals_${queue}`;
  const commands = [["RPUSH", `blueque_${count < 20 ? "history" : "recent"}_${task}`, text]];
  if (count >= 20) commands.push(["LTRIM", `blueque_recent_${task}`, -80, -1]);
  commands.push(["XADD", `blueque_events_${queue}`, "MAXLEN", "~", 10000, "*", "task", task, "told", text]);
  commands.push(["HINCRBY", day, what, 1], ["HINCRBY", totals, what, 1]);
  if (facts.took !== undefined) {
    commands.push(["HINCRBY", day, `${what}_${bucket(facts.took)}`, 1], ["HINCRBY", totals, `${what}_${bucket(facts.took)}`, 1],
      ["HINCRBYFLOAT", day, `${what}_seconds`, facts.took], ["HINCRBYFLOAT", totals, `${what}_seconds`, facts.took],
      ["HINCRBYFLOAT", day, `${what}_squares`, facts.took ** 2]);
  }
  if (facts.error_type !== undefined) {
    const type = /^[A-Za-z_][\w.-]{0,99}$/.test(facts.error_type) ? facts.error_type : "other";
    commands.push(["HINCRBY", day, `error:${type}`, 1]);
  }
  commands.push(["EXPIREAT", day, (Math.floor(now / 86400) + 91) * 86400]);
  if (SETTLED.includes(what) && past.dependents) commands.push(["ZADD", "blueque_unsettled_tasks", now, task]);
  if (SETTLED.includes(what) && past.group) commands.push(["ZADD", "blueque_unsettled_members", now, task]);
  return commands;
}

function bucket(seconds) {
  for (const [letter, size, end] of [["s", 1, 60], ["m", 60, 3600], ["h", 3600, 86400]]) {
    if (seconds < end) return letter + Math.floor(seconds / size);
  }
  return `d${Math.min(Math.floor(seconds / 86400), 366)}`;
}

// Return the policy that a field holds; null: there is none, or none that is understood.
function parsePolicy(text) {
  try {
    const given = JSON.parse(text);
    if (Number.isInteger(given)) return { ...POLICY, max: given };
    const isKnown = given !== null && Object.keys(given).every((name) => name in POLICY);
    return isKnown ? { ...POLICY, ...given } : null;
  } catch {
    return null;
  }
}

class Listener {
  constructor(url, queue, program) {
    Object.assign(this, { url, queue, program, node: `${hostname()}_${process.pid}`, beats: 0 });
    [this.redis, this.heart] = [new Redis(url), new Redis(url)];
    this.own = `blueque_reserved_tasks_${queue}_${this.node}`;
    this.registration = `blueque_listener_${queue}_${this.node}`;
    this.orders = `blueque_orders_${queue}_${this.node}`;
  }

  async run() {
    await this.register();
    const timer = setInterval(() => this.beat(), BEAT * 1000);
    while (!this.isLeaving) {
      try {
        const task = this.isPaused ? null : await this.take();
        if (task) await this.work(task);
        else await this.wait([`blueque_wake_${this.queue}`, this.orders], BEAT);
      } catch (error) {
        if (error instanceof Refused) await this.register();
        else if (error instanceof Lost) await sleep(this.isLeaving ? 0 : 1000);
        else throw error;
        this.isUnsure = true;
      }
    }
    clearInterval(timer);
    await this.deregister();
    this.redis.close();
    this.heart.close();
  }

  leave() {
    this.isLeaving = true;
    this.waiter?.close();
  }

  async register() {
    const instance = random(), now = clock(), { queue, node } = this;
    await this.redis.transact([
      ["WATCH", this.registration, `blueque_listeners_${queue}`],
      ["HGETALL", this.registration],
      ["SISMEMBER", `blueque_listeners_${queue}`, node],
    ], ([fields, isMember]) => {
      const there = pairs(fields), ours = identity(process.pid);
      if (there.instance === instance) return {};
      const isDead = there.state !== "alive" || (there.boot === ours.boot && there.ns === ours.ns);
      if (!isDead) throw new Error(`another listener has the name ${node}`);
      const facts = { beat_every: BEAT, lease: LEASE, lost_after: LOST_AFTER, pid: process.pid, ...ours, version: "example" };
      return { change: [
        ["DEL", this.registration],
        ["HSET", this.registration, "instance", instance, "state", "alive", "beat", 0, "beat_at", now, ...flat(facts)],
        ["ZADD", `blueque_nodes_${queue}`, now, node],
        ...(isMember ? [] : [["SADD", `blueque_listeners_${queue}`, node], ["ZINCRBY", "blueque_queues", 1, queue]]),
      ] };
    });
    this.instance = instance;
    log(`register node=${node}`);
  }

  // Show that we live, and do what is wanted of us. Never fails: the next beat tries again.
  async beat() {
    const { queue, node, attempt } = this, number = ++this.beats, now = clock();
    let order, standing;
    try {
      await this.heart.transact([
        ["WATCH", this.registration, `blueque_listeners_${queue}`],
        ["HMGET", this.registration, "instance", "state", "order"],
        ["SMEMBERS", `blueque_listeners_${queue}`],
        ...(attempt ? [["HMGET", `blueque_task_${attempt.task}`, "status", "token", "node", "attempt", "cancel", "error_type",
          "created", "stack", "interrupt"]] : []),
      ], ([[instance, state, wanted], members, fields]) => {
        if (instance !== this.instance || state !== "alive") throw new Refused("not registered");
        [order, standing] = [wanted, fields];
        return { change: [
          ["LRANGE", this.own, 0, -1],
          ["HSET", this.registration, "beat", number, "beat_at", now],
          ["ZADD", `blueque_nodes_${queue}`, now, node],
          ...(members.includes(node) ? [] : [["SADD", `blueque_listeners_${queue}`, node], ["ZINCRBY", "blueque_queues", 1, queue]]),
        ] };
      });
    } catch (error) {
      if (error instanceof Refused && attempt) await this.register().catch((again) => log(again.message));
      return log(`beat: ${error.message}`);
    }
    this.isPaused = order === "pause";
    if (order === "drain") this.leave();
    if (!attempt || attempt !== this.attempt || attempt.hasEnded) return;
    const [status, token, holder, , cancel] = standing;
    if (status !== "started" || token !== attempt.token || holder !== node) attempt.isLost = status !== "reserved";
    if (attempt.isLost || cancel) this.end(attempt);
    attempt.isCancelled = Boolean(cancel);
  }

  // Wait for a marker on a connection of its own, which `leave` and the end of a task may close.
  async wait(keys, seconds) {
    const waiter = this.waiter = new Redis(this.url);
    try {
      const [marker] = await waiter.plain([["BZPOPMIN", ...keys, seconds]], (seconds + 10) * 1000);
      if (marker?.[0] === this.orders) await this.beat();
      else this.hasMarker = Boolean(marker);
    } finally {
      waiter.close();
    }
  }

  // Reserve the next task, if there is one.
  async take() {
    if (this.isUnsure) {
      await this.beat();
      const [held] = await this.redis.plain([["LRANGE", this.own, 0, -1]]);
      for (const task of held.reverse()) {
        const reserved = await this.reserve(task);
        if (reserved.fields) return reserved;
      }
      this.isUnsure = false;
    }
    for (;;) {
      const [task, left] = await this.pop();
      if (!task) return null;
      const reserved = await this.reserve(task);
      if (reserved.fields && left && this.hasMarker) await this.wake();
      this.hasMarker = this.hasMarker && !reserved.fields;
      if (reserved.fields) return reserved;
      if (reserved.isFull) return null;
    }
  }

  async wake() {
    await this.redis.plain([["ZADD", `blueque_wake_${this.queue}`, 0, 0]]);
  }

  async pop() {
    const { queue } = this;
    return this.redis.transact([
      ["WATCH", this.registration, `blueque_queue_${queue}`, `blueque_lines_${queue}`],
      ["HMGET", this.registration, "instance", "state"],
      ["HMGET", `blueque_queue_${queue}`, "paused", "max_running"],
      ["ZCARD", `blueque_lines_${queue}`],
    ], ([[instance, state], [paused]]) => {
      if (instance !== this.instance || state !== "alive") throw new Refused("not registered");
      if (paused !== null) return { answer: [null, 0] };
      return {
        change: [["RPOPLPUSH", `blueque_pending_tasks_${queue}`, this.own], ["LLEN", `blueque_pending_tasks_${queue}`]],
        answer: (done) => done,
      };
    }, true);
  }

  // Make a popped task our next attempt: { task, token, fields }; without fields: it is not to be had, or the queue isFull.
  // isLimited: the queue has a limit, as the first look has shown.
  async reserve(task, token = random(), isLimited = false) {
    const { queue, node, own } = this, now = clock(), hash = `blueque_task_${task}`;
    const counted = `blueque_counted_tasks_${queue}`, started = `blueque_started_tasks_${queue}`;
    const found = await this.redis.transact([
      ["WATCH", this.registration, hash, own, `blueque_queue_${queue}`, ...(isLimited ? [counted, started] : [])],
      ["HMGET", this.registration, "instance", "state"],
      ["HGETALL", hash],
      ["LPOS", own, task],
      ["HGET", `blueque_queue_${queue}`, "max_running"],
      ...(isLimited ? [["SCARD", counted], ["SCARD", started]] : []),
    ], ([[instance, state], values, place, limit, ...counts]) => {
      if (instance !== this.instance || state !== "alive") throw new Refused("not registered");
      const fields = pairs(values), line = lineOf(queue, fields);
      if (fields.status === "reserved" && fields.token === token) return { answer: { task, token, fields } };
      if (place === null) return { answer: {} };
      if (["reserved", "started"].includes(fields.status) && fields.node === node) return { answer: {} };
      if (fields.status !== "pending" || fields.queue !== queue) return { change: [["LREM", own, 1, task]], answer: {} };
      if ((limit !== null) !== isLimited) return { answer: { isLimited: limit !== null } };
      const isFull = counts.some((count) => count >= Number(limit));
      if (fields.needs || isFull) {                    // we have no resources, and take no locks
        return {
          change: [["LREM", own, 1, task], ["RPUSH", line.key, task], ...listLine(queue, line)],
          answer: { isFull, isMisplaced: Boolean(fields.needs) },
        };
      }
      const attempt = Number(fields.attempt || 0) + 1;
      const since = Math.max(...["created", "eta", "queued"].map((name) => Number(fields[name] || 0)));
      return {
        answer: { task, token, fields: { ...fields, attempt } },
        change: [
          ...(isLimited ? [["SADD", counted, task]] : []),
          ["HSET", hash, "status", "reserved", "node", node, "token", token, "attempt", attempt, "updated", now,
            ...(isLimited ? ["counted", 1] : []), "events", Number(fields.events || 0) + 1],
          ["HDEL", hash, "pid", ...(fields.attempt ? [] : OUTCOME)],
          ...note(queue, task, "reserved", node, fields, { took: Math.max(now - since, 0) }, now, attempt),
          ...(fields.attempt ? [] : [["ZADD", `blueque_tasks_${queue}`, fields.created || now, task]]),
        ],
      };
    });
    if (found.isMisplaced) await this.wake();
    return found.isLimited === undefined ? found : this.reserve(task, token, found.isLimited);
  }

  // Run a task to its end and record that.
  async work(attempt) {
    this.attempt = attempt;
    const child = spawn("sh", ["-c", 'read go && exec "$@"', "sh", ...this.program], { detached: true });
    attempt.child = child;
    const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
    let output = "";
    child.stdin.on("error", () => {});                 // it need not read its parameters
    child.stdout.setEncoding("utf8").on("data", (text) => { output += text; });
    createInterface({ input: child.stderr }).on("line", (line) => {
      if (line.startsWith("progress: ")) this.progress(attempt, line.slice(10, 210));
    });
    try {
      await this.change(attempt, ["reserved"], (past, now) => this.started(attempt, child.pid, past, now));
    } catch (error) {
      this.end(attempt);
      await ended;
      this.attempt = null;
      if (!(error instanceof Refused)) throw error;
      return log(`start task=${attempt.task}: ${error.message}`);
    }
    const { time_limit: limit, parameters } = attempt.fields;
    const timer = limit && setTimeout(() => { attempt.isTooLong = true; this.end(attempt); }, Number(limit) * 1000);
    child.stdin.end(`go\n${parameters}`);
    const ending = ended.then(() => { attempt.hasEnded = true; });
    while (!attempt.hasEnded) await Promise.race([ending, this.wait([this.orders], BEAT).catch(() => sleep(100))]);
    this.waiter.close();
    clearTimeout(timer);
    await this.report(attempt, await ended, output.replace(/\n$/, ""));
    this.attempt = null;
  }

  started(attempt, pid, past, now) {
    const { queue, node } = this, { task } = attempt;
    return [
      ["SADD", `blueque_started_tasks_${queue}`, `${node} ${pid} ${task}`],
      ["HSET", `blueque_task_${task}`, "status", "started", "pid", pid, ...flat(identity(pid)), "started", now, "updated", now,
        "events", Number(past.events || 0) + 1],
      ...note(queue, task, "started", node, past, { pid }, now),
    ];
  }

  // End the processes of an attempt, which are a group of their own.
  end(attempt) {
    const { child, fields } = attempt;
    const signal = (name) => { try { if (!attempt.hasEnded) process.kill(-child.pid, name); } catch { /* it has ended */ } };
    signal("SIGTERM");
    setTimeout(() => signal("SIGKILL"), Number(fields.grace || 10) * 1000).unref();
  }

  async progress(attempt, text) {
    const line = text.replace(/[\x00-\x1f\x7f]/g, " ");
    await this.change(attempt, ["started"], (_, now) => [
      ["HSET", `blueque_task_${attempt.task}`, "progress", line, "progress_at", now, "updated", now],
      ["HSETNX", `blueque_task_${attempt.task}`, "progress_first", `${now} ${line}`],
    ]).catch((error) => log(`progress task=${attempt.task}: ${error.message}`));
  }

  // Record how an attempt has ended, until Redis takes it.
  async report(attempt, { code, signal }, output) {
    const finished = clock();
    for (;;) {
      try {
        if (attempt.isLost) return log(`lost task=${attempt.task}`);
        if (attempt.isCancelled) return await this.change(attempt, ["started"], (past, now) => this.cancelled(attempt, past, now));
        if (code === 0 && !attempt.isTooLong) {
          return await this.change(attempt, ["started"], (past, now) => this.completed(attempt, output, past, finished, now));
        }
        const facts = attempt.isTooLong ? { error_type: "time_limit" }
          : signal ? { error_type: "signal", signal } : { error_type: "exit", exit_code: code };
        const error = attempt.isTooLong ? "the task ran longer than its time limit"
          : signal ? `the program was ended by ${signal}` : `the program exited with ${code}`;
        return await this.change(attempt, ["started"], (past, now) => this.failed(attempt, error, facts, past, finished, now));
      } catch (error) {
        if (error instanceof Refused) return log(`end task=${attempt.task}: ${error.message}`);
        if (!(error instanceof Lost)) throw error;
        await sleep(1000);
      }
    }
  }

  // Run a transaction of the owner of an attempt; change: given the fields and the time, returns the commands.
  async change({ task, token }, statuses, change) {
    const now = clock();
    return this.redis.transact([
      ["WATCH", `blueque_task_${task}`], ["HMGET", `blueque_task_${task}`, ...TASK],
    ], ([values]) => {
      const past = zip(TASK, values);
      if (past.finished_by === token) return {};                   // our own success
      if (statuses[0] === "reserved" && past.status === "started" && past.token === token) return {};
      const isOurs = statuses.includes(past.status) && past.token === token && past.node === this.node;
      const isDeclaredLost = statuses[0] === "started" && past.status === "failed" && past.token === token
        && ["lost", "poison"].includes(past.error_type);
      if (!isOurs && !isDeclaredLost) throw new Refused("the attempt is not ours any more");
      return { change: change(past, now) };
    });
  }

  // What `end` writes. gone: the fields that it removes besides the outcome of an earlier end; enter: where the task goes.
  ended({ task, token }, past, now, { status, fields, gone = [], enter, what, facts }) {
    const { queue, node } = this, hash = `blueque_task_${task}`, day = new Date(now * 1000).toISOString().slice(0, 10);
    return [
      ...(past.status === "failed" ? [
        ["LREM", `blueque_failed_tasks_${queue}`, -1, task],
        ["HINCRBY", `blueque_stats_${day}_${queue}`, "found", 1], ["HINCRBY", `blueque_totals_${queue}`, "found", 1],
        ["EXPIREAT", `blueque_stats_${day}_${queue}`, (Math.floor(now / 86400) + 91) * 86400],
      ] : [
        ["LREM", this.own, 0, task],
        ...(past.status === "started" ? [["SREM", `blueque_started_tasks_${queue}`, `${past.node} ${past.pid} ${task}`]] : []),
        ...(past.lock ? [["SREM", `blueque_lock_${past.lock}`, task]] : []),
        ...(past.counted === "1" ? [["SREM", `blueque_counted_tasks_${queue}`, task]] : []),
        ...(past.lock || past.counted === "1" ? [["ZADD", `blueque_wake_${queue}`, 0, 0]] : []),
      ]),
      ["HDEL", hash, ...OUTCOME, ...gone],
      ["HSET", hash, "status", status, ...flat(fields), "finished_by", token, "updated", now,
        "events", Number(past.events || 0) + 1],
      enter,
      ...note(queue, task, what, node, past, facts, now),
    ];
  }

  completed(attempt, result, past, finished, now) {
    return this.ended(attempt, past, now, {
      status: "complete", fields: { finished, result }, enter: ["LPUSH", `blueque_complete_tasks_${this.queue}`, attempt.task],
      what: "complete", facts: { took: Math.max(finished - past.started, 0) },
    });
  }

  failed(attempt, error, reasons, past, finished, now) {
    const { queue } = this, { task, fields } = attempt, took = Math.max(finished - past.started, 0);
    const policy = parsePolicy(fields.retry ?? null), failures = Number(fields.failures || 0);
    const isMeant = !policy?.on.length && !policy?.exit_codes.length
      || policy.on.includes(reasons.error_type) || policy.exit_codes.includes(reasons.exit_code);
    if (!policy || failures >= policy.max || !isMeant) {
      return this.ended(attempt, past, now, {
        status: "failed", fields: { finished, error, ...reasons }, enter: ["LPUSH", `blueque_failed_tasks_${queue}`, task],
        what: "failed", facts: { error, error_type: reasons.error_type, took },
      });
    }
    if (past.cancel) return this.cancelled(attempt, past, now);
    const wait = Math.min(policy.backoff * policy.factor ** failures, 86400);
    const eta = now + wait * (1 + policy.jitter * (2 * Math.random() - 1));
    return this.ended(attempt, past, now, {
      status: "scheduled", gone: OWNER, enter: ["ZADD", `blueque_scheduled_tasks_${queue}`, eta, task],
      fields: { eta, failures: failures + 1, last_error: error, last_error_type: reasons.error_type },
      what: "retried", facts: { error, eta, error_type: reasons.error_type, took },
    });
  }

  // The end of an attempt on request.
  cancelled(attempt, past, now) {
    return this.ended(attempt, past, now, {
      status: "cancelled", fields: { finished: now }, gone: ["cancel"],
      enter: ["LPUSH", `blueque_cancelled_tasks_${this.queue}`, attempt.task],
      what: "cancelled", facts: { took: Math.max(now - past.started, 0) },
    });
  }

  async deregister() {
    const { queue, node } = this;
    await this.redis.transact([
      ["WATCH", this.registration, `blueque_listeners_${queue}`, this.own],
      ["HMGET", this.registration, "instance", "state"],
      ["SISMEMBER", `blueque_listeners_${queue}`, node],
      ["LLEN", this.own],
    ], ([[instance], isMember, held]) => instance !== this.instance || held ? {} : { change: [
      ["DEL", this.registration, this.orders],
      ["ZREM", `blueque_nodes_${queue}`, node],
      ...(isMember ? [["SREM", `blueque_listeners_${queue}`, node], ["ZINCRBY", "blueque_queues", -1, queue]] : []),
    ] });
    await this.wake();
    log(`deregister node=${node}`);
  }
}

function main() {
  const [queue, ...program] = process.argv.slice(2);
  if (!program.length) throw new Error("usage: node worker.js QUEUE PROGRAM [ARGUMENTS...]");
  const listener = new Listener(process.env.BLUEQUE_REDIS_URL || "redis://localhost:6379/0", queue, program);
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => listener.leave());
  listener.run().catch((error) => { log(error.stack); process.exit(1); });
}

main();
