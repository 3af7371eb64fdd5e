import { readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { type ProcessIdentity, type SandboxStatus } from "../sandbox.ts";
import { belongsTo, identify } from "./process.ts";

/** What we know of one sandbox. A process that ended before it was recorded is absent. */
export interface SandboxRecord {
  sandbox?: ProcessIdentity;
  gofer?: ProcessIdentity;
}

interface RunscState {
  status: SandboxStatus["status"];
  goferPid: number;
  sandbox: { pid: number } | null;
}

async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw new Error(`cannot read ${path}: ${String(error)}`, { cause: error });
  }
}

async function identityOf(pid: number | undefined, id: string): Promise<ProcessIdentity | undefined> {
  if (pid === undefined || pid === 0 || !(await belongsTo(pid, id))) return undefined;
  return identify(pid);
}

/**
 * runsc's state files, read directly: `runsc state` and `runsc list` cost a process each and ask the sandbox, which
 * hangs with it. Beside them a record of our own, which adds the start times.
 */
export class SandboxStates {
  readonly #root: string;
  readonly #records: string;
  readonly #known = new Map<string, SandboxRecord>();

  constructor(root: string, records: string) {
    this.#root = root;
    this.#records = records;
  }

  #file(id: string, extension: "state" | "lock"): string {
    return join(this.#root, `${id}_sandbox:${id}.${extension}`);
  }

  /** Where the sandbox listens to commands. */
  socket(id: string): string {
    return join(this.#root, `runsc-${id}.sock`);
  }

  #record(id: string): string {
    return join(this.#records, `${id}.json`);
  }

  async read(id: string): Promise<RunscState | undefined> {
    return (await readJson(this.#file(id, "state"))) as RunscState | undefined;
  }

  async ids(): Promise<string[]> {
    const names = await readdir(this.#root);
    return names.flatMap((name) => /^([0-9a-f]{32})_sandbox:\1\.state$/.exec(name)?.[1] ?? []);
  }

  /** Finds the processes of a sandbox that has just been started and records them. */
  async record(id: string): Promise<SandboxRecord> {
    const state = await this.read(id);
    const sandbox = await identityOf(state?.sandbox?.pid, id);
    const gofer = await identityOf(state?.goferPid, id);
    const record = {
      ...(sandbox ? { sandbox } : {}),
      ...(gofer ? { gofer } : {}),
    };
    const path = this.#record(id);
    await writeFile(`${path}.new`, JSON.stringify(record));
    await rename(`${path}.new`, path);
    this.#known.set(id, record);
    return record;
  }

  /** From memory, else from the record, else (we ended before we wrote it) from runsc's state. */
  async known(id: string): Promise<SandboxRecord> {
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    const recorded = (await readJson(this.#record(id))) as SandboxRecord | undefined;
    if (recorded === undefined) return (await this.read(id)) === undefined ? {} : this.record(id);
    this.#known.set(id, recorded);
    return recorded;
  }

  /** Removes runsc's files and ours. */
  async forget(id: string): Promise<void> {
    this.#known.delete(id);
    const files = [this.#file(id, "state"), this.#file(id, "lock"), this.socket(id)];
    await Promise.all([...files, this.#record(id)].map((path) => rm(path, { force: true })));
  }
}
