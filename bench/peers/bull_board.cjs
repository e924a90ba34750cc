// Fills a queue of BullMQ, or shows it with bull-board: node bull_board.cjs fill|serve URL COUNT|PORT
const { Queue } = require("bullmq");
const [, , verb, url, number] = process.argv;
const { hostname, port } = new URL(url);
const queue = new Queue("bench", { connection: { host: hostname, port: Number(port) } });

async function fill(count) {
  for (let first = 0; first < count; first += 1000) {
    const size = Math.min(1000, count - first);
    await queue.addBulk(Array.from({ length: size }, () => ({ name: "note", data: { text: "x".repeat(100) } })));
  }
  await queue.close();
}

function serve(port) {
  const { createBullBoard } = require("@bull-board/api");
  const { BullMQAdapter } = require("@bull-board/api/bullMQAdapter");
  const { ExpressAdapter } = require("@bull-board/express");
  const adapter = new ExpressAdapter();
  createBullBoard({ queues: [new BullMQAdapter(queue)], serverAdapter: adapter });
  const app = require("express")();
  app.use("/", adapter.getRouter());
  app.listen(port, "127.0.0.1");
}

if (verb === "fill") fill(Number(number));
else serve(Number(number));
