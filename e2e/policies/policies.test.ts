import { join } from "node:path";
import { type Actor, actors, type EnvVar, type Template, templates } from "@substrate/crds/index.ts";
import { KubeClient, type Sent } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { applyManifest } from "@substrate/local/control-plane/manifests.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";

let plane: TestControlPlane;
/** May do all with Templates and Actors, and use Snapshot "shared" and Secrets "s1" to "s8". */
let eve: KubeClient;
let admin: KubeClient;

const rbac = "rbac.authorization.k8s.io";
const role = {
  apiVersion: `${rbac}/v1`,
  kind: "ClusterRole",
  metadata: { name: "developer" },
  rules: [
    { apiGroups: ["substrate.run"], resources: ["actors", "templates"], verbs: ["*"] },
    { apiGroups: ["substrate.run"], resources: ["snapshots"], verbs: ["use"], resourceNames: ["shared"] },
    {
      apiGroups: [""],
      resources: ["secrets"],
      verbs: ["use"],
      resourceNames: [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `s${n}`),
    },
  ],
};

beforeAll(async () => {
  plane = await startControlPlane();
  admin = new KubeClient(loadKubeConfig(plane.kubeconfig), { fieldManager: "admin" });
  const pair = await plane.issue(
    { subject: "CN=eve,O=developers", dnsNames: [], ipAddresses: [] },
    { cert: join(plane.folder, "eve.crt"), key: join(plane.folder, "eve.key") },
  );
  const authority = plane.plane.pki.authority.files.cert;
  const kubeconfig = writeKubeconfig(join(plane.folder, "eve.yaml"), plane.server, authority, pair);
  eve = new KubeClient(loadKubeConfig(kubeconfig), { fieldManager: "eve" });
  await applyManifest(admin, role);
  await applyManifest(admin, {
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name: "developers" },
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "developer" },
    subjects: [{ apiGroup: rbac, kind: "Group", name: "developers" }],
  });
  for (const name of ["test", "a--b"]) await admin.create(namespaces, { metadata: { name } });
  // policies come into force some seconds after they are made, and not all at once
  await eventually(
    async () => {
      const dry = { name: "probe", source: { snapshotRef: { name: "private" } } };
      await expect(create(eve, dry)).rejects.toThrow(/may not use Snapshot/);
      await expect(create(eve, { name: "probe", env: [secret("A", "other")] })).rejects.toThrow(/may not use Secret/);
      await expect(template(eve, "probe", [secret("A", "other")])).rejects.toThrow(/may not use Secret/);
      await expect(create(eve, { name: "n".repeat(60) })).rejects.toThrow(/host name/);
    },
    { deadlineMs: 30_000, everyMs: 250 },
  );
});

afterAll(async () => {
  await (eve as KubeClient | undefined)?.close();
  await (admin as KubeClient | undefined)?.close();
  await (plane as TestControlPlane | undefined)?.stop();
});

function secret(name: string, secretName: string): EnvVar {
  return { name, valueFrom: { secretKeyRef: { name: secretName, key: "k" } } };
}

function create(
  client: KubeClient,
  { name, namespace = "test", ...spec }: { name: string; namespace?: string } & Partial<Actor["spec"]>,
): Promise<Actor> {
  const whole: Actor["spec"] = { templateRef: { name: "app" }, state: "OnDemand", ...spec };
  return client.create(actors, { metadata: { name, namespace }, spec: whole });
}

function template(client: KubeClient, name: string, env: EnvVar[]): Promise<Template> {
  const container = {
    name: "main",
    image: "registry.example.com/app:1",
    env,
    ports: [{ name: "http", containerPort: 8080 }],
    readyz: { httpGet: { path: "/", port: "http" } },
  };
  return client.create(templates, {
    metadata: { name, namespace: "test" },
    spec: { containers: [container] },
  } as Sent<Template>);
}

it("a Snapshot is a source only for who may use it", async () => {
  await expect(create(eve, { name: "f1", source: { snapshotRef: { name: "private" } } })).rejects.toThrow(
    'user "eve" may not use Snapshot test/private as spec.source: a Role must allow verb "use" on snapshots.substrate.run',
  );
  await create(eve, { name: "f2", source: { snapshotRef: { name: "shared" } } });
  await create(eve, { name: "f3" });
  await create(admin, { name: "f4", source: { snapshotRef: { name: "private" } } });
});

it("a Secret is named in env only by who may use it; what is there already is not looked at again", async () => {
  await expect(create(eve, { name: "e1", env: [secret("A", "s1"), secret("B", "other")] })).rejects.toThrow(
    'user "eve" may not use Secret test/other in env: a Role must allow verb "use" on secrets',
  );
  await expect(template(eve, "t1", [secret("A", "other")])).rejects.toThrow(/may not use Secret test\/other in env/);
  await create(eve, { name: "e2", env: [secret("A", "s1"), secret("B", "s1"), { name: "C", value: "plain" }] });
  await template(eve, "t2", [secret("A", "s1")]);
  await template(eve, "t3", [{ name: "A", value: "plain" }]);

  await create(admin, { name: "e3", env: [secret("A", "other")] });
  const patched = await eve.mergePatch(actors, "e3", "test", { spec: { state: "Suspended" } });
  expect(patched.spec.state).toBe("Suspended");
  const more = { spec: { env: [secret("A", "other"), secret("B", "another")] } };
  await expect(eve.mergePatch(actors, "e3", "test", more)).rejects.toThrow(/may not use Secret test\/another/);
});

it("as many Secrets as may be added at once are within the API server's budget, also beside many variables", async () => {
  const plain = Array.from({ length: 56 }, (_, index) => ({ name: `P${index}`, value: "x" }));
  const eight = Array.from({ length: 8 }, (_, index) => secret(`S${index}`, `s${index + 1}`));
  await create(eve, { name: "many", env: [...plain, ...eight] });
  await expect(create(eve, { name: "too-many", env: [...eight, secret("N", "s9")] })).rejects.toThrow(
    /env names 9 Secrets .* at most 8/,
  );
});

it("refuses what could be no host name", async () => {
  await expect(create(eve, { name: "x", namespace: "a--b" })).rejects.toThrow(/namespace "a--b" has "--" in its name/);
  await create(eve, { name: "n".repeat(57) });
  await expect(create(eve, { name: "n".repeat(58) })).rejects.toThrow(/would be longer than 63 characters/);
});
