import { mkdirSync } from "node:fs";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { abortable } from "./abortable.ts";
import { registerApi, waitForApi } from "./aggregated-api.ts";
import { partEnvironment, toolSettings } from "./config.ts";
import { ControlPlane } from "./control-plane/control-plane.ts";
import { applyCrds, applyPolicies, applyRoles } from "./control-plane/manifests.ts";
import { removeLeftovers } from "./leftovers.ts";
import { applyNode, nodeNameOfMachine } from "./node-object.ts";
import {
  ATELET_GRACE_MS,
  ateletArguments,
  DOMAIN,
  issuePart,
  type LocalStore,
  metricsUrls,
  operatorArguments,
  type Part,
  routerArguments,
} from "./parts.ts";
import { pickPorts } from "./ports.ts";
import { createPod, findInPod } from "./pod/pod.ts";
import { availableMemoryBytes, PodCgroup } from "./pod/pod-cgroup.ts";
import { pickSubnet, PodNetwork, subnetAddresses } from "./pod/pod-network.ts";
import { signalProcess, waitForEnd, type ProcessIdentity } from "./processes/record.ts";
import { type ProcessCommand, SupervisedProcess } from "./processes/supervised.ts";
import { waitReady } from "./ready.ts";
import { StateFolder } from "./state-folder.ts";
import { findTools, type ToolPaths } from "./tools/find.ts";
import { untilDone } from "./until-done.ts";

const READY_TIMEOUT_MS = 60_000;
const KILL_TIMEOUT_MS = 10_000;
/** Beyond the atelet's own grace time: its supervisor ends last. */
const POD_GRACE_MS = ATELET_GRACE_MS + 5_000;
const PART_GRACE_MS = 10_000;
const ANNOUNCE_PAUSE_MS = 1_000;

const portNames = [
  "etcd",
  "etcdPeer",
  "apiserver",
  "operator",
  "operatorApi",
  "operatorMetrics",
  "router",
  "routerMetrics",
] as const;

/** `supervisor` is the pod's first process, `atelet` the agent that it starts. */
export type ClusterProcess =
  "etcd" | "kube-apiserver" | "kube-controller-manager" | "operator" | "supervisor" | "atelet" | "router";

export interface LocalClusterOptions {
  /** Everything that the cluster keeps; at most 60 characters. */
  stateDir: string;
  /** Progress and what goes wrong later, one line each. */
  say: (line: string) => void;
  /** Default: those that setup has put in place. */
  tools?: ToolPaths;
  /** Gives the start up: everything that was started is ended and the start rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Default true. Without it a power cut may lose API objects: for tests. */
  fsync?: boolean;
  /** Variables that the cluster's processes get besides this one's. */
  environment?: NodeJS.ProcessEnv;
  /** Buckets of this machine beside the store `default`, which is a folder. */
  stores?: readonly LocalStore[];
  /** Flags of the atelet beside those of every local cluster: for tests. */
  ateletFlags?: readonly string[];
}

/** A running cluster on this machine. */
export class LocalCluster {
  readonly stateDir: string;
  /** The same id is in the names of the interface, nft table and cgroup of this cluster. */
  readonly id: string;
  readonly nodeName: string;
  /** kubeconfig of a user in system:masters. */
  readonly kubeconfig: string;
  /** As that user. */
  readonly client: KubeClient;
  /** `http://127.0.0.1:PORT` */
  readonly routerUrl: string;
  readonly routerPort: number;
  readonly domain = DOMAIN;
  /** Folder of the store `default`. */
  readonly storeDir: string;
  /** The node folder of the atelet. */
  readonly nodeDir: string;
  /** Base URLs of /metrics, /readyz and /healthz. */
  readonly metricsUrls: Readonly<Record<Part, string>>;
  readonly tools: ToolPaths;
  readonly #state: StateFolder;
  readonly #plane: ControlPlane;
  readonly #network: PodNetwork;
  readonly #parts: Readonly<Record<Part, SupervisedProcess>>;
  readonly #ending: AbortController;

  /** Use `startLocalCluster`. */
  constructor(own: {
    state: StateFolder;
    plane: ControlPlane;
    network: PodNetwork;
    parts: Readonly<Record<Part, SupervisedProcess>>;
    ending: AbortController;
    nodeName: string;
    routerPort: number;
    metricsUrls: Readonly<Record<Part, string>>;
    tools: ToolPaths;
  }) {
    this.#state = own.state;
    this.#plane = own.plane;
    this.#network = own.network;
    this.#parts = own.parts;
    this.#ending = own.ending;
    this.stateDir = own.state.path;
    this.id = own.state.id;
    this.nodeName = own.nodeName;
    this.kubeconfig = own.plane.adminKubeconfig;
    this.client = own.plane.client;
    this.routerPort = own.routerPort;
    this.routerUrl = `http://127.0.0.1:${own.routerPort}`;
    this.storeDir = own.state.file("store");
    this.nodeDir = own.state.file("node");
    this.metricsUrls = own.metricsUrls;
    this.tools = own.tools;
  }

  logFile(name: Part | "etcd" | "kube-apiserver" | "kube-controller-manager"): string {
    return this.#state.file("log", `${name}.log`);
  }

  /** Undefined while it does not run. */
  pid(name: ClusterProcess): number | undefined {
    return this.#identity(name)?.pid;
  }

  /** Sends the signal and waits until the process is gone; it is then started again by whoever watches it. */
  async kill(name: ClusterProcess, signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const identity = this.#identity(name);
    if (identity === undefined) throw new Error(`${name} does not run`);
    signalProcess(identity, signal);
    if (!(await waitForEnd(identity, KILL_TIMEOUT_MS))) throw new Error(`${name} did not end by ${signal} within 10 s`);
  }

  /** Ends the process and leaves it ended until `start`. */
  async hold(name: Exclude<ClusterProcess, "atelet">, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    await this.#process(name).stop(signal);
  }

  /** Starts what was held and waits until it is ready. */
  async start(name: Exclude<ClusterProcess, "atelet">): Promise<void> {
    await this.#process(name).start();
    await this.ready();
  }

  /** Waits until the API server and all parts are ready. @throws after `deadlineMs` (default 60 s) or when it is given up. */
  async ready(deadlineMs = READY_TIMEOUT_MS, signal?: AbortSignal): Promise<void> {
    await this.#plane.ready(deadlineMs, signal);
    await Promise.all(
      (["operator", "atelet", "router"] as const).map((part) =>
        waitReady(part, `${this.metricsUrls[part]}/readyz`, this.logFile(part), { deadlineMs, signal }),
      ),
    );
    await waitForApi(this.client, deadlineMs, signal);
  }

  /** Ends everything: parts first, so that running actors are suspended while the rest still serves. */
  async stop(): Promise<void> {
    const { operator, atelet, router } = this.#parts;
    this.#ending.abort(new Error("the cluster was stopped"));
    await endAll([[atelet], [router, operator], [this.#plane]]);
    await this.#network.release();
    this.#state.close();
  }

  #process(name: Exclude<ClusterProcess, "atelet">): SupervisedProcess {
    switch (name) {
      case "etcd":
        return this.#plane.etcd;
      case "kube-apiserver":
        return this.#plane.apiserver;
      case "kube-controller-manager":
        return this.#plane.controllerManager;
      case "supervisor":
        return this.#parts.atelet;
      case "operator":
      case "router":
        return this.#parts[name];
    }
  }

  #identity(name: ClusterProcess): ProcessIdentity | undefined {
    if (name !== "atelet") return this.#process(name).identity;
    const supervisor = this.#parts.atelet.identity;
    return supervisor === undefined ? undefined : findInPod(supervisor, "atelet/src/main.ts");
  }
}

/** Ends group after group, whatever fails. @throws the first failure, after all were asked. */
async function endAll(groups: readonly (readonly { stop: () => Promise<void> }[])[]): Promise<void> {
  const failures: unknown[] = [];
  for (const group of groups) {
    const results = await Promise.allSettled(group.map((member) => member.stop()));
    failures.push(...results.flatMap((result) => (result.status === "rejected" ? [result.reason as unknown] : [])));
  }
  if (failures.length > 0) throw failures[0];
}

/**
 * Starts a whole cluster: etcd, kube-apiserver, kube-controller-manager, operator, one atelet and the router. What an
 * earlier one on the same folder left is cleaned up first; its actors are still there. Resolves when all is ready.
 * @throws if the folder is in use or something does not become ready; then nothing of it runs any more.
 */
export async function startLocalCluster(options: LocalClusterOptions): Promise<LocalCluster> {
  const settings = toolSettings();
  const tools = options.tools ?? findTools(settings);
  const state = StateFolder.open(options.stateDir);
  const started: SupervisedProcess[] = [];
  let plane: ControlPlane | undefined;
  let network: PodNetwork | undefined;
  // ends the waits that outlive the start, too
  const ending = new AbortController();
  const signal = options.signal === undefined ? ending.signal : AbortSignal.any([options.signal, ending.signal]);
  try {
    await removeLeftovers(state, options.say, signal);
    const remembered = state.readSettings();
    const subnet = pickSubnet(remembered.subnet);
    const ports = await pickPorts(portNames, remembered.ports);
    state.writeSettings({ format: 1, subnet, ports });
    const addresses = subnetAddresses(subnet);
    const { say } = options;
    const environment = { ...partEnvironment(settings), ...options.environment };

    plane = await ControlPlane.start({
      state,
      tools,
      ports,
      apiserverAddresses: [addresses.host],
      environment,
      fsync: options.fsync ?? true,
      say,
      signal,
    });
    const { client, pki, server } = plane;
    const nodeName = nodeNameOfMachine();
    await abortable(applyCrds(client, signal), signal);
    await abortable(
      Promise.all([applyPolicies(client), applyRoles(client), applyNode(client, nodeName, addresses.pod)]),
      signal,
    );

    const podServer = `https://${addresses.host}:${ports.apiserver}`;
    const [operatorIdentity, ateletIdentity, routerIdentity] = await Promise.all([
      issuePart("operator", state, pki.authority, server, []),
      issuePart("atelet", state, pki.authority, podServer, [addresses.pod]),
      issuePart("router", state, pki.authority, server, []),
    ]);
    for (const folder of ["node", "store"]) mkdirSync(state.file(folder), { recursive: true, mode: 0o700 });

    const cgroup = new PodCgroup(state.id);
    const stores = options.stores ?? [];
    network = new PodNetwork(state.id, subnet, [ports.apiserver, ...stores.map(({ port }) => port)]);
    const urls = metricsUrls(ports, addresses.pod);
    const node = (args: string[]): (() => ProcessCommand) => {
      return () => ({ program: process.execPath, arguments: args, environment });
    };
    const files = (name: string): { name: string; logFile: string; recordFile: string } => ({
      name,
      logFile: state.file("log", `${name}.log`),
      recordFile: state.file("run", `${name}.json`),
    });
    const announce = async (signal: AbortSignal): Promise<void> => {
      const wait = { deadlineMs: READY_TIMEOUT_MS, signal };
      await waitReady("operator", `${urls.operator}/readyz`, files("operator").logFile, wait);
      await registerApi(client, ports.operatorApi, pki.files.authority);
    };
    // of the operator's last start
    let announcing = new AbortController();
    const parts = {
      operator: new SupervisedProcess({
        ...files("operator"),
        command: node(operatorArguments(operatorIdentity, ports, pki.files.frontProxyAuthority)),
        graceMs: PART_GRACE_MS,
        say,
        onStarted: () => {
          announcing.abort();
          announcing = new AbortController();
          const until = AbortSignal.any([announcing.signal, ending.signal]);
          void untilDone(() => announce(until), {
            signal: until,
            pauseMs: ANNOUNCE_PAUSE_MS,
            onFailure: (message) => {
              say(`the operator's API is not registered yet, and it is tried again: ${message}`);
            },
          });
        },
      }),
      atelet: createPod({
        ...files("atelet"),
        command: node(
          ateletArguments(ateletIdentity, {
            ...{ nodeName, state, tools, stores, flags: options.ateletFlags ?? [] },
            ...{ address: addresses.pod, hostAddress: addresses.host, cgroupPath: cgroup.path },
          }),
        ),
        graceMs: POD_GRACE_MS,
        say,
        cgroup,
        network,
        // the other half is for the control plane, the builds and whatever else the machine does
        memoryLimitBytes: () => Math.floor(availableMemoryBytes() / 2),
      }),
      router: new SupervisedProcess({
        ...files("router"),
        command: node(routerArguments(routerIdentity, ports)),
        graceMs: PART_GRACE_MS,
        say,
      }),
    };
    started.push(parts.atelet, parts.router, parts.operator);
    await network.reserve();
    // the parts dial each other as soon as they run: the pod's address is there before
    await abortable(Promise.all([plane.controllerManager.start(), parts.atelet.start()]), signal);
    await abortable(Promise.all([parts.router.start(), parts.operator.start()]), signal);
    const cluster = new LocalCluster({
      state,
      plane,
      network,
      parts,
      ending,
      nodeName,
      routerPort: ports.router,
      metricsUrls: urls,
      tools,
    });
    await abortable(cluster.ready(READY_TIMEOUT_MS, signal), signal);
    return cluster;
  } catch (error) {
    const given = options.signal?.aborted === true ? (options.signal.reason as Error) : error;
    ending.abort(given);
    await endAll([started, plane === undefined ? [] : [plane]]);
    await network?.release();
    state.close();
    throw given;
  }
}
