import type * as Fs from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { type FileAnswer, type FileRequest } from "./copy.ts";

/** The worker in this thread, and what it does in which order. */
const worker = vi.hoisted(() => ({
  ask: undefined as ((request: unknown) => void) | undefined,
  answers: [] as unknown[],
  log: [] as string[],
}));
vi.mock("node:worker_threads", () => ({
  parentPort: {
    on: (_event: string, listener: (request: unknown) => void) => {
      worker.ask = listener;
    },
    postMessage: (answer: unknown) => {
      worker.log.push("answered");
      worker.answers.push(answer);
    },
  },
}));
vi.mock("node:fs", async (original) => {
  const fs: typeof Fs = await original();
  return {
    ...fs,
    fsyncSync: (fd: number) => {
      worker.log.push(`synced ${fs.fstatSync(fd).size}`);
      fs.fsyncSync(fd);
    },
  };
});

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "copy-worker-"));
  await import("./copy-worker.ts");
});
afterEach(() => rm(dir, { recursive: true }));

function asked(request: FileRequest): { log: string[]; answer: FileAnswer } {
  worker.log.length = 0;
  worker.ask?.(request);
  return { log: [...worker.log], answer: worker.answers.at(-1) as FileAnswer };
}

it("R23: all of a file is synced before a store is told that it is written, and nothing that is fetched", async () => {
  const sizeBytes = 20 << 20;
  const from = join(dir, "from");
  await writeFile(from, Buffer.alloc(sizeBytes, 7));
  const memory = new Uint8Array(sizeBytes).fill(7).buffer;
  const done = ["synced 20971520", "answered"];
  expect(asked({ kind: "copy", from, to: join(dir, "copy"), durable: true })).toMatchObject({
    log: done,
    answer: { done: { sizeBytes } },
  });
  expect(asked({ kind: "write", to: join(dir, "written"), memory, lengthBytes: sizeBytes }).log).toEqual(done);
  expect(asked({ kind: "copy", from, to: join(dir, "fetched"), durable: false }).log).toEqual(["answered"]);
  for (const name of ["copy", "written", "fetched"]) {
    expect((await readFile(join(dir, name))).equals(await readFile(from)), name).toBe(true);
  }
});
