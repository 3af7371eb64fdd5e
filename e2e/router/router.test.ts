import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { SubstrateError } from "@substrate/lib/errors.ts";
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

  test("regression: a GET that kills its program was sent to it twice", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const broken = await rig.get("counter", "/break");
    expect([broken.status, code(broken.body)]).toEqual([502, "ACTOR_UNREACHABLE"]);
    expect(program.seen).toHaveLength(1);
  });

  test("a kept connection that breaks just when a request comes: a GET is sent once more, a POST is not", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    expect(await rig.get("counter")).toMatchObject({ status: 200 });
    expect(await rig.get("counter", "/break-if-kept")).toMatchObject({ status: 200, body: "first on its connection" });
    expect(program.seen).toHaveLength(3);
    expect((await rig.get("counter", "/break-if-kept", { method: "POST" })).status).toBe(502);
    expect(program.seen).toHaveLength(4);
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
    expect([held.status, code(held.body), held.headers["retry-after"]]).toEqual([503, "HELD", undefined]);
    const why =
      "Actor default/counter: Template default/t does not exist: create it, or delete this Actor and make it again with the right spec.templateRef";
    rig.onOperatorWake = () => Promise.reject(new SubstrateError("TEMPLATE_MISSING", why));
    const missing = await rig.get("counter");
    expect(missing.headers["retry-after"]).toBeUndefined();
    expect(JSON.parse(missing.body)).toMatchObject({
      error: {
        code: "TEMPLATE_MISSING",
        message: why.replace("Actor default/counter:", "actor default/counter could not be woken:"),
      },
    });
    rig.onOperatorWake = () =>
      Promise.reject(new SubstrateError("TEMPLATE_NOT_READY", "it is tried again", { retryAfterMs: 60_000 }));
    expect((await rig.get("counter")).headers["retry-after"]).toBe("60");
    rig.onOperatorWake = () => {
      rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
      return Promise.resolve();
    };
    expect((await rig.get("counter")).status).toBe(200);
    expect(rig.operatorWakes).toHaveLength(4);
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

  test("kill -9 of the atelet: a running actor is served on, what is open is told to the next one", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const open = rig.get("counter", "/wait");
    await eventually(() => {
      expect(program.waiting).toHaveLength(1);
    }, soon);
    await rig.atelet.stop();
    expect((await rig.get("counter")).status).toBe(200);
    rig.atelet.counts.length = 0;
    await rig.atelet.start();
    await eventually(() => {
      expect(rig.atelet.counts.some(({ open }) => open > 0)).toBe(true);
    }, soon);
    program.waiting[0]?.end("done");
    expect((await open).body).toBe("done");
  });

  test("an atelet that stays away: requests are held until it is back; the operator isn't asked", async () => {
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_ASLEEP"));
    await rig.atelet.stop();
    rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
    const held = rig.get("counter");
    await eventually(async () => {
      expect(await rig.metric("substrate_router_held_requests")).toBe(1);
    }, soon);
    await rig.atelet.start();
    expect((await held).status).toBe(200);
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

test("a stop lets open requests end, refuses new connections and cuts what outlasts the grace", async () => {
  rig.atelet.show(routeOf(counter, "ROUTE_STATE_RUNNING"));
  const open = rig.get("counter", "/wait");
  const socket = connect(rig.port, "127.0.0.1");
  socket.resume().write(upgradeTo("/socket"));
  await eventually(() => {
    expect(program.waiting).toHaveLength(1);
    expect(rig.atelet.countOf("uid-1")?.open).toBeGreaterThan(0);
    expect(socket.bytesRead).toBeGreaterThan(0);
  }, soon);
  const cut = new Promise((resolve) => socket.once("close", resolve));
  const stopped = rig.router.stop();
  await expect(rig.get("counter", "/", { agent: false })).rejects.toThrow("ECONNREFUSED");
  program.waiting[0]?.end("done");
  const answer = await open;
  expect([answer.body, answer.headers.connection]).toEqual(["done", "close"]);
  await stopped;
  await cut;
});
