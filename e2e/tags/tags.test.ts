import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Snapshot, snapshots, templates } from "@substrate/crds/index.ts";
import { StoryContext } from "@substrate/local/story/context.ts";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { eventually } from "../support/poll.ts";

const answer = z.object({
  memory: z.number(),
  file: z.number(),
  pid: z.number(),
  actor: z.string(),
  hostname: z.string(),
  startedAt: z.string(),
  copy: z.string(),
  random: z.number(),
});

const soonMs = 30_000;
const forks = Array.from({ length: 10 }, (_, index) => `fork-${index}`);

describe("tags, forks and golden snapshots of the counter", { timeout: 90_000 }, () => {
  let test: TestCluster;
  let story: StoryContext;

  beforeAll(async () => {
    test = await startTestCluster();
    story = await StoryContext.create(test.cluster);
    await story.kubectl("apply", "-f", story.manifest);
    await story.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "actor/counter");
  });
  afterAll(async () => {
    await (story as StoryContext | undefined)?.close();
    await (test as TestCluster | undefined)?.stop();
  });

  async function count(name: string): Promise<z.infer<typeof answer>> {
    const { statusCode, body } = await request(`${test.cluster.routerUrl}/`, {
      headers: { "substrate-actor": `default/${name}` },
      headersTimeout: 60_000,
    });
    const text = await body.text();
    if (statusCode !== 200) throw new Error(`${name} answered ${statusCode}: ${text}`);
    return answer.parse(JSON.parse(text));
  }

  async function apply(...objects: object[]): Promise<void> {
    for (const object of objects) {
      await test.cluster.client.request("POST", pathOf(object as { kind: string }), { body: object });
    }
  }

  const pathOf = ({ kind }: { kind: string }): string =>
    `/apis/substrate.run/v1alpha1/namespaces/default/${kind.toLowerCase()}s`;

  const actor = (name: string, source?: string): object => ({
    apiVersion: "substrate.run/v1alpha1",
    kind: "Actor",
    metadata: { name },
    spec: { templateRef: { name: "counter" }, ...(source && { source: { snapshotRef: { name: source } } }) },
  });

  async function tag(name: string, of: string): Promise<Snapshot> {
    await apply({
      apiVersion: "substrate.run/v1alpha1",
      kind: "Snapshot",
      metadata: { name },
      spec: { actorRef: { name: of }, tag: name },
    });
    return eventually(
      async () => {
        const snapshot = await test.cluster.client.get(snapshots, name, "default");
        if (snapshot?.status?.storageState !== "SNAPSHOT_STORAGE_STATE_COMPLETED") {
          throw new Error(JSON.stringify(snapshot?.status));
        }
        return snapshot;
      },
      { deadlineMs: soonMs },
    );
  }

  /** Folders of the store that belong to an Actor or a Snapshot: <cluster>/<namespace uid>/<uid>. */
  function prefixes(): string[] {
    const { storeDir } = test.cluster;
    const all = readdirSync(storeDir, { recursive: true, encoding: "utf8" });
    const files = all.filter((name) => statSync(join(storeDir, name)).isFile());
    return [
      ...new Set(
        files
          .map((name) => name.split("/").slice(0, -1))
          .filter((folders) => folders.length >= 3)
          .map((folders) => folders.slice(0, 3).join("/")),
      ),
    ];
  }

  it("starts new actors from the golden snapshot, each as itself", async () => {
    const template = await eventually(
      async () => {
        const found = await test.cluster.client.get(templates, "counter", "default");
        if (found?.status?.goldenSnapshot === undefined) throw new Error(JSON.stringify(found?.status));
        return found;
      },
      { deadlineMs: soonMs },
    );
    expect(template.status?.conditions?.find(({ type }) => type === "Golden")).toMatchObject({ status: "True" });
    await apply(actor("second"));
    await story.kubectl("wait", "--for=condition=Ready", "--timeout=30s", "actor/second");
    const [first, second] = [await count("counter"), await count("second")];
    // one process has been started, and both go on from it
    expect(second.startedAt).toBe(first.startedAt);
    expect([first.memory, second.memory]).toEqual([1, 1]);
    expect([first.actor, second.actor]).toEqual(["counter", "second"]);
    expect(second.hostname).not.toBe(first.hostname);
    expect(second.copy).not.toBe(first.copy);
    expect(second.random).not.toBe(first.random);
  });

  it("tags an actor that runs, which goes on, and one that sleeps", async () => {
    const before = await count("counter");
    const running = await tag("while-running", "counter");
    const after = await count("counter");
    expect(after).toMatchObject({ memory: before.memory + 1, pid: before.pid, startedAt: before.startedAt });
    await story.kubectl("ate", "suspend", "counter");
    const asleep = await tag("while-asleep", "counter");
    expect(asleep.status?.generation).toBeGreaterThan(running.status?.generation ?? 0);
  });

  it("forks ten at once, and each counts on by itself", async () => {
    await apply(...forks.map((name) => actor(name, "while-running")));
    const firsts = await Promise.all(forks.map(async (name) => count(name)));
    const seconds = await Promise.all(forks.map(async (name) => count(name)));
    expect(firsts.map(({ memory }) => memory)).toEqual(forks.map(() => 3));
    expect(firsts.map(({ file }) => file)).toEqual(forks.map(() => 3));
    expect(seconds.map(({ memory }) => memory)).toEqual(forks.map(() => 4));
    expect(firsts.map((one) => one.actor)).toEqual(forks);
    expect(new Set(firsts.map(({ hostname }) => hostname)).size).toBe(forks.length);
    expect(new Set(firsts.map(({ copy }) => copy)).size).toBe(forks.length);
    await story.kubectl("ate", "suspend", "fork-0");
    expect((await count("fork-0")).memory).toBe(5);
  });

  it("a tag outlives its actor, and actors begin from it then", async () => {
    await story.kubectl("delete", "actor", "counter", "--timeout=60s");
    await apply(actor("late", "while-asleep"));
    expect((await count("late")).memory).toBe(4);
  });

  it("whoever may not use a tag cannot begin from it", async () => {
    await story.kubectl("create", "clusterrole", "maker", "--verb=create", "--resource=actors.substrate.run");
    await story.kubectl("create", "clusterrolebinding", "maker", "--clusterrole=maker", "--user=eve");
    const body = JSON.stringify(actor("stolen", "while-asleep"));
    const as = { "impersonate-user": "eve", "content-type": "application/json" };
    const response = await test.cluster.client.raw("POST", pathOf({ kind: "Actor" }), { body, headers: as });
    let text = "";
    for await (const chunk of response.body) text += String(chunk);
    expect(response.status).toBe(403);
    expect(text).toContain("may not use Snapshot default/while-asleep");
  });

  it("deletes all of it, and nothing is left in the store", async () => {
    expect(prefixes().length).toBeGreaterThan(2);
    await story.kubectl("delete", "actors,snapshots,templates", "--all", "--timeout=60s");
    await eventually(
      async () => {
        const { items } = await test.cluster.client.list(snapshots, { namespace: "default" });
        expect(items.map(({ metadata }) => metadata.name)).toEqual([]);
        expect(prefixes()).toEqual([]);
      },
      { deadlineMs: soonMs },
    );
    expect(readdirSync(join(test.cluster.nodeDir, "actors"))).toEqual([]);
  });
});
