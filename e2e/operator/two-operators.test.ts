import { once } from "node:events";
import { apiServices, secrets } from "@substrate/lib/kube/types.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type WebSocket } from "ws";
import { eventually } from "../support/poll.ts";
import { certificateSeconds, type OneOperator, OperatorPair } from "./pair.ts";

/** 1.5 × the Lease's 10 s. */
const takeoverMs = 15_000;

/** What the program in the WebSocket answers: its output is channel 1. */
async function answer(socket: WebSocket): Promise<string> {
  for (;;) {
    const [message] = (await once(socket, "message", { signal: AbortSignal.timeout(10_000) })) as [Buffer];
    if (message[0] === 1) return message.subarray(1).toString();
    if (message[0] === 3) throw new Error(`exec ended: ${message.subarray(1).toString()}`);
  }
}

describe("two operators", () => {
  let pair: OperatorPair;
  let count = 0;
  beforeAll(async () => {
    pair = await OperatorPair.start();
  });
  afterAll(async () => {
    await pair.stop();
  });

  const other = (operator: OneOperator): OneOperator => {
    const found = pair.operators.find(
      (one) => one !== operator && one.process.exitCode === null && one.process.signalCode === null,
    );
    if (found === undefined) throw new Error("there is no other operator");
    return found;
  };
  const newName = (): string => `a-${String(++count)}`;
  const epochs = (uid: string | undefined): number[] =>
    pair.atelet.calls.filter((call) => call.method === "assign" && call.uid === uid).map(({ epoch }) => epoch);

  it("both serve the verbs, with the caller's name and groups; WebSockets too", async () => {
    const leader = await pair.leader();
    const name = newName();
    await pair.actor(name);
    for (const operator of [leader, other(leader)]) {
      expect(await pair.ready(operator)).toBe("ok");
      const nodes = await pair.verb(operator, "GET", "/nodes");
      expect([nodes.status, nodes.body]).toEqual([200, expect.stringContaining("node-a")]);
      const missing = await pair.verb(operator, "POST", "/namespaces/test/actors/nobody/suspend");
      expect([missing.status, missing.body]).toEqual([404, expect.stringContaining("UNKNOWN_ACTOR")]);
      // jane may do this as one of her groups is system:masters
      const socket = await pair.exec(operator, name, "echo", operator.name);
      expect(await answer(socket)).toBe(`echo ${operator.name}`);
      socket.send(Buffer.from("\0hello"));
      expect(await answer(socket)).toBe("hello");
      socket.close();
    }
  });

  it("renew certificates twice and change their authority without one failed call or stream", async () => {
    const leader = await pair.leader();
    const standby = other(leader);
    const name = newName();
    const actor = await pair.actor(name);
    const before = await pair.authorities();
    const stream = await pair.exec(standby, name, "cat");
    expect(await answer(stream)).toBe("cat");
    const annotations = { "substrate.run/new-authority": "now" };
    await pair.client.mergePatch(secrets, "substrate-ca", "substrate-system", { metadata: { annotations } });
    let calls = 0;
    const end = performance.now() + certificateSeconds * 4_000;
    for (;;) {
      // each over a connection of its own
      for (const operator of [leader, standby]) {
        expect((await pair.verb(operator, "GET", "/nodes")).status).toBe(200);
      }
      expect(await pair.wake(leader, actor)).toBe("node-a");
      calls += 1;
      const now = await pair.authorities();
      if (!now.includes(before) && now.match(/BEGIN/g)?.length === 1) break;
      if (performance.now() > end) throw new Error(`the old authority is still trusted: ${now}`);
    }
    stream.send(Buffer.from("\0still there"));
    expect(await answer(stream)).toBe("still there");
    stream.close();
    expect(calls).toBeGreaterThan(10);
    const made = pair.log(leader.name).split('"message":"certificate made"').length - 1;
    expect(made).toBeGreaterThanOrEqual(6);
    expect(pair.log(leader.name)).not.toContain("atelet disconnected");
    await eventually(
      async () => {
        const service = await pair.client.get(apiServices, "v1alpha1.subresources.substrate.run");
        expect(Buffer.from(service?.spec.caBundle ?? "", "base64").toString()).toBe(await pair.authorities());
      },
      { deadlineMs: 20_000 },
    );
  });

  it("hand over at once when the leader is stopped in good order", async () => {
    const leader = await pair.leader();
    const next = other(leader);
    leader.process.kill("SIGTERM");
    const tookMs = await pair.untilLeads(next, takeoverMs);
    // far below the Lease's duration, also on a busy machine
    expect(tookMs).toBeLessThan(5_000);
    expect(await pair.wake(next, await pair.actor(newName()))).toBe("node-a");
    await eventually(
      () => {
        expect(leader.process.exitCode).toBe(0);
      },
      { deadlineMs: 15_000 },
    );
    await pair.add("c");
  });

  it("never grant one epoch twice, also when the leader was frozen just before the write", async () => {
    const leader = await pair.leader();
    const next = other(leader);
    const actor = await pair.actor(newName());
    const { frozen } = pair.freeze(leader);
    const late = pair.wake(leader, actor).catch((error: unknown) => error);
    await frozen();
    await pair.untilLeads(next, takeoverMs);
    await eventually(() => pair.wake(next, actor), { deadlineMs: 15_000 });
    const granted = await pair.until(actor.metadata.name, ({ status }) => status?.assignment?.epoch === 1);
    leader.process.kill("SIGCONT");
    // its write carries the version from before
    expect(await late).toBeInstanceOf(Error);
    await eventually(
      async () => {
        expect(await pair.ready(leader)).toBe("ok");
      },
      { deadlineMs: 15_000 },
    );
    const { status } = await pair.until(actor.metadata.name, () => true);
    expect(status?.assignment).toEqual(granted.status?.assignment);
    expect(epochs(actor.metadata.uid)).toEqual([1]);
    expect((await pair.leader()).name).toBe(next.name);
  });

  it("go on within one and a half times the Lease after the leader was killed", async () => {
    const leader = await pair.leader();
    const next = other(leader);
    const actor = await pair.actor(newName());
    leader.process.kill("SIGKILL");
    const refused = await pair.verb(next, "GET", "/nodes");
    expect([refused.status, refused.body]).toEqual([503, expect.stringContaining("does not answer")]);
    expect(await pair.untilLeads(next, takeoverMs)).toBeLessThan(takeoverMs);
    await eventually(() => pair.wake(next, actor), { deadlineMs: 15_000 });
    expect(epochs(actor.metadata.uid)).toEqual([1]);
  });
});
