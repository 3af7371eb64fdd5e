import { spawn, type ChildProcess } from "node:child_process";
import { Resolver } from "node:dns/promises";
import { isIP, type LookupFunction } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, fetch as undiciFetch, type RequestInit, type Response } from "undici";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { command } from "@substrate/local/command.ts";
import { partEnvironment, toolSettings } from "@substrate/local/config.ts";
import { type SupervisedProcess } from "@substrate/local/processes/supervised.ts";
import { started } from "@substrate/local/processes/started.ts";
import { type ClusterToolPaths, findClusterTools } from "@substrate/local/tools/find.ts";
import { type Addresses, nodeAddresses } from "./addresses.ts";
import { ClusterControlPlane, type ControlPlaneOptions, inControlPlane, type Timing } from "./control-plane.ts";
import { type ImageArchive, testpodArchives } from "./images.ts";
import { makeControlPlaneNetwork } from "./network.ts";
import { ClusterNode } from "./node.ts";
import { type ClusterPki, makeClusterPki } from "./pki.ts";
import { ClusterServices, type S3Settings } from "./services.ts";
import { ClusterState, lockFileOf } from "./state.ts";

const NODES_TIMEOUT_MS = 120_000;
const SERVICES_TIMEOUT_MS = 60_000;
const COMMAND_TIMEOUT_MS = 120_000;
const POLL_MS = 100;

export interface TestClusterOptions {
  /** Default 2. */
  nodes?: number;
  /** Default: NotReady after 8 s of silence, pods leave after 5 more. */
  timing?: Partial<Timing>;
  /** Hears of restarts of the cluster's processes and the like. Default: nobody. */
  say?: (line: string) => void;
}

export interface RunOptions {
  /** What the program reads. */
  input?: string;
  /** Default 120 s. */
  timeoutMs?: number;
}

interface Made {
  common: ControlPlaneOptions;
  state: ClusterState;
  tools: ClusterToolPaths;
  pki: ClusterPki;
  client: KubeClient;
  plane: ClusterControlPlane;
  services: ClusterServices;
  nodes: readonly ClusterNode[];
  watcher: ChildProcess;
}

/** A whole Kubernetes cluster on this machine: a control plane and nodes of their own, S3, DNS and a registry. */
export class TestCluster {
  readonly addresses: Addresses;
  /** Path of a kubeconfig of a user in system:masters; it works on this machine. */
  readonly kubeconfig: string;
  /** As that user. */
  readonly client: KubeClient;
  readonly tools: ClusterToolPaths;
  /** Reached at this URL by pods and by this machine. */
  readonly s3: S3Settings;
  /** `HOST:PORT` of a registry that nodes (and this machine) reach by plain HTTP. */
  readonly registry: string;
  /** Its logs are in log/. */
  readonly folder: string;
  readonly #made: Made;
  readonly #dispatcher: Agent;
  readonly #guests: SupervisedProcess[] = [];
  #stopped: Promise<void> | undefined;

  private constructor(made: Made) {
    this.#made = made;
    this.addresses = made.state.addresses;
    this.kubeconfig = made.pki.kubeconfigs.admin;
    this.client = made.client;
    this.tools = made.tools;
    this.s3 = made.services.s3;
    this.registry = made.services.registry;
    this.folder = made.state.path;
    this.#dispatcher = new Agent({ connect: { lookup: clusterLookup(this.addresses) } });
  }

  /** Resolves when all nodes are Ready. @throws if it cannot be started; then nothing of it is left. */
  static async start(options: TestClusterOptions = {}): Promise<TestCluster> {
    const settings = toolSettings();
    const say = options.say ?? (() => undefined);
    const tools = findClusterTools(settings);
    const state = await ClusterState.take(say);
    let watcher: ChildProcess | undefined;
    let client: KubeClient | undefined;
    const parts: { stop: () => Promise<void> }[] = [];
    try {
      watcher = await watch(state);
      const numbers = Array.from({ length: options.nodes ?? 2 }, (_, index) => index + 1);
      const ofNodes = numbers.map((number) => nodeAddresses(state.addresses, number));
      const [pki, archives] = await Promise.all([
        makeClusterPki(state, ofNodes),
        testpodArchives(tools.testpod),
        makeControlPlaneNetwork(state.addresses),
      ]);
      client = new KubeClient(loadKubeConfig(pki.kubeconfigs.admin), { fieldManager: "test-cluster" });
      const common: ControlPlaneOptions = {
        state,
        tools,
        pki,
        client,
        environment: partEnvironment(settings),
        timing: { nodeGraceSeconds: 8, evictAfterSeconds: 5, ...options.timing },
        say,
      };
      const certsFolder = state.file("certs.d");
      const plane = new ClusterControlPlane(common);
      const services = new ClusterServices(common, certsFolder);
      const nodes = ofNodes.map((addresses) => new ClusterNode({ ...common, addresses, certsFolder }));
      parts.push(...nodes.map((node) => ({ stop: () => node.kill() })), services, plane);
      await Promise.all([plane.start(), ...nodes.map((node) => node.boot(archives))]);
      await Promise.all([services.start(), ...nodes.map((node) => node.join())]);
      const cluster = new TestCluster({ common, state, tools, pki, client, plane, services, nodes, watcher });
      await Promise.all([cluster.nodesReady(), cluster.#servicesReached()]);
      return cluster;
    } catch (error) {
      await end(parts, client, watcher, state);
      throw error;
    }
  }

  /** kube-apiserver: stop, start and signal it. */
  get apiserver(): SupervisedProcess {
    return this.#made.plane.apiserver;
  }

  get nodes(): readonly ClusterNode[] {
    return this.#made.nodes;
  }

  /** @param name `n1` … */
  node(name: string): ClusterNode {
    const found = this.nodes.find((node) => node.name === name);
    if (found === undefined)
      throw new Error(`no node ${name}: there are ${this.nodes.map((node) => node.name).join(", ")}`);
    return found;
  }

  /** Its stdout. @throws with its stderr unless it ends with 0. */
  kubectl(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#run(this.tools.kubectl, args, options);
  }

  helm(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.#run(this.tools.helm, args, options);
  }

  #run(program: string, args: readonly string[], options: RunOptions): Promise<string> {
    return command(program, args, {
      timeoutMs: COMMAND_TIMEOUT_MS,
      environment: {
        KUBECONFIG: this.kubeconfig,
        // helm's caches, so that clusters don't meet
        ...{ HELM_CACHE_HOME: this.#made.state.file("helm"), HELM_CONFIG_HOME: this.#made.state.file("helm") },
        HELM_DATA_HOME: this.#made.state.file("helm"),
      },
      ...options,
    });
  }

  /** Makes an image known to every node (or those named), as if it had been pulled. */
  async loadImage(archive: ImageArchive, names?: readonly string[]): Promise<void> {
    const nodes = this.nodes.filter((node) => names?.includes(node.name) ?? true);
    // side by side they would only fight for the disk
    for (const node of nodes) await node.loadImage(archive);
  }

  /**
   * Puts an image into the cluster's registry.
   * @param layout folder of an OCI layout, or a docker archive.
   * @param name `NAME:TAG`
   * @returns the reference by which pods name it.
   */
  async pushImage(layout: string, name: string): Promise<string> {
    const reference = `${this.registry}/${name}`;
    await this.#run(this.tools.crane, ["push", "--insecure", layout, reference], {});
    return reference;
  }

  /** Pods go on, the node turns NotReady. */
  stopKubelet(name: string): Promise<void> {
    return this.node(name).stopKubelet();
  }

  startKubelet(name: string): Promise<void> {
    return this.node(name).startKubelet();
  }

  /** Power off: everything on it ends at once, its disk stays. */
  killNode(name: string): Promise<void> {
    return this.node(name).kill();
  }

  /** After `killNode`. */
  startNode(name: string): Promise<void> {
    return this.node(name).start();
  }

  /** As `fetch`, from inside the cluster network: pods' and services' addresses and names (`NAME.NAMESPACE.svc`) work. */
  fetch(url: string, init: RequestInit = {}): Promise<Response> {
    return undiciFetch(url, { ...init, dispatcher: this.#dispatcher });
  }

  /** Ready, and without the taint of one that is not: then the controllers, too, know it. @throws after 120 s. */
  async nodesReady(names: readonly string[] = this.nodes.map((node) => node.name)): Promise<void> {
    const end = performance.now() + NODES_TIMEOUT_MS;
    const query = `{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status}:{range .spec.taints[*]}{.key},{end} {end}`;
    for (;;) {
      const seen = await this.kubectl(["get", "nodes", "-o", `jsonpath=${query}`]);
      const missing = names.filter(
        (name) => !new RegExp(`(^| )${name}=True:(?!\\S*not-ready|\\S*unreachable)`).test(seen),
      );
      if (missing.length === 0) return;
      if (performance.now() > end) {
        throw new Error(
          `${missing.join(", ")} not Ready after ${NODES_TIMEOUT_MS / 1000} s (${seen}); logs: ${join(this.folder, "log")}`,
        );
      }
      await delay(POLL_MS);
    }
  }

  /** Cluster IPs and names work from this machine: kube-proxy and the resolver are up. @throws after 60 s. */
  async #servicesReached(): Promise<void> {
    const end = performance.now() + SERVICES_TIMEOUT_MS;
    const resolver = clusterResolver(this.addresses);
    for (;;) {
      try {
        await resolver.resolve4("kubernetes.default.svc.cluster.local");
        return;
      } catch (error) {
        if (performance.now() > end) {
          throw new Error(`the test cluster's resolver does not answer; logs: ${join(this.folder, "log")}`, {
            cause: error,
          });
        }
      }
      await delay(POLL_MS);
    }
  }

  /** Starts a program beside the control plane, at its address and with the admin's kubeconfig; it ends with the cluster. */
  async run(
    name: string,
    program: string,
    args: readonly string[],
    environment: NodeJS.ProcessEnv = {},
  ): Promise<void> {
    const guest = inControlPlane(this.#made.common, name, program, args, {
      KUBECONFIG: this.kubeconfig,
      ...environment,
    });
    this.#guests.push(guest);
    await guest.start();
  }

  /** Lets go of it without ending anything: `npm run cluster down` does. Nothing starts an ended process again. */
  async keep(): Promise<void> {
    this.#made.watcher.kill("SIGKILL");
    await Promise.all([this.client.close(), this.#dispatcher.destroy()]);
    this.#made.state.keep({
      nodes: this.nodes.map((node) => node.name),
      kubeconfig: this.kubeconfig,
      s3: this.s3,
      registry: this.registry,
    });
  }

  /** Ends all of it and removes what it had of the machine; a second call waits for the first. */
  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #end(): Promise<void> {
    const { nodes, services, plane, watcher, state } = this.#made;
    await this.#dispatcher.destroy();
    const guests = this.#guests.map((guest) => ({ stop: () => guest.stop("SIGKILL") }));
    const parts = [...guests, ...nodes.map((node) => ({ stop: () => node.kill() })), services, plane];
    await end(parts, this.client, watcher, state);
  }
}

/** A process that removes what is left as soon as this one is gone, by whatever end. */
function watch(state: ClusterState): Promise<ChildProcess> {
  const script = join(import.meta.dirname, "reap.ts");
  const { slot } = state.addresses;
  return started("flock", () => {
    const args = [lockFileOf(slot), process.execPath, script, `${slot}`];
    const child = spawn("flock", args, { stdio: "ignore", detached: true });
    child.unref();
    return child;
  });
}

async function end(
  parts: readonly { stop: () => Promise<void> }[],
  client: KubeClient | undefined,
  watcher: ChildProcess | undefined,
  state: ClusterState,
): Promise<void> {
  await client?.close();
  const ends = await Promise.allSettled(parts.map((part) => part.stop()));
  // what would not end is killed with the rest
  await state.remove();
  watcher?.kill("SIGKILL");
  const failed = ends.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

function clusterResolver({ dnsService }: Addresses): Resolver {
  const resolver = new Resolver({ timeout: 1_000, tries: 5 });
  resolver.setServers([dnsService]);
  return resolver;
}

/** Names as the cluster's own resolver knows them. */
function clusterLookup(addresses: Addresses): LookupFunction {
  const resolver = clusterResolver(addresses);
  return (hostname, options, callback) => {
    const family = isIP(hostname);
    const name = hostname.endsWith(".svc") ? `${hostname}.cluster.local` : hostname;
    const found = family === 0 ? resolver.resolve4(name) : Promise.resolve([hostname]);
    found.then(
      (all) => {
        const list = all.map((address) => ({ address, family: family === 0 ? 4 : family }));
        if (options.all === true) callback(null, list);
        else callback(null, list[0]?.address ?? "", list[0]?.family);
      },
      (error: unknown) => {
        callback(error as NodeJS.ErrnoException, "");
      },
    );
  };
}
