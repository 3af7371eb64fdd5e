import { KubeClient } from "@substrate/lib/kube/client.ts";
import { inClusterConfig, loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { createRegistry, startMetricsServer } from "@substrate/lib/metrics.ts";
import { exportExpiry } from "@substrate/lib/rpc/expiry.ts";
import { clientCredentials, followTlsFiles } from "@substrate/lib/rpc/tls.ts";
import closeWithGrace from "close-with-grace";
import { readConfig } from "./config.ts";
import { Router } from "./router.ts";
import { followLeases, KubeActorNames } from "./sources.ts";

const config = readConfig(process.argv.slice(2));
const log = createLogger("router", config.logLevel);

async function main(): Promise<void> {
  const tlsFiles = { caFile: config.tlsCa, certFile: config.tlsCert, keyFile: config.tlsKey };
  const stopped = new AbortController();
  const tls = followTlsFiles(tlsFiles, log, stopped.signal);
  const kube = config.kubeconfig === undefined ? inClusterConfig() : loadKubeConfig(config.kubeconfig);
  const client = new KubeClient(kube, { userAgent: "substrate-router" });
  const names = new KubeActorNames(client, log);
  const registry = createRegistry();
  exportExpiry(tls, registry);
  const router = new Router({
    listen: config.listen,
    domain: config.domain,
    limits: config.limits,
    credentials: clientCredentials(tls),
    names,
    registry,
    log,
  });
  const metrics = await startMetricsServer({
    listen: config.metricsListen,
    registry,
    readyz: router.readiness,
    log,
  });
  const port = await router.listen();
  const following = Promise.all([
    names.run(stopped.signal),
    followLeases(client, config.namespace, router, log, stopped.signal),
  ]);
  log.info("router started", { listen: config.listen, port, metricsPort: metrics.port, domain: config.domain });

  closeWithGrace({ delay: config.limits.shutdownGraceMs + 5_000, logger: false }, async ({ signal, err }) => {
    if (err !== undefined) log.error("router ends for an unexpected error", { error: err });
    else log.info("router stops: open requests may end", { signal, graceMs: config.limits.shutdownGraceMs });
    await router.stop();
    stopped.abort();
    await following;
    await client.close();
    await metrics.close();
    log.info("router stopped");
  });
}

main().catch((error: unknown) => {
  log.error("router did not start", { error });
  process.exitCode = 1;
});
