import { mkdir } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@substrate/lib/log.ts";
import { createRegistry, startMetricsServer } from "@substrate/lib/metrics.ts";
import { exportExpiry } from "@substrate/lib/rpc/expiry.ts";
import { startRpcServer } from "@substrate/lib/rpc/server.ts";
import { followTlsFiles, serverCredentials } from "@substrate/lib/rpc/tls.ts";
import pLimit from "p-limit";
import { NodeActors } from "./actors/node-actors.ts";
import { type NodeContext } from "./actors/node-context.ts";
import { Releases } from "./actors/releases.ts";
import { Tags } from "./actors/tags.ts";
import { Trials } from "./actors/trial.ts";
import { lendCapBytes } from "./cgroups/cgroups.ts";
import { StartPlaces } from "./actors/start-places.ts";
import { Urgency } from "./actors/urgency.ts";
import { claimDownload } from "./actors/disk-claims.ts";
import { hurryUploads } from "./actors/evictable.ts";
import { removablesOf } from "./actors/removables.ts";
import { detectCgroups } from "./cgroups/detect.ts";
import { readConfig } from "./config.ts";
import { DiskThread } from "./disk/disk-thread.ts";
import { LocalUsage } from "./disk/local-usage.ts";
import { NodeDisk } from "./disk/node-disk.ts";
import { createDiskMetrics } from "./disk-metrics.ts";
import { Descriptors } from "./exec/descriptors.ts";
import { OpenRequests } from "./exec/open-requests.ts";
import { ExecSessions } from "./exec/sessions.ts";
import { ImageStore } from "./images/image-store.ts";
import { MemoryLedger } from "./ledger/ledger.ts";
import { createMemoryMetrics } from "./memory-metrics.ts";
import { createAteletMetrics } from "./metrics.ts";
import { NftActorNetwork } from "./network/nft-network.ts";
import { removeFolder } from "./node-files.ts";
import { Outputs } from "./output/outputs.ts";
import { openStdout } from "./output/stdout.ts";
import { Origins } from "./origins/origins.ts";
import { ReportStream } from "./rpc/report-stream.ts";
import { RouteHub } from "./rpc/route-hub.ts";
import { ateletServices } from "./rpc/services.ts";
import { GvisorRuntime } from "./sandbox/gvisor/runtime.ts";
import { type FileChecks } from "./generations/seal.ts";
import { Copier } from "./store/copier.ts";
import { PageEngine } from "./pages/page-engine.ts";
import { Transfers } from "./store/transfers.ts";
import { Stores } from "./store/stores.ts";
import { connectSupervisor } from "./supervisor/channel.ts";
import { Troubles } from "./troubles.ts";
import { Tombstones } from "./tombstones/tombstones.ts";
import { OverlayMounts, unmountBelow } from "./volumes/mounts.ts";
import { SlotFolders } from "./warm/slot-folder.ts";
import { createWarmMetrics } from "./warm/warm-metrics.ts";
import { WarmSlots } from "./warm/warm-slots.ts";
import { CacheWorkers } from "./writeback/cache-worker.ts";
import { nodeWriteBack } from "./write-back.ts";
import { ImageReads } from "./writeback/image-reads.ts";

/** How many checkpoints are written at once: more only make each other slower. */
const SNAPSHOT_SLOTS = 2;
/** How many volumes are copied or packed at once. */
const VOLUME_JOBS = 2;
/** Generations whose digests are taken at once: they share one disk, and nobody waits for them. */
const DIGEST_SLOTS = 2;
/** Network slots kept ready for the next wakes. */
const READY_NETWORK_SLOTS = 4;
/** How long space may be made for the pull of an image; then another node may have it. */
const IMAGE_WITHIN_MS = 5000;
/** Of the grace period, what is left for exiting after everything was suspended. */
const EXIT_MS = 3000;

const config = readConfig();
const log = createLogger("atelet", config.logLevel).child({ node: config.nodeName });
const stopping = new AbortController();
const ending = new AbortController();
// From the first moment: what an earlier atelet left running is adopted first and then suspended, not killed.
const terminated = new Promise((resolve) => process.once("SIGTERM", resolve));

const supervisor = connectSupervisor();
await supervisor.ready;

const inState = (name: string): string => join(config.stateDir, name);
const mounts = new OverlayMounts();
await unmountBelow(mounts, inState("trials"));
for (const name of ["trials", "transfers"]) await removeFolder(inState(name));
await mkdir(inState("actors"), { recursive: true, mode: 0o700 });

const cgroups = await detectCgroups(config.cgroupParent);
const runtime = new GvisorRuntime({ runscPath: config.tools.runsc, rootDir: inState("runsc"), log });
await runtime.start();
const { runtime: runtimeBuild, warmRestore } = await runtime.capabilities();
supervisor.announce(runtimeBuild);
const network = new NftActorNetwork({
  dir: inState("netns"),
  podInterface: "eth0",
  podAddress: config.advertiseAddress,
  denyCidrs: config.denyCidrs,
  poolSize: READY_NETWORK_SLOTS,
  reservedPorts: [config.port, config.metricsListen.port],
  log,
});
const pod = await cgroups.pod();
const ledger = new MemoryLedger({
  limitBytes: pod.limitBytes,
  reserveBytes: config.reserveBytes,
  lendCapBytes: lendCapBytes(pod, config.lendPercent),
  observe: (event) => {
    memory.ledger(event);
  },
});
const troubles = new Troubles();
const diskThread = new DiskThread();
const bytesBelow = (dir: string): Promise<number> => diskThread.below(dir);
const disk: NodeDisk = new NodeDisk({
  nodeName: config.nodeName,
  dir: config.stateDir,
  floor: config.diskFloor,
  quotaBytes: config.snapshotQuotaBytes,
  snapshotBytes: () => diskThread.snapshots(config.stateDir),
  removables: () => removablesOf({ actors: actors.all(), origins, images, warmRootfs: warm.rootfsDirs(), bytesBelow }),
  hurry: () => hurryUploads(actors.all()),
  removed: (removed) => {
    diskMetrics.removed(removed);
  },
  refused: () => {
    diskMetrics.refused();
  },
  tight: (message) => {
    troubles.note("DiskTight", message);
  },
  log,
  signal: ending.signal,
});
const localUsage = new LocalUsage(() => diskThread.local(config.stateDir));
const images = await ImageStore.open({
  dir: config.stateDir,
  crane: config.tools.crane,
  registryConfigPath: config.registryConfigPath,
  umoci: config.tools.umoci,
  allowLocalImages: config.allowLocalImages,
  claim: (bytes, what) => disk.claim({ bytes, what, withinMs: IMAGE_WITHIN_MS, kind: "image" }),
  bytesBelow,
  log,
});
const pages = new PageEngine();
const copier = new Copier();
const fileChecks: FileChecks = {
  digest: (path) => copier.digest(path),
  verify: (image) => pages.verify(image),
};
const stores = new Stores(config.stores, pages, new Transfers(ledger));
// nothing waits for it: actors on this node need no store to wake
void stores.openBuckets(log, ending.signal);
const registry = createRegistry();
const hub = new RouteHub({
  podAddress: config.advertiseAddress,
  hello: () => ({ nodeName: config.nodeName, bootId: supervisor.bootId, session: supervisor.session() ?? "" }),
  routes: () => actors.all().map((actor) => actor.route()),
  setRouters: (addresses) => network.setRouters(addresses),
  activity: (uid) => actors.find(uid)?.noteActivity(Date.now()),
  log,
});
const metrics = createAteletMetrics(registry, {
  running: () => actors.all().filter((actor) => actor.hasSandbox).length,
  pending: () => actors.all().filter((actor) => actor.pendingGeneration !== undefined).length,
  parked: () => network.parkedCount,
});
const diskMetrics = createDiskMetrics(registry, {
  state: () => disk.state(),
  localBytes: () => localUsage.last,
});
const pageCache = new CacheWorkers();
const memory = createMemoryMetrics(registry, {
  ledger,
  unwritten: () => cgroups.snapshots(),
  heldUnlinkedBytes: () => pageCache.heldUnlinkedBytes(config.stateDir),
});
const writeBack = nodeWriteBack({ ledger, cgroups, pageCache, metrics: memory, troubles, log, signal: ending.signal });
const outputs = new Outputs({
  sink: config.actorLogs === "stdout" ? openStdout(log) : undefined,
  passed: (bytes) => {
    metrics.logBytes.inc(bytes);
  },
  dropped: (bytes) => {
    metrics.droppedLogBytes.inc(bytes);
  },
  log,
});

const tombstones = new Tombstones({
  dir: inState("tombstones"),
  store: (name) => stores.get(name),
  waiting: (count) => {
    metrics.tombstones.set(count);
  },
  log,
  signal: ending.signal,
});
await tombstones.load();

const volumeJobs = pLimit(VOLUME_JOBS);
const origins: Origins = new Origins({
  dir: inState("origins"),
  runtimeBuild,
  store: (name) => stores.get(name),
  inUse: () => actors.originsInUse(),
  checks: fileChecks,
  count: (count) => {
    metrics.origins.set(count);
  },
  jobs: volumeJobs,
  claim: (bytes, what) => claimDownload({ disk }, bytes, what),
  bytesBelow,
  log,
  signal: ending.signal,
});
await origins.load();

const urgency = new Urgency();
const warmFolders = new SlotFolders(inState("warm"), mounts);
const warmOutcomes = createWarmMetrics(registry, () => warm.count);
const warm = new WarmSlots({
  runtime,
  network,
  cgroups,
  ledger,
  folders: warmFolders,
  most: warmRestore ? config.warmSlots : 0,
  quiet: (forMs, signal) => urgency.quiet(forMs, signal),
  outcome: (outcome) => {
    warmOutcomes.inc({ outcome });
  },
  log,
  signal: stopping.signal,
});

const sessions = new ExecSessions(runtime, new Descriptors(), log);
const node: NodeContext = {
  stateDir: config.stateDir,
  actorsDir: inState("actors"),
  runtime,
  runtimeBuild,
  network,
  exits: supervisor.exits,
  cgroups,
  images,
  store: (name) => stores.get(name),
  storeNames: () => stores.names(),
  pages,
  fileChecks,
  digestSlots: pLimit(DIGEST_SLOTS),
  tombstones,
  origins,
  ledger,
  writeBack,
  pageCache,
  outputs,
  volumes: { mounts, jobs: volumeJobs, originsDir: inState("origins") },
  disk,
  warm,
  warmFolders,
  imageReads: new ImageReads(pageCache),
  startPlaces: new StartPlaces(availableParallelism()),
  urgency,
  snapshotSlots: pLimit(SNAPSHOT_SLOTS),
  routers: new OpenRequests(hub, sessions),
  metrics,
  session: () => supervisor.session(),
  log,
  stopping: stopping.signal,
  signal: ending.signal,
};
const releases = new Releases(inState("released"));
await releases.load(Date.now());
const actors = new NodeActors(node, releases);
await actors.start();
void outputs.run(ending.signal);
void disk.watch();
void localUsage.watch(log, ending.signal);
hub.expect(network.routersBefore());
supervisor.onSession(() => {
  log.warn("a new session began: running actors are cut until they are granted anew");
  actors.endSession().catch((error: unknown) => {
    log.error("cutting the actors of the ended session failed", { error });
  });
});

const reports = new ReportStream(actors, () => {
  const { limitBytes, bookedBytes, lentBytes, reserveBytes, warmBytes, transferBytes, waiting } = ledger.state();
  return {
    session: supervisor.session() ?? "",
    bootId: supervisor.bootId,
    limitBytes: BigInt(limitBytes),
    bookedBytes: BigInt(bookedBytes),
    lentBytes: BigInt(lentBytes),
    reserveBytes: BigInt(reserveBytes),
    runtime: runtimeBuild,
    stores: stores.troubles(),
    warmBytes: BigInt(warmBytes),
    transferBytes: BigInt(transferBytes),
    waiting,
    troubles: troubles.list(),
  };
});
const account = (part: string): string => `system:serviceaccount:${config.namespace}:${part}`;
const tls = followTlsFiles(
  { caFile: config.tls.caPath, certFile: config.tls.certPath, keyFile: config.tls.keyPath },
  log,
  ending.signal,
);
exportExpiry(tls, registry);
const server = await startRpcServer({
  address: `${config.advertiseAddress}:${config.port}`,
  credentials: serverCredentials(tls),
  services: ateletServices({
    actors,
    trials: new Trials(node),
    tags: new Tags(node, actors),
    hub,
    reports,
    sessions,
    cgroups,
    podAddress: config.advertiseAddress,
    callers: { operator: account("operator"), router: account("router") },
    log,
  }),
});
const metricsServer = await startMetricsServer({
  listen: `${config.metricsListen.host}:${config.metricsListen.port}`,
  registry,
  debug: {
    "/debug/ledger": async () => ({
      ledger: ledger.state(),
      pod: await cgroups.pod(),
      unwritten: await cgroups.snapshots(),
      followed: writeBack.followed(),
    }),
    "/debug/disk": async () => ({
      ...(await disk.state()),
      local: await localUsage.now(),
      heldUnlinkedBytes: await pageCache.heldUnlinkedBytes(config.stateDir),
    }),
  },
  readyz: { ending: () => (stopping.signal.aborted ? "the atelet is shutting down" : undefined) },
  log,
});
log.info("atelet started", {
  port: server.port,
  runtime: runtimeBuild,
  actors: actors.all().length,
  ...ledger.state(),
});

/** The last resort of design.md §7: suspend and upload everything, as far as the grace period goes. */
async function shutDown(): Promise<void> {
  log.info("shutting down: suspending all running actors and uploading what only this node has", {
    graceMs: config.graceMs,
  });
  stopping.abort();
  await warm.close();
  await actors.saveAll(delay(Math.max(0, config.graceMs - EXIT_MS)));
  ending.abort();
  await outputs.close();
  await server.stop(1000);
  await metricsServer.close();
  await warmFolders.destroy();
  await network.destroy();
  await pages.close();
  await diskThread.close();
  await copier.close();
  await runtime.destroy();
  await cgroups.destroy();
}

await terminated;
try {
  await shutDown();
  process.exit(0);
} catch (error) {
  log.error("shutting down failed", { error });
  process.exit(1);
}
