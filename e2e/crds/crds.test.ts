import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { actors, snapshots, templates } from "@substrate/crds/index.ts";
import { KubeClient, KubeError, type KubeObject, type ResourceType } from "@substrate/lib/kube/client.ts";
import { definitions } from "@substrate/crds/all.ts";
import { customResourceDefinition } from "@substrate/crds/definition.ts";
import { type CustomResourceDefinition, customResourceDefinitions } from "@substrate/lib/kube/types.ts";
import { eventually } from "../support/poll.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { tools } from "../support/tools.ts";

let plane: TestControlPlane;
let client: KubeClient;

beforeAll(async () => {
  plane = await startControlPlane({ objects: false });
  client = new KubeClient(loadKubeConfig(plane.kubeconfig), { fieldManager: "crds-test" });
  await Promise.all(definitions.map((definition) => install(customResourceDefinition(definition))));
});

afterAll(async () => {
  // undefined when beforeAll failed
  await (client as KubeClient | undefined)?.close();
  await (plane as TestControlPlane | undefined)?.stop();
});

async function install(crd: CustomResourceDefinition): Promise<void> {
  await client.create(customResourceDefinitions, crd);
  await eventually(
    async () => {
      const { status } = (await client.get(customResourceDefinitions, crd.metadata.name)) ?? {};
      const conditions = status?.conditions ?? [];
      expect(conditions.find(({ type }) => type === "Established")?.status).toBe("True");
      // "the schema is not structural" and the like come as this condition
      expect(conditions.find(({ type }) => type === "NonStructuralSchema")).toBeUndefined();
    },
    { deadlineMs: 20_000 },
  );
}

const kubectl = async (...args: string[]): Promise<string> =>
  (await promisify(execFile)(tools.kubectl, ["--kubeconfig", plane.kubeconfig, ...args])).stdout;

/** A document whose parts tests replace; typed loosely, because most of them are wrong on purpose. */
type Loose = Record<string, unknown>;

const container = (changes: Loose = {}): Loose => ({
  name: "app",
  image: "registry.example.com/app:1",
  ports: [{ name: "http", containerPort: 8080 }],
  readyz: { httpGet: { path: "/readyz", port: "http" } },
  ...changes,
});
const templateSpec = (changes: Loose = {}): Loose => ({ containers: [container()], ...changes });
const actorSpec = (changes: Loose = {}): Loose => ({ templateRef: { name: "counter" }, ...changes });

async function create<T extends KubeObject>(type: ResourceType<T>, name: string, spec: Loose): Promise<T> {
  const path = client.path(type, "default");
  const body = { apiVersion: "substrate.run/v1alpha1", kind: type.kind, metadata: { name }, spec };
  return (await client.request("POST", path, { body })) as T;
}

/** What the API server says against an object; fails when it is accepted. */
async function refusal(type: ResourceType<KubeObject>, name: string, spec: Loose): Promise<string> {
  try {
    await create(type, name, spec);
  } catch (error) {
    if (error instanceof KubeError && error.status === 422) return error.message;
    throw error;
  }
  throw new Error(`${type.kind} ${name} was accepted`);
}

describe("Template", () => {
  it("is accepted, and what is left out is filled in", async () => {
    const { spec } = await create(templates, "defaults", templateSpec());
    expect(spec).toMatchObject({
      containers: [{ resources: { limits: { cpu: "1", memory: "256Mi" } }, readyz: { httpGet: { path: "/readyz" } } }],
      snapshots: { store: "default", uploadDelay: "10s", uploadWithin: "5m", detachDelay: "10m" },
      drainTimeout: "10s",
      wakeTimeout: "30s",
    });
  });

  it("fills in the rest of what is given in part", async () => {
    const spec = templateSpec({
      containers: [
        container({
          resources: { limits: { cpu: 2 } },
          readyz: { httpGet: { port: 8080 } },
          ports: [
            { name: "http", containerPort: 8080 },
            { name: "a", containerPort: 1 },
          ],
        }),
      ],
      snapshots: { uploadDelay: "0s", uploadWithin: "1h30m" },
    });
    expect((await create(templates, "partly", spec)).spec).toMatchObject({
      containers: [{ resources: { limits: { cpu: 2, memory: "256Mi" } }, readyz: { httpGet: { path: "/" } } }],
      snapshots: { store: "default", uploadDelay: "0s", uploadWithin: "1h30m", detachDelay: "10m" },
    });
  });

  it("takes nodes' labels and taints as a pod does", async () => {
    const placement = {
      nodeSelector: { "kubernetes.io/os": "linux", disk: "", "a.b-c.example.com/x_Y.z": "1" },
      tolerations: [
        { operator: "Exists" },
        { key: "dedicated", value: "agents", effect: "NoSchedule" },
        { key: "example.com/gpu", operator: "Equal", value: "" },
      ],
    };
    expect((await create(templates, "placed", templateSpec(placement))).spec).toMatchObject(placement);
    const { nodeSelector } = placement;
    expect((await create(actors, "placed", actorSpec({ nodeSelector }))).spec).toMatchObject({ nodeSelector });
  });

  const port = (changes: Loose): Loose => ({
    containers: [container({ ports: [{ name: "http", containerPort: 8080, ...changes }] })],
  });
  const limits = (changes: Loose): Loose => ({ containers: [container({ resources: { limits: changes } })] });

  it.each<[string, Loose, string]>([
    [
      "two containers",
      { containers: [container(), container({ name: "b" })] },
      "must have exactly one container for now: give every other program a Template of its own",
    ],
    ["no container", { containers: [] }, "must have exactly one container for now"],
    [
      "a nodeSelector that is no label",
      { nodeSelector: { "Zone.Example.com/": "a" } },
      'spec.nodeSelector: Invalid value: "object": every key must be a label\'s key',
    ],
    ["a nodeSelector with a bad value", { nodeSelector: { zone: "a b" } }, "every value must be a label's value"],
    ["a toleration of nothing", { tolerations: [{ value: "x" }] }, "needs a key, or operator Exists"],
    [
      "a toleration of any value with a value",
      { tolerations: [{ key: "a", operator: "Exists", value: "x" }] },
      'spec.tolerations[0].value: Invalid value: "object": must be left out with operator Exists',
    ],
    ["a toleration of a bad key", { tolerations: [{ key: "a/b/c", operator: "Exists" }] }, "must be a taint's key"],
    ["no image", { containers: [container({ image: undefined })] }, "spec.containers[0].image: Required value"],
    ["an image with a space", { containers: [container({ image: "a b" })] }, "must not contain white space"],
    [
      "no ports",
      { containers: [container({ ports: [] })] },
      "spec.containers[0].ports in body should have at least 1 items",
    ],
    ["no readyz", { containers: [container({ readyz: undefined })] }, "spec.containers[0].readyz: Required value"],
    [
      "a readyz of no port",
      { containers: [container({ readyz: { httpGet: { port: "web" } } })] },
      'spec.containers[0].readyz.httpGet.port: Invalid value: "object": names no port of this container: use a name from ports, or a number',
    ],
    [
      "a readyz port out of range",
      { containers: [container({ readyz: { httpGet: { port: 70000 } } })] },
      "must be a port number from 1 to 65535",
    ],
    [
      "a relative readyz path",
      { containers: [container({ readyz: { httpGet: { path: "x", port: 1 } } })] },
      `must begin with '/', for instance "/readyz"`,
    ],
    [
      "a port name with --",
      port({ name: "a--b" }),
      "must not contain '--', which separates the parts of an actor's host name: use a single '-'",
    ],
    [
      "a port name in capitals",
      port({ name: "HTTP" }),
      `must be lower-case letters, digits and '-', with at least one letter, for instance "http"`,
    ],
    ["a port name of digits", port({ name: "80" }), "with at least one letter"],
    ["a port out of range", port({ containerPort: 65536 }), "should be less than or equal to 65535"],
    [
      "one port twice",
      {
        containers: [
          container({
            ports: [
              { name: "a", containerPort: 1 },
              { name: "b", containerPort: 1 },
            ],
            readyz: { httpGet: { port: 1 } },
          }),
        ],
      },
      "containerPort must be different in every port",
    ],
    [
      "one port name twice",
      {
        containers: [
          container({
            ports: [
              { name: "http", containerPort: 1 },
              { name: "http", containerPort: 2 },
            ],
          }),
        ],
      },
      "two ports have the same name: give every port a name of its own",
    ],
    [
      "memory without a unit",
      limits({ memory: "256" }),
      'must be between 16Mi and 16Ti, for instance "256Mi" or "1Gi"',
    ],
    ["memory in milli", limits({ memory: "256m" }), "must be between 16Mi and 16Ti"],
    ["memory that is no quantity", limits({ memory: "256MB" }), 'must be a quantity, for instance "256Mi" or "1Gi"'],
    ["negative CPU", limits({ cpu: "-1" }), 'must be between 10m and 1024, for instance "500m" or "2"'],
    ["CPU that is no quantity", limits({ cpu: "one" }), 'must be a quantity, for instance "500m" or "2"'],
    [
      "a duration without a unit",
      { drainTimeout: "10" },
      'must be a duration, for instance "500ms", "10s", "5m" or "1h30m"',
    ],
    ["a duration in days", { snapshots: { detachDelay: "1d" } }, "must be a duration, for instance"],
    ["no time to wake", { wakeTimeout: "0s" }, "must be between 1s and 720h"],
    [
      "an upload later than allowed",
      { snapshots: { uploadDelay: "10m" } },
      'spec.snapshots.uploadDelay: Invalid value: "object": must not be longer than uploadWithin: shorten the one or lengthen the other',
    ],
    [
      "a URL as store",
      { snapshots: { store: "s3://bucket" } },
      'must be the name of a store of the installation, for instance "default", never a URL',
    ],
  ])("with %s is refused", async (_, changes, message) => {
    await expect(refusal(templates, "bad", templateSpec(changes))).resolves.toContain(message);
  });

  it("with a name longer than a label is refused", async () => {
    await expect(refusal(templates, "t".repeat(64), templateSpec())).resolves.toContain(
      'metadata.name: Invalid value: "object": must be at most 63 characters long',
    );
  });

  it("keeps a status that was written apart", async () => {
    await create(templates, "status", templateSpec());
    const time = "2026-01-01T00:00:00Z";
    const ready = {
      type: "Ready",
      status: "True" as const,
      reason: "Answered",
      message: "ok",
      lastTransitionTime: time,
    };
    await client.apply(
      templates,
      {
        metadata: { name: "status", namespace: "default" },
        status: { observedGeneration: 1, phase: "Ready", revision: "r1", conditions: [ready] },
      },
      { subresource: "status" },
    );
    expect((await client.get(templates, "status", "default"))?.status).toEqual({
      observedGeneration: 1,
      phase: "Ready",
      revision: "r1",
      conditions: [ready],
    });
    expect(await kubectl("get", "tmpl", "status", "--no-headers")).toMatch(/^status +Ready +r1 +\d+s/);
    expect(await kubectl("get", "tmpl", "status", "-o", "wide", "--no-headers")).toMatch(
      /^status +Ready +r1 +registry.example.com\/app:1 +\d+s +ok/,
    );
  });
});

describe("Actor", () => {
  it("is accepted, on demand by default", async () => {
    expect((await create(actors, "a1", actorSpec())).spec).toEqual({
      templateRef: { name: "counter" },
      state: "OnDemand",
    });
  });

  it.each<[string, string, Loose, string]>([
    [
      "an unknown state",
      "bad",
      actorSpec({ state: "Asleep" }),
      'Unsupported value: "Asleep": supported values: "OnDemand", "Running", "Suspended"',
    ],
    ["no Template", "bad", { templateRef: undefined }, "spec.templateRef: Required value"],
    [
      "a name with --",
      "a--b",
      actorSpec(),
      "metadata.name: Invalid value: \"object\": must not contain '--', which separates the parts of an actor's host name: use a single '-'",
    ],
    [
      "a name with a dot",
      "a.b",
      actorSpec(),
      "metadata.name: Invalid value: \"object\": must not contain '.': use '-' instead",
    ],
    [
      "a long name",
      "a".repeat(64),
      actorSpec(),
      'metadata.name: Invalid value: "object": must be at most 63 characters long',
    ],
  ])("with %s is refused", async (_, name, spec, message) => {
    await expect(refusal(actors, name, spec)).resolves.toContain(message);
  });

  it("keeps its Template", async () => {
    await create(actors, "a2", actorSpec());
    await expect(
      client.mergePatch(actors, "a2", "default", { spec: { templateRef: { name: "other" } } }),
    ).rejects.toThrow("templateRef cannot be changed: delete this Actor and create it again, or create another one");
    const { spec } = await client.mergePatch(actors, "a2", "default", { spec: { state: "Suspended" } });
    expect(spec.state).toBe("Suspended");
  });

  it("never goes back in its epoch, and binds an epoch to one grant", async () => {
    await create(actors, "a3", actorSpec());
    const grant = (assignment: Loose | null) =>
      client.mergePatch(actors, "a3", "default", { status: { assignment } }, { subresource: "status" });
    const back =
      'status.assignment.epoch: Invalid value: "object": never goes back and is never removed: read the Actor again and write a higher epoch';
    const other =
      'status.assignment: Invalid value: "object": of one epoch may only be released: write a higher epoch for another node or session';
    await grant({ nodeName: "n1", epoch: 5, session: "s1" });
    await expect(grant({ epoch: 4 })).rejects.toThrow(back);
    await expect(grant(null)).rejects.toThrow(back);
    await expect(
      client.mergePatch(actors, "a3", "default", { status: null }, { subresource: "status" }),
    ).rejects.toThrow(back);
    await expect(grant({ nodeName: "n2" })).rejects.toThrow(other);
    await expect(grant({ session: "s2" })).rejects.toThrow(other);
    await grant({ nodeName: null, session: null });
    await expect(grant({ nodeName: "n1", session: "s1" })).rejects.toThrow(other);
    const { status } = await grant({ nodeName: "n2", session: "s3", epoch: 6 });
    expect(status?.assignment).toEqual({ nodeName: "n2", session: "s3", epoch: 6 });
    // a write of the spec leaves the status alone
    await client.mergePatch(actors, "a3", "default", {
      spec: { state: "Suspended" },
      status: { assignment: { epoch: 1 } },
    });
    expect((await client.get(actors, "a3", "default"))?.status?.assignment?.epoch).toBe(6);
  });

  it("shows what a person looks for", async () => {
    await create(actors, "a4", actorSpec());
    const entry = {
      name: "a4-2",
      generation: 2,
      owner: "SNAPSHOT_OWNER_ACTOR" as const,
      storageState: "SNAPSHOT_STORAGE_STATE_PENDING" as const,
      fidelity: "Memory" as const,
    };
    const status = {
      state: "ACTOR_STATE_SUSPENDED" as const,
      generation: 2,
      assignment: { nodeName: "n1", epoch: 1, session: "s" },
      conditions: [
        {
          type: "Ready",
          status: "False" as const,
          reason: "NodeUnavailable",
          message: "Node n1 has not answered for long",
          lastTransitionTime: "2026-01-01T00:00:00Z",
        },
      ],
      snapshots: [
        entry,
        { ...entry, name: "a4-1", generation: 1, storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" as const },
      ],
    };
    await client.apply(actors, { metadata: { name: "a4", namespace: "default" }, status }, { subresource: "status" });
    const [header, row] = (await kubectl("get", "act", "a4")).split("\n");
    expect(header).toMatch(/^NAME +STATE +NODE +TEMPLATE +GENERATION +STORAGE +READY +AGE$/);
    expect(row).toMatch(/^a4 +ACTOR_STATE_SUSPENDED +n1 +counter +2 +SNAPSHOT_STORAGE_STATE_PENDING +False +\d+s$/);
    const wide = await kubectl("get", "act", "a4", "-o", "wide", "--no-headers");
    expect(wide).toMatch(/ False +\d+s +1 +Node n1 has not answered for long\n$/);
    expect(await kubectl("get", "substrate", "--field-selector=metadata.name=a4", "-o", "name")).toBe(
      "actor.substrate.run/a4\n",
    );
    expect(await kubectl("explain", "actor.spec.state")).toContain("requests wake it");
  });
});

describe("Snapshot", () => {
  it("is accepted, names what was saved for ever, and shows it", async () => {
    await create(snapshots, "a1-3", { actorRef: { name: "a1" }, generation: 3 });
    await expect(client.mergePatch(snapshots, "a1-3", "default", { spec: { generation: 4 } })).rejects.toThrow(
      "the spec of a Snapshot cannot be changed: it names what was saved",
    );
    const status = {
      owner: "SNAPSHOT_OWNER_ACTOR" as const,
      storageState: "SNAPSHOT_STORAGE_STATE_COMPLETED" as const,
      generation: 3,
      fidelity: "Memory" as const,
      sizeBytes: 4096,
    };
    await client.apply(
      snapshots,
      { metadata: { name: "a1-3", namespace: "default" }, status },
      { subresource: "status" },
    );
    expect(await kubectl("get", "snap", "--field-selector=spec.actorRef.name=a1", "--no-headers")).toMatch(
      /^a1-3 +a1 +3 +SNAPSHOT_OWNER_ACTOR +SNAPSHOT_STORAGE_STATE_COMPLETED +4096 +Memory +\d+s/,
    );
  });

  it("of no generation is refused", async () => {
    await expect(refusal(snapshots, "bad", { actorRef: { name: "a1" }, generation: 0 })).resolves.toContain(
      "should be greater than or equal to 1",
    );
  });
});
