import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Route } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Actor } from "./actor.ts";
import { type Atelets } from "./atelets.ts";
import { type Holding } from "./holding.ts";
import { type RouterMetrics } from "./metrics.ts";
import { type OperatorLink } from "./operator.ts";

/** Longer than any sensible wake: the call ends so that a silent peer is asked again, the wake itself goes on. */
const wakeCallTimeoutMs = 60_000;

/** Asks for one wake, logs and measures it. */
export class Waker {
  readonly #atelets: Atelets;
  readonly #operator: OperatorLink;
  readonly #metrics: RouterMetrics;
  readonly #log: Logger;

  constructor(atelets: Atelets, operator: OperatorLink, metrics: RouterMetrics, log: Logger) {
    this.#atelets = atelets;
    this.#operator = operator;
    this.#metrics = metrics;
    this.#log = log;
  }

  async wake(actor: Actor, at: Holding | undefined): Promise<Route | undefined> {
    const path = at === undefined ? "operator" : "atelet";
    const startedAt = performance.now();
    let failure: SubstrateError | undefined;
    try {
      return await (at === undefined ? this.#throughOperator(actor) : this.#atAtelet(actor, at));
    } catch (error) {
      failure = asSubstrateError(error);
      throw failure;
    } finally {
      const totalMs = performance.now() - startedAt;
      this.#metrics.wakeSeconds.observe({ path, result: failure?.code ?? "OK" }, totalMs / 1000);
      this.#log.log(failure === undefined ? "info" : "warn", "wake", {
        actor: actor.key,
        uid: actor.uid,
        path,
        node: at?.peer.nodeName,
        held: actor.heldCount,
        totalMs: Math.round(totalMs * 10) / 10,
        ...(failure === undefined ? {} : { code: failure.code, problem: failure.message }),
      });
    }
  }

  async #atAtelet(actor: Actor, at: Holding): Promise<Route | undefined> {
    const link = this.#atelets.get(at.peer.nodeName);
    if (link === undefined) {
      throw new SubstrateError("NODE_UNAVAILABLE", `the Lease of node ${at.peer.nodeName} is gone`);
    }
    return link.wake(actor.uid, wakeCallTimeoutMs);
  }

  async #throughOperator(actor: Actor): Promise<undefined> {
    await this.#operator.wake(actor, wakeCallTimeoutMs);
  }
}
