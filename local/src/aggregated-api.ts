import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { type KubeClient, KubeError } from "@substrate/lib/kube/client.ts";
import { applyManifest } from "./control-plane/manifests.ts";
import { SYSTEM_NAMESPACE } from "./parts.ts";

const GROUP = "subresources.substrate.run";
const VERSION = "v1alpha1";
const NAME = `${VERSION}.${GROUP}`;
const POLL_MS = 50;

const statusSchema = z.object({
  status: z
    .object({
      conditions: z
        .array(z.object({ type: z.string(), status: z.string(), message: z.string().optional() }))
        .optional(),
    })
    .optional(),
});

/**
 * Registers the operator's API. Called again after each start of the operator: the changed annotation makes
 * kube-apiserver look at once, as changed endpoints do in a real cluster, instead of after up to 30 s.
 */
export async function registerApi(client: KubeClient, port: number, authorityFile: string): Promise<void> {
  const metadata = { name: "operator", namespace: SYSTEM_NAMESPACE };
  await applyManifest(client, {
    apiVersion: "v1",
    kind: "Service",
    metadata,
    spec: { type: "ExternalName", externalName: "localhost", ports: [{ name: "api", port, protocol: "TCP" }] },
  });
  await applyManifest(client, {
    apiVersion: "apiregistration.k8s.io/v1",
    kind: "APIService",
    metadata: { name: NAME, annotations: { "substrate.run/operator-ready": new Date().toISOString() } },
    spec: {
      group: GROUP,
      version: VERSION,
      groupPriorityMinimum: 1000,
      versionPriority: 15,
      caBundle: readFileSync(authorityFile).toString("base64"),
      service: { ...metadata, port },
    },
  });
}

/** Waits until kube-apiserver passes requests on to the operator. @throws after `deadlineMs` or when it is given up. */
export async function waitForApi(client: KubeClient, deadlineMs: number, signal?: AbortSignal): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const problem = await apiProblem(client);
    if (problem === undefined) return;
    if (performance.now() > end) throw new Error(`APIService ${NAME} is not available: ${problem}`);
    await delay(POLL_MS, undefined, { signal });
  }
}

async function apiProblem(client: KubeClient): Promise<string | undefined> {
  try {
    const object = await client.request("GET", `/apis/apiregistration.k8s.io/v1/apiservices/${NAME}`);
    const available = statusSchema.parse(object).status?.conditions?.find(({ type }) => type === "Available");
    return available?.status === "True" ? undefined : (available?.message ?? "not looked at yet");
  } catch (error) {
    // it is registered when the operator is ready for the first time
    if (error instanceof KubeError && error.status === 404) return "not registered yet";
    throw error;
  }
}
