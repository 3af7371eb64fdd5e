import { join } from "node:path";
import { type Route, RouteServiceClient } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { leases } from "@substrate/lib/kube/types.ts";
import { dial } from "@substrate/lib/rpc/client.ts";
import { clientCredentials, loadTls, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { type LocalCluster } from "@substrate/local/cluster.ts";

const TIMEOUT_MS = 20_000;

/** Where a running actor's first port is, as the atelet tells its routers: for requests that go around the router. */
export async function endpointOf(cluster: LocalCluster, actorName: string): Promise<string> {
  const lease = await cluster.client.get(leases, cluster.nodeName, "substrate-system");
  const address = lease?.metadata.annotations?.["substrate.run/address"];
  if (address === undefined) throw new Error(`node ${cluster.nodeName} has no Lease with an address`);
  const file = (name: string): string => join(cluster.stateDir, "pki", name);
  const credentials = clientCredentials(
    new TlsSource(loadTls({ caFile: file("ca.crt"), certFile: file("router.crt"), keyFile: file("router.key") })),
  );
  const client = dial(RouteServiceClient, address, "atelet", credentials);
  const stream = client.attach();
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<string>((resolve, reject) => {
      timer = setTimeout(() => {
        reject(new Error(`the atelet has told no address of ${actorName} within ${TIMEOUT_MS / 1000} s: does it run?`));
      }, TIMEOUT_MS);
      stream.on("error", reject);
      stream.on("data", ({ message }: { message?: { $case: string; value: unknown } }) => {
        if (message?.$case !== "route") return;
        const { actor, endpoints } = message.value as Route;
        const first = endpoints[0];
        if (actor?.name === actorName && first !== undefined) resolve(`http://${first.address}:${first.port}`);
      });
      stream.write({ message: { $case: "hello", value: { routerId: "benchmark" } } });
    });
  } finally {
    clearTimeout(timer);
    stream.on("error", () => undefined);
    stream.cancel();
    client.close();
  }
}
