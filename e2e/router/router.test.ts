import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventually } from "../support/poll.ts";
import { Program } from "./programs.ts";
import { Rig } from "./rig.ts";
import { type ActorScript, routeOf } from "./scripted-atelet.ts";

const soon = { deadlineMs: 5_000, everyMs: 10 };

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

function code(body: string): string {
  return (JSON.parse(body) as { error: { code: string } }).error.code;
}

describe("a running actor", () => {
  test("gets the request as it was sent, and the client the response, less what is of one connection only", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const answer = await rig.get("counter", "/some/path?q=1", {
      method: "POST",
      headers: { "x-forwarded-for": "10.0.0.1", connection: "x-drop", "x-drop": "1", expect: "100-continue" },
    });
    expect(answer).toMatchObject({ status: 200, body: "hello POST /some/path?q=1" });
    expect(answer.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
    expect(answer.headers["x-secret"]).toBeUndefined();
    expect(program.seen[0]).toMatchObject({
      host: "counter.default.actors.localhost",
      "x-forwarded-for": "10.0.0.1, 127.0.0.1",
      "x-forwarded-host": "counter.default.actors.localhost",
      "x-forwarded-proto": "http",
    });
    expect(program.seen[0]).not.toHaveProperty("x-drop");
    expect(program.seen[0]).not.toHaveProperty("expect");

    const headers = { host: "localhost", "substrate-actor": "default/counter", "substrate-port": "8080" };
    expect(await rig.get("counter", "/", { headers })).toMatchObject({ status: 200 });
    expect(program.seen[1]).not.toHaveProperty("substrate-actor");
    const other = await rig.get("counter", "/", { headers: { ...headers, "substrate-port": "9" } });
    expect(other.status).toBe(404);
    expect(other.body).toContain("http (8080)");
  });

  test("unknown names and hosts get a 404 that helps", async () => {
    const unknown = await rig.get("nobody");
    expect(unknown.status).toBe(404);
    expect(JSON.parse(unknown.body)).toMatchObject({ error: { code: "UNKNOWN_ACTOR", actor: "default/nobody" } });
    const host = await rig.get("x", "/", { headers: { host: "localhost" } });
    expect(host.status).toBe(404);
    expect(host.body).toContain("<actor>.<namespace>.actors.localhost");
    rig.names = undefined;
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    await eventually(async () => {
      expect((await rig.get("counter")).status).toBe(200);
    }, soon);
    const unsynced = await rig.get("nobody");
    expect(unsynced.status).toBe(503);
    expect(unsynced.headers["retry-after"]).toBe("2");
  });

  test("the API server's UID decides when a name is used again", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    await rig.startOperator();
    rig.names = new Map([["default/counter", { uid: "uid-2", nodeName: undefined }]]);
    rig.onOperatorWake = (uid) => {
      rig.atelet.show(routeOf({ ...counter, uid }, "ROUTE_STATE_RUNNING"));
      return Promise.resolve();
    };
    expect((await rig.get("counter")).status).toBe(200);
    expect(rig.operatorWakes).toEqual(["uid-2"]);
  });

  test("a program that breaks or refuses connections: 502, a cut response stays cut", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const broken = await rig.get("counter", "/break", { method: "POST" }, "x");
    expect([broken.status, code(broken.body)]).toEqual([502, "ACTOR_UNREACHABLE"]);
    await expect(rig.get("counter", "/half")).rejects.toThrow(/aborted|hang up/);
    await program.close();
    const refused = await rig.get("counter", "/", { method: "POST" }, "x");
    expect([refused.status, code(refused.body)]).toEqual([502, "ACTOR_UNREACHABLE"]);
    expect(await rig.metric("substrate_router_open_requests")).toBe(0);
  });

  test("a connection refused by a stale route waits for the newer one", async () => {
    const stale = new Program();
    await stale.listen();
    const stalePort = stale.port;
    await stale.close();
    rig.atelet.show(routeOf({ ...counter, port: stalePort }, "ROUTE_STATE_RUNNING"));
    const answer = rig.get("counter", "/echo", { method: "POST" }, "still whole");
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(1);
    }, soon);
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    expect(await answer).toMatchObject({ status: 200, body: "still whole" });
  });
});

describe("sleep and wake", () => {
  test("50 requests to a sleeping actor: one wake, 50 answers", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
    const wake = Promise.withResolvers<undefined>();
    rig.atelet.onWake = async () => {
      await wake.promise;
      return routeOf(counter, "ROUTE_STATE_RUNNING");
    };
    const answers = Array.from({ length: 50 }, () => rig.get("counter", "/echo", { method: "POST" }, "a"));
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(50);
    }, soon);
    wake.resolve(undefined);
    const statuses = (await Promise.all(answers)).map(({ status, body }) => `${status} ${body}`);
    expect(new Set(statuses)).toEqual(new Set(["200 a"]));
    expect(rig.atelet.wakes).toEqual(["uid-1"]);
  });

  test("a gate during a slow request: counted, the new ones wait and are answered after the sleep", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const slow = rig.get("counter", "/wait");
    await eventually(() => {
      expect(program.waiting).toHaveLength(1);
    }, soon);
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_GATED", { gateId: 5n }));
    await eventually(() => {
      expect(rig.atelet.countOf("uid-1")).toMatchObject({ open: 1, gateId: 5n });
    }, soon);
    const late = Array.from({ length: 5 }, () => rig.get("counter"));
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(5);
    }, soon);
    program.waiting[0]?.end("done");
    expect(await slow).toMatchObject({ status: 200, body: "done" });
    await eventually(() => {
      expect(rig.atelet.countOf("uid-1")).toMatchObject({ open: 0, gateId: 5n });
    }, soon);
    expect(program.seen).toHaveLength(1);
    rig.atelet.onWake = () => Promise.resolve(routeOf(counter, "ROUTE_STATE_RUNNING"));
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
    expect((await Promise.all(late)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(rig.atelet.wakes).toHaveLength(1);
  });

  test("an actor that no atelet holds is woken by the operator; its refusals come through", async () => {
    rig.names = new Map([["default/counter", { uid: "uid-1", nodeName: undefined }]]);
    await rig.startOperator();
    rig.onOperatorWake = () => Promise.reject(new SubstrateError("HELD", "spec.state is Suspended"));
    const held = await rig.get("counter");
    expect([held.status, code(held.body), held.headers["retry-after"]]).toEqual([503, "HELD", "5"]);
    rig.onOperatorWake = () => {
      rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
      return Promise.resolve();
    };
    expect((await rig.get("counter")).status).toBe(200);
    expect(rig.operatorWakes).toHaveLength(2);
  });

  test("the wake timeout is a 503 with Retry-After; HELD and FAILING say why", async () => {
    rig.atelet.onWake = () => new Promise(() => undefined);
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP", { wakeTimeoutMs: 200n }));
    await eventually(
      () =>
        rig.get("counter").then(({ body }) => {
          expect(code(body)).toBe("NOT_READY");
        }),
      soon,
    );
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_HELD"));
    await eventually(
      () =>
        rig.get("counter").then(({ body }) => {
          expect(code(body)).toBe("HELD");
        }),
      soon,
    );
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_FAILING", { message: "exits with 1", retryAfterMs: 9_000n }));
    await eventually(async () => {
      const answer = await rig.get("counter");
      expect(answer.headers["retry-after"]).toBe("9");
      expect(answer.body).toContain("exits with 1");
    }, soon);
    expect(rig.atelet.wakes).toHaveLength(1);
  });

  test("a stream lost holds requests until it is back; the operator isn't asked", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const open = rig.get("counter", "/wait");
    await eventually(() => {
      expect(program.waiting).toHaveLength(1);
    }, soon);
    await rig.atelet.stop();
    const held = rig.get("counter");
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(1);
    }, soon);
    rig.atelet.counts.length = 0;
    await rig.atelet.start();
    expect((await held).status).toBe(200);
    await eventually(() => {
      expect(rig.atelet.counts.some(({ open }) => open > 0)).toBe(true);
    }, soon);
    program.waiting[0]?.end("done");
    expect((await open).body).toBe("done");
    expect(rig.operatorWakes).toEqual([]);
  });

  test("clients that leave are not held; beyond the bound requests are refused", async () => {
    rig.atelet.onWake = () => new Promise(() => undefined);
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
    const clients = Array.from({ length: 100 }, () =>
      httpRequest(rig.to("counter", "/", { agent: false })).on("error", () => undefined),
    );
    for (const client of clients) client.end();
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(100);
    }, soon);
    const refused = await rig.get("counter");
    expect([refused.status, code(refused.body)]).toEqual([503, "TOO_MANY_HELD"]);
    for (const client of clients) client.destroy();
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(0);
    }, soon);
    expect(program.seen).toHaveLength(0);
  });
});

describe("streams", () => {
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
    expect(peak).toBeLessThan(32 * 1024 * 1024);
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
      { deadlineMs: 5_000, everyMs: 200 },
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
      { deadlineMs: 5_000, everyMs: 200 },
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
    const ask = (path: string): string =>
      `GET ${path} HTTP/1.1\r\nHost: counter.default.actors.localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
      `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`;
    socket.write(ask("/socket"));
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
    refused.write(ask("/refuse"));
    await eventually(() => {
      expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden[\s\S]*no$/);
    }, soon);
    refused.destroy();
  });
});

test("a stop lets open requests end and refuses new connections", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const open = rig.get("counter", "/wait");
  await eventually(() => {
    expect(program.waiting).toHaveLength(1);
  }, soon);
  const stopped = rig.router.stop();
  await expect(rig.get("counter", "/", { agent: false })).rejects.toThrow("ECONNREFUSED");
  program.waiting[0]?.end("done");
  const answer = await open;
  expect([answer.body, answer.headers.connection]).toEqual(["done", "close"]);
  await stopped;
});
