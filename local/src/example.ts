import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { buildCounter } from "@substrate/examples/programs.ts";
import { renderExample } from "@substrate/examples/render.ts";
import { z } from "zod";
import { type LocalCluster } from "./cluster.ts";
import { command } from "./command.ts";

const POLL_MS = 100;

const actorSchema = z.object({
  status: z
    .object({
      state: z.string().optional(),
      conditions: z
        .array(z.object({ type: z.string(), status: z.string(), message: z.string().optional() }))
        .optional(),
    })
    .optional(),
});

/** Builds the image of examples/counter into `folder` and writes the YAML that names it. Returns the YAML's path. */
export async function prepareCounter(folder: string, signal: AbortSignal): Promise<string> {
  const { reference } = await buildCounter(join(folder, "counter"), signal);
  const file = join(folder, "counter.yaml");
  writeFileSync(file, await renderExample("counter", { image: reference }));
  return file;
}

/** `kubectl apply -f FILE`, as a user would. */
export async function applyFile(cluster: LocalCluster, file: string, signal: AbortSignal): Promise<void> {
  const cache = join(cluster.stateDir, "kube/cache");
  const args = [`--kubeconfig=${cluster.kubeconfig}`, `--cache-dir=${cache}`, "apply", `--filename=${file}`];
  await command(cluster.tools.kubectl, args, { signal });
}

/** Waits until the actor answers or can be woken. @throws after `deadlineMs`, with what its status says, or when given up. */
export async function waitForActor(
  cluster: LocalCluster,
  name: string,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<void> {
  const path = `/apis/substrate.run/v1alpha1/namespaces/default/actors/${name}`;
  const end = performance.now() + deadlineMs;
  for (;;) {
    const { status } = actorSchema.parse(await cluster.client.request("GET", path));
    const ready = status?.conditions?.find((condition) => condition.type === "Ready");
    if (ready?.status === "True") return;
    if (performance.now() > end) {
      throw new Error(
        `actor default/${name} is not Ready after ${deadlineMs / 1000} s: ${ready?.message ?? "no status"}`,
      );
    }
    await delay(POLL_MS, undefined, { signal });
  }
}
