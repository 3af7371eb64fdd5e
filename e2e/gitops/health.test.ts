import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Actor, actors, NOT_OBSERVED, type Snapshot, snapshots, templates } from "@substrate/crds/index.ts";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { type Reason } from "@substrate/operator/reasons.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { plain, referencePage, repository, tableRows } from "../docs/tables.ts";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { argoHealth, type HealthStatus, kstatus, whyNoLua } from "./lua-health.ts";

/** Status and reason of the decisive condition, and what Argo CD is to make of it. */
type Case = [status: "True" | "False" | "Unknown", reason: Reason, health: HealthStatus];

const actorCases: readonly Case[] = [
  ["True", "Running", "Healthy"],
  ["True", "Asleep", "Healthy"],
  ["True", "Crashed", "Healthy"],
  ["True", "Suspended", "Suspended"],
  ["False", "Pending", "Progressing"],
  ["False", "TemplateMissing", "Progressing"],
  ["False", "TemplateNotReady", "Progressing"],
  ["False", "SecretMissing", "Progressing"],
  ["Unknown", "SecretMissing", "Progressing"],
  ["False", "SnapshotMissing", "Progressing"],
  ["False", "NodeUnavailable", "Progressing"],
  ["False", "NoRoom", "Progressing"],
  ["False", "NoNode", "Progressing"],
  ["False", "RequestsOpen", "Progressing"],
  ["False", "NodeLost", "Degraded"],
  ["False", "CrashLoop", "Degraded"],
  ["False", "Deleting", "Progressing"],
  ["False", "DeletionBlocked", "Degraded"],
  ["False", "ProgramExited", "Degraded"],
  ["False", "NotReady", "Degraded"],
  ["False", "RestoreFailed", "Degraded"],
  ["False", "SnapshotDamaged", "Degraded"],
  ["False", "SnapshotUnusable", "Degraded"],
  ["False", "ImageUnavailable", "Degraded"],
  ["False", "Internal", "Degraded"],
];

const templateCases: readonly Case[] = [
  ["True", "Validated", "Healthy"],
  ["False", "Validating", "Progressing"],
  ["False", "NoNode", "Progressing"],
  ["False", "NodeUnavailable", "Progressing"],
  ["False", "NoRoom", "Progressing"],
  ["False", "ImageUnavailable", "Degraded"],
  ["False", "ProgramExited", "Degraded"],
  ["False", "NotReady", "Degraded"],
  ["False", "Invalid", "Degraded"],
];

const tagCases: readonly Case[] = [
  ["True", "Completed", "Healthy"],
  ["False", "Saving", "Progressing"],
  ["False", "NodeUnavailable", "Progressing"],
  ["False", "StoreUnavailable", "Progressing"],
  ["False", "GoldenFailed", "Degraded"],
  ["False", "DeletionBlocked", "Progressing"],
];

/** Reasons that Ready can have, as docs/reference/reasons.md lists them. */
function documented(heading: string): string[] {
  return tableRows(referencePage("reasons.md"), heading).flatMap(([reason, types]) =>
    types?.split(", ").includes("Ready") === true ? [plain(reason)] : [],
  );
}

describe.skipIf(whyNoLua !== undefined)(
  `Argo CD and kstatus${whyNoLua === undefined ? "" : ` (skipped: ${whyNoLua})`}`,
  () => {
    let plane: TestControlPlane;
    let client: KubeClient;

    beforeAll(async () => {
      plane = await startControlPlane();
      client = new KubeClient(loadKubeConfig(plane.kubeconfig), { fieldManager: "gitops-test" });
    });
    afterAll(async () => {
      // undefined when beforeAll failed
      await (client as KubeClient | undefined)?.close();
      await (plane as TestControlPlane | undefined)?.stop();
    });

    const create = async (type: ResourceType<KubeObject>, name: string, spec: object): Promise<KubeObject> => {
      const body = { apiVersion: `${type.group}/${type.version}`, kind: type.kind, metadata: { name }, spec };
      return (await client.request("POST", client.path(type, "default"), { body })) as KubeObject;
    };
    const actor = (name: string): Promise<KubeObject> => create(actors, name, { templateRef: { name: "app" } });
    const tag = (name: string): Promise<KubeObject> =>
      create(snapshots, name, { actorRef: { name: "one" }, tag: "v1" });
    const template = (name: string): Promise<KubeObject> =>
      create(templates, name, {
        containers: [
          {
            ...{ name: "app", image: "registry.example.com/app:1" },
            ports: [{ name: "http", containerPort: 80 }],
            readyz: { httpGet: { port: "http" } },
          },
        ],
      });
    const read = async (type: ResourceType<KubeObject>, name: string): Promise<KubeObject> => {
      const found = await client.get(type, name, "default");
      if (found === undefined) throw new Error(`${type.kind} ${name} is gone`);
      return found;
    };
    /** The object as the API server has it after the operator's status, which the kind's schema has checked. */
    const withStatus = async (type: ResourceType<KubeObject>, name: string, status: object): Promise<KubeObject> => {
      const { metadata } = await read(type, name);
      const patch = { status: { observedGeneration: metadata.generation, ...status } };
      await client.mergePatch(type, name, "default", patch, { subresource: "status" });
      return read(type, name);
    };
    const condition = (type: string, status: string, reason: string): object => ({
      ...{ type, status, reason, message: `why ${reason}` },
      lastTransitionTime: "2026-01-01T00:00:00Z",
    });

    it.each([
      { type: actors, make: actor, cases: actorCases },
      { type: templates, make: template, cases: templateCases },
      { type: snapshots, make: tag, cases: tagCases },
    ])("take every $type.kind for what it is", async ({ type, make, cases }) => {
      expect(documented(type.kind).filter((reason) => !cases.some((one) => one[1] === reason))).toEqual([]);
      const name = `cases-${type.plural}`;
      await make(name);
      const objects: KubeObject[] = [];
      for (const [status, reason] of cases) {
        objects.push(await withStatus(type, name, { conditions: [condition("Ready", status, reason)] }));
      }
      const health = argoHealth(type.kind, objects);
      expect(health.map(({ status }, index) => [...(cases[index]?.slice(0, 2) ?? []), status])).toEqual(cases);
      expect(health.every(({ message }, index) => message.includes(cases[index]?.[1] ?? "?"))).toBe(true);
      for (const [index, object] of objects.entries()) {
        expect(kstatus(object)).toBe(cases[index]?.[0] === "True" ? "Current" : "InProgress");
      }
    });

    it.each([
      { type: actors, make: actor },
      { type: templates, make: template },
      { type: snapshots, make: tag },
    ])(
      "wait for a $type.kind that the operator has not seen yet, and for its next generation",
      async ({ type, make }) => {
        const name = `new-${type.plural}`;
        await make(name);
        const fresh = await read(type, name);
        expect(fresh).toMatchObject({ status: { observedGeneration: NOT_OBSERVED } });
        const seen = await withStatus(type, name, { conditions: [condition("Ready", "True", "Running")] });
        const changed = { ...seen, metadata: { ...seen.metadata, generation: (seen.metadata.generation ?? 0) + 1 } };
        const objects = [fresh, changed];
        expect(argoHealth(type.kind, objects).map(({ status }) => status)).toEqual(["Progressing", "Progressing"]);
        expect(objects.map(kstatus)).toEqual(["InProgress", "InProgress"]);
      },
    );

    it("take a tag that failed for good for failed", async () => {
      await tag("failed");
      const conditions = [condition("Ready", "False", "UnknownActor"), condition("Stalled", "True", "Failed")];
      const failed = await withStatus(snapshots, "failed", {
        storageState: "SNAPSHOT_STORAGE_STATE_FAILED",
        conditions,
      });
      expect(argoHealth("Snapshot", [failed])[0]?.status).toBe("Degraded");
      expect(kstatus(failed)).toBe("Failed");
    });

    it("take a generation for what it is in the store", async () => {
      await tag("generation");
      const states: [string, string, HealthStatus][] = [
        ["SNAPSHOT_STORAGE_STATE_COMPLETED", "True", "Healthy"],
        ["SNAPSHOT_STORAGE_STATE_PENDING", "False", "Progressing"],
        ["SNAPSHOT_STORAGE_STATE_LOST", "False", "Degraded"],
      ];
      const objects: KubeObject[] = [];
      for (const [storageState, durable] of states) {
        const conditions = [condition("Durable", durable, durable === "True" ? "Completed" : "NotStored")];
        objects.push(await withStatus(snapshots, "generation", { storageState, conditions }));
      }
      expect(argoHealth("Snapshot", objects).map(({ status }) => status)).toEqual(states.map(([, , health]) => health));
    });

    // Argo CD compares what was written with what is there, without fields that only the latter has
    it("find nothing to put back in the examples once the API server has filled in defaults", async () => {
      for (const file of globSync("examples/*/*.yaml", { cwd: repository })) {
        for (const document of parseAllDocuments(readFileSync(join(repository, file), "utf8"))) {
          const written = document.toJS() as Actor | Snapshot;
          const type = [actors, templates, snapshots].find(({ kind }) => kind === written.kind);
          if (type === undefined) continue;
          const path = client.path(type, "default", written.metadata.name, { fieldManager: "argocd-controller" });
          await client.request("PATCH", path, { body: written, contentType: "application/apply-patch+yaml" });
          expect(await read(type, written.metadata.name)).toMatchObject(written);
        }
      }
    });

    it("are told by a ConfigMap that has the scripts as they were tested", () => {
      const { data } = parse(readFileSync(join(repository, "charts/argocd/argocd-cm.yaml"), "utf8")) as {
        data: Record<string, string>;
      };
      for (const kind of ["Actor", "Snapshot", "Template"]) {
        const script = readFileSync(join(repository, `charts/argocd/${kind.toLowerCase()}.lua`), "utf8");
        expect(data[`resource.customizations.health.substrate.run_${kind}`]).toBe(script);
      }
    });
  },
);
