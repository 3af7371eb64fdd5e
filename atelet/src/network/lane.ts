import { Worker } from "node:worker_threads";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { scriptUrl } from "@substrate/lib/script-url.ts";
import { type Kernel } from "./kernel.ts";

type Method =
  | "nft"
  | "nftList"
  | "sysctl"
  | "linkMtu"
  | "slotIndices"
  | "netnsUsable"
  | "createSlot"
  | "putAddress"
  | "routeAddress"
  | "forgetConnections"
  | "forgetInbound"
  | "destroySlot";

export interface LaneRequest {
  id: number;
  method: Method;
  args: unknown[];
}

export interface LaneResponse {
  id: number;
  value?: unknown;
  error?: string;
}

interface Waiting {
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
  what: string;
}

/**
 * Calls into the kernel one after the other, in a thread of its own. A lane that stands still makes only its own
 * callers wait: slow work (links, namespaces) and quick work (rules, addresses) each have one.
 */
export class KernelLane {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;
  #ended: SubstrateError | undefined;

  constructor() {
    this.#worker = new Worker(scriptUrl(new URL("./lane-worker.ts", import.meta.url), "lane-worker.mjs"), {
      resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 },
    });
    this.#worker.unref();
    this.#worker.on("message", (response: LaneResponse) => {
      this.#settle(response);
    });
    this.#worker.on("error", (cause: unknown) => {
      this.#end(new SubstrateError("INTERNAL", `the network's kernel thread failed: ${String(cause)}`, { cause }));
    });
    this.#worker.on("exit", () => {
      this.#end(new SubstrateError("SHUTTING_DOWN", "the network's kernel thread has ended"));
    });
  }

  /** Runs a method of Kernel. Rejects with INTERNAL, naming `what`, if the kernel refuses. */
  call<M extends Method>(what: string, method: M, ...args: Parameters<Kernel[M]>): Promise<ReturnType<Kernel[M]>> {
    return new Promise<unknown>((resolve, reject) => {
      if (this.#ended !== undefined) {
        reject(this.#ended);
        return;
      }
      const id = ++this.#lastId;
      this.#waiting.set(id, { resolve, reject, what });
      this.#worker.ref();
      this.#worker.postMessage({ id, method, args } satisfies LaneRequest);
    }) as Promise<ReturnType<Kernel[M]>>;
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  #settle({ id, value, error }: LaneResponse): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (this.#waiting.size === 0) this.#worker.unref();
    if (error === undefined) waiting?.resolve(value);
    else waiting?.reject(new SubstrateError("INTERNAL", `${waiting.what}: ${error}`));
  }

  #end(reason: SubstrateError): void {
    this.#ended ??= reason;
    for (const waiting of this.#waiting.values()) waiting.reject(this.#ended);
    this.#waiting.clear();
  }
}
