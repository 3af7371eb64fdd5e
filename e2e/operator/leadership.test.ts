import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { leases } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { Fixture } from "./fixture.ts";

describe("leadership", () => {
  let fixture: Fixture;
  beforeAll(async () => {
    fixture = await Fixture.start();
    await fixture.template("app");
  });
  afterAll(async () => {
    await fixture.stop();
  });

  const lease = async (): Promise<{ holder: string; term: number }> => {
    const { spec } = (await fixture.client.get(leases, "substrate-operator", "substrate-system")) ?? {};
    return { holder: spec?.holderIdentity ?? "", term: spec?.leaseTransitions ?? 0 };
  };

  it("is asked for anew, under a higher term, after the Lease was lost", async () => {
    const actor = await fixture.actor("app");
    await fixture.wake(actor);
    const before = await lease();
    // the holder finds another's name at its next renewal
    const patch = { spec: { holderIdentity: "somebody", leaseDurationSeconds: 1 } };
    await fixture.client.mergePatch(leases, "substrate-operator", "substrate-system", patch);
    await eventually(
      async () => {
        const now = await lease();
        expect(now.term).toBeGreaterThan(before.term);
        expect(now.holder).not.toBe("somebody");
      },
      { deadlineMs: 20_000 },
    );
    await eventually(() => fixture.wake(actor), { deadlineMs: 10_000 });
    await fixture.suspend(actor.metadata.name);
    await fixture.until(actor.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_SUSPENDED");
  });

  it("regression: an operator whose Lease was deleted was cut off from the nodes for ever", async () => {
    const actor = await fixture.actor("app");
    const before = await lease();
    await fixture.kubectl("delete", "lease", "-n", "substrate-system", "substrate-operator");
    await eventually(
      async () => {
        expect((await lease()).term).toBeGreaterThan(before.term);
      },
      { deadlineMs: 10_000 },
    );
    await eventually(() => fixture.wake(actor), { deadlineMs: 10_000 });
    await fixture.suspend(actor.metadata.name);
    await fixture.until(actor.metadata.name, ({ status }) => status?.generation === 1);
    expect(Number(fixture.atelet.highestTerm)).toBe((await lease()).term);
    expect(await fixture.ready()).toBe("ok");
  });

  it("tells at /readyz that all nodes refuse its term, until the Lease has a higher one", async () => {
    const { term } = await lease();
    const heard = term + 100;
    fixture.atelet.highestTerm = BigInt(heard);
    // its stream of reports begins anew, and is refused
    await fixture.atelet.stop();
    await fixture.atelet.start();
    await eventually(
      async () => {
        expect(await fixture.ready()).toContain(`term ${term} is over: this node has heard of ${heard}`);
      },
      { deadlineMs: 15_000 },
    );
    const patch = { spec: { leaseTransitions: heard + 1 } };
    await fixture.client.mergePatch(leases, "substrate-operator", "substrate-system", patch);
    await eventually(
      async () => {
        expect(await fixture.ready()).toBe("ok");
      },
      { deadlineMs: 15_000 },
    );
  });

  it("passes to the next process after a kill, which shows what has happened meanwhile", async () => {
    const actor = await fixture.actor("app");
    await fixture.wake(actor);
    await fixture.suspend(actor.metadata.name);
    await fixture.until(actor.metadata.name, ({ status }) => status?.generation === 1);
    const before = await lease();
    await fixture.stopOperator("SIGKILL");
    fixture.atelet.complete(actor.metadata.uid ?? "");
    await fixture.startOperator();
    await fixture.until(
      actor.metadata.name,
      ({ status }) => status?.snapshots?.[0]?.storageState === "SNAPSHOT_STORAGE_STATE_COMPLETED",
    );
    expect((await lease()).term).toBeGreaterThan(before.term);
  });
});
