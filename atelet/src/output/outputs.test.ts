import { execFileSync } from "node:child_process";
import { appendFileSync, closeSync, constants, mkdtempSync, openSync, readSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@substrate/lib/log.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { cutLines, MAX_LINE_BYTES } from "./lines.ts";
import { Outputs } from "./outputs.ts";
import { MAX_OUTPUT_BYTES } from "./rotation.ts";
import { openStdout, type OutputSink } from "./stdout.ts";

const labels = { actor: "a", namespace: "n", template: "t", uid: "u" };
const log = createLogger("test", "error");

interface Line {
  log: string;
  partial?: boolean;
}

function parsed(json: string): Line[] {
  return json
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Line);
}

let dir: string;
let file: string;
let received: string;
let dropped: number;
/** Nobody reads while it is closed. */
let open: boolean;
let running: { outputs: Outputs; abort: AbortController; done: Promise<void> } | undefined;
let mayWrite: boolean;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "substrate-output-"));
  file = join(dir, "output.log");
  [received, dropped, open, mayWrite] = ["", 0, true, true];
});

afterEach(async () => {
  await stop();
  rmSync(dir, { recursive: true });
});

const sink: OutputSink = {
  async write(text, signal) {
    while (!open) {
      if (signal.aborted) return false;
      await delay(5);
    }
    received += text;
    return true;
  },
  close: () => undefined,
};

function start(): Outputs {
  const outputs = new Outputs({ sink, passed: () => undefined, dropped: (bytes) => (dropped += bytes), log });
  outputs.add("u", {
    labels: () => labels,
    log: file,
    logPlaces: join(dir, "output.json"),
    mayWrite: () => mayWrite,
    lifeMark: () => "1",
  });
  const abort = new AbortController();
  running = { outputs, abort, done: outputs.run(abort.signal) };
  return outputs;
}

async function stop(): Promise<void> {
  if (running === undefined) return;
  const { outputs, abort, done } = running;
  running = undefined;
  abort.abort();
  await done;
  await outputs.close();
}

async function until(what: string, look: () => boolean): Promise<void> {
  const end = performance.now() + 10_000;
  while (!look()) {
    if (performance.now() > end) throw new Error(`${what}: not within 10 s; ${received.slice(-300)}`);
    await delay(10);
  }
}

function texts(): string[] {
  return parsed(received).map((line) => line.log);
}

it("cuts complete lines, keeps an unended one, and bounds long ones between characters", () => {
  const time = "2026-01-01T00:00:00.000Z";
  const piece = Buffer.from('one "1"\n\nrest');
  const { json, consumedBytes } = cutLines(piece, labels, time, { flush: false });
  expect(parsed(json)).toEqual([
    { time, stream: "stdout", log: 'one "1"', ...labels },
    { time, stream: "stdout", log: "", ...labels },
  ]);
  expect(consumedBytes).toBe(piece.length - 4);
  expect(parsed(cutLines(piece, labels, time, { flush: true }).json).at(-1)).toMatchObject({
    log: "rest",
    partial: true,
  });

  const long = `x${"é".repeat(MAX_LINE_BYTES)}\n`;
  const pieces = parsed(cutLines(Buffer.from(long), labels, time, { flush: false }).json);
  expect(`${pieces.map((line) => line.log).join("")}\n`).toBe(long);
  expect(pieces.map((line) => line.partial)).toEqual([true, true, undefined]);

  const garbage = Buffer.from([0xff, 0x00, 0x80, 0x0a, 0xc3, 0x0a]);
  expect(parsed(cutLines(garbage, labels, time, { flush: false }).json).map((line) => line.log)).toEqual([
    "\ufffd\u0000\ufffd",
    "\ufffd",
  ]);
  // No character begins anywhere in it: it must be cut nevertheless.
  expect(cutLines(Buffer.alloc(3 * MAX_LINE_BYTES, 0x80), labels, time, { flush: true }).consumedBytes).toBe(
    3 * MAX_LINE_BYTES,
  );
});

it("passes lines on, an unended one when the program rests, and goes on after a restart where it was left", async () => {
  start();
  appendFileSync(file, "1\n2\npart");
  await until("two lines", () => texts().length === 2);
  appendFileSync(file, "ly\n");
  await until("the third", () => texts().length === 3);
  await stop();
  appendFileSync(file, "while nobody looked\nlast");
  mayWrite = false;
  start();
  await until("the last", () => texts().includes("last"));
  expect(texts()).toEqual(["1", "2", "partly", "while nobody looked", "last"]);
});

it("loses nothing by a rotation, nor by one that could not be written down", async () => {
  open = false;
  start();
  const line = `${"x".repeat(1023)}\n`;
  appendFileSync(file, line.repeat(MAX_OUTPUT_BYTES / 1024 + 1));
  await until("the rotation", () => readLength(file) === 0);
  appendFileSync(file, "after\n");
  open = true;
  await until("what came after", () => texts().includes("after"));
  expect(texts().length).toBe(MAX_OUTPUT_BYTES / 1024 + 2);
  await stop();

  execFileSync("cp", [file, `${file}.1`]);
  truncateSync(file, 0);
  appendFileSync(file, "x\n");
  start();
  await until("the line after it", () => texts().at(-1) === "x");
  expect(texts().filter((text) => text === "after").length).toBe(1);
  expect(dropped).toBe(0);
});

it("counts and says what was rotated away before anybody took it", async () => {
  open = false;
  start();
  for (let i = 0; i < 3; i += 1) {
    appendFileSync(file, `${i}${"x".repeat(1022)}\n`.repeat(MAX_OUTPUT_BYTES / 1024 + 1));
    await until("the rotation", () => readLength(file) === 0);
  }
  open = true;
  appendFileSync(file, "end\n");
  await until("the end", () => texts().includes("end"));
  expect(dropped).toBeGreaterThanOrEqual(MAX_OUTPUT_BYTES);
  expect(texts().some((text) => text.includes("bytes of output were dropped"))).toBe(true);
});

it("an actor that leaves has its last words, and a collector that stands still holds up nobody", async () => {
  const outputs = start();
  appendFileSync(file, "bye");
  await outputs.remove("u");
  expect(texts()).toEqual(["bye"]);
  await stop();
  open = false;
  appendFileSync(file, "more\n");
  await Promise.race([start().remove("u"), delay(5_000).then(() => Promise.reject(new Error("it was held up")))]);
});

it("a full pipe does not block, and takes all when it is read", async () => {
  const fifo = join(dir, "fifo");
  execFileSync("mkfifo", [fifo]);
  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
  const stdout = openStdout(log, fifo);
  const text = "0123456789abcde\n".repeat(20_000);
  const written = stdout.write(text, new AbortController().signal);
  const buffer = Buffer.alloc(64 * 1024);
  let taken = "";
  await until("all of it", () => {
    try {
      taken += buffer.toString("utf8", 0, readSync(reader, buffer));
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
    }
    return taken.length === text.length;
  });
  expect(await written).toBe(true);
  expect(taken).toBe(text);
  const giveUp = new AbortController();
  const blocked = stdout.write(text, giveUp.signal);
  giveUp.abort();
  expect(await blocked).toBe(false);
  stdout.close();
  closeSync(reader);
});

function readLength(path: string): number {
  const fd = openSync(path, "r");
  try {
    return readSync(fd, Buffer.alloc(1), 0, 1, 0);
  } finally {
    closeSync(fd);
  }
}
