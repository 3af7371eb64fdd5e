import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { toolSettings } from "@substrate/local/config.ts";
import { findTool } from "@substrate/local/tools/find.ts";
import { toolTable } from "@substrate/local/tools/table.ts";
import { repository } from "../docs/tables.ts";
import { tools } from "../support/tools.ts";

export const chart = join(repository, "charts/substrate");
const TIMEOUT_MS = 60_000;
/** A helm that was built from its module takes a cluster that it cannot ask for a very old one. */
const kubeVersion = ["--kube-version", "1.34.4"];

const tool = toolTable.cluster.find(({ name }) => name === "helm");
const found = tool === undefined ? undefined : findTool(tool, toolSettings());
/** Why nothing with helm can be tested here; undefined where it can. */
export const whyNoHelm = found === undefined ? "helm is not built: node local/setup.mjs --with-cluster" : undefined;

export interface Outcome {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** What is the least that has to be given. */
export const store = [
  "--set",
  "stores.default.url=s3://bucket?region=r",
  "--set",
  "stores.default.credentialsSecret=store",
];

const objectSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
});
export type Rendered = z.infer<typeof objectSchema>;

/** The objects of what `helm template` printed. */
export function objectsOf(text: string): Rendered[] {
  const documents = parseAllDocuments(text);
  if (!Array.isArray(documents)) throw new Error("helm rendered nothing");
  return documents.map((document) => objectSchema.parse(document.toJS()));
}

/** helm and kubectl with a home of their own. */
export class Helm {
  readonly #home = mkdtempSync(join(tmpdir(), "sub-helm-"));
  readonly #kubeconfig: string | undefined;

  constructor(kubeconfig?: string) {
    this.#kubeconfig = kubeconfig;
  }

  #run(program: string, args: readonly string[], input?: string): Outcome {
    const env = { HOME: this.#home, PATH: "/usr/bin:/bin", KUBECONFIG: this.#kubeconfig ?? join(this.#home, "none") };
    const { status, stdout, stderr, error } = spawnSync(program, args, {
      encoding: "utf8",
      timeout: TIMEOUT_MS,
      maxBuffer: 64 * 1024 * 1024,
      env,
      ...(input === undefined ? {} : { input }),
    });
    if (error !== undefined) throw error;
    return { status, stdout, stderr };
  }

  helm(...args: string[]): Outcome {
    if (found === undefined) throw new Error(whyNoHelm);
    return this.#run(found.path, args);
  }

  /** @throws with what helm said */
  template(release: string, namespace: string, ...args: string[]): string {
    const { status, stdout, stderr } = this.helm("template", release, chart, "-n", namespace, ...kubeVersion, ...args);
    if (status !== 0) throw new Error(stderr);
    return stdout;
  }

  /** What helm says when it refuses to render. */
  refusal(...args: string[]): string {
    const { status, stderr } = this.helm("template", "substrate", chart, ...kubeVersion, ...args);
    return status === 0 ? "(nothing is refused)" : stderr;
  }

  kubectl(args: readonly string[], input?: string): Outcome {
    return this.#run(tools.kubectl, args, input);
  }

  /** @throws with what kubectl said */
  kubectlOutput(args: readonly string[], input?: string): string {
    const { status, stdout, stderr } = this.kubectl(args, input);
    if (status !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  close(): void {
    rmSync(this.#home, { recursive: true, force: true });
  }
}
