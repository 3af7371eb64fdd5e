import { describe, expect, it } from "vitest";
import { type Actor, type Template } from "@substrate/crds/index.ts";
import { type ActorReport, ActorState, Fidelity, StorageState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Choice, newest } from "./choices.ts";
import { type Decision, Plans, type PlansOptions } from "./plans.ts";

const actor = { metadata: { name: "a", namespace: "ns", uid: "u" }, spec: { templateRef: { name: "t" } } } as Actor;
const bootChoice: Choice = { kind: "boot" };
const boot = { from: { $case: "boot", value: true } };

/** Revision "new" is the Template's; "old" and "new" have a volume each unless said otherwise. */
function plans(upgrade: Template["spec"]["upgrade"], { phase = "Ready", lacks = false } = {}): Plans {
  const template = {
    metadata: { name: "t", namespace: "ns", uid: "t" },
    spec: { upgrade },
    status: { phase, revision: "new" },
  };
  const mounts = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
  const load = (_: unknown, revision: string) =>
    Promise.resolve({ part: { volumeMounts: revision === "new" && lacks ? [] : mounts }, imageDigest: "" });
  return new Plans({ templates: { get: () => template }, revisions: { load } } as unknown as PlansOptions);
}

function saved(fidelity: Fidelity, changes: Partial<ActorReport> = {}): ActorReport {
  const storageState = StorageState.STORAGE_STATE_COMPLETED;
  const generations = [{ generation: 2n, revision: "old", storageState, local: true, fidelity }];
  return {
    state: ActorState.ACTOR_STATE_SUSPENDED,
    revision: "old",
    floor: 0n,
    generations,
    ...changes,
  } as ActorReport;
}

const memory = saved(Fidelity.FIDELITY_MEMORY);
const files = saved(Fidelity.FIDELITY_DATA);
const unsaved = saved(Fidelity.FIDELITY_MEMORY, { floor: 2n });

async function decide(of: Plans, report: ActorReport | undefined, choice = newest): Promise<Partial<Decision>> {
  const { revision, startFrom, refused } = await of.decide(actor, report, choice, undefined);
  return { revision, startFrom, ...(refused === undefined ? {} : { refused }) };
}

describe("decide", () => {
  it("Manual: memory, and what a person went back to, stay on their revision; files and the unsaved take the newest", async () => {
    const manual = plans("Manual");
    const stays = { revision: "old", startFrom: undefined };
    expect(await decide(manual, memory)).toEqual(stays);
    expect(await decide(manual, unsaved)).toEqual(stays);
    expect(await decide(manual, files)).toEqual({ revision: "new", startFrom: undefined });
    expect(await decide(manual, undefined)).toEqual({ revision: "new", startFrom: undefined });
    expect(await decide(manual, memory, bootChoice)).toEqual({ revision: "new", startFrom: boot });
  });

  it("OnNextResume: all take the newest, cold where memory would be of another program", async () => {
    const onResume = plans("OnNextResume");
    expect(await decide(onResume, memory)).toEqual({ revision: "new", startFrom: boot });
    expect(await decide(onResume, unsaved)).toEqual({ revision: "new", startFrom: boot });
    expect(await decide(onResume, files)).toEqual({ revision: "new", startFrom: undefined });
  });

  it("regression: a state that was damaged gave way, by itself, to a new revision that began anew", async () => {
    const storageState = StorageState.STORAGE_STATE_LOST;
    const generations = [{ generation: 2n, revision: "old", storageState, local: false }] as ActorReport["generations"];
    const damaged = saved(Fidelity.FIDELITY_MEMORY, { generations, damage: "generation 2 is lost" });
    const onResume = plans("OnNextResume");
    expect(await decide(onResume, damaged)).toEqual({ revision: "old", startFrom: undefined });
    expect(await decide(onResume, damaged, bootChoice)).toEqual({ revision: "new", startFrom: boot });
  });

  it("takes no revision that is not Ready, and touches nothing that runs", async () => {
    expect(await decide(plans("OnNextResume", { phase: "Failed" }), memory)).toMatchObject({ revision: "old" });
    await expect(decide(plans("OnNextResume", { phase: "Failed" }), undefined)).rejects.toMatchObject({
      code: "TEMPLATE_NOT_READY",
    });
    const running = saved(Fidelity.FIDELITY_MEMORY, { state: ActorState.ACTOR_STATE_RUNNING });
    expect(await decide(plans("OnNextResume"), running, bootChoice)).toEqual({ revision: "old", startFrom: undefined });
  });

  it("refuses a revision that lacks a volume: by itself it stays, to a person it says so", async () => {
    const lacking = plans("OnNextResume", { lacks: true });
    const refused = expect.stringContaining('lacks volume "data"') as string;
    expect(await decide(lacking, memory)).toEqual({ revision: "old", startFrom: undefined, refused });
    expect(await decide(lacking, files)).toEqual({ revision: "old", startFrom: undefined, refused });
    await expect(decide(lacking, memory, bootChoice)).rejects.toMatchObject({ code: "UPGRADE_REFUSED" });
    // an actor that has lost its Template says that first
    const gone = new Plans({ templates: { get: () => undefined } } as unknown as PlansOptions);
    await expect(decide(gone, memory)).rejects.toMatchObject({ code: "TEMPLATE_MISSING" });
  });
});

describe("waiting", () => {
  const template = (upgrade: Template["spec"]["upgrade"], onSuspend: string) =>
    new Plans({
      templates: {
        get: () => ({
          metadata: { name: "t", namespace: "ns", uid: "t1" },
          spec: { upgrade, snapshots: { onSuspend } },
          status: { phase: "Ready", revision: "new" },
        }),
      },
      revisions: { load: () => Promise.resolve({ part: { volumeMounts: [] }, imageDigest: "" }) },
    } as unknown as PlansOptions);
  const running = { kind: "running", revision: "old" } as const;
  const asleep = { kind: "memory", revision: "old", generation: 1 } as const;

  it.each([
    ["Manual", "Memory", running, false],
    ["Manual", "Memory", asleep, false],
    ["OnNextResume", "Memory", running, true],
    // files start by the newest revision anyway
    ["Manual", "Data", running, true],
  ] as const)("%s, %s: tells of the newer revision", async (upgrade, onSuspend, tie, byItself) => {
    const expected = { upgradeWaits: { revision: "new", byItself } };
    expect(await template(upgrade, onSuspend).waiting(actor, "old", tie)).toEqual(expected);
    expect(await template(upgrade, onSuspend).waiting(actor, "new", tie)).toEqual({});
  });

  it("regression: a fork's environment with a Secret had another digest than the actor's that it was taken from", () => {
    const plan = template("Manual", "Memory");
    const fork = { ...actor, metadata: { ...actor.metadata, name: "fork", uid: "u2" } };
    expect(plan.envOwner(fork).templateUid).toBe(plan.envOwner(actor).templateUid);
  });
});
