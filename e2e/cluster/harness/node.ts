import { setTimeout as delay } from "node:timers/promises";
import { join } from "node:path";
import { command } from "@substrate/local/command.ts";
import { firstProcess } from "@substrate/local/pod/pod.ts";
import { PodCgroup, availableMemoryBytes } from "@substrate/local/pod/pod-cgroup.ts";
import { SupervisedProcess } from "@substrate/local/processes/supervised.ts";
import { type ClusterToolPaths } from "@substrate/local/tools/find.ts";
import { type NodeAddresses } from "./addresses.ts";
import { type ImageArchive } from "./images.ts";
import { makeNodeNetwork, removeNodeNetwork } from "./network.ts";
import { writeNodeFiles, type NodeFiles } from "./node-files.ts";
import { type ClusterPki } from "./pki.ts";
import { type ClusterState } from "./state.ts";

const GRACE_MS = 5_000;
const CONTAINERD_TIMEOUT_MS = 30_000;
const IMPORT_TIMEOUT_MS = 300_000;
const POLL_MS = 50;

export interface NodeOptions {
  state: ClusterState;
  tools: ClusterToolPaths;
  addresses: NodeAddresses;
  pki: ClusterPki;
  certsFolder: string;
  environment: NodeJS.ProcessEnv;
  say: (line: string) => void;
}

/**
 * A node: network, mount, host name and process namespaces of its own, in which containerd, kubelet and kube-proxy run.
 * Its disk is a folder and outlives a kill, as a machine's does.
 */
export class ClusterNode {
  readonly addresses: NodeAddresses;
  readonly #options: NodeOptions;
  readonly #machine: SupervisedProcess;
  readonly #kubelet: SupervisedProcess;
  readonly #proxy: SupervisedProcess;
  readonly #cgroup: PodCgroup;
  readonly #files: NodeFiles;

  constructor(options: NodeOptions) {
    const { state, tools, addresses, pki, environment, say } = options;
    const { name } = addresses;
    const identity = pki.nodes.get(name);
    if (identity === undefined) throw new Error(`${name} has no certificate`);
    this.#options = options;
    this.addresses = addresses;
    this.#cgroup = new PodCgroup(addresses.cgroup);
    this.#files = writeNodeFiles({
      cluster: state.addresses,
      node: addresses,
      folder: state.file(name),
      certsFolder: options.certsFolder,
      authority: pki.authority,
      files: identity.files,
      proxyKubeconfig: pki.kubeconfigs.proxy,
    });
    const supervise = (part: string, program: string, args: () => readonly string[]): SupervisedProcess =>
      new SupervisedProcess({
        name: `${part} of ${name}`,
        command: () => ({ program, arguments: args(), environment }),
        logFile: state.file("log", `${name}-${part}.log`),
        recordFile: state.file("run", `${name}-${part}.json`),
        graceMs: GRACE_MS,
        say,
        // nsenter and unshare only wait for it
        target: firstProcess,
      });
    this.#machine = supervise("machine", "nsenter", () => [
      `--net=/run/netns/${addresses.namespace}`,
      ...["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"],
      ...["--propagation", "private", "bash", this.#files.init],
    ]);
    this.#kubelet = supervise("kubelet", "nsenter", () => [
      ...this.#inside(),
      tools.kubelet,
      `--config=${this.#files.kubelet}`,
      `--kubeconfig=${identity.kubeconfig}`,
      `--hostname-override=${name}`,
      `--node-ip=${addresses.address}`,
    ]);
    this.#proxy = supervise("kube-proxy", "nsenter", () => [
      ...this.#inside(),
      tools.kubeProxy,
      `--config=${this.#files.proxy}`,
    ]);
  }

  get name(): string {
    return this.addresses.name;
  }

  /** nsenter's options for a program in the node. */
  #inside(): string[] {
    const first = this.#machine.identity;
    if (first === undefined) throw new Error(`${this.name} does not run: start it with startNode`);
    return ["--target", `${first.pid}`, "--net", "--mount", "--uts", "--pid"];
  }

  /** Runs a program of the machine inside the node and returns its stdout. */
  run(program: string, args: readonly string[], timeoutMs?: number): Promise<string> {
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    return command("nsenter", [...this.#inside(), program, ...args], options);
  }

  /** Namespaces, containerd and its images; nothing that asks the API server yet. */
  async boot(archives: readonly ImageArchive[]): Promise<void> {
    this.#cgroup.create(availableMemoryBytes());
    await makeNodeNetwork(this.#options.state.addresses, this.addresses);
    await this.#machine.start();
    await this.#containerdReady();
    for (const archive of archives) await this.loadImage(archive);
  }

  async join(): Promise<void> {
    await Promise.all([this.#kubelet.start(), this.#proxy.start()]);
  }

  async #containerdReady(): Promise<void> {
    const end = performance.now() + CONTAINERD_TIMEOUT_MS;
    for (;;) {
      try {
        await this.run("ctr", ["version"], 2_000);
        return;
      } catch (error) {
        if (performance.now() > end) {
          const log = join(this.#options.state.file(this.name), "containerd.log");
          throw new Error(`containerd of ${this.name} does not answer; its log is ${log}`, { cause: error });
        }
      }
      await delay(POLL_MS);
    }
  }

  async loadImage({ path, reference }: ImageArchive): Promise<void> {
    const name = reference === undefined ? [] : ["--index-name", reference];
    await this.run(
      "ctr",
      ["--namespace", "k8s.io", "images", "import", "--no-unpack", ...name, path],
      IMPORT_TIMEOUT_MS,
    );
  }

  startKubelet(): Promise<void> {
    return this.#kubelet.start();
  }

  /** Its pods go on; the node turns NotReady. */
  stopKubelet(): Promise<void> {
    return this.#kubelet.stop("SIGKILL");
  }

  /** As if the power failed: all processes and the network end at once, the disk stays. */
  async kill(): Promise<void> {
    // at once, so that none is started again because another one ended
    await Promise.all([this.#machine, this.#kubelet, this.#proxy].map((part) => part.stop("SIGKILL")));
    await removeNodeNetwork(this.#options.state.addresses, this.addresses);
    await this.#cgroup.remove();
  }

  /** Power back after `kill`. */
  async start(): Promise<void> {
    await this.boot([]);
    await this.join();
  }
}
