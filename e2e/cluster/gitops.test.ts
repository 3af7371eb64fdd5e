import { readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { type Actor, actors, snapshots } from "@substrate/crds/index.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { buildImages } from "@substrate/images/build.ts";
import { beforeAll, expect, it } from "vitest";
import { stringify } from "yaml";
import { z } from "zod";
import { eventually } from "../support/poll.ts";
import { argoHealth } from "../gitops/lua-health.ts";
import { describeOnCluster } from "./describe.ts";
import { Flux, whyNoFlux } from "./harness/flux.ts";
import { chart, loadSubstrateImages, prerequisites, storeValues } from "./harness/substrate.ts";

const NAMESPACE = "substrate-system";
const API_SERVICE = "v1alpha1.subresources.substrate.run";
const TURNS = 3;
const ANSWER_TIMEOUT_MS = 90_000;
const WAIT_MS = 90_000;

const managedFields = z.array(
  z.looseObject({ manager: z.string(), subresource: z.string().optional(), fieldsV1: z.looseObject({}).optional() }),
);
const listed = z.object({
  items: z.array(
    z.looseObject({
      apiVersion: z.string(),
      kind: z.string(),
      metadata: z.looseObject({
        name: z.string(),
        namespace: z.string().optional(),
        generation: z.number().optional(),
        managedFields: managedFields.optional(),
      }),
    }),
  ),
});

type Listed = z.infer<typeof listed>["items"][number];

function nameOf({ kind, metadata }: Listed): string {
  return `${kind} ${metadata.namespace ?? ""}/${metadata.name}`;
}

/** Without what moves by itself. */
function stable(object: Listed | undefined): object {
  const metadata = { ...object?.metadata, managedFields: undefined, resourceVersion: undefined };
  return { ...object, metadata, status: undefined };
}

describeOnCluster("Flux on a cluster of one node", { nodes: 1, skipped: whyNoFlux() }, (cluster) => {
  let flux: Flux;
  let image: string;

  /** The chart as a repository of manifests has it. */
  const rendered = async (values: object = {}): Promise<string> => {
    const args = ["template", "substrate", chart, "-n", NAMESPACE, "--kube-version", "1.34.4", "--values", "-"];
    return cluster().helm(args, { input: stringify({ ...storeValues(cluster()), ...values }) });
  };
  /** Template and Actor of that name. */
  const counter = async (name: string): Promise<string> =>
    (await renderExample("counter", { image }))
      .replaceAll("metadata:\n  name: counter\n", `metadata:\n  name: ${name}\n  namespace: default\n`)
      .replaceAll("templateRef:\n    name: counter\n", `templateRef:\n    name: ${name}\n`);
  const get = async (name: string): Promise<Actor> => {
    const actor = await cluster().client.get(actors, name, "default");
    if (actor === undefined) throw new Error(`there is no actor ${name}`);
    return actor;
  };
  const count = async (name: string): Promise<{ memory: number }> => {
    const response = await cluster().fetch(`http://substrate-router.${NAMESPACE}.svc/`, {
      headers: { "substrate-actor": `default/${name}` },
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${name} answered ${response.status}: ${text}`);
    return z.object({ memory: z.number() }).parse(JSON.parse(text));
  };
  const suspend = async (name: string): Promise<void> => {
    const path = `/apis/subresources.substrate.run/v1alpha1/namespaces/default/actors/${name}/suspend`;
    const { operationId } = z
      .object({ operationId: z.string() })
      .parse(await cluster().client.request("POST", path, { body: {} }));
    await eventually(
      async () => {
        expect((await get(name)).status?.lastOperation).toMatchObject({ id: operationId, result: "Succeeded" });
      },
      { deadlineMs: WAIT_MS },
    );
  };
  /** Of everything in the inventory: its generation, and who wrote what of it besides its status, and when. */
  const written = async (name: string): Promise<Map<string, unknown>> => {
    const entries = (await flux.get(name)).status?.inventory?.entries ?? [];
    const found = new Map<string, unknown>();
    const kinds = new Map<string, Set<string>>();
    for (const { id } of entries) {
      // NAMESPACE_NAME_GROUP_KIND
      const [, , group = "", kind = ""] = id.split("_");
      kinds.set(group === "" ? kind : `${kind}.${group}`, new Set());
    }
    const json = await cluster().kubectl([
      "get",
      [...kinds.keys()].join(","),
      "-A",
      "-o",
      "json",
      "--show-managed-fields",
    ]);
    for (const { kind, metadata } of listed.parse(JSON.parse(json)).items) {
      const { namespace = "", name: objectName, generation } = metadata;
      if (
        !entries.some(
          ({ id }) => id.startsWith(`${namespace}_${objectName.replaceAll(":", "__")}_`) && id.endsWith(`_${kind}`),
        )
      )
        continue;
      const writers = (metadata.managedFields ?? []).filter(({ subresource }) => subresource === undefined);
      found.set(`${kind} ${namespace}/${objectName}`, { generation, writers });
    }
    expect(found.size).toBe(entries.length);
    return found;
  };
  /** What the log of Flux says that it changed: `KIND/NAMESPACE/NAME configured`. */
  const changes = (): string[] =>
    readFileSync(join(cluster().folder, "log/kustomize-controller.log"), "utf8")
      .split("\n")
      .filter((line) => line.includes("server-side apply"))
      .flatMap((line) =>
        [...line.matchAll(/"([^"]+)":"(created|configured)"/g)].map(([, of, how]) => `${of ?? ""} ${how ?? ""}`),
      );
  /** Paths below the folder that have the text in them. */
  const pathsWith = async (folder: string, text: string): Promise<string[]> =>
    (await readdir(folder, { recursive: true })).filter((path) => path.includes(text));

  beforeAll(async () => {
    const [built] = await buildImages({ names: ["counter"] });
    if (built === undefined) throw new Error("no image of the counter was built");
    [image, flux] = await Promise.all([
      cluster().pushImage(built.archive, "counter:1"),
      Flux.start(cluster()),
      loadSubstrateImages(cluster(), { examples: [] }),
    ]);
  }, 600_000);

  it("applies the chart and actors in one go, and actors before the chart", async () => {
    const revision = await flux.publish({
      // what has to be first is last by name
      "/everything/a-actor.yaml": await counter("inside"),
      "/everything/b-chart.yaml": await rendered(),
      "/everything/c-namespace.yaml": prerequisites(cluster(), NAMESPACE),
      "/before/actor.yaml": await counter("before"),
    });
    await flux.kustomize("before");
    await eventually(
      async () => {
        const { status, message } = await flux.condition("before");
        expect(status).toBe("False");
        expect(message).toMatch(/no matches for kind/);
      },
      { deadlineMs: WAIT_MS },
    );
    await flux.kustomize("everything");
    await flux.applied("everything", revision);
    await flux.applied("before", revision);
    for (const name of ["inside", "before"]) expect(await count(name)).toEqual(expect.objectContaining({ memory: 1 }));
  }, 300_000);

  it("sees nothing to put back while actors sleep and wake", async () => {
    await cluster().kubectl(["wait", "--for=condition=Available", "--timeout=60s", `apiservice/${API_SERVICE}`]);
    await flux.again("everything");
    const [before, log] = [await written("everything"), changes().length];
    const { spec, metadata } = await get("inside");
    for (let turn = 1; turn <= TURNS; turn += 1) {
      await suspend("inside");
      await flux.again("everything");
      const asleep = await get("inside");
      expect(asleep.status?.state).toBe("ACTOR_STATE_SUSPENDED");
      expect(argoHealth("Actor", [asleep])).toMatchObject([
        { status: "Healthy", message: expect.stringMatching(/^Asleep/) as string },
      ]);
      expect((await count("inside")).memory).toBe(turn + 1);
      await flux.again("everything");
    }
    expect(await written("everything")).toEqual(before);
    expect(changes().slice(log)).toEqual([]);
    const after = await get("inside");
    expect(after.spec).toEqual(spec);
    expect(after.metadata.generation).toBe(metadata.generation);
    expect(after.status?.generation).toBeGreaterThanOrEqual(TURNS);
  }, 180_000);

  it("has not applied what the operator makes, and does put back what a person changes", async () => {
    const { spec } = await get("inside");
    const ids = ((await flux.get("everything")).status?.inventory?.entries ?? []).map(({ id }) => id);
    expect(ids.filter((id) => id.endsWith("_APIService"))).toEqual([]);
    const caBundle = ["-o", "jsonpath={.spec.caBundle}"];
    expect(await cluster().kubectl(["get", "apiservice", API_SERVICE, ...caBundle])).not.toBe("");
    expect(ids.filter((id) => id.endsWith("_Secret"))).toEqual([`${NAMESPACE}_substrate-store__Secret`]);
    expect(await cluster().kubectl(["-n", NAMESPACE, "get", "secrets", "-o", "name"])).toContain(
      "substrate-atelet-tls",
    );
    const log = changes().length;
    const patch = '{"spec":{"state":"Suspended","env":[{"name":"A","value":"b"}]}}';
    await cluster().kubectl(["patch", "actor", "inside", "--type=merge", "-p", patch]);
    await flux.again("everything");
    expect((await get("inside")).spec).toEqual(spec);
    expect(changes().slice(log)).toEqual(["Actor/default/inside configured"]);
  });

  // its comparison by the API server: what would be there after a sync, beside what is there
  it("leaves nothing for Argo CD to put back", async () => {
    const input = [await rendered(), prerequisites(cluster(), NAMESPACE), await counter("inside")].join("---\n");
    const apply = [
      "apply",
      "--server-side",
      "--dry-run=server",
      "--force-conflicts",
      "--field-manager=argocd-controller",
    ];
    const after = listed.parse(JSON.parse(await cluster().kubectl([...apply, "-o", "json", "-f", "-"], { input })));
    const live = listed.parse(JSON.parse(await cluster().kubectl(["get", "-o", "json", "-f", "-"], { input })));
    const known = new Map(live.items.map((object) => [nameOf(object), object]));
    expect(after.items.length).toBeGreaterThan(20);
    for (const object of after.items) expect(stable(object)).toEqual(stable(known.get(nameOf(object))));
  });

  it("prunes an actor with all that it had, and never the kinds", async () => {
    const { uid = "" } = (await get("inside")).metadata;
    const store = join(cluster().folder, "s3", cluster().s3.bucket);
    const node = join(cluster().folder, "n1/var-lib/substrate");
    expect(await pathsWith(store, uid)).not.toEqual([]);
    expect(await pathsWith(node, uid)).not.toEqual([]);
    const revision = await flux.publish({
      "/everything/chart.yaml": await rendered({ crds: { install: false } }),
      "/everything/namespace.yaml": prerequisites(cluster(), NAMESPACE),
      "/before/actor.yaml": await counter("before"),
    });
    await flux.applied("everything", revision);
    await eventually(
      async () => {
        expect(await cluster().client.get(actors, "inside", "default")).toBeUndefined();
        const { items } = await cluster().client.list(snapshots, { namespace: "default" });
        expect(items.filter(({ spec }) => spec.actorRef?.name === "inside")).toEqual([]);
        expect(await pathsWith(store, uid)).toEqual([]);
        // kept for a week, so that the node refuses old orders (docs/tasks/delete.md)
        expect(await pathsWith(node, uid)).toEqual([`released/${uid}.json`]);
      },
      { deadlineMs: WAIT_MS, everyMs: 500 },
    );
    await flux.applied("before", revision);
    const kinds = ["actors", "snapshots", "templates"].map((plural) => `${plural}.substrate.run`);
    await cluster().kubectl(["get", "crd", ...kinds]);
    expect((await count("before")).memory).toBeGreaterThan(0);
  }, 240_000);
});
