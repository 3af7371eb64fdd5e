import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { inClusterConfig, loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { LeaseHolder } from "@substrate/lib/kube/lease.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type AteletConfig } from "../config.ts";
import { AteletProcess } from "./atelet-process.ts";
import { Exits } from "./exits.ts";
import { lockNodeFolder } from "./node-folder.ts";
import { descendantsOf, killNow } from "./processes.ts";
import { Reaper } from "./reaper.ts";
import { SessionKeeper } from "./session.ts";

/** design.md §7: how long a session holds after its last acknowledged renewal. */
const leaseMs = 30_000;
/** A session of 30 s leaves room for two failed renewals. */
const defaultTiming = { tickMs: 1_000, renewEveryMs: 10_000 };
/** SIGKILL takes effect at once but for a process in the middle of a disk wait. */
const killDeadlineMs = 10_000;
const killPollMs = 20;
const releaseMs = 2_000;

export type SupervisorConfig = Pick<
  AteletConfig,
  "nodeName" | "namespace" | "kubeconfigPath" | "stateDir" | "advertiseAddress" | "port" | "graceMs"
>;

export interface SupervisedCommand {
  /** Script and arguments of the atelet. */
  argv: readonly string[];
  /** Once, before anything is started. What it throws ends the supervisor. */
  prepare?: () => void;
  /** Between two pings (default 1,000) and between two renewals (default 10,000). */
  timing?: { tickMs: number; renewEveryMs: number };
}

/** First process of the pod: owns the session, keeps an atelet running, reaps, and ends everything at the end. */
export class Supervisor {
  readonly #config: SupervisorConfig;
  readonly #log: Logger;
  readonly #tickMs: number;
  readonly #bootId = randomUUID();
  readonly #annotations: Record<string, string>;
  readonly #session: SessionKeeper;
  readonly #atelet: AteletProcess;
  readonly #reaper: Reaper;
  readonly #exits = new Exits();
  readonly #ending = new AbortController();
  #ticks: NodeJS.Timeout | undefined;
  #renewing = Promise.resolve();

  /**
   * Locks the node folder. Throws if another atelet has it, or if the kubeconfig, or without one the pod's ServiceAccount, cannot be used.
   */
  constructor(config: SupervisorConfig, command: SupervisedCommand, log: Logger) {
    this.#config = config;
    const { tickMs, renewEveryMs } = command.timing ?? defaultTiming;
    this.#tickMs = tickMs;
    this.#log = log;
    this.#annotations = {
      "substrate.run/address": `${config.advertiseAddress}:${config.port}`,
      "substrate.run/boot-id": this.#bootId,
    };
    const { lockFd } = lockNodeFolder(config.stateDir);
    const { kubeconfigPath } = config;
    const kube = kubeconfigPath === undefined ? inClusterConfig() : loadKubeConfig(kubeconfigPath);
    const client = new KubeClient(kube, { userAgent: "substrate-atelet" });
    this.#session = new SessionKeeper({
      holder: (session) => this.#leaseHolder(client, session),
      mayRenew: () => this.#atelet.isAnswering,
      onSession: () => {
        this.#atelet.send(this.#greeting());
      },
      renewEveryMs,
      log,
    });
    this.#atelet = new AteletProcess({
      argv: command.argv,
      lockFd,
      greetings: () => [this.#greeting(), { type: "exits", exits: this.#exits.all() }],
      onAnnounce: (runtime) => {
        this.#annotations["substrate.run/runtime"] = runtime;
      },
      log,
    });
    this.#reaper = new Reaper(
      () => this.#atelet.pids,
      (exit) => {
        this.#exits.add(exit);
        this.#atelet.send({ type: "exits", exits: [exit] });
      },
    );
  }

  start(): void {
    this.#atelet.start();
    this.#ticks = setInterval(() => {
      this.#atelet.tick();
      this.#reaper.reap();
    }, this.#tickMs);
    this.#renewing = this.#session.run(this.#ending.signal);
    this.#log.info("supervisor started", { bootId: this.#bootId, session: this.#session.session });
  }

  /**
   * Lets the atelet suspend and upload within the grace time, or until `hurry` aborts, then kills whatever is left
   * below this process. Throws if something survives that.
   */
  async stop(hurry: AbortSignal): Promise<void> {
    const { graceMs } = this.#config;
    const grace = delay(graceMs, "late" as const, { signal: hurry }).catch(() => "late" as const);
    const outcome = await Promise.race([this.#atelet.stop().then(() => "ended" as const), grace]);
    if (outcome === "late") this.#log.error("the atelet did not end in time: killing what is left", { graceMs });
    this.#ending.abort();
    await this.#renewing;
    await this.#killAll();
    clearInterval(this.#ticks);
    this.#reaper.close();
    await this.#release();
  }

  async #killAll(): Promise<void> {
    const deadlineMs = performance.now() + killDeadlineMs;
    for (let left = descendantsOf(process.pid); left.length > 0; left = descendantsOf(process.pid)) {
      if (performance.now() > deadlineMs) {
        throw new Error(`processes ${left.join(", ")} are still there ${killDeadlineMs} ms after SIGKILL`);
      }
      for (const pid of left) killNow(pid);
      await delay(killPollMs);
      this.#reaper.reap();
    }
    this.#reaper.reap();
  }

  async #release(): Promise<void> {
    const late = delay(releaseMs, undefined, { ref: false }).then(() => {
      throw new Error(`no answer within ${releaseMs} ms`);
    });
    try {
      await Promise.race([this.#session.release(), late]);
    } catch (error) {
      this.#log.warn("the Lease was not given back; it runs out by itself", { lease: this.#config.nodeName, error });
    }
  }

  #greeting(): { type: "session"; session: string; bootId: string } {
    return { type: "session", session: this.#session.session, bootId: this.#bootId };
  }

  #leaseHolder(client: KubeClient, session: string): LeaseHolder {
    return new LeaseHolder({
      client,
      namespace: this.#config.namespace,
      name: this.#config.nodeName,
      identity: session,
      durationMs: leaseMs,
      labels: { "substrate.run/part": "atelet" },
      annotations: this.#annotations,
      // The node folder's lock makes us this node's only atelet: another holder is an ended session.
      takeOver: "AtOnce",
      log: this.#log,
      // A session has no deadline of its own yet, so the Lease never runs out by our clock: an outage of the API
      // server ends nothing.
      now: () => 0,
    });
  }
}
