import { type Snapshot } from "@substrate/crds/index.ts";
import { type StoredSnapshot } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { type BackgroundCalls } from "./background-calls.ts";
import { type EventRecorder } from "./events.ts";
import { troubleOf } from "./hold.ts";
import { type Origins } from "./origins.ts";
import { type ReconcileResult } from "./queue.ts";
import { pendingConditions, snapshotFinalizer, type SnapshotWriter } from "./snapshot-writer.ts";

export interface StoredDeletionOptions {
  atelets: Atelets;
  calls: BackgroundCalls<StoredSnapshot>;
  origins: Origins;
  writer: SnapshotWriter;
  events: EventRecorder;
  log: Logger;
  /** Asks the trial run that may still store this golden snapshot to end; false when there is none. */
  stopTaking: (snapshotUid: string) => boolean;
}

/** Recording a tombstone is one fsync. */
const deleteDeadlineMs = 10_000;
const blockedRetryMs = 5_000;
const runningRetryMs = 500;
const advice = 'bring an atelet back, or set annotation substrate.run/abandon: "true" to let go without cleaning up';

/** The end of a Snapshot that owns a prefix: some node takes it on to remove the data; only then the object goes. */
export class StoredDeletion {
  readonly #options: StoredDeletionOptions;

  constructor(options: StoredDeletionOptions) {
    this.#options = options;
  }

  /** Needs only what is in the object. Throws KubeError when the finalizer cannot be taken off. */
  async run(snapshot: Snapshot): Promise<ReconcileResult> {
    const { calls, events, stopTaking, writer } = this.#options;
    if (!(snapshot.metadata.finalizers ?? []).includes(snapshotFinalizer)) return {};
    const { uid = "" } = snapshot.metadata;
    if (snapshot.metadata.annotations?.["substrate.run/abandon"] === "true") {
      const message = "Let go without removing its stored data, as its annotation substrate.run/abandon asks";
      events.record(snapshot, { type: "Warning", reason: "Abandoned", message });
    } else if (snapshot.status?.store !== undefined) {
      // what is still being written would be written after its removal
      calls.cancel(uid);
      if (calls.of(uid)?.kind === "running" || stopTaking(uid)) {
        return { requeueAfterMs: runningRetryMs };
      }
      const blocked = await this.#deleteStored(snapshot, snapshot.status.store);
      if (blocked !== undefined) {
        const message = `${blocked}; ${advice}`;
        const known = snapshot.status.conditions?.find(({ type }) => type === "Ready");
        if (known?.reason !== "DeletionBlocked") {
          events.record(snapshot, { type: "Warning", reason: "DeletionBlocked", message });
        }
        await writer.status(snapshot, snapshot.status, pendingConditions({ reason: "DeletionBlocked", message }));
        return { requeueAfterMs: blockedRetryMs };
      }
    }
    await writer.removeFinalizer(snapshot);
    calls.forget(uid);
    return {};
  }

  /** What stands in the way, or undefined when a node has taken it on. */
  async #deleteStored(snapshot: Snapshot, store: string): Promise<string | undefined> {
    const { log, origins } = this.#options;
    const link = this.#link(snapshot);
    if (link === undefined) return "Waits for a node that removes its stored data: none answers";
    try {
      const prefix = await origins.prefix(snapshot, store);
      await link.call((client) => client.deleteStored.bind(client), { prefix }, { deadlineMs: deleteDeadlineMs });
      return undefined;
    } catch (error) {
      log.warn("deletion is blocked", { snapshot: keyOf(snapshot), error });
      return troubleOf(error).message;
    }
  }

  /** Best the node that was asked to store it: it knows whether it still does. */
  #link({ status }: Snapshot): AteletLink | undefined {
    const { atelets } = this.#options;
    const asked = status?.nodeName === undefined ? undefined : atelets.get(status.nodeName);
    return asked?.view().synced === true ? asked : atelets.anyReachable();
  }
}
