import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { mountsBelow, type Mounted } from "./mountinfo.ts";

/** One overlay. All paths but `home` are relative to it: the kernel takes a page of options, and homes are long. */
export interface Overlay {
  /** Absolute. */
  home: string;
  target: string;
  /** Newest first; at least two where there is no upper. */
  lowers: readonly string[];
  /** Absent: a read-only view. */
  upper?: { data: string; work: string };
}

export type MountRequest =
  { mount: Overlay } | { unmount: string } | { bind: { source: string; target: string } } | { share: string };
/** "done", or the errno's name. */
export type MountAnswer = string;

/** Overlays of this node's volumes, and where else they are to be seen. */
export interface Mounts {
  /** Throws INTERNAL, naming the target and the kernel's reason. */
  mount(overlay: Overlay): Promise<void>;
  /** Makes what is at `source` appear at `target` too. Throws INTERNAL, naming both. */
  bind(source: string, target: string): Promise<void>;
  /** Makes a folder a mount of its own whose later mounts appear wherever it was bound to; once. Throws INTERNAL. */
  share(dir: string): Promise<void>;
  /** Never lazily: afterwards nobody can write through it. No error if nothing is mounted there. */
  unmount(target: string): Promise<void>;
  /** What is mounted in a folder, the deepest first. */
  below(dir: string): Promise<Mounted[]>;
}

/** Somebody who reads there (a measurement, an archive) is told to end first, and does so within this time. */
const BUSY_WITHIN_MS = 5000;
const BUSY_PAUSE_MS = 20;

interface Waiting {
  resolve: (answer: MountAnswer) => void;
  reject: (error: Error) => void;
}

/** Overlays by mount(2), in a thread with a working folder of its own. */
export class OverlayMounts implements Mounts {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;
  #ended: SubstrateError | undefined;

  constructor() {
    this.#worker = new Worker(scriptUrl(new URL("./mount-worker.ts", import.meta.url), "mount-worker.mjs"), {
      resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 },
    });
    this.#worker.unref();
    this.#worker.on("message", ({ id, answer }: { id: number; answer: MountAnswer }) => {
      this.#waiting.get(id)?.resolve(answer);
      this.#waiting.delete(id);
      if (this.#waiting.size === 0) this.#worker.unref();
    });
    this.#worker.on("error", (cause: unknown) => {
      this.#end(new SubstrateError("INTERNAL", `the volumes' mount thread failed: ${String(cause)}`, { cause }));
    });
    this.#worker.on("exit", () => {
      this.#end(new SubstrateError("SHUTTING_DOWN", "the volumes' mount thread has ended"));
    });
  }

  async mount(overlay: Overlay): Promise<void> {
    const answer = await this.#ask({ mount: overlay });
    if (answer === "done") return;
    throw new SubstrateError(
      "INTERNAL",
      `the overlay ${overlay.home}/${overlay.target} of ${overlay.lowers.length} layers cannot be mounted: ${answer} ` +
        `(the node's folder must be on a file system that can hold an overlay's upper layer, for instance ext4 or xfs)`,
    );
  }

  async bind(source: string, target: string): Promise<void> {
    const answer = await this.#ask({ bind: { source, target } });
    if (answer === "done") return;
    throw new SubstrateError("INTERNAL", `${source} cannot be bound to ${target}: ${answer}`);
  }

  async share(dir: string): Promise<void> {
    const answer = await this.#ask({ share: dir });
    if (answer === "done") return;
    throw new SubstrateError("INTERNAL", `${dir} cannot be made a shared mount: ${answer}`);
  }

  async unmount(target: string): Promise<void> {
    const endMs = performance.now() + BUSY_WITHIN_MS;
    for (;;) {
      const answer = await this.#ask({ unmount: target });
      if (answer === "done") return;
      if (answer !== "EBUSY" || performance.now() > endMs) {
        throw new SubstrateError("INTERNAL", `${target} cannot be unmounted: ${answer}`);
      }
      await delay(BUSY_PAUSE_MS);
    }
  }

  below(dir: string): Promise<Mounted[]> {
    return mountsBelow(dir);
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  #ask(request: MountRequest): Promise<MountAnswer> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) {
        reject(this.#ended);
        return;
      }
      const id = ++this.#lastId;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.ref();
      this.#worker.postMessage({ id, request });
    });
  }

  #end(reason: SubstrateError): void {
    this.#ended ??= reason;
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}

/** Unmounts everything in a folder, so that it can be removed without reaching through a mount. */
export async function unmountBelow(mounts: Mounts, dir: string): Promise<void> {
  for (const { target } of await mounts.below(dir)) await mounts.unmount(target);
}
