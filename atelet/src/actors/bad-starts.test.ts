import { randomUUID } from "node:crypto";
import { createServer, type RequestListener, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, expect, it, vi } from "vitest";
import { type Actor } from "./actor.ts";
import { waitUntilReady } from "./readiness.ts";
import { assignment, key, TestNode } from "./test-node.ts";

let server: Server | undefined;
let node: TestNode | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  server?.close();
  await node?.stop();
  [server, node] = [undefined, undefined];
});

/** Waits for a program that lives and answers so. */
async function ready(listener: RequestListener): Promise<void> {
  const listening = createServer(listener);
  server = listening;
  await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve));
  const { port } = listening.address() as AddressInfo;
  await waitUntilReady({
    host: "127.0.0.1",
    program: { readyz: { path: "/readyz", port }, ports: [] },
    restored: true,
    deadlineMs: 200,
    alive: () => Promise.resolve(true),
    slow: () => undefined,
    title: "actor default/a",
    signal: new AbortController().signal,
  });
}

async function asleep(): Promise<Actor> {
  const made = await TestNode.create();
  node = made;
  await made.actors.assign(assignment({ epoch: 1, session: made.session }));
  const actor = made.actors.get(key.uid);
  await actor.resume();
  await actor.suspend({ operationId: randomUUID(), mode: "ASYNC", force: false, targetGeneration: 1 });
  return actor;
}

it("a readyz that never comes: the last answer is said", async () => {
  const answers = ready((_request, response) => response.writeHead(503).end("warming up"));
  await expect(answers).rejects.toMatchObject({
    code: "NOT_READY",
    message: expect.stringMatching(
      /actor default\/a was not ready within 0.2 s: readyz .* answered 503: warming up/,
    ) as string,
  });
});

it(
  "a restored program that takes connections and never answers is not waited for without end",
  { timeout: 20_000 },
  async () => {
    const silent = ready(() => undefined);
    await expect(silent).rejects.toMatchObject({
      code: "NOT_READY",
      message: expect.stringMatching(/actor default\/a was not ready .*no answer within 5 s/) as string,
    });
  },
);

it("a snapshot of another runtime is not restored, and stays", async () => {
  await asleep();
  await node?.restart({ runtimeBuild: "fake-2" });
  const actor = node?.actors.get(key.uid);
  await expect(actor?.resume()).rejects.toMatchObject({
    code: "RESTORE_FAILED",
    message: expect.stringMatching(
      /generation 1 of actor .* was written by runsc fake-1, and this node has fake-2/,
    ) as string,
  });
  expect(actor?.generations.usable().map(({ generation }) => generation)).toEqual([1]);
});

it("a background load that fails after the first answer is a crash that says so, and the snapshot is still there", async () => {
  const actor = await asleep();
  if (node === undefined) throw new Error("no node");
  node.runtime.failNext.load = new SubstrateError("RESTORE_FAILED", "pages.img ends early");
  await actor.resume();
  expect(actor.state).toBe("RUNNING");
  await vi.waitFor(
    () => {
      expect(actor.state).toBe("CRASHED");
    },
    { timeout: 20_000 },
  );
  expect(actor.record.crash?.message).toMatch(/loading its memory failed: pages.img ends early/);
  await actor.resume();
  expect(actor.record.sandbox?.fromGeneration).toBe(1);
});
