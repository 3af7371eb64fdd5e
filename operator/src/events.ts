import { createHash, randomUUID } from "node:crypto";
import { isNamespaceEnding, isNotFound, type KubeClient, type KubeObject } from "@substrate/lib/kube/client.ts";
import { events, referenceTo } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { LRUCache } from "lru-cache";
import { type EventFacts } from "./status-events.ts";

/** As in client-go's spam filter, only smaller: a burst per object, then one more in each interval. */
const burst = 10;
const refillEveryMs = 60_000;
/** Objects and Events remembered for counting. */
const remembered = 4_096;

interface Bucket {
  tokens: number;
  updatedMs: number;
}

/** Writes Events: the same one again only raises its count, and no object gets more than a bounded rate of them. */
export class EventRecorder {
  readonly #client: KubeClient;
  readonly #log: Logger;
  readonly #counts = new LRUCache<string, number>({ max: remembered });
  readonly #buckets = new LRUCache<string, Bucket>({ max: remembered });
  readonly #component = "substrate-operator";
  /** Events of an earlier process may not be read (RBAC: create and patch), so each process has its own. */
  readonly #salt = randomUUID();

  constructor(client: KubeClient, log: Logger) {
    this.#client = client;
    this.#log = log;
  }

  /** Returns at once; an Event that cannot be written is only logged. */
  record(about: KubeObject, facts: EventFacts): void {
    const uid = about.metadata.uid ?? "";
    if (!this.#take(uid)) return;
    this.#write(about, facts).catch((error: unknown) => {
      // it goes with its object
      const level = isNamespaceEnding(error) ? "debug" : "warn";
      this.#log.log(level, "event not written", { object: `${about.kind} ${about.metadata.name}`, ...facts, error });
    });
  }

  async #write(about: KubeObject, { type, reason, message }: EventFacts): Promise<void> {
    const { name: aboutName, namespace = "default", uid = "" } = about.metadata;
    const hash = createHash("sha256")
      .update(`${this.#salt}\n${uid}\n${type}\n${reason}\n${message}`)
      .digest("hex")
      .slice(0, 16);
    const name = `${aboutName}.${hash}`;
    const now = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    if (count > 1) {
      try {
        await this.#client.mergePatch(events, name, namespace, { count, lastTimestamp: now });
        return;
      } catch (error) {
        // Events expire in the API server after an hour
        if (!isNotFound(error)) throw error;
      }
    }
    await this.#client.create(events, {
      metadata: { name, namespace },
      involvedObject: referenceTo(about),
      type,
      reason,
      message: message.slice(0, 1_024),
      count,
      firstTimestamp: now,
      lastTimestamp: now,
      source: { component: this.#component },
      reportingComponent: this.#component,
    });
  }

  #take(uid: string): boolean {
    const nowMs = performance.now();
    const bucket = this.#buckets.get(uid) ?? { tokens: burst, updatedMs: nowMs };
    const tokens = Math.min(burst, bucket.tokens + (nowMs - bucket.updatedMs) / refillEveryMs);
    this.#buckets.set(uid, { tokens: Math.max(0, tokens - 1), updatedMs: nowMs });
    return tokens >= 1;
  }
}
