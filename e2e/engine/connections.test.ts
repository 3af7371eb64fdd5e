import { setTimeout as delay } from "node:timers/promises";
import { snapshots } from "@substrate/crds/index.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { ConnectionsRig, KeptClient, wantedPostgres } from "./connections.ts";

/** Longer than what any program or peer that is not told better waits before it looks again. */
const sleepMs = 10_000;
const numbers = Array.from({ length: 20 }, (_, i) => String(i));

const wanted = await wantedPostgres();
const lacks = "lacks" in wanted ? wanted.lacks : undefined;

describe.skipIf(lacks !== undefined)(
  `open connections${lacks === undefined ? "" : ` (${lacks})`}`,
  { timeout: 90_000 },
  () => {
    let rig: ConnectionsRig;
    beforeAll(async () => {
      if ("lacks" in wanted) throw new Error(wanted.lacks);
      rig = await ConnectionsRig.start(wanted.file, ["idle", "told", "pressed"]);
    }, 120_000);
    afterAll(async () => {
      await (rig as ConnectionsRig | undefined)?.stop();
    });

    it("a PostgreSQL session goes on after sleeps: idle, in a transaction, and while notifications come", async () => {
      for (const actor of ["idle", "told"]) await rig.openSession(actor);
      const backends = new Map<string, string>();
      for (const actor of ["idle", "told"]) backends.set(actor, await rig.value(actor, "select pg_backend_pid()"));
      await rig.query("idle", "create table t (n int)");
      await rig.query("idle", "begin");
      await rig.query("idle", "insert into t values (1)");
      await rig.query("told", "listen news");

      await Promise.all(["idle", "told"].map((actor) => rig.product.suspend(actor, "Async")));
      for (const n of numbers) await rig.elsewhere(`notify news, '${n}'`);
      await delay(sleepMs);

      for (const [actor, backend] of backends) expect(await rig.value(actor, "select pg_backend_pid()")).toBe(backend);
      expect(await rig.notified("told")).toEqual(numbers);
      // the transaction is still its own: nobody else sees it before its end
      expect((await rig.elsewhere("select count(*) from t")).rows).toEqual([["0"]]);
      expect((await rig.query("idle", "commit")).error).toBe("");
      expect((await rig.elsewhere("select count(*) from t")).rows).toEqual([["1"]]);

      // again, and shorter: it is the newest image that counts
      await Promise.all(["idle", "told"].map((actor) => rig.product.suspend(actor, "Async")));
      for (const [actor, backend] of backends) expect(await rig.value(actor, "select pg_backend_pid()")).toBe(backend);
    });

    it("a client's kept connection is to the router, and goes on; none of the router's stays open in the program", async () => {
      const client = new KeptClient(rig.test.cluster.routerUrl, "default/told");
      try {
        const before = await client.get("/clients");
        for (let n = 0; n < 3; n += 1) {
          await rig.product.suspend("told", "Async");
          expect(await client.get("/clients")).toEqual({ body: "1", localPort: before.localPort });
        }
      } finally {
        client.close();
      }
    });

    it("no peer makes a suspend or a resume fail, and nothing is lost of what they send", async () => {
      const actor = "pressed";
      const ports = { hammer: 7001, full: 7002, halfClosed: 7003 } as const;
      for (const [name, port] of Object.entries(ports)) {
        await rig.peers.call("listen", port, name === "halfClosed" ? "halfClose" : "hammer");
        await rig.stream(actor, "open", name, port);
      }
      // of the second nothing is read: its buffers are full
      await rig.stream(actor, "read", "hammer");
      await rig.stream(actor, "write", "hammer");
      await rig.stream(actor, "read", "halfClosed");
      await rig.stream(actor, "write", "halfClosed");
      for (let n = 0; n < 3; n += 1) {
        const before = await rig.streamState(actor, "hammer");
        await rig.product.suspend(actor, "Async");
        await eventually(
          async () => {
            const { received, sent } = await rig.streamState(actor, "hammer");
            expect(received).toBeGreaterThan(before.received);
            expect(sent).toBeGreaterThan(before.sent);
          },
          { deadlineMs: 20_000 },
        );
      }
      await rig.stream(actor, "read", "full");
      for (const name of ["hammer", "halfClosed"]) await rig.stream(actor, "stop", name);
      for (const port of Object.values(ports)) await rig.peers.call("stop", port);
      for (const [name, port] of Object.entries(ports)) {
        const { own, peer } = await eventually(
          async () => {
            const state = {
              own: await rig.streamState(actor, name),
              peer: await rig.peers.call<{ received: number; sent: number; wrong: string; end: string }>("state", port),
            };
            expect(state.own.readEnd).not.toBe("");
            if (name !== "full") expect(state.peer.end).not.toBe("");
            return state;
          },
          { deadlineMs: 20_000 },
        );
        expect({ name, ...own }).toMatchObject({ name, wrong: "", readEnd: "EOF", received: peer.sent });
        expect({ name, ...peer }).toMatchObject({
          name,
          wrong: "",
          received: own.sent,
          end: name === "full" ? "" : "EOF",
        });
      }
    });

    it("a fork's session is an error at once, the original's goes on; going back resets it", async () => {
      const { client } = rig.test.cluster;
      const api = "/apis/substrate.run/v1alpha1/namespaces/default";
      const head = { apiVersion: "substrate.run/v1alpha1" };
      const backend = await rig.value("idle", "select pg_backend_pid()");
      const snapshot = {
        ...head,
        kind: "Snapshot",
        metadata: { name: "seen" },
        spec: { actorRef: { name: "idle" }, tag: "seen" },
      };
      await client.request("POST", `${api}/snapshots`, { body: snapshot });
      await eventually(
        async () => {
          const found = await client.get(snapshots, "seen", "default");
          expect(found?.status?.storageState).toBe("SNAPSHOT_STORAGE_STATE_COMPLETED");
        },
        { deadlineMs: 20_000 },
      );
      const spec = { templateRef: { name: "session" }, source: { snapshotRef: { name: "seen" } } };
      await client.request("POST", `${api}/actors`, {
        body: { ...head, kind: "Actor", metadata: { name: "fork" }, spec },
      });
      await eventually(async () => rig.query("fork", "select 1"), { deadlineMs: 20_000 }).then((answer) => {
        expect(answer.error).not.toBe("");
        expect(answer.ms).toBeLessThan(1000);
      });
      expect(await rig.value("idle", "select pg_backend_pid()")).toBe(backend);

      const told = await rig.value("told", "select pg_backend_pid()");
      await rig.product.suspend("told", "Async");
      await rig.goBack("told");
      const back = await rig.query("told", "select 1");
      expect(back.error).not.toBe("");
      expect(back.ms).toBeLessThan(1000);
      // the server hears of it as soon as it says something
      await rig.elsewhere("notify news, 'after'");
      await eventually(
        async () => {
          const { rows } = await rig.elsewhere(`select count(*) from pg_stat_activity where pid = ${told}`);
          expect(rows).toEqual([["0"]]);
        },
        { deadlineMs: 20_000 },
      );
    });
  },
);
