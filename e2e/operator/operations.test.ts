import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { Fixture } from "./fixture.ts";

describe("operations", () => {
  let fixture: Fixture;
  beforeAll(async () => {
    fixture = await Fixture.start();
    await fixture.template("app");
  });
  afterAll(async () => {
    await fixture.stop();
  });

  const idOf = (answer: string): string => (JSON.parse(answer) as { operationId: string }).operationId;
  const shows = (id: string, result: string): ((actor: Actor) => boolean) => {
    return ({ status }) => status?.lastOperation?.id === id && status.lastOperation.result === result;
  };

  it("regression: a sync suspend was Succeeded beside a generation that was still PENDING", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    const seen: string[] = [];
    const reflector = new Reflector(fixture.client, actors, { log: createLogger("test", "error"), namespace: "test" });
    reflector.onChange((key, now) => {
      const { lastOperation: last, snapshots } = now?.status ?? {};
      if (key === `test/${name}` && last?.type === "Suspend") {
        seen.push(`${last.result} ${snapshots?.[0]?.storageState.replace(/.*_/, "") ?? "-"}`);
      }
    });
    const stop = new AbortController();
    const running = reflector.run(stop.signal);
    const gate = Promise.withResolvers<undefined>();
    try {
      await fixture.wake(actor);
      await fixture.until(name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
      // the node answers the call at once, and its reports come late
      fixture.atelet.reportGate = gate.promise;
      const id = idOf(await fixture.suspend(name, { mode: "Sync" }));
      await fixture.until(name, shows(id, "Running"));
      expect(fixture.epochs("suspend", actor)).toEqual([1]);
      gate.resolve(undefined);
      await fixture.until(name, shows(id, "Succeeded"));
      expect(seen.at(-1)).toBe("Succeeded COMPLETED");
      expect(seen).not.toContain("Succeeded PENDING");
      expect(seen).not.toContain("Succeeded -");
    } finally {
      gate.resolve(undefined);
      stop.abort();
      await running;
    }
  });

  it("regression: a suspend failed at once while the node's atelet was only being restarted", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    await fixture.wake(actor);
    await fixture.atelet.stop();
    const id = idOf(await fixture.suspend(name));
    await fixture.until(name, shows(id, "Running"));
    await fixture.atelet.start();
    const asleep = await fixture.until(name, shows(id, "Succeeded"), 15_000);
    expect(asleep.status).toMatchObject({ state: "ACTOR_STATE_SUSPENDED", generation: 1 });
    expect(fixture.epochs("suspend", actor)).toEqual([1]);
  });

  it("ends an operation that was accepted, but not sent to its node, when the operator was killed", async () => {
    const actor = await fixture.actor("app");
    const { name } = actor.metadata;
    await fixture.wake(actor);
    await fixture.atelet.stop();
    const id = idOf(await fixture.suspend(name));
    await fixture.until(name, shows(id, "Running"));
    await fixture.stopOperator("SIGKILL");
    await fixture.atelet.start();
    await fixture.startOperator();
    const failed = await fixture.until(name, shows(id, "Failed"));
    expect(failed.status?.lastOperation).toMatchObject({ reason: "SHUTTING_DOWN" });
    expect(fixture.epochs("suspend", actor)).toEqual([]);
  });
});
