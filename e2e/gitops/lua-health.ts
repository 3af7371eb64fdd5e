import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { type KubeObject } from "@substrate/lib/kube/object.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { findTool } from "@substrate/local/tools/find.ts";
import { toolTable } from "@substrate/local/tools/table.ts";
import { z } from "zod";
import { repository } from "../docs/tables.ts";

const TIMEOUT_MS = 30_000;
const healths = z.array(
  z.object({ status: z.enum(["Healthy", "Progressing", "Degraded", "Suspended"]), message: z.string().min(1) }),
);
type Health = z.infer<typeof healths>[number];
export type HealthStatus = Health["status"];

const tool = toolTable.cluster.find(({ name }) => name === "luaHealth");
const found = tool === undefined ? undefined : findTool(tool, toolSettings());
/** Why Argo CD's scripts can't be run here; undefined where they can. */
export const whyNoLua =
  found === undefined ? "substrate-lua-health is not built: node local/setup.mjs --with-cluster" : undefined;

/** What Argo CD takes objects of a kind for, by the script for it. */
export function argoHealth(kind: string, objects: readonly KubeObject[]): Health[] {
  if (found === undefined) throw new Error(whyNoLua);
  const script = join(repository, "charts/argocd", `${kind.toLowerCase()}.lua`);
  const options = { encoding: "utf8", input: JSON.stringify(objects), timeout: TIMEOUT_MS } as const;
  const { status, stdout, stderr } = spawnSync(found.path, [script], options);
  if (status !== 0) throw new Error(`${script}: ${stderr}`);
  return healths.parse(JSON.parse(stdout));
}

interface Condition {
  type: string;
  status: string;
}

/** What tools that follow kstatus (Flux, kpt, `kubectl apply --wait` of Helm 4) take an object with conditions for. */
export function kstatus(object: KubeObject): "Current" | "InProgress" | "Failed" {
  const { metadata, status } = object as KubeObject & {
    status?: { observedGeneration?: number; conditions?: readonly Condition[] };
  };
  const observed = status?.observedGeneration;
  if (observed !== undefined && observed !== metadata.generation) return "InProgress";
  const is = (type: string): string | undefined => status?.conditions?.find((one) => one.type === type)?.status;
  if (is("Reconciling") === "True") return "InProgress";
  if (is("Stalled") === "True") return "Failed";
  // what says nothing is taken for ready
  return (is("Ready") ?? "True") === "True" ? "Current" : "InProgress";
}
