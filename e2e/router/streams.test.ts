import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventually } from "../support/poll.ts";
import { Program, upgradeTo } from "./programs.ts";
import { Rig } from "./rig.ts";
import { type ActorScript, routeOf } from "./scripted-atelet.ts";

const soon = { deadlineMs: 20_000, everyMs: 10 };

let rig: Rig;
let program: Program;
let counter: ActorScript;

beforeEach(async () => {
  rig = await Rig.start();
  program = new Program();
  await program.listen();
  counter = { uid: "uid-1", name: "counter", port: program.port };
  await eventually(() => {
    expect(rig.atelet.attached).toBe(1);
  }, soon);
});

afterEach(async () => {
  await program.close();
  await rig.stop();
});

/** Bytes in buffers that are still in use, in this process: client, router and program together. */
function liveBytes(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return process.memoryUsage().arrayBuffers;
}

const chunk = Buffer.alloc(256 * 1024, 7);

test("100 MiB go through both ways with bounded memory", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const total = 100 * 1024 * 1024;
  const before = liveBytes();
  let peak = 0;
  let chunks = 0;
  let received = 0;
  const { promise: ended, resolve, reject } = Promise.withResolvers<undefined>();
  const client = httpRequest(rig.to("counter", "/echo", { method: "POST" }), (response) => {
    response.on("data", (data: Buffer) => {
      received += data.length;
      if (++chunks % 256 === 0) peak = Math.max(peak, liveBytes() - before);
    });
    response.on("end", () => {
      resolve(undefined);
    });
  }).on("error", reject);
  for (let sent = 0; sent < total; sent += chunk.length) {
    if (!client.write(chunk)) await new Promise((drained) => client.once("drain", drained));
  }
  client.end();
  await ended;
  expect(received).toBe(total);
  // buffers that wait for the collector count too: far below what was sent is what matters
  expect(peak).toBeLessThan(total * 0.75);
});

test("a client that does not read stops the program's writing; its leaving ends the request there", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const client = connect(rig.port, "127.0.0.1");
  client.pause();
  client.write("GET /flood HTTP/1.1\r\nHost: counter.default.actors.localhost\r\n\r\n");
  let last = -1;
  await eventually(
    () => {
      const stalled = program.sentBytes > 0 && program.sentBytes === last;
      last = program.sentBytes;
      expect(stalled).toBe(true);
    },
    { deadlineMs: 20_000, everyMs: 200 },
  );
  expect(program.sentBytes).toBeLessThan(64 * 1024 * 1024);
  client.destroy();
  await eventually(async () => {
    expect(await rig.metric("substrate_router_open_requests")).toBe(0);
  }, soon);
});

test("a program that does not read stops the client's writing", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const client = httpRequest(rig.to("counter", "/wait", { method: "POST" }));
  client.on("error", () => undefined);
  let sentBytes = 0;
  const more = (): void => {
    while (!client.destroyed) {
      sentBytes += chunk.length;
      if (!client.write(chunk)) {
        client.once("drain", more);
        return;
      }
    }
  };
  more();
  let last = -1;
  await eventually(
    () => {
      const stalled = program.waiting.length > 0 && sentBytes === last;
      last = sentBytes;
      expect(stalled).toBe(true);
    },
    { deadlineMs: 20_000, everyMs: 200 },
  );
  expect(sentBytes).toBeLessThan(64 * 1024 * 1024);
  // behind unread bytes a client's leaving can't be seen; the program's answer ends it
  client.destroy();
  program.waiting[0]?.end("done");
  await eventually(async () => {
    expect(await rig.metric("substrate_router_open_requests")).toBe(0);
  }, soon);
});

test("an event stream's headers and events pass at once", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const events: string[] = [];
  let status = 0;
  const client = httpRequest(rig.to("counter", "/events"), (response) => {
    status = response.statusCode ?? 0;
    response.on("data", (data: Buffer) => events.push(data.toString()));
    response.on("error", () => undefined);
  });
  client.on("error", () => undefined).end();
  await eventually(() => {
    expect(status).toBe(200);
  }, soon);
  for (const event of ["data: 1\n\n", "data: 2\n\n"]) {
    program.waiting[0]?.write(event);
    await eventually(() => {
      expect(events.at(-1)).toBe(event);
    }, soon);
  }
  client.destroy();
});

test("WebSocket connections are joined, wake the actor and count as open", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
  rig.atelet.onWake = () => Promise.resolve(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const socket = connect(rig.port, "127.0.0.1");
  let received = "";
  socket.on("data", (data) => {
    received += data.toString("latin1");
  });
  socket.write(upgradeTo("/socket"));
  await eventually(() => {
    expect(received).toContain("101 Switching Protocols");
  }, soon);
  expect(received).toContain("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  socket.write("ping over the joined connection");
  await eventually(() => {
    expect(received).toContain("ping over the joined connection");
  }, soon);
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_GATED", { gateId: 2n }));
  await eventually(() => {
    expect(rig.atelet.countOf("uid-1")).toMatchObject({ open: 1, gateId: 2n });
  }, soon);
  socket.destroy();
  await eventually(() => {
    expect(rig.atelet.countOf("uid-1")).toMatchObject({ open: 0, gateId: 2n });
  }, soon);

  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const refused = connect(rig.port, "127.0.0.1");
  let answer = "";
  refused.on("data", (data) => {
    answer += data.toString("latin1");
  });
  refused.write(upgradeTo("/refuse"));
  await eventually(() => {
    expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden[\s\S]*no$/);
  }, soon);
  refused.destroy();
});

describe("regression: after a forced suspend, whose node drops the old life's packets, its requests stayed open", () => {
  const gone: [string, () => void][] = [
    [
      "ASLEEP",
      () => {
        rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
      },
    ],
    [
      "HELD",
      () => {
        rig.atelet.show(routeOf(counter, "ROUTE_STATE_HELD"));
      },
    ],
    [
      "FAILING",
      () => {
        rig.atelet.show(routeOf(counter, "ROUTE_STATE_FAILING"));
      },
    ],
    [
      "RUNNING elsewhere",
      () => {
        rig.atelet.show(routeOf({ ...counter, port: 1 }, "ROUTE_STATE_RUNNING"));
      },
    ],
    [
      "gone",
      () => {
        rig.atelet.forget(counter.uid);
      },
    ],
  ];

  /** The program never ends a connection by itself here, as if its packets were dropped. */
  async function gate(open: number): Promise<void> {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_GATED", { gateId: 3n }));
    await eventually(() => {
      expect(rig.atelet.countOf("uid-1")).toMatchObject({ open, gateId: 3n });
    }, soon);
  }

  async function expectNothingOpen(): Promise<void> {
    await eventually(async () => {
      expect(rig.atelet.countOf("uid-1")?.open).toBe(0);
      expect(await rig.metric("substrate_router_open_requests")).toBe(0);
    }, soon);
  }

  test.each(gone)("%s: a WebSocket is closed at its client and counts no more", async (_, goAway) => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const socket = connect(rig.port, "127.0.0.1").on("error", () => undefined);
    let received = "";
    socket.on("data", (data) => {
      received += data.toString("latin1");
    });
    socket.write(upgradeTo("/socket"));
    await eventually(() => {
      expect(received).toContain("101 Switching Protocols");
    }, soon);
    await gate(1);
    socket.write("still joined while gated");
    await eventually(() => {
      expect(received).toContain("still joined while gated");
    }, soon);
    const closed = new Promise((resolve) => socket.once("close", resolve));
    goAway();
    await closed;
    await expectNothingOpen();
  });

  test.each(gone)(
    "%s: a silent request gets a 502, a begun response is cut, a kept GET isn't sent again",
    async (_, goAway) => {
      rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
      await eventually(async () => {
        expect((await rig.get("counter")).status).toBe(200);
      }, soon);
      const silent = rig.get("counter", "/wait");
      const upload = httpRequest(rig.to("counter", "/wait", { method: "POST" }));
      const uploadAnswer = new Promise<number | undefined>((resolve, reject) => {
        upload.on("response", (response) => {
          response.resume();
          resolve(response.statusCode);
        });
        upload.on("error", reject);
      });
      upload.write("the first of a body that goes on");
      const begun = rig.get("counter", "/events");
      const cut = expect(begun).rejects.toThrow(/aborted|hang up/);
      await eventually(() => {
        expect(program.waiting).toHaveLength(3);
      }, soon);
      await gate(3);
      goAway();
      const answer = await silent;
      expect(answer.status).toBe(502);
      expect(JSON.parse(answer.body)).toMatchObject({ error: { code: "ACTOR_UNREACHABLE", actor: "default/counter" } });
      expect(await uploadAnswer).toBe(502);
      upload.destroy();
      await cut;
      await expectNothingOpen();
      expect(program.seen).toHaveLength(4);
      expect(rig.atelet.wakes).toEqual([]);
    },
  );

  test("an upgrade that its program has not answered yet gets a 502", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const socket = connect(rig.port, "127.0.0.1");
    let received = "";
    socket.on("data", (data) => {
      received += data.toString("latin1");
    });
    socket.write(upgradeTo("/silent"));
    await eventually(() => {
      expect(program.silentUpgrades).toBe(1);
    }, soon);
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
    await eventually(() => {
      expect(received).toMatch(/^HTTP\/1\.1 502 [\s\S]*ACTOR_UNREACHABLE/);
    }, soon);
    await expectNothingOpen();
    socket.destroy();
  });
});
