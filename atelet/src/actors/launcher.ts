import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { resolveCommand } from "../images/command.ts";
import { type UnpackedImage } from "../images/images.ts";
import { makeVolumeMountPoint } from "../images/volume-mount-point.ts";
import { type SleepingImage, type Slot } from "../network/network.ts";
import { actorResolvConf } from "../network/resolvers.ts";
import { NotStartedError, type RestoreOptions, type SandboxSpec } from "../sandbox/sandbox.ts";
import { type VolumeBind } from "../volumes/actor-volumes.ts";
import { type SandboxShape } from "../warm/warm-program.ts";
import { type WarmSlot } from "../warm/warm-slots.ts";
import { ending } from "./ending.ts";
import { type Environment, noEnvironment, withEnvironment } from "./environment.ts";
import { type NodeContext, RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { waitUntilReady } from "./readiness.ts";
import { type ActorKey, type Program } from "./record.ts";
import { type RouteEndpoint } from "./route-level.ts";

export interface LaunchOptions {
  id: string;
  actor: ActorKey;
  files: { bundle: string; identity: string; log: string };
  program: Program;
  image: UnpackedImage;
  /** Beside the image's own; absent: none. */
  environment?: Environment;
  volumes: readonly VolumeBind[];
  /** The generation that it goes on from, for its identity; 0: none. */
  generation: number;
  /** The image of memory to restore; absent for a cold start. */
  restore?: { imageDir: string };
  /** What the program may go on with, if this is its first restore; absent: all of its connections are reset. */
  connections?: SleepingImage;
  /** See SandboxSpec. */
  rootfsTar?: string;
  /** Created before, to restore into; the caller's program has its shape. If that fails a new one is made. */
  warm?: WarmSlot;
  /** Whether it was killed meanwhile: then nothing is tried again. */
  killed?: () => boolean;
  readyWithinMs: number;
  phases: Phases;
  /** Of messages: "actor default/counter". */
  title: string;
}

export interface Launched {
  sandboxId: string;
  slot: Slot;
  endpoints: RouteEndpoint[];
}

/** Sandbox, cgroup, network and identity of one actor put together, and taken apart again. */
export class Launcher {
  readonly #node: NodeContext;
  readonly #releases = new Set<Promise<void>>();
  /** Control groups that are being removed, by sandbox: one of the same id is made only afterwards. */
  readonly #groups = new Map<string, Promise<void>>();

  constructor(node: NodeContext) {
    this.#node = node;
  }

  /**
   * Starts or restores a program and waits until it is ready; its ports are then published. On failure nothing is left.
   * Throws RESTORE_FAILED, PROGRAM_EXITED, NOT_READY, IMAGE_INVALID.
   */
  async launch(options: LaunchOptions): Promise<Launched> {
    const queuedMs = performance.now();
    return this.#node.startPlaces.run(
      () => {
        options.phases.add("turn", performance.now() - queuedMs);
      },
      () => this.#launch(options),
    );
  }

  async #launch(options: LaunchOptions): Promise<Launched> {
    const { warm, restore } = options;
    if (warm !== undefined && restore !== undefined) {
      const launched = await this.#launchInto(warm, { ...options, restore });
      if (launched !== undefined) return launched;
    }
    const { network, runtime } = this.#node;
    const { id, phases } = options;
    const acquired = await phases.run("slot", () => network.acquire());
    return this.#orStopped(id, acquired, options, async () => {
      const [spec, read] = await phases.run("prepare", () =>
        Promise.all([this.#prepare(options, acquired), restore && this.#reading(restore)]),
      );
      const { slot, keepConnections } = await this.#connect(acquired, options);
      await phases.run("restore", () =>
        read === undefined ? runtime.run(spec) : runtime.restore(spec, { ...read, keepConnections }),
      );
      return this.#opened(id, slot, options);
    });
  }

  /** @returns undefined if it could not be restored there, and may be elsewhere: then nothing is left of it. */
  async #launchInto(
    warm: WarmSlot,
    options: LaunchOptions & { restore: { imageDir: string } },
  ): Promise<Launched | undefined> {
    const { runtime, log } = this.#node;
    const { phases, restore } = options;
    const { id } = warm;
    let slot = warm.network;
    try {
      const [spec, read] = await phases.run("prepare", () =>
        Promise.all([this.#prepareWarm(options, warm), this.#reading(restore)]),
      );
      const connected = await this.#connect(slot, options);
      slot = connected.slot;
      const { keepConnections } = connected;
      await phases.run("restore", () => runtime.restore(spec, { ...read, keepConnections, created: true }));
    } catch (error) {
      await this.stop(id, slot);
      if (options.killed?.() === true) throw error;
      log.warn("a restore into a warm sandbox failed: trying a new one", { program: options.title, error });
      return undefined;
    }
    return this.#orStopped(id, slot, options, () => this.#opened(id, slot, options));
  }

  /**
   * The slot gets the address that the actor fell asleep with, if its connections may go on: from here on never again,
   * whatever becomes of this restore. Else what waits for the actor under that address is given up.
   */
  async #connect(slot: Slot, { actor, connections }: LaunchOptions): Promise<{ slot: Slot; keepConnections: boolean }> {
    const { network } = this.#node;
    const unparked = connections && (await network.unpark(slot, connections));
    if (unparked !== undefined) return { slot: unparked, keepConnections: true };
    await network.giveUp(actor.uid);
    return { slot, keepConnections: false };
  }

  async #reading({ imageDir }: { imageDir: string }): Promise<Pick<RestoreOptions, "imageDir" | "direct">> {
    return { imageDir, direct: await this.#node.imageReads.direct(imageDir) };
  }

  /** What is restored or started serves: opened, ready, published. */
  async #opened(id: string, slot: Slot, options: LaunchOptions): Promise<Launched> {
    const { network, runtime, cgroups, log, signal } = this.#node;
    const { phases, program, restore, title } = options;
    await phases.run("network", () => network.open(slot));
    // Its ports are made meanwhile; nobody is told of them before it is ready.
    const [published, ready] = await Promise.allSettled([
      phases.run("publish", () => this.publish(slot, program)),
      phases.run("ready", () =>
        waitUntilReady({
          host: slot.nodeAddress,
          program,
          restored: restore !== undefined,
          deadlineMs: options.readyWithinMs,
          alive: () => runtime.alive(id),
          slow: (answer) => {
            log.warn("not ready yet", { program: title, answer });
          },
          title,
          signal,
        }),
      ),
    ]);
    if (ready.status === "rejected") throw ready.reason;
    if (published.status === "rejected") throw published.reason;
    await cgroups.limitCpu(id, program.cpuMillis);
    return { sandboxId: id, slot, endpoints: published.value };
  }

  async #orStopped(id: string, slot: Slot, options: LaunchOptions, launch: () => Promise<Launched>): Promise<Launched> {
    try {
      return await launch();
    } catch (error) {
      const failure = await this.#explained(error, id, options);
      await this.stop(id, slot);
      throw failure;
    }
  }

  /** A program that ended by itself before it was ready: what is known of why, while there is something to ask. */
  async #explained(error: unknown, id: string, { program, title }: LaunchOptions): Promise<unknown> {
    if (error instanceof NotStartedError) {
      return new NotStartedError(error.code, `${title} did not start: ${error.message}`, { cause: error });
    }
    if (!(error instanceof SubstrateError) || error.code !== "PROGRAM_EXITED") return error;
    const why = await ending(this.#node, id, program, "");
    if (why === "") {
      if (error.message.includes(title)) return error;
      return new SubstrateError("PROGRAM_EXITED", `${title}: ${error.message}`, { cause: error });
    }
    return new SubstrateError("PROGRAM_EXITED", `${title} ended before it was ready: ${why}`, { cause: error });
  }

  async publish(slot: Slot, program: Program): Promise<RouteEndpoint[]> {
    const published = await this.#node.network.publish(
      slot,
      program.ports.map(({ containerPort }) => containerPort),
    );
    return endpoints(program, published);
  }

  /** The endpoints of a sandbox that an earlier atelet started. */
  async adopt(slot: Slot, program: Program): Promise<RouteEndpoint[]> {
    return endpoints(program, await this.#node.network.published(slot));
  }

  /**
   * Kills the sandbox if there is one, and gives its place back. The network slot follows in the background.
   * @param asleep the image that it was saved in, which may go on with its connections.
   */
  async stop(id: string, slot: Slot, asleep?: SleepingImage): Promise<void> {
    const { cgroups, network, runtime, log, warmFolders } = this.#node;
    await network.block(slot);
    await runtime.delete(id);
    // Volumes are let go when this resolves.
    await Promise.all([warmFolders.unmount(id), asleep && this.#park(slot, asleep)]);
    const group = cgroups.remove(id);
    this.#groups.set(id, group);
    // Taking a namespace apart costs 40 ms that nobody needs to wait for: the next start takes another slot.
    const release = Promise.all([group, network.release(slot), warmFolders.remove(id)]).then(
      () => undefined,
      (error: unknown) => {
        log.error("what a sandbox had could not be removed; the next start of the atelet does it", {
          sandbox: id,
          slot: slot.index,
          error,
        });
      },
    );
    this.#releases.add(release);
    void release.then(() => {
      this.#releases.delete(release);
      if (this.#groups.get(id) === group) this.#groups.delete(id);
    });
  }

  /** The actor sleeps either way: without its connections, if they can't be kept. */
  async #park(slot: Slot, image: SleepingImage): Promise<void> {
    try {
      await this.#node.network.park(slot, image);
    } catch (error) {
      this.#node.log.error("connections of a sleeping actor cannot be kept; they are reset", { ...image, error });
    }
  }

  /** Removes a sandbox of an earlier atelet, also when its network is gone or not whole any more. */
  async stopAdopted(id: string, slotIndex: number): Promise<void> {
    const { cgroups, network, runtime, log, warmFolders } = this.#node;
    let slot: Slot;
    try {
      slot = network.adopt(slotIndex);
    } catch (error) {
      log.warn("the network of an earlier sandbox is gone", { sandbox: id, slot: slotIndex, error });
      await runtime.delete(id);
      await cgroups.remove(id);
      await warmFolders.remove(id);
      return;
    }
    await this.stop(id, slot);
  }

  /** Resolves when no slot of a stopped sandbox is left. */
  async settled(): Promise<void> {
    await Promise.all(this.#releases);
  }

  async #prepare(options: LaunchOptions, slot: Slot): Promise<SandboxSpec> {
    const { id, actor, program, image, files } = options;
    const { cgroups, network } = this.#node;
    await this.#groups.get(id)?.catch(() => undefined);
    for (const { destination } of options.volumes) {
      await makeVolumeMountPoint(program.image, image.rootfsDir, destination);
    }
    const [cgroupPath] = await Promise.all([
      cgroups.create(id),
      network.putAddress(slot),
      writeIdentity(files.identity, actor, options.generation),
    ]);
    return {
      ...this.#spec(options, slot),
      id,
      bundleDir: files.bundle,
      identityDir: files.identity,
      volumes: options.volumes,
      ...(options.rootfsTar !== undefined && { rootfsTar: options.rootfsTar }),
      cgroupPath,
    };
  }

  /** What a created sandbox lacks: identity, volumes, and its address, which the creation took away. */
  async #prepareWarm(options: LaunchOptions, { id, folder, network: slot }: WarmSlot): Promise<SandboxSpec> {
    const { cgroups, network, volumes: tools } = this.#node;
    const volumes = options.volumes.map(({ source, destination }, index) => ({
      source,
      bound: { source: folder.volumes[index] ?? "", destination },
    }));
    await Promise.all([
      network.putAddress(slot),
      writeIdentity(folder.identity, options.actor, options.generation),
      ...volumes.map(({ source, bound }) => tools.mounts.bind(source, bound.source)),
    ]);
    return {
      ...this.#spec(options, slot),
      id,
      bundleDir: folder.bundle,
      identityDir: folder.identity,
      volumes: volumes.map(({ bound }) => bound),
      cgroupPath: cgroups.path(id),
    };
  }

  #spec(
    { actor, program, image, files, environment = noEnvironment }: LaunchOptions,
    slot: Slot,
  ): Omit<SandboxSpec, "id" | "bundleDir" | "identityDir" | "volumes" | "cgroupPath"> {
    return {
      ...sandboxShape(program, image),
      env: withEnvironment(image.env, environment),
      hostname: actor.name,
      netnsPath: slot.netnsPath,
      stdoutPath: files.log,
      stderrPath: files.log,
    };
  }
}

/** Of a sandbox that is created before its actor's memory is restored into it. */
export function warmShape(program: Program, image: UnpackedImage): SandboxShape {
  return {
    ...sandboxShape(program, image),
    destinations: program.volumeMounts.map(({ mountPath }) => mountPath),
  };
}

/** What all sandboxes of a program have in common. */
function sandboxShape(program: Program, image: UnpackedImage): Omit<SandboxShape, "destinations"> {
  return {
    rootfsDir: image.rootfsDir,
    args: resolveCommand(program.image, image, program.command, program.args),
    cwd: image.workingDir,
    uid: image.uid,
    gid: image.gid,
    memoryLimitBytes: program.memoryBytes + RUNTIME_OVERHEAD_BYTES,
    cpuMillis: program.cpuMillis,
  };
}

/** design.md §8: remade at every start and restore; nothing holds the old files, so that no rename is needed (R21). */
async function writeIdentity(dir: string, actor: ActorKey, generation: number): Promise<void> {
  const content = {
    hosts: `127.0.0.1 localhost\n169.254.17.2 ${actor.name}`,
    "resolv.conf": actorResolvConf(await readFile("/etc/resolv.conf", "utf8")),
    "actor-id": actor.uid,
    "actor-name": actor.name,
    namespace: actor.namespace,
    generation: String(generation),
    "resumed-at": new Date().toISOString(),
  };
  await Promise.all(
    Object.entries(content).map(([name, text]) => writeFile(join(dir, name), `${text}\n`, { mode: 0o644 })),
  );
}

function endpoints(
  program: Program,
  published: readonly { containerPort: number; outerPort: number }[],
): RouteEndpoint[] {
  return program.ports.flatMap(({ name, containerPort }) => {
    const match = published.find((port) => port.containerPort === containerPort);
    return match === undefined ? [] : [{ portName: name, containerPort, port: match.outerPort }];
  });
}
