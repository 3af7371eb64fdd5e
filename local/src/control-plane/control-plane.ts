import { setTimeout as delay } from "node:timers/promises";
import { KubeClient, KubeError } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { writeKubeconfig } from "../kubeconfig.ts";
import { type ProcessCommand, SupervisedProcess } from "../processes/supervised.ts";
import { type StateFolder } from "../state-folder.ts";
import { type ToolPaths } from "../tools/find.ts";
import { apiserverFlags, type ControlPlanePorts, controllerManagerFlags, etcdFlags } from "./flags.ts";
import { type ControlPlanePki, makeControlPlanePki } from "./pki.ts";

/** Three seconds are usual; a machine busy with builds may need many more. */
const READY_TIMEOUT_MS = 90_000;
const POLL_MS = 50;
/** etcd and kube-apiserver lose nothing when they are killed; the API server would keep watches for 25 s. */
const GRACE_MS = 2_000;

export interface ControlPlaneOptions {
  state: StateFolder;
  tools: ToolPaths;
  ports: ControlPlanePorts;
  /** Addresses beside 127.0.0.1 at which clients reach the API server. */
  apiserverAddresses: readonly string[];
  environment: NodeJS.ProcessEnv;
  fsync: boolean;
  say: (line: string) => void;
  /** Gives the start up. */
  signal?: AbortSignal;
}

/** etcd, kube-apiserver and kube-controller-manager with their certificates. */
export class ControlPlane {
  readonly etcd: SupervisedProcess;
  readonly apiserver: SupervisedProcess;
  readonly controllerManager: SupervisedProcess;
  readonly pki: ControlPlanePki;
  /** kubeconfig of a user in system:masters. */
  readonly adminKubeconfig: string;
  /** `https://127.0.0.1:PORT` */
  readonly server: string;
  /** As that user. */
  readonly client: KubeClient;

  private constructor(options: ControlPlaneOptions, pki: ControlPlanePki) {
    const { state, tools, ports, environment, fsync, say } = options;
    this.pki = pki;
    this.server = `https://127.0.0.1:${ports.apiserver}`;
    this.adminKubeconfig = writeKubeconfig(state.file("kubeconfig"), this.server, pki.files.authority, pki.admin);
    writeKubeconfig(pki.files.controllerManagerKubeconfig, this.server, pki.files.authority, pki.controllerManager);
    this.client = new KubeClient(loadKubeConfig(this.adminKubeconfig), { fieldManager: "substrate-local" });
    const supervise = (name: string, command: () => ProcessCommand): SupervisedProcess =>
      new SupervisedProcess({
        name,
        command,
        logFile: state.file("log", `${name}.log`),
        recordFile: state.file("run", `${name}.json`),
        graceMs: GRACE_MS,
        say,
      });
    this.etcd = supervise("etcd", () => ({
      program: tools.etcd,
      arguments: etcdFlags(pki.files, ports, fsync),
      environment,
    }));
    this.apiserver = supervise("kube-apiserver", () => ({
      program: tools.kubeApiserver,
      arguments: apiserverFlags(pki.files, ports),
      environment,
    }));
    this.controllerManager = supervise("kube-controller-manager", () => ({
      program: tools.kubeControllerManager,
      arguments: controllerManagerFlags(pki.files),
      environment,
    }));
  }

  /** Starts etcd and the API server and waits until it is ready. The controller-manager is started by its owner. */
  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    const plane = new ControlPlane(options, await makeControlPlanePki(options.state, options.apiserverAddresses));
    try {
      await Promise.all([plane.etcd.start(), plane.apiserver.start()]);
      await plane.ready(READY_TIMEOUT_MS, options.signal);
    } catch (error) {
      await plane.stop();
      throw error;
    }
    return plane;
  }

  /** Waits until /readyz says ok. @throws after `deadlineMs`, with the last answer, or when it is given up. */
  async ready(deadlineMs: number, signal?: AbortSignal): Promise<void> {
    const end = performance.now() + deadlineMs;
    for (;;) {
      const problem = await this.#readyProblem(signal);
      if (problem === undefined) return;
      if (performance.now() > end) {
        throw new Error(
          `kube-apiserver is not ready after ${deadlineMs / 1000} s: ${problem}; see log/ in the state folder`,
        );
      }
      await delay(POLL_MS, undefined, { signal });
    }
  }

  async #readyProblem(signal: AbortSignal | undefined): Promise<string | undefined> {
    try {
      const { status, body } = await this.client.raw("GET", "/readyz", signal === undefined ? {} : { signal });
      body.resume();
      return status === 200 ? undefined : `/readyz answers ${status}`;
    } catch (error) {
      if (error instanceof KubeError) return error.message;
      throw error;
    }
  }

  /** Ends all three, clients first. */
  async stop(): Promise<void> {
    await this.controllerManager.stop();
    await this.client.close();
    await this.apiserver.stop();
    await this.etcd.stop();
  }
}
