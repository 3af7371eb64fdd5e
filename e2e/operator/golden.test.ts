import { afterAll, beforeAll, expect, it } from "vitest";
import { type Snapshot, snapshots, type Template, templates } from "@substrate/crds/index.ts";
import { eventually } from "../support/poll.ts";
import { Fixture } from "./fixture.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await Fixture.start();
  await fixture.template("app");
});
afterAll(async () => {
  await fixture.stop();
});

async function until(name: string, holds: (template: Template) => boolean): Promise<Template> {
  return eventually(
    async () => {
      const template = await fixture.client.get(templates, name, "test");
      if (template === undefined || !holds(template)) throw new Error(`template ${name}: ${JSON.stringify(template)}`);
      return template;
    },
    { deadlineMs: 10_000 },
  );
}

const golden = ({ status }: Template) => status?.conditions?.find(({ type }) => type === "Golden");

async function goldenOf(name: string): Promise<Snapshot> {
  const template = await until(name, ({ status }) => status?.goldenSnapshot !== undefined);
  const snapshot = await fixture.client.get(snapshots, template.status?.goldenSnapshot ?? "", "test");
  if (snapshot === undefined) throw new Error(`Template ${name} names no golden snapshot`);
  return snapshot;
}

it("keeps the trial run of a revision, from which new actors begin unless they have an environment or a source", async () => {
  const snapshot = await goldenOf("app");
  const template = await until("app", () => true);
  expect(golden(template)).toMatchObject({ status: "True", reason: "GoldenTaken" });
  expect(snapshot).toMatchObject({
    metadata: {
      name: `app-golden-${template.status?.revision ?? ""}`,
      finalizers: ["substrate.run/snapshot"],
      ownerReferences: [{ kind: "Template", name: "app", uid: template.metadata.uid }],
    },
    spec: { templateRef: { name: "app", revision: template.status?.revision } },
    status: {
      owner: "SNAPSHOT_OWNER_TEMPLATE",
      storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED",
      store: "default",
      sandbox: { runtime: "fake" },
    },
  });
  expect(fixture.atelet.calls.filter(({ method }) => method === "tryProgram")).toHaveLength(1);
  const actor = await fixture.actor("app");
  await fixture.wake(actor);
  expect(fixture.atelet.origins.get(actor.metadata.uid ?? "")).toMatchObject({
    golden: true,
    prefix: { uid: snapshot.metadata.uid },
  });
  await fixture.suspend(actor.metadata.name);
  await fixture.until(actor.metadata.name, ({ status }) => status?.generation === 1);
  await fixture.wake(actor);
  // it has a state of its own now
  expect(fixture.atelet.origins.get(actor.metadata.uid ?? "")).toBeUndefined();
});

it("takes it anew when it was deleted, and when no node has its runtime any more", async () => {
  const first = await goldenOf("app");
  await fixture.client.delete(snapshots, first.metadata.name, "test");
  const second = await eventually(
    async () => {
      const now = await goldenOf("app");
      expect(now.metadata.uid).not.toBe(first.metadata.uid);
      // the Template's status may still be about the first one
      expect(now.status?.storageState).toBe("SNAPSHOT_STORAGE_STATE_COMPLETED");
      return now;
    },
    { deadlineMs: 10_000 },
  );
  expect(fixture.atelet.stored.has(first.metadata.uid ?? "")).toBe(false);
  await fixture.atelet.stop();
  fixture.atelet.runtime = "newer";
  await fixture.atelet.start();
  await eventually(
    async () => {
      expect((await goldenOf("app")).status?.sandbox?.runtime).toBe("newer");
    },
    { deadlineMs: 15_000 },
  );
  expect(fixture.atelet.stored.has(second.metadata.uid ?? "")).toBe(false);
});

it("never makes a Template unready when it fails, and is none where it is not wanted or must hold no secret", async () => {
  fixture.atelet.goldenFailure = "STORE_UNAVAILABLE: no route";
  await fixture.template("failing");
  const failing = await until("failing", (now) => golden(now)?.reason === "GoldenFailed");
  expect(failing.status).toMatchObject({ phase: "Ready" });
  expect(failing.status?.goldenSnapshot).toBeUndefined();
  expect(golden(failing)?.message).toMatch(/no route; it is taken again at \d{4}-/);
  fixture.atelet.goldenFailure = "";
  await fixture.template("never", { snapshots: { golden: "Never" } } as never);
  await fixture.kubectl("-n", "test", "create", "secret", "generic", "s", "--from-literal=k=v");
  const secretly = await fixture.client.get(templates, "app", "test");
  const [container] = secretly?.spec.containers ?? [];
  await fixture.template("secretly", {
    containers: [
      { ...container, env: [{ name: "TOKEN", valueFrom: { secretKeyRef: { name: "s", key: "k" } } }] },
    ] as never,
  });
  expect(golden(await until("secretly", (now) => golden(now) !== undefined))).toMatchObject({ reason: "HasSecrets" });
  expect(golden(await until("never", () => true))).toBeUndefined();
  const all = (await fixture.client.list(snapshots, { namespace: "test" })).items;
  expect(all.some(({ spec }) => ["never", "secretly"].includes(spec.templateRef?.name ?? ""))).toBe(false);
});

it("of a replaced revision goes when no actor runs on it unsaved", async () => {
  await fixture.template("changing");
  const old = await goldenOf("changing");
  const actor = await fixture.actor("changing");
  await fixture.wake(actor);
  await fixture.until(actor.metadata.name, ({ status }) => status?.state === "ACTOR_STATE_RUNNING");
  await fixture.apply("changing", {}, "registry.example.com/app:2");
  await until("changing", ({ status }) => {
    const name = status?.goldenSnapshot;
    return name !== undefined && name !== old.metadata.name;
  });
  expect(await fixture.client.get(snapshots, old.metadata.name, "test")).toBeDefined();
  await fixture.suspend(actor.metadata.name);
  await fixture.until(actor.metadata.name, ({ status }) => status?.generation === 1);
  // any change of the Template looks at it at once
  await fixture.apply("changing", { wakeTimeout: "31s" }, "registry.example.com/app:2");
  await eventually(
    async () => {
      expect(await fixture.client.get(snapshots, old.metadata.name, "test")).toBeUndefined();
    },
    { deadlineMs: 10_000 },
  );
});
