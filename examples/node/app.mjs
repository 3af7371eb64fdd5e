// Shows what survives a sleep: a number in memory and lines of a log on a volume that is held open.
//
// GET /        counts, with the process's id
// GET /random  bytes of the kernel, and the name of this copy
// GET /readyz
import { appendFileSync, fstatSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { randomBytes, wasRestored } from "./renewal.mjs";

const port = Number(process.env.PORT ?? "8080");
const folder = process.env.FOLDER ?? "/data";
const LINE = "visit\n";

mkdirSync(folder, { recursive: true });
const log = openSync(join(folder, "visits.log"), "a");
let visits = 0;
let copy = randomBytes(8).toString("hex");

/** One of the files that are made anew at every resume; "" outside of Substrate. */
function identity(name) {
  try {
    return readFileSync(join("/run/ate", name), "utf8").trim();
  } catch (error) {
    if (error.code === "ENOENT") return "";
    throw error;
  }
}

function visit() {
  visits += 1;
  appendFileSync(log, LINE);
  return {
    memory: visits,
    lines: fstatSync(log).size / LINE.length,
    pid: process.pid,
    actor: identity("actor-name"),
    generation: identity("generation"),
  };
}

const pages = {
  "/": visit,
  "/random": () => ({ copy, kernel: randomBytes(16).toString("hex") }),
  "/readyz": () => ({}),
};

const server = createServer((request, response) => {
  if (wasRestored()) copy = randomBytes(8).toString("hex");
  const page = pages[new URL(request.url, "http://actor").pathname];
  response.writeHead(page === undefined ? 404 : 200, { "content-type": "application/json" });
  response.end(`${JSON.stringify(page === undefined ? { error: `there is no ${request.url}` } : page())}\n`);
});
process.once("SIGTERM", () => {
  server.close();
  server.closeIdleConnections();
});
server.listen(port, () => {
  process.stdout.write(`listening on ${port}, pid ${process.pid}\n`);
});
