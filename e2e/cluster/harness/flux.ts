import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Condition } from "@substrate/crds/index.ts";
import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { command } from "@substrate/local/command.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { findTool } from "@substrate/local/tools/find.ts";
import { type FluxToolName, toolTable } from "@substrate/local/tools/table.ts";
import { expect } from "vitest";
import { stringify } from "yaml";
import { eventually } from "../../support/poll.ts";
import { type TestCluster } from "./cluster.ts";

const NAMESPACE = "flux-system";
const ARTIFACT = "gitops:latest";
/** Room for a first start of all parts on a busy machine. */
const READY_TIMEOUT_MS = 240_000;

interface Kustomization extends KubeObject {
  spec: object;
  status?: {
    conditions?: readonly Condition[];
    inventory?: { entries?: readonly { id: string }[] };
    lastAppliedRevision?: string;
    lastHandledReconcileAt?: string;
  };
}

const kustomizations: ResourceType<Kustomization> = {
  group: "kustomize.toolkit.fluxcd.io",
  version: "v1",
  plural: "kustomizations",
  kind: "Kustomization",
  namespaced: true,
};

/** Why Flux cannot be run here, with what to do about it; undefined where it can. */
export function whyNoFlux(): string | undefined {
  const settings = toolSettings();
  const missing = toolTable.flux.filter((tool) => findTool(tool, settings) === undefined);
  if (missing.length === 0) return undefined;
  const names = missing.map(({ binary, version }) => `${binary} ${version}`).join(", ");
  return `${names} not built; run: node local/setup.mjs --with-flux`;
}

function programOf(name: FluxToolName): string {
  const tool = toolTable.flux.find((one) => one.name === name);
  const found = tool === undefined ? undefined : findTool(tool, toolSettings());
  if (found === undefined) throw new Error(whyNoFlux());
  return found.path;
}

/** Flux's two controllers that matter here, beside the control plane of a test cluster, and an artifact in its registry. */
export class Flux {
  readonly #cluster: TestCluster;
  #artifacts = 0;
  #requests = 0;

  private constructor(cluster: TestCluster) {
    this.#cluster = cluster;
  }

  static async start(cluster: TestCluster): Promise<Flux> {
    const programs = [programOf("sourceController"), programOf("kustomizeController")] as const;
    const crds = programs.flatMap((program) => ["-f", join(dirname(program), "bases")]);
    await cluster.kubectl(["apply", "--server-side", ...crds]);
    await cluster.kubectl(["wait", "--for=condition=Established", "--timeout=30s", ...crds]);
    await cluster.kubectl(["create", "namespace", NAMESPACE]);
    const common = ["--watch-all-namespaces=true", "--enable-leader-election=false", "--events-addr="];
    const environment = { RUNTIME_NAMESPACE: NAMESPACE };
    const storage = "127.0.0.1:9790";
    const storagePath = join(cluster.folder, "flux");
    mkdirSync(storagePath);
    await cluster.run(
      "source-controller",
      programs[0],
      [
        ...[...common, `--storage-path=${storagePath}`],
        ...[`--storage-addr=${storage}`, `--storage-adv-addr=${storage}`],
        ...["--health-addr=127.0.0.1:9441", "--metrics-addr=127.0.0.1:8086"],
      ],
      environment,
    );
    await cluster.run(
      "kustomize-controller",
      programs[1],
      [...common, "--health-addr=127.0.0.1:9440", "--metrics-addr=127.0.0.1:8085", "--requeue-dependency=1s"],
      environment,
    );
    return new Flux(cluster);
  }

  /**
   * Puts files into the registry as what Flux is to apply from now on.
   * @param files their YAML by `/FOLDER/NAME.yaml`.
   * @returns its revision.
   */
  async publish(files: Readonly<Record<string, string>>): Promise<string> {
    this.#artifacts += 1;
    const work = join(this.#cluster.folder, `artifact-${this.#artifacts}`);
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(work, path)), { recursive: true });
      writeFileSync(join(work, path), content);
    }
    const layer = `${work}.tgz`;
    await command("tar", ["-C", work, "-czf", layer, "."]);
    const { registry, tools } = this.#cluster;
    const push = [
      "append",
      "--insecure",
      "--oci-empty-base",
      "--new_layer",
      layer,
      "--new_tag",
      `${registry}/${ARTIFACT}`,
    ];
    const digest = (await command(tools.crane, push)).trim().split("@")[1] ?? "";
    const [repository, tag] = ARTIFACT.split(":");
    const source = {
      apiVersion: "source.toolkit.fluxcd.io/v1",
      kind: "OCIRepository",
      metadata: { name: "gitops", namespace: NAMESPACE },
      spec: {
        interval: "2s",
        insecure: true,
        url: `oci://${this.#cluster.registry}/${repository ?? ""}`,
        ref: { tag },
      },
    };
    await this.#cluster.kubectl(["apply", "-f", "-"], { input: stringify(source) });
    return `${tag ?? ""}@${digest}`;
  }

  /** Has a folder of the artifact applied: what is in it is there, what leaves it goes, and all of it is waited for. */
  async kustomize(name: string): Promise<void> {
    const object = {
      apiVersion: "kustomize.toolkit.fluxcd.io/v1",
      kind: "Kustomization",
      metadata: { name, namespace: NAMESPACE },
      spec: {
        ...{ path: `./${name}`, sourceRef: { kind: "OCIRepository", name: "gitops" } },
        ...{ interval: "3s", retryInterval: "1s", timeout: "3m", prune: true, wait: true },
      },
    };
    await this.#cluster.kubectl(["apply", "-f", "-"], { input: stringify(object) });
  }

  async get(name: string): Promise<Kustomization> {
    const found = await this.#cluster.client.get(kustomizations, name, NAMESPACE);
    if (found === undefined) throw new Error(`there is no Kustomization ${name}`);
    return found;
  }

  /** Ready's status and message. */
  async condition(name: string): Promise<{ status: string; message: string }> {
    const { status } = await this.get(name);
    const ready = status?.conditions?.find(({ type }) => type === "Ready");
    return { status: ready?.status ?? "Unknown", message: ready?.message ?? "" };
  }

  /** Waits until the revision is applied and all of it healthy. */
  async applied(name: string, revision: string): Promise<void> {
    await eventually(
      async () => {
        const { status } = await this.get(name);
        expect(status?.lastAppliedRevision).toBe(revision);
        expect(await this.condition(name)).toMatchObject({ status: "True" });
      },
      { deadlineMs: READY_TIMEOUT_MS, everyMs: 250 },
    );
  }

  /** Waits until everything was compared and applied once more, from now on, and was healthy. */
  async again(name: string): Promise<void> {
    this.#requests += 1;
    const token = `request-${this.#requests}`;
    const requested = `reconcile.fluxcd.io/requestedAt=${token}`;
    await this.#cluster.kubectl(["-n", NAMESPACE, "annotate", "--overwrite", "kustomization", name, requested]);
    await eventually(
      async () => {
        expect((await this.get(name)).status?.lastHandledReconcileAt).toBe(token);
        expect(await this.condition(name)).toMatchObject({ status: "True" });
      },
      { deadlineMs: READY_TIMEOUT_MS, everyMs: 100 },
    );
  }
}
