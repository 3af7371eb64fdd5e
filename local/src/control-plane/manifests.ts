import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { type KubeClient, KubeError } from "@substrate/lib/kube/client.ts";

const ESTABLISHED_TIMEOUT_MS = 15_000;
const DELETED_TIMEOUT_MS = 15_000;
const CRD_ATTEMPTS = 3;
const ROLE_ATTEMPTS = 100;
const POLL_MS = 50;

const objectSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
});
export type Manifest = z.infer<typeof objectSchema>;

const crdFolder = join(import.meta.dirname, "../../../crds/yaml");
const policyFolder = join(import.meta.dirname, "../../../crds/policies");
const manifestFolder = join(import.meta.dirname, "../../manifests");

function readManifests(file: string): Manifest[] {
  const documents = parseAllDocuments(readFileSync(file, "utf8"));
  return (Array.isArray(documents) ? documents : []).map((document) => {
    const parsed = objectSchema.safeParse(document.toJS());
    if (!parsed.success) throw new Error(`${file}: ${z.prettifyError(parsed.error)}`);
    return parsed.data;
  });
}

function filesOf(folder: string): string[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".yaml"))
    .sort()
    .map((file) => join(folder, file));
}

/** Plural names of what is applied here, all but CRDs' own kinds. */
const plurals: Readonly<Record<string, string>> = {
  APIService: "apiservices",
  ClusterRole: "clusterroles",
  ClusterRoleBinding: "clusterrolebindings",
  CustomResourceDefinition: "customresourcedefinitions",
  Namespace: "namespaces",
  Node: "nodes",
  Role: "roles",
  RoleBinding: "rolebindings",
  Service: "services",
  ValidatingAdmissionPolicy: "validatingadmissionpolicies",
  ValidatingAdmissionPolicyBinding: "validatingadmissionpolicybindings",
};

function pathOf(object: Manifest): string {
  const plural = plurals[object.kind];
  if (plural === undefined) throw new Error(`no plural is known for kind ${object.kind} of ${object.metadata.name}`);
  const { name, namespace } = object.metadata;
  const prefix = object.apiVersion.includes("/") ? `/apis/${object.apiVersion}` : `/api/${object.apiVersion}`;
  return `${prefix}${namespace === undefined ? "" : `/namespaces/${namespace}`}/${plural}/${name}`;
}

/** Server-side apply of any object; takes over fields of others, as the local cluster owns what it applies. */
export async function applyManifest(client: KubeClient, object: Manifest, subresource = ""): Promise<void> {
  await client.request("PATCH", `${pathOf(object)}${subresource}?fieldManager=substrate-local&force=true`, {
    body: object,
    contentType: "application/apply-patch+yaml",
  });
}

const crdSchema = z.object({
  status: z.object({ conditions: z.array(z.object({ type: z.string(), status: z.string() })).nullish() }).optional(),
});

/** False when it is not served after a while. */
async function isEstablished(client: KubeClient, crd: Manifest, signal: AbortSignal | undefined): Promise<boolean> {
  const end = performance.now() + ESTABLISHED_TIMEOUT_MS;
  for (;;) {
    const { status } = crdSchema.parse(await client.request("GET", pathOf(crd)));
    if (status?.conditions?.some((condition) => condition.type === "Established" && condition.status === "True")) {
      return true;
    }
    if (performance.now() > end) return false;
    await delay(POLL_MS, undefined, { signal });
  }
}

async function applyCrd(client: KubeClient, crd: Manifest, signal: AbortSignal | undefined): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    await applyManifest(client, crd);
    if (await isEstablished(client, crd, signal)) return;
    if (attempt === CRD_ATTEMPTS) throw new Error(`CustomResourceDefinition ${crd.metadata.name} is not established`);
    // An API server that was killed between accepting the names and establishing never does the latter. As nothing of
    // this kind was ever served, nothing is lost by making it anew.
    await deleteAndWait(client, crd, signal);
  }
}

async function deleteAndWait(client: KubeClient, object: Manifest, signal: AbortSignal | undefined): Promise<void> {
  await client.request("DELETE", pathOf(object));
  const end = performance.now() + DELETED_TIMEOUT_MS;
  for (;;) {
    try {
      await client.request("GET", pathOf(object));
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return;
      throw error;
    }
    if (performance.now() > end) throw new Error(`${object.kind} ${object.metadata.name} is not deleted after 15 s`);
    await delay(POLL_MS, undefined, { signal });
  }
}

/** Applies the CRDs and waits until they are served. @throws when it is given up. */
export async function applyCrds(client: KubeClient, signal?: AbortSignal): Promise<void> {
  await Promise.all(
    filesOf(crdFolder)
      .flatMap(readManifests)
      .map((crd) => applyCrd(client, crd, signal)),
  );
}

/** Applies crds/policies; the API server enforces them some seconds later. */
export async function applyPolicies(client: KubeClient): Promise<void> {
  const objects = filesOf(policyFolder).flatMap(readManifests);
  await Promise.all(objects.map((object) => applyManifest(client, object)));
}

/** Applies local/manifests: the system namespace first, then the roles of the parts. */
export async function applyRoles(client: KubeClient): Promise<void> {
  const objects = filesOf(manifestFolder).flatMap(readManifests);
  const isNamespace = (object: Manifest): boolean => object.kind === "Namespace";
  for (const namespace of objects.filter(isNamespace)) await applyManifest(client, namespace);
  await Promise.all(objects.filter((object) => !isNamespace(object)).map((object) => retryRoles(client, object)));
}

/** A fresh API server makes its own roles and namespaces in the background: 409 and 404 meanwhile. */
async function retryRoles(client: KubeClient, object: Manifest): Promise<void> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      await applyManifest(client, object);
      return;
    } catch (error) {
      const early = error instanceof KubeError && (error.status === 409 || error.status === 404);
      if (!early || attempt === ROLE_ATTEMPTS) throw error;
      await delay(POLL_MS);
    }
  }
}
