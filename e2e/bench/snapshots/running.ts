import { requestTimes } from "../requests.ts";
import { type Plan } from "./plan.ts";

export interface RunningKeys {
  /** p50 of a request through the router less p50 of one around it. */
  routerAddedMs: number;
}

const NAME = "running";
const REQUESTS = { quick: 500, full: 3000 };

/** Requests to an actor that runs: through the router, and straight to its address. */
export async function running({ ground, samples, quick, signal, say }: Plan): Promise<RunningKeys> {
  const { product, cluster, image } = ground;
  await product.make({ name: NAME, mib: 0, kind: "random" }, image, { detachDelay: "10m", store: "direct" });
  const { through, around } = await requestTimes(cluster, NAME, {
    count: quick ? REQUESTS.quick : REQUESTS.full,
    signal,
  });
  for (const ms of through) samples.add("request through the router", ms);
  for (const ms of around) samples.add("request to the actor's address", ms);
  await product.remove(NAME);
  const routerAddedMs = samples.median("request through the router") - samples.median("request to the actor's address");
  say(`a request to a running actor: the router adds ${routerAddedMs.toFixed(2)} ms`);
  return { routerAddedMs };
}
