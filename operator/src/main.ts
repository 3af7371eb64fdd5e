import { setTimeout as sleep } from "node:timers/promises";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { inClusterConfig, loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { createLogger, type Logger } from "@substrate/lib/log.ts";
import { createRegistry, startMetricsServer } from "@substrate/lib/metrics.ts";
import { startRpcServer } from "@substrate/lib/rpc/server.ts";
import { exportExpiry } from "@substrate/lib/rpc/expiry.ts";
import { followTlsFiles, serverCredentials, type TlsSource } from "@substrate/lib/rpc/tls.ts";
import { Pool } from "undici";
import { AccessReviews } from "./api/access.ts";
import { execHandler } from "./api/exec.ts";
import { operationsHandler, usageHandler } from "./api/inspection.ts";
import { nodesHandler } from "./api/nodes.ts";
import { logHandler } from "./api/log.ts";
import { Forward } from "./api/forward.ts";
import { FrontProxy } from "./api/front-proxy.ts";
import { proxyHandler } from "./api/proxy.ts";
import { startApiServer } from "./api/server.ts";
import { resumeHandler, suspendHandler } from "./api/verbs.ts";
import { ApiServiceKeeper } from "./certificates/api-service.ts";
import { OperatorIdentity } from "./certificates/identity.ts";
import { CertificateKeeper } from "./certificates/keeper.ts";
import { commonName, operatorRequest } from "./certificates/names.ts";
import { Owner } from "./certificates/owner.ts";
import { CertificateSecrets } from "./certificates/secrets.ts";
import { type OperatorConfig, parseConfig } from "./config.ts";
import { Operator } from "./operator.ts";
import { wakeService } from "./wake-service.ts";

/** Open calls may end within this at a shutdown; the actors' own operations go on at their nodes. */
const graceMs = 2_000;
const clusterRetryMs = 1_000;
/** An API server has read all roles within a few seconds of its start. */
const deniedPatienceMs = 10_000;
/** The router answers a wake that takes too long by itself; a program may take as long as it likes. */
const proxyConnectTimeoutMs = 5_000;

/** The uid of namespace kube-system identifies the cluster; asked again until the API server answers. */
async function readClusterUid(client: KubeClient, log: Logger, signal: AbortSignal): Promise<string> {
  for (;;) {
    try {
      const uid = (await client.get(namespaces, "kube-system", undefined, { signal }))?.metadata.uid;
      if (uid !== undefined) return uid;
      log.info("namespace kube-system is not there yet");
    } catch (error) {
      signal.throwIfAborted();
      log.warn("the API server does not answer yet", { error });
    }
    await sleep(clusterRetryMs, undefined, { signal });
  }
}

/** From files, or made by the operator itself. */
async function certificates(
  config: OperatorConfig,
  client: KubeClient,
  owner: Owner,
  log: Logger,
  signal: AbortSignal,
): Promise<{ tls: TlsSource; keeper?: CertificateKeeper }> {
  if ("files" in config.certificates) return { tls: followTlsFiles(config.certificates.files, log, signal) };
  const { namespace } = config;
  const settings = config.certificates.managed;
  const secrets = new CertificateSecrets(client, namespace, settings, owner);
  const request = operatorRequest(namespace, config.apiService?.name);
  const tls = await new OperatorIdentity({ secrets, settings, request, log }).start(signal);
  return { tls, keeper: new CertificateKeeper({ secrets, settings, namespace, log }) };
}

async function run(config: OperatorConfig, log: Logger, signal: AbortSignal): Promise<void> {
  const { namespace } = config;
  const registry = createRegistry();
  const kubeConfig = config.kubeconfig === undefined ? inClusterConfig() : loadKubeConfig(config.kubeconfig);
  const client = new KubeClient(kubeConfig, {
    fieldManager: "substrate-operator",
    userAgent: "substrate-operator",
    deniedPatienceMs,
  });
  let operator: Operator | undefined;
  const metrics = await startMetricsServer({
    listen: config.metricsListen,
    registry,
    readyz: { operator: () => (operator === undefined ? "waits for the API server" : operator.problem()) },
    log,
  });
  const router = new Pool(config.routerUrl, {
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: proxyConnectTimeoutMs },
  });
  const closing: (() => Promise<unknown>)[] = [() => metrics.close(), () => router.destroy(), () => client.close()];
  try {
    const clusterUid = await readClusterUid(client, log, signal);
    const owner = new Owner(client, config.owner, log);
    const { keeper, tls } = await certificates(config, client, owner, log, signal);
    exportExpiry(tls, registry);
    const apiService =
      config.apiService && new ApiServiceKeeper({ client, namespace, target: config.apiService, tls, owner, log });
    operator = new Operator({
      client,
      namespace,
      address: config.advertiseAddress,
      apiAddress: config.apiAdvertiseAddress,
      clusterUid,
      tls,
      leaseDurationMs: config.leaseDurationMs,
      nodeLostAfterMs: config.nodeLostAfterMs,
      registry,
      log,
      whileLeading: (leading) => {
        void keeper?.run(leading);
        void apiService?.run(leading);
      },
    });
    const { actors, atelets, choices, leaders, leadership, operations, waker } = operator;
    const routerName = `system:serviceaccount:${namespace}:router`;
    const rpc = await startRpcServer({
      address: config.grpcListen,
      credentials: serverCredentials(tls),
      services: [wakeService({ waker, actors, leadership, routerName, log })],
    });
    closing.unshift(() => rpc.stop(graceMs));
    const access = new AccessReviews(client);
    const verbs = { operations, choices, access, leadership, log };
    const api = await startApiServer({
      listen: config.apiListen,
      tls,
      frontProxy:
        config.frontProxy === undefined
          ? await FrontProxy.ofCluster(client, log, signal)
          : FrontProxy.fromFiles(config.frontProxy),
      forward: new Forward({
        tls,
        leading: () => leadership.leading,
        leaderAddress: () => leaders.apiAddress,
      }),
      operatorName: commonName("operator", namespace),
      client,
      handlers: {
        suspend: { methods: ["POST"], handle: suspendHandler(verbs) },
        resume: { methods: ["POST"], handle: resumeHandler(verbs) },
        log: { methods: ["GET"], handle: logHandler(atelets) },
        usage: { methods: ["GET"], handle: usageHandler(atelets) },
        operations: { methods: ["GET"], handle: operationsHandler(atelets) },
        proxy: { methods: "any", handle: proxyHandler(router) },
      },
      upgrades: { exec: execHandler({ atelets, waker, access, leadership, log }) },
      nodes: nodesHandler(atelets, leadership),
      log,
    });
    closing.unshift(() => api.close());
    log.info("operator started", { grpc: rpc.port, api: api.port, metrics: metrics.port });
    await operator.run(signal);
  } finally {
    for (const close of closing) await close();
  }
}

async function main(): Promise<void> {
  const config = parseConfig(process.argv.slice(2));
  const log = createLogger("operator", config.logLevel);
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    process.once(name, () => {
      log.info("stopping", { signal: name });
      stop.abort();
    });
  }
  try {
    await run(config, log, stop.signal);
    log.info("operator stopped");
  } catch (error) {
    if (stop.signal.aborted) return;
    log.error("operator failed", { error });
    process.exitCode = 1;
  }
}

await main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
});
