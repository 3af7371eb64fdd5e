import { createHash } from "node:crypto";
import { type EnvVar, type Template } from "@substrate/crds/index.ts";
import { Fidelity, type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { parseCpuMillis, parseDurationMs, parseMemoryBytes } from "@substrate/lib/resources.ts";
import { TerminalError } from "./queue.ts";

/** The part of a Template that a snapshot depends on: another one needs another revision. */
export interface ProgramPart {
  containerName: string;
  image: string;
  command: string[];
  args: string[];
  ports: { name: string; containerPort: number }[];
  readyz: { path: string; port: number };
  memoryBytes: number;
  cpuMillis: number;
  /** sizeLimitBytes 0: no limit. */
  volumeMounts: { name: string; mountPath: string; sizeLimitBytes: number }[];
  afterRestore?: { path: string; port: number };
  /** The Template's own variables; secrets by reference, so that a revision holds none. */
  env: EnvVar[];
}

/** Throws TerminalError for what the schema should have refused. */
export function programPart(template: Template): ProgramPart {
  const where = `Template ${template.metadata.namespace}/${template.metadata.name}`;
  const [container, ...others] = template.spec.containers;
  if (container === undefined || others.length > 0) {
    throw new TerminalError(`${where} has ${template.spec.containers.length} containers: exactly one is supported`);
  }
  const { path, port } = container.readyz.httpGet;
  const ports = container.ports.map(({ name, containerPort }) => ({ name, containerPort }));
  const portOf = (named: number | string, what: string): number => {
    const found = typeof named === "number" ? named : ports.find(({ name }) => name === named)?.containerPort;
    if (found !== undefined) return found;
    throw new TerminalError(`${where}: ${what} names port "${named}", which is not among the container's ports`);
  };
  const hook = template.spec.hooks?.afterRestore.httpGet;
  return {
    containerName: container.name,
    image: container.image,
    command: container.command ?? [],
    args: container.args ?? [],
    ports,
    readyz: { path, port: portOf(port, "readyz") },
    memoryBytes: parseMemoryBytes(String(container.resources.limits.memory)),
    cpuMillis: parseCpuMillis(String(container.resources.limits.cpu)),
    volumeMounts: (container.volumeMounts ?? []).map(({ name, mountPath }) => ({
      name,
      mountPath,
      sizeLimitBytes: sizeLimitBytes(template, name),
    })),
    ...(hook && { afterRestore: { path: hook.path, port: portOf(hook.port, "hooks.afterRestore") } }),
    env: container.env ?? [],
  };
}

function sizeLimitBytes({ spec }: Template, volume: string): number {
  const limit = spec.volumes?.find(({ name }) => name === volume)?.durableDir.sizeLimit;
  return limit === undefined ? 0 : parseMemoryBytes(String(limit));
}

export const wireFidelity = {
  Memory: Fidelity.FIDELITY_MEMORY,
  Rootfs: Fidelity.FIDELITY_ROOTFS,
  Data: Fidelity.FIDELITY_DATA,
} as const;

/**
 * Ten hex digits of a hash of the program: the same program is the same revision. What a Template doesn't use is left
 * out, so that fields that come with newer versions make no new revisions of it. A volume's limit is a policy.
 */
export function revisionOf(part: ProgramPart): string {
  const { volumeMounts, env, ...rest } = part;
  const hashed = {
    ...rest,
    ...(volumeMounts.length === 0
      ? {}
      : { volumeMounts: volumeMounts.map(({ name, mountPath }) => [name, mountPath]) }),
    ...(env.length === 0 ? {} : { env }),
  };
  return createHash("sha256").update(JSON.stringify(hashed)).digest("hex").slice(0, 10);
}

/** The image by its digest, so that a tag that moves never changes what an actor runs. */
export function pinnedImage(image: string, digest: string): string {
  if (image.includes("@sha256:")) return image;
  const nameStart = image.lastIndexOf("/") + 1;
  const tagStart = image.indexOf(":", nameStart);
  return `${tagStart === -1 ? image : image.slice(0, tagStart)}@${digest}`;
}

/** What a node needs to run a revision; the policies are the Template's of now. */
export function buildProgram(template: Template, part: ProgramPart, revision: string, imageDigest?: string): Program {
  const { snapshots, drainTimeout, wakeTimeout, volumes } = template.spec;
  return {
    ...part,
    templateUid: template.metadata.uid ?? "",
    templateName: template.metadata.name,
    revision,
    image: imageDigest === undefined ? part.image : pinnedImage(part.image, imageDigest),
    memoryBytes: BigInt(part.memoryBytes),
    volumeMounts: part.volumeMounts.map((mount) => ({
      ...mount,
      sizeLimitBytes: BigInt(
        volumes?.some(({ name }) => name === mount.name) === true
          ? sizeLimitBytes(template, mount.name)
          : mount.sizeLimitBytes,
      ),
    })),
    afterRestore: part.afterRestore,
    drainTimeoutMs: BigInt(parseDurationMs(drainTimeout)),
    wakeTimeoutMs: BigInt(parseDurationMs(wakeTimeout)),
    snapshots: {
      store: snapshots.store,
      uploadDelayMs: BigInt(parseDurationMs(snapshots.uploadDelay)),
      uploadWithinMs: BigInt(parseDurationMs(snapshots.uploadWithin)),
      history: snapshots.history,
      onSuspend: wireFidelity[snapshots.onSuspend],
    },
  };
}
