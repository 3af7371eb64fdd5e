import { type Template } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { isAlreadyExists, type KubeClient } from "@substrate/lib/kube/client.ts";
import { type ControllerRevision, controllerRevisions } from "@substrate/lib/kube/types.ts";
import { LRUCache } from "lru-cache";
import { z } from "zod";
import { type ProgramPart } from "./program.ts";

/** One program that was Ready once, with its image resolved. */
export interface StoredRevision {
  part: ProgramPart;
  imageDigest: string;
}

/** Revisions kept in memory. */
const remembered = 512;

const templateLabel = "substrate.run/template";

const storedRevision: z.ZodType<StoredRevision> = z.object({
  imageDigest: z.string(),
  part: z.object({
    containerName: z.string(),
    image: z.string(),
    command: z.array(z.string()),
    args: z.array(z.string()),
    ports: z.array(z.object({ name: z.string(), containerPort: z.number() })),
    readyz: z.object({ path: z.string(), port: z.number() }),
    memoryBytes: z.number(),
    cpuMillis: z.number(),
    volumeMounts: z
      .array(z.object({ name: z.string(), mountPath: z.string(), sizeLimitBytes: z.number() }))
      .default([]),
    afterRestore: z.object({ path: z.string(), port: z.number() }).exactOptional(),
    env: z
      .array(
        z.object({
          name: z.string(),
          value: z.string().exactOptional(),
          valueFrom: z.object({ secretKeyRef: z.object({ name: z.string(), key: z.string() }) }).exactOptional(),
        }),
      )
      .default([]),
  }),
});

function nameOf(templateName: string, revision: string): string {
  return `${templateName}-${revision}`;
}

/** Programs of Templates as ControllerRevisions: an actor with a snapshot stays on the one that wrote it. */
export class Revisions {
  readonly #client: KubeClient;
  /** By the Template's uid and the revision, which never changes. */
  readonly #loaded = new LRUCache<string, StoredRevision>({ max: remembered });

  constructor(client: KubeClient) {
    this.#client = client;
  }

  /** Idempotent: a revision never changes. */
  async save(template: Template, revision: string, stored: StoredRevision): Promise<void> {
    const { name, namespace, uid } = template.metadata;
    try {
      await this.#client.create(controllerRevisions, {
        metadata: {
          name: nameOf(name, revision),
          namespace: namespace ?? "",
          labels: { [templateLabel]: name },
          ownerReferences: [
            { apiVersion: template.apiVersion, kind: template.kind, name, uid: uid ?? "", controller: true },
          ],
        },
        revision: template.metadata.generation ?? 0,
        data: stored,
      });
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
    }
  }

  /** Throws NOT_READY when it isn't kept. */
  async load(
    { metadata: { name: templateName, namespace = "", uid = "" } }: Template,
    revision: string,
  ): Promise<StoredRevision> {
    const cacheKey = `${uid}/${revision}`;
    const known = this.#loaded.get(cacheKey);
    if (known !== undefined) return known;
    const name = nameOf(templateName, revision);
    const found = await this.#client.get(controllerRevisions, name, namespace);
    const parsed = storedRevision.safeParse(found?.data);
    if (parsed.success) {
      this.#loaded.set(cacheKey, parsed.data);
      return parsed.data;
    }
    const problem = found === undefined ? "does not exist" : "cannot be read";
    throw new SubstrateError(
      "NOT_READY",
      `ControllerRevision ${namespace}/${name} ${problem}: the actor's snapshot needs that revision of its Template`,
    );
  }

  /** Removes the Template's revisions that aren't among those needed. */
  async prune(namespace: string, templateName: string, needed: ReadonlySet<string>): Promise<void> {
    const labelSelector = `${templateLabel}=${templateName}`;
    const { items } = await this.#client.list(controllerRevisions, { namespace, labelSelector });
    const keep = new Set([...needed].map((revision) => nameOf(templateName, revision)));
    for (const item of items.filter((revision: ControllerRevision) => !keep.has(revision.metadata.name))) {
      await this.#client.delete(controllerRevisions, item.metadata.name, namespace);
    }
  }
}
