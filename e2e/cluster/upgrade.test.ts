import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { stringify } from "yaml";
import { eventually } from "../support/poll.ts";
import { checkoutVersion } from "@substrate/images/bundle.ts";
import { describeOnCluster } from "./describe.ts";
import { whileAsked } from "./hammer.ts";
import { chart } from "./harness/substrate.ts";
import { type Count, Installation, pushExample } from "./installation.ts";

const WAIT_MS = 60_000;
/** Of what replaces or ends all pods, on a busy machine. */
const LONG_MS = 300_000;
/** See freeze.ts beside it. */
const frozenChart = join(import.meta.dirname, "fixtures/substrate-0.0.9.tgz");
const repository = join(import.meta.dirname, "../..");
const AWAKE = "awake";
const ASLEEP = "asleep";

/** All of a release's life, in this order, with one actor that runs and one that sleeps. */
describeOnCluster("A release of the chart on two real nodes", {}, (cluster) => {
  let substrate: Installation;
  let image: string;
  /** What both answered last before the uninstall. */
  let answered: [Count, Count];

  beforeAll(async () => {
    image = await pushExample(cluster(), "counter");
    // today's images: there are none of that version
    const values = { image: { tag: await checkoutVersion(repository) } };
    substrate = await Installation.install(cluster(), { chart: frozenChart, values });
    for (const name of [AWAKE, ASLEEP]) await substrate.applyCounter(name, image);
  }, 600_000);

  const helm = (verb: string, ...args: string[]): Promise<string> =>
    cluster().helm([verb, substrate.release, ...args, "--namespace", substrate.namespace]);

  const upgrade = (...args: string[]): Promise<string> => helm("upgrade", chart, "--reset-then-reuse-values", ...args);

  /** A program in neither actor may have been started anew, nor may one wake without being asked. */
  async function survive(work: () => Promise<void>): Promise<void> {
    const [awake, asleep] = await Promise.all([substrate.count(AWAKE), substrate.count(ASLEEP)]);
    await substrate.kubectl("ate", "suspend", ASLEEP);
    await work();
    expect((await substrate.actor(ASLEEP)).status?.state).toBe("ACTOR_STATE_SUSPENDED");
    const { pid, startedAt } = awake;
    const after = await substrate.count(AWAKE);
    expect(after).toMatchObject({ pid, startedAt });
    expect(after.memory).toBeGreaterThan(awake.memory);
    expect(after.file).toBe(after.memory);
    expect(await substrate.count(ASLEEP)).toEqual(counted(asleep));
  }

  const held = (work: () => Promise<void>): Promise<void> => survive(() => whileAsked(substrate, [AWAKE], work));

  /** UIDs of pods by what they were made from: a label of the Deployment's or DaemonSet's template. */
  async function pods(): Promise<Map<string, string[]>> {
    const hash = "{.metadata.labels.pod-template-hash}{.metadata.labels.controller-revision-hash}";
    const path = `jsonpath={range .items[*]}${hash} {.metadata.uid}{"\\n"}{end}`;
    const lines = (await cluster().kubectl(["-n", substrate.namespace, "get", "pods", "-o", path])).trim().split("\n");
    const found = new Map<string, string[]>();
    for (const line of lines.toSorted()) {
      const [from = "", uid = ""] = line.split(" ");
      found.set(from, [...(found.get(from) ?? []), uid]);
    }
    return found;
  }

  /** What `helm history` has last. */
  async function revision(): Promise<string> {
    const [last] = JSON.parse(await helm("history", "--max", "1", "-o", "json")) as { revision: number }[];
    return `${last?.revision ?? "none"}`;
  }

  function template(name: string): string {
    return stringify({
      apiVersion: "substrate.run/v1alpha1",
      kind: "Template",
      metadata: { name, namespace: "default" },
      spec: {
        containers: [
          {
            name: "main",
            image,
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: "http" } },
            resources: { limits: { cpu: "500m", memory: "128Mi" } },
          },
        ],
        tolerations: [{ key: "disk", operator: "Exists" }],
        snapshots: { golden: "Never" },
      },
    });
  }

  /** What the API server says of an object that has the new field. */
  async function strictly(name: string): Promise<string> {
    const args = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
    try {
      return await cluster().kubectl(args, { input: template(name) });
    } catch (error) {
      return (error as Error).message;
    }
  }

  async function mayWriteEvents(): Promise<boolean> {
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: `system:serviceaccount:${substrate.namespace}:${substrate.fullname}-operator`,
        resourceAttributes: { namespace: "default", verb: "create", resource: "events" },
      },
    };
    const said = await cluster().kubectl(["create", "-f", "-", "-o", "jsonpath={.status.allowed}"], {
      input: stringify(review),
    });
    return said === "true";
  }

  /** The API server takes a moment for both. */
  async function hasWhatIsNew(isNew: boolean): Promise<void> {
    await eventually(
      async () => {
        expect(await strictly("new")).toContain(isNew ? "created" : 'unknown field "spec.tolerations"');
        expect(await mayWriteEvents()).toBe(isNew);
      },
      { deadlineMs: WAIT_MS },
    );
  }

  it("begins as an old one, without what came later", async () => {
    await hasWhatIsNew(false);
  });

  it("is upgraded: new fields and rights are there, and pods in which nothing changed go on", async () => {
    const before = await pods();
    await held(async () => {
      await upgrade();
      await hasWhatIsNew(true);
      await substrate.ready();
    });
    const after = await pods();
    const unchanged = [...before].filter(([from]) => after.has(from));
    expect(unchanged).not.toEqual([]);
    for (const [from, uids] of unchanged) expect(after.get(from)).toEqual(uids);
  });

  it("is rolled back: rights are as they were, and what only the new version knows is not shown", async () => {
    await cluster().kubectl(["apply", "-f", "-"], { input: template("newer") });
    const tolerations = ["get", "template", "newer", "-o", "jsonpath={.spec.tolerations}"];
    expect(await cluster().kubectl(tolerations)).not.toBe("");
    await held(async () => {
      await helm("rollback");
      await hasWhatIsNew(false);
      await substrate.ready();
    });
    await eventually(
      async () => {
        expect(await cluster().kubectl(tolerations)).toBe("");
      },
      { deadlineMs: WAIT_MS },
    );
  });

  it("is upgraded again, with all of its pods replaced, and no request fails", { timeout: LONG_MS }, async () => {
    const before = await pods();
    const rolled = ["operator", "atelet", "router"].flatMap((part) => ["--set", `${part}.podAnnotations.turn=second`]);
    await held(async () => {
      await upgrade(...rolled);
      await substrate.ready();
      await hasWhatIsNew(true);
    });
    await eventually(
      async () => {
        const after = new Set([...(await pods()).values()].flat());
        expect([...before.values()].flat().filter((uid) => after.has(uid))).toEqual([]);
      },
      { deadlineMs: WAIT_MS },
    );
  });

  it("is refused as a second one, and with values that make no sense, and stays as it is", async () => {
    const before = await revision();
    const store = "stores.default.url=s3://bucket?region=r";
    await expect(cluster().helm(["install", "second", chart, "-n", "default", "--set", store])).rejects.toThrow(
      'Substrate is installed in this cluster already, as release "substrate" in namespace "substrate-system"',
    );
    await expect(upgrade("--set", "atelet.reserve=64Gi")).rejects.toThrow(
      "reserve of node pool default is not below its memory",
    );
    expect(await revision()).toBe(before);
  });

  it("leaves people's objects when it is uninstalled, and nothing that hangs", { timeout: LONG_MS }, async () => {
    answered = await Promise.all([substrate.count(AWAKE), substrate.count(ASLEEP)]);
    await substrate.kubectl("ate", "suspend", ASLEEP);
    await helm("uninstall");
    const { namespace } = substrate;
    await eventually(
      async () => {
        const parts = "pods,deployments,daemonsets,services,secrets,roles,rolebindings,networkpolicies,serviceaccounts";
        const inside = await cluster().kubectl(["-n", namespace, "get", parts, "-o", "name"]);
        // its own, and what every namespace has
        expect(inside.trim().split("\n").sort()).toEqual(["secret/substrate-store", "serviceaccount/default"]);
        const wide =
          "clusterroles,clusterrolebindings,apiservices,validatingadmissionpolicies,validatingadmissionpolicybindings";
        const left = (await cluster().kubectl(["get", wide, "-o", "name"])).split("\n");
        // what the kinds, which stay, have of the API server itself
        expect(left.filter((name) => name.includes("substrate"))).toEqual([
          "apiservice.apiregistration.k8s.io/v1alpha1.substrate.run",
        ]);
      },
      { deadlineMs: WAIT_MS },
    );
    const kept = ["crds", "-l", "app.kubernetes.io/part-of=substrate", "-o", "name"];
    expect((await cluster().kubectl(["get", ...kept])).trim().split("\n")).toHaveLength(3);
    expect(await cluster().kubectl(["get", "actors"])).toMatch(new RegExp(`^${ASLEEP} .*^${AWAKE} `, "ms"));
    // a stale APIService would make it fail, and namespaces hang
    await cluster().kubectl(["api-resources"]);
    await cluster().kubectl(["delete", "namespace", namespace, "--timeout=60s"]);
  });

  it("comes back under another name in another namespace, and so do the actors", { timeout: LONG_MS }, async () => {
    substrate = await Installation.install(cluster(), {
      release: "again",
      namespace: "elsewhere",
      // the kinds are still marked as the other release's
      flags: ["--take-ownership"],
      images: "there",
    });
    const [awake, asleep] = await Promise.all([substrate.count(AWAKE), substrate.count(ASLEEP)]);
    expect([awake, asleep]).toEqual([counted(answered[0]), counted(answered[1])]);
  });
});

/** The next answer of a program that goes on where it was. */
function counted({ memory, file, ...same }: Count): Count {
  return { ...same, memory: memory + 1, file: file + 1 };
}
