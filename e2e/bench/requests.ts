import { type LocalCluster } from "@substrate/local/cluster.ts";
import { Client } from "undici";
import { endpointOf } from "./direct.ts";

/** Milliseconds of each request. */
export interface RequestTimes {
  through: number[];
  around: number[];
}

/** Requests to a running actor through the router and straight to its address, in turn over two warm connections. */
export async function requestTimes(
  cluster: LocalCluster,
  actorName: string,
  { count, signal }: { count: number; signal: AbortSignal },
): Promise<RequestTimes> {
  const through = new Client(cluster.routerUrl);
  const around = new Client(await endpointOf(cluster, actorName));
  const timed = async (client: Client): Promise<number> => {
    const startMs = performance.now();
    const headers = { "substrate-actor": `default/${actorName}` };
    const { body } = await client.request({ method: "GET", path: "/", headers, signal });
    await body.dump();
    return performance.now() - startMs;
  };
  const times: RequestTimes = { through: [], around: [] };
  try {
    for (let i = 0; i < count; i++) {
      times.through.push(await timed(through));
      times.around.push(await timed(around));
    }
  } finally {
    await Promise.all([through.destroy(), around.destroy()]);
  }
  return times;
}
