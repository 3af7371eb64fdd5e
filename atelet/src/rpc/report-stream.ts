import { type ServerWritableStream } from "@grpc/grpc-js";
import {
  type NodeReport,
  type WatchActorsRequest,
  type WatchActorsResponse,
} from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { send } from "@substrate/lib/rpc/server.ts";
import { type Actor } from "../actors/actor.ts";
import { type NodeActors } from "../actors/node-actors.ts";
import { reportToWire } from "./convert.ts";

type Call = ServerWritableStream<WatchActorsRequest, WatchActorsResponse>;

/** How often the node's own numbers are sent when no actor changes. */
const NODE_EVERY_MS = 5000;

/** Streams of reports: everything there is, a synced marker, then what changes; changes of one actor merge meanwhile. */
export class ReportStream {
  readonly #actors: NodeActors;
  readonly #node: () => NodeReport;
  #sequence = 0;

  constructor(actors: NodeActors, node: () => NodeReport) {
    this.#actors = actors;
    this.#node = node;
  }

  /** Until the caller goes away. */
  async serve(call: Call, signal: AbortSignal): Promise<void> {
    const dirty = new Map<string, Actor | { epoch: number }>();
    let wake = Promise.withResolvers<undefined>();
    const stop = this.#actors.onChange((change) => {
      if ("actor" in change) dirty.set(change.actor.record.actor.uid, change.actor);
      else dirty.set(change.gone.uid, { epoch: change.gone.epoch });
      wake.resolve(undefined);
    });
    const poke = (): void => {
      wake.resolve(undefined);
    };
    signal.addEventListener("abort", poke, { once: true });
    const timer = setInterval(poke, NODE_EVERY_MS);
    try {
      await this.#sendNode(call, signal);
      for (const actor of this.#actors.all()) await this.#sendActor(call, actor, signal);
      await send(call, { event: { $case: "synced", value: {} } }, signal);
      while (!signal.aborted) {
        await wake.promise;
        wake = Promise.withResolvers();
        await this.#sendNode(call, signal);
        for (const [uid, change] of [...dirty]) {
          dirty.delete(uid);
          if ("record" in change) await this.#sendActor(call, change, signal);
          else await send(call, { event: { $case: "gone", value: { uid, epoch: BigInt(change.epoch) } } }, signal);
        }
      }
    } finally {
      clearInterval(timer);
      stop();
    }
  }

  async #sendNode(call: Call, signal: AbortSignal): Promise<void> {
    await send(call, { event: { $case: "node", value: this.#node() } }, signal);
  }

  async #sendActor(call: Call, actor: Actor, signal: AbortSignal): Promise<void> {
    this.#sequence += 1;
    await send(call, { event: { $case: "actor", value: reportToWire(actor, this.#sequence) } }, signal);
  }
}
