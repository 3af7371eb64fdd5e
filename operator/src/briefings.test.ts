import { type Actor } from "@substrate/crds/index.ts";
import { type ActorReport, ActorState } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { expect, it } from "vitest";
import { type AteletLink } from "./atelet-link.ts";
import { Briefings, type BriefingsOptions } from "./briefings.ts";
import { type ActorPlan, planDigest } from "./plans.ts";

const actor = { metadata: { name: "a", namespace: "ns", uid: "u" } } as Actor;
const standing = { presentRevision: "r1" };

function report(changes: Partial<ActorReport>): ActorReport {
  return {
    state: ActorState.ACTOR_STATE_RUNNING,
    revision: "r1",
    generations: [],
    volumes: [],
    ...changes,
  } as ActorReport;
}

/** What the node of the actor is told by a process that has not told it anything yet. */
function world(): { told: () => number; limit: (bytes: bigint) => void; update: (seen: ActorReport) => Promise<void> } {
  let calls = 0;
  let digest: string | undefined;
  let sizeLimitBytes = 1n;
  const briefings = new Briefings({
    plans: {
      program: () => Promise.resolve({ volumeMounts: [{ name: "data", sizeLimitBytes }] }),
      present: () => Promise.resolve({ program: { volumeMounts: [{ name: "data", sizeLimitBytes }] } }),
    },
    assignments: {
      told: () => digest,
      assumeTold: (_: string, now: string) => {
        digest = now;
      },
      assign: () => {
        calls += 1;
        return Promise.resolve();
      },
    },
  } as unknown as BriefingsOptions);
  return {
    told: () => calls,
    limit: (bytes) => {
      sizeLimitBytes = bytes;
    },
    update: (seen) => briefings.update(actor, {} as AteletLink, seen, standing),
  };
}

it("regression: a changed sizeLimit did not reach an actor that ran and was never saved", async () => {
  const { limit, told, update } = world();
  await update(report({}));
  expect(told()).toBe(0);
  limit(2n);
  await update(report({}));
  expect(told()).toBe(1);
  // asleep without a generation: the next wake says it, with what it begins from
  await update(report({ state: ActorState.ACTOR_STATE_CRASHED }));
  expect(told()).toBe(1);
});

it("regression: a sizeLimit that was changed while the operator was away was taken to be known to the node", async () => {
  const { told, update } = world();
  await update(report({ volumes: [{ name: "data", usedBytes: 0n, limitBytes: 5n }] }));
  expect(told()).toBe(1);
});

it("regression: a node was told again and again of a sleeping actor for which a revision with another environment waits", async () => {
  const program = { volumeMounts: [] };
  const calls: ActorPlan[] = [];
  const env = (revision: string): { name: string; value: string }[] => [{ name: "REVISION", value: revision }];
  const briefings = new Briefings({
    plans: {
      decide: () => Promise.resolve({ revision: "r2", tie: { kind: "memory", revision: "r1", generation: 1 } }),
      env: (_: Actor, revision: string) => Promise.resolve(env(revision)),
      envOwner: () => ({}),
      program: () => Promise.resolve(program),
      present: (_: Actor, revision: string) =>
        Promise.resolve({ program, environment: { variables: [], digest: JSON.stringify(env(revision)) } }),
    },
    environments: { resolve: (_: object, named: object) => Promise.resolve({ digest: JSON.stringify(named) }) },
    assignments: {
      told: () => {
        const last = calls.at(-1);
        return last && planDigest(last.program, last.environment?.digest, last.upgradePending);
      },
      assign: (_: Actor, __: AteletLink, plan: ActorPlan) => {
        calls.push(plan);
        return Promise.resolve();
      },
    },
  } as unknown as BriefingsOptions);
  const asleep = report({ state: ActorState.ACTOR_STATE_SUSPENDED, generations: [{}] as ActorReport["generations"] });
  for (let i = 0; i < 3; i += 1) {
    const seen = await briefings.standing(actor, asleep);
    expect(seen).toMatchObject({ presentRevision: "r1", upgradeTo: "r2" });
    await briefings.update(actor, {} as AteletLink, asleep, seen ?? {});
  }
  expect(calls.map(({ upgradePending }) => upgradePending)).toEqual([true]);
});
