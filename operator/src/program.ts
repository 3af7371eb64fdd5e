import { createHash } from "node:crypto";
import { type Template } from "@substrate/crds/index.ts";
import { type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
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
  const readyzPort = typeof port === "number" ? port : ports.find(({ name }) => name === port)?.containerPort;
  if (readyzPort === undefined) {
    throw new TerminalError(`${where}: readyz names port "${port}", which is not among the container's ports`);
  }
  return {
    containerName: container.name,
    image: container.image,
    command: container.command ?? [],
    args: container.args ?? [],
    ports,
    readyz: { path, port: readyzPort },
    memoryBytes: parseMemoryBytes(String(container.resources.limits.memory)),
    cpuMillis: parseCpuMillis(String(container.resources.limits.cpu)),
  };
}

/** Ten hex digits of a hash of the program: the same program is the same revision. */
export function revisionOf(part: ProgramPart): string {
  return createHash("sha256").update(JSON.stringify(part)).digest("hex").slice(0, 10);
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
  const { snapshots, drainTimeout, wakeTimeout } = template.spec;
  return {
    ...part,
    templateUid: template.metadata.uid ?? "",
    templateName: template.metadata.name,
    revision,
    image: imageDigest === undefined ? part.image : pinnedImage(part.image, imageDigest),
    memoryBytes: BigInt(part.memoryBytes),
    drainTimeoutMs: BigInt(parseDurationMs(drainTimeout)),
    wakeTimeoutMs: BigInt(parseDurationMs(wakeTimeout)),
    snapshots: {
      store: snapshots.store,
      uploadDelayMs: BigInt(parseDurationMs(snapshots.uploadDelay)),
      uploadWithinMs: BigInt(parseDurationMs(snapshots.uploadWithin)),
    },
  };
}
