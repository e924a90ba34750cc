// Redis over a plain socket, and the two writes of every change: look and decide, then MULTI ... EXEC.
"use strict";
const net = require("node:net");

class Lost extends Error {}                            // the connection: whatever was sent may have been executed
class Refused extends Error {}

// Errors that mean "not now", and are treated as a lost connection.
const NOT_NOW = /^(LOADING|MASTERDOWN|UNBLOCKED|TRYAGAIN|CLUSTERDOWN|.*max number of clients reached)/;
const PATIENCE = 10_000, TRIES = 100;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// One connection. `send` writes some commands at once and answers with their replies, errors among them.
class Connection {
  constructor(url) {
    const { hostname, port, pathname, username, password } = new URL(url);
    this.waiting = [];
    this.received = Buffer.alloc(0);
    this.socket = net.connect({ host: hostname || "127.0.0.1", port: Number(port || 6379), noDelay: true });
    this.socket.on("data", (data) => this.read(data));
    this.socket.on("error", () => this.close());
    this.socket.on("close", () => this.close());
    // The empty MULTI proves that an access list lets us guard what we write.
    this.first = [...(password ? [["AUTH", ...[username, password].filter(Boolean).map(decodeURIComponent)]] : []),
      ["SELECT", pathname.slice(1) || 0], ["MULTI"], ["EXEC"]];
  }

  async prove() {
    const refusal = (await this.send(this.first)).find((reply) => reply instanceof Error);
    if (refusal) throw refusal;
  }

  send(commands, patience = PATIENCE) {
    const bytes = (text) => Buffer.from(String(text));
    const parts = commands.flatMap((command) => [`*${command.length}\r\n`,
      ...command.flatMap((word) => [`$${bytes(word).length}\r\n`, bytes(word), "\r\n"])]);
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new Lost("not connected"));
      const late = setTimeout(() => this.close(), patience);
      this.waiting.push({ left: commands.length, replies: [], resolve, reject, late });
      this.socket.write(Buffer.concat(parts.map((part) => (Buffer.isBuffer(part) ? part : Buffer.from(part)))));
    });
  }

  read(data) {
    this.received = Buffer.concat([this.received, data]);
    for (let parsed; this.waiting.length && (parsed = parse(this.received, 0));) {
      this.received = this.received.subarray(parsed.end);
      const call = this.waiting[0];
      call.replies.push(parsed.value);
      if (parsed.value instanceof Error && NOT_NOW.test(parsed.value.message)) return this.close();
      if (--call.left === 0) {
        this.waiting.shift();
        clearTimeout(call.late);
        call.resolve(call.replies);
      }
    }
  }

  // Never to be used again: an answer was lost, or may come too late.
  close() {
    this.closed = true;
    this.socket.destroy();
    for (const call of this.waiting.splice(0)) {
      clearTimeout(call.late);
      call.reject(new Lost("the connection to Redis was lost"));
    }
  }
}

// Return one reply and where it ends; null: it is not all there yet.
function parse(buffer, start) {
  const line = buffer.indexOf("\r\n", start);
  if (line < 0) return null;
  const text = buffer.toString("utf8", start + 1, line), count = Number(text);
  switch (String.fromCharCode(buffer[start])) {
    case "+": return { value: text, end: line + 2 };
    case "-": return { value: new Error(text), end: line + 2 };
    case ":": return { value: count, end: line + 2 };
    case "$": {
      if (count < 0) return { value: null, end: line + 2 };
      const end = line + 2 + count;
      return buffer.length < end + 2 ? null : { value: buffer.toString("utf8", line + 2, end), end: end + 2 };
    }
  }
  if (count < 0) return { value: null, end: line + 2 };
  const value = [];
  let end = line + 2;
  for (let n = 0; n < count; n++) {
    const part = parse(buffer, end);
    if (!part) return null;
    value.push(part.value);
    end = part.end;
  }
  return { value, end };
}

// A Redis that connects again when it has to. Its transactions run one after the other.
class Redis {
  constructor(url) {
    this.url = url;
    this.last = Promise.resolve();
  }

  async connection() {
    if (this.isClosed) throw new Lost("closed");
    if (!this.open || this.open.closed) {
      this.open = new Connection(this.url);
      this.opening = this.open.prove();
    }
    await this.opening;
    return this.open;
  }

  // Commands without a guard, which may be sent twice.
  async plain(commands, patience) {
    const replies = await (await this.connection()).send(commands, patience);
    const error = replies.find((reply) => reply instanceof Error);
    if (error) throw error;
    return replies;
  }

  // Run a transaction. look: the commands up to MULTI. decide: given their answers, returns `change`, the commands within
  // MULTI, or none if there is nothing to change; and `answer`, a value or what makes one of the answers of EXEC.
  // isPop: it must not be sent twice.
  transact(look, decide, isPop = false) {
    const turn = this.last.then(() => this.attempt(look, decide, isPop));
    this.last = turn.catch(() => {});
    return turn;
  }

  async attempt(look, decide, isPop) {
    for (let tries = 0; tries < TRIES; tries++) {
      let isSent = false;
      try {
        const connection = await this.connection();
        const seen = await connection.send(look);
        const error = seen.find((reply) => reply instanceof Error);
        let decision;
        try {
          if (error) throw error;
          decision = decide(seen.filter((_, n) => look[n][0] !== "WATCH"));
        } finally {
          if (!decision?.change) await connection.send([["UNWATCH"]]);
        }
        if (!decision.change) return decision.answer;
        isSent = true;
        const done = (await connection.send([["MULTI"], ...decision.change, ["EXEC"]])).at(-1);
        if (done instanceof Error) throw done;
        if (done === null) {                           // a watched key has changed: look again
          await sleep(tries && Math.random() * 20);
          continue;
        }
        const wrong = done.find((reply) => reply instanceof Error);
        if (wrong) throw new Error(`a person has to look: ${wrong.message}`);
        return typeof decision.answer === "function" ? decision.answer(done) : decision.answer;
      } catch (error) {
        if (!(error instanceof Lost) || this.isClosed || (isPop && isSent)) throw error;
        await sleep(100 + Math.random() * 100);
      }
    }
    throw new Lost("Redis does not let this change through");
  }

  close() {
    this.isClosed = true;
    this.open?.close();
  }
}

module.exports = { Redis, Lost, Refused, sleep };
