import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type LimitFunction } from "p-limit";
import { namesIn, removeFolder } from "../node-files.ts";
import { type Mounts, unmountBelow } from "./mounts.ts";
import {
  type KeptStacks,
  type Layer,
  type LiveVolumes,
  noVolumes,
  ownLayers,
  type VolumeStack,
  withFlattened,
} from "./stack.ts";
import { DOOMED, VolumeFolder } from "./volume-folder.ts";

/** More frozen layers than this are made one: each is looked through at every first look at a file. */
const MAX_FROZEN_LAYERS = 8;

/** What a node's volumes share. */
export interface VolumeTools {
  mounts: Mounts;
  /** Copies and archives: few at once, as they share one disk. */
  jobs: LimitFunction;
  originsDir: string;
}

export interface ActorVolumesOptions {
  tools: VolumeTools;
  /** actors/<uid>/volumes */
  dir: string;
  /** <namespace>/<name>, for messages. */
  name: string;
  /** Whose `volumes` are kept true here. */
  record: { volumes: LiveVolumes };
  /** The stacks of all generations whose files are here. */
  frozen: () => VolumeStack[];
  /** Of what was set aside. */
  kept: () => KeptStacks;
  /** Writes down, in every generation that has it, that one layer has taken the place of a stack's bottom. */
  rewriteFrozen: (volume: string, flattened: readonly Layer[], into: Layer) => Promise<void>;
  /** Saves the record. */
  save: () => Promise<void>;
  log: Logger;
}

/** Where a sandbox sees a volume. */
export interface VolumeBind {
  source: string;
  destination: string;
}

export interface PackedVolume {
  name: string;
  path: string;
}

/**
 * One actor's volumes on its node: layers, the overlays over them, and which layers are still needed. A layer is
 * needed while the record's live stacks, a generation's, or something that is going on names it. Changes follow each
 * other, so that none sees another's half.
 */
export class ActorVolumes {
  readonly #options: ActorVolumesOptions;
  /** Stacks in use that neither the record nor a generation may name: mounted, being read, being made. */
  readonly #pins = new Set<VolumeStack>();
  readonly #highest = new Map<string, number>();
  #attached: VolumeStack[] = [];
  /** What `started` records: as attached, but for what was flattened between the mount and the start's end. */
  #starting: VolumeStack[] = [];
  #attachedBase = noVolumes().base;
  #turn: Promise<unknown> = Promise.resolve();
  #flattening: Promise<void> | undefined;
  readonly #jobs = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #disposing: Promise<void> = Promise.resolve();

  constructor(options: ActorVolumesOptions) {
    this.#options = options;
  }

  /** Runs `work` while no layer is made, replaced or removed: what it reads of stacks stays true until it ends. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work, work);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /**
   * What a restart finds. With `running` its overlays stay; all other mounts go, and every layer that nothing names.
   * Throws INTERNAL if a running sandbox's volume is not mounted.
   */
  load(running: boolean): Promise<void> {
    return this.exclusive(async () => {
      const { dir, tools, record } = this.#options;
      const kept = running ? record.volumes.stacks : [];
      const mounted = await tools.mounts.below(dir);
      for (const { target } of mounted) {
        if (kept.some(({ name }) => this.#folder(name).mountPoint === target)) continue;
        await tools.mounts.unmount(target);
      }
      for (const { name } of kept) {
        const overlay = mounted.find(({ target }) => target === this.#folder(name).mountPoint);
        if (overlay === undefined) throw new SubstrateError("INTERNAL", `volume ${name} is not mounted any more`);
        // What is mounted may be older than what a flattening has written down since.
        this.#attach({ name, layers: overlay.layers.flatMap((path) => layerOf(path)) });
      }
      for (const name of await namesIn(dir)) {
        if (name.startsWith(DOOMED)) this.#dispose([join(dir, name)]);
        else await this.#folder(name).tidy();
      }
      await this.#collect();
    });
  }

  /**
   * Mounts every volume with a new layer over what `from` says then; nothing is recorded before `started`. Throws INVALID
   * for a volume of `from` that the program does not have, INTERNAL if it cannot be mounted; then nothing is left.
   */
  attach(
    mounts: readonly { name: string; mountPath: string }[],
    from: () => Pick<LiveVolumes, "base" | "stacks">,
  ): Promise<VolumeBind[]> {
    return this.exclusive(async () => {
      const { base, stacks } = from();
      this.#attachedBase = base;
      this.#refuseMissing(mounts, stacks);
      try {
        for (const { name } of mounts)
          await this.#mount(name, stacks.find((stack) => stack.name === name)?.layers ?? []);
      } catch (error) {
        await this.#detach();
        await this.#collect();
        throw error;
      }
      return mounts.map(({ name, mountPath }) => ({ source: this.#folder(name).mountPoint, destination: mountPath }));
    });
  }

  /** The sandbox runs on what was attached: now it is what the record calls live. */
  started(options: { cold: boolean }): void {
    const stacks = [...this.#starting];
    this.#options.record.volumes = {
      base: this.#attachedBase,
      unsaved: options.cold && stacks.length > 0,
      stacks,
    };
  }

  /** Unmounts, once no sandbox is left; what no stack names is removed. No error if nothing is mounted. */
  detach(): Promise<void> {
    return this.exclusive(async () => {
      await this.#detach();
      await this.#collect();
    });
  }

  /** What the live stacks hold has become a generation. To be called before anybody else's turn. */
  saved(base: LiveVolumes["base"]): void {
    this.#options.record.volumes = { ...this.#options.record.volumes, base, unsaved: false };
  }

  /** Removes what is named no more, in its turn; a failure is logged, and the next call tries again. */
  collectSoon(): void {
    this.exclusive(() => this.#collect()).catch((error: unknown) => {
      this.#options.log.warn("layers of volumes could not be removed yet", { error });
    });
  }

  /** Why stacks cannot be used, or undefined. They are named in its turn: layers that were made one meanwhile are gone. */
  damage(stacks: () => readonly VolumeStack[]): Promise<string | undefined> {
    return this.exclusive(async () => {
      for (const { name, layers } of stacks()) {
        const damage = await this.#folder(name).damage(layers);
        if (damage !== undefined) return damage;
      }
      return undefined;
    });
  }

  /** Of stacks, what is left to begin with: of each the layers below all that are missing, as they once were its whole. */
  whole(stacks: readonly VolumeStack[]): Promise<VolumeStack[]> {
    return this.exclusive(() =>
      Promise.all(
        stacks.map(async ({ name, layers }) => {
          const folder = this.#folder(name);
          const damaged = await Promise.all(layers.map(async (layer) => (await folder.damage([layer])) !== undefined));
          return { name, layers: layers.slice(damaged.lastIndexOf(true) + 1) };
        }),
      ),
    );
  }

  /** Gives the content of a volume of one layer, which nothing has mounted, another place on the same disk. */
  moveOut(name: string, into: string): Promise<void> {
    return this.exclusive(async () => {
      const [layer, ...more] = this.#options.record.volumes.stacks.find((stack) => stack.name === name)?.layers ?? [];
      if (layer === undefined || more.length > 0) {
        throw new SubstrateError("INTERNAL", `volume ${name} of ${this.#options.name} has not exactly one layer`);
      }
      await rename(this.#folder(name).data(layer), into);
    });
  }

  /** Writes one tar file per volume into `dir`, which is made anew. */
  async pack(stacks: () => readonly VolumeStack[], dir: string): Promise<PackedVolume[]> {
    const { tools } = this.#options;
    const pinned = await this.#pinned(stacks);
    try {
      await removeFolder(dir);
      await mkdir(dir, { recursive: true, mode: 0o700 });
      const packed: PackedVolume[] = [];
      for (const { name, layers } of pinned) {
        const path = join(dir, volumeFile(name));
        await this.#job(() => this.#folder(name).pack(tools.mounts, layers, path));
        packed.push({ name, path });
      }
      return packed;
    } finally {
      for (const stack of pinned) this.#pins.delete(stack);
    }
  }

  /**
   * Makes a layer of each packed volume, and has `commit` write the stacks down; on failure nothing is left of them.
   * `commit` names the stacks of a generation.
   * @param options.here resolves when a volume's file is there.
   * @param options.whole resolves when there is something to commit.
   */
  async unpack(
    packed: readonly PackedVolume[],
    commit: (stacks: VolumeStack[]) => Promise<void>,
    { here, whole }: { here?: (volume: PackedVolume) => Promise<void>; whole?: Promise<void> } = {},
  ): Promise<void> {
    const made: VolumeStack[] = [];
    try {
      for (const volume of packed) {
        await here?.(volume);
        const { name, path } = volume;
        const number = await this.exclusive(async () => {
          await this.#folder(name).create();
          const next = await this.#next(name);
          const stack = { name, layers: [{ own: next }] };
          made.push(stack);
          this.#pins.add(stack);
          return next;
        });
        await this.#job(() => this.#folder(name).unpack(path, number));
      }
      await whole;
      await this.exclusive(() => commit(made.map(({ name, layers }) => ({ name, layers }))));
    } finally {
      for (const stack of made) this.#pins.delete(stack);
      this.collectSoon();
    }
  }

  /** Makes one layer of each stack that has grown too high, off everybody's path; a failure is logged. */
  flattenSoon(): void {
    if (this.#flattening !== undefined) return;
    this.#flattening = this.#flatten()
      .catch((error: unknown) => {
        if (this.#closing.signal.aborted) return;
        this.#options.log.warn("layers of a volume could not be made one; the next suspend tries again", { error });
      })
      .finally(() => {
        this.#flattening = undefined;
      });
  }

  /** The actor leaves: ends what is under way, and unmounts everything. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([...this.#jobs]);
    await this.settled();
    await unmountBelow(this.#options.tools.mounts, this.#options.dir);
  }

  async #flatten(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const high = await this.exclusive(() => Promise.resolve(this.#highestStack()));
      if (high === undefined) return;
      const { name, layers } = high;
      const into = { own: await this.exclusive(() => this.#next(name)) };
      const pins = [high, { name, layers: [into] }];
      for (const pin of pins) this.#pins.add(pin);
      try {
        const { tools, log } = this.#options;
        await this.#job(() => this.#folder(name).copyLayers(tools.mounts, layers, into.own));
        await this.exclusive(() => this.#replace(high, into));
        log.info("layers of a volume made one", { volume: name, layers: layers.length, into: into.own });
      } finally {
        for (const pin of pins) this.#pins.delete(pin);
        this.collectSoon();
      }
    }
  }

  /** Resolves when nothing of it is under way. */
  async settled(): Promise<void> {
    await this.#flattening;
    await this.exclusive(() => Promise.resolve());
    await this.#disposing;
  }

  /** Folder of each mounted volume, for measuring. */
  mounted(): { name: string; path: string }[] {
    return this.#attached.map(({ name }) => ({ name, path: this.#folder(name).mountPoint }));
  }

  /** Copies and archives take their turn on the node, and end when the actor leaves. */
  async #job(work: () => Promise<void>): Promise<void> {
    const job = this.#options.tools.jobs(work);
    this.#jobs.add(job);
    try {
      await job;
    } finally {
      this.#jobs.delete(job);
    }
  }

  #folder(name: string): VolumeFolder {
    return new VolumeFolder({
      volumesDir: this.#options.dir,
      name,
      originsDir: this.#options.tools.originsDir,
      signal: this.#closing.signal,
    });
  }

  #refuseMissing(mounts: readonly { name: string }[], stacks: readonly VolumeStack[]): void {
    const missing = stacks.find(({ name }) => mounts.every((mount) => mount.name !== name));
    if (missing === undefined) return;
    throw new SubstrateError(
      "INVALID",
      `actor ${this.#options.name} has a volume ${missing.name} that this revision of its Template lacks: ` +
        `add it to spec.volumes and to the container's volumeMounts`,
    );
  }

  async #mount(name: string, layers: readonly Layer[]): Promise<void> {
    const folder = this.#folder(name);
    await folder.create();
    const number = await this.#next(name);
    this.#attach({ name, layers: [{ own: number }, ...layers] });
    await folder.createLayer(number, layers);
    await this.#options.tools.mounts.mount(folder.writable(number, layers));
  }

  #attach(stack: VolumeStack): void {
    this.#attached.push(stack);
    this.#starting.push(stack);
    this.#pins.add(stack);
  }

  async #detach(): Promise<void> {
    for (const stack of this.#attached) {
      await this.#options.tools.mounts.unmount(this.#folder(stack.name).mountPoint);
      this.#pins.delete(stack);
    }
    this.#attached = [];
    this.#starting = [];
  }

  /** Of a new layer: above every one that there ever was, as far as anybody remembers. */
  async #next(name: string): Promise<number> {
    const next =
      Math.max(
        0,
        this.#highest.get(name) ?? 0,
        ...(await this.#folder(name).layers()),
        ...ownLayers(this.#named(), name),
      ) + 1;
    this.#highest.set(name, next);
    return next;
  }

  #named(): VolumeStack[] {
    return [...this.#options.record.volumes.stacks, ...this.#options.frozen(), ...this.#pins];
  }

  #pinned(stacks: () => readonly VolumeStack[]): Promise<VolumeStack[]> {
    return this.exclusive(() => {
      const pinned = stacks().map(({ name, layers }) => ({ name, layers }));
      for (const stack of pinned) this.#pins.add(stack);
      return Promise.resolve(pinned);
    });
  }

  async #collect(): Promise<void> {
    const kept = this.#options.kept();
    if (kept === "unknown") return;
    const named = [...this.#named(), ...kept];
    for (const name of await namesIn(this.#options.dir)) {
      if (name.startsWith(DOOMED)) continue;
      const folder = this.#folder(name);
      const needed = ownLayers(named, name);
      for (const number of await folder.layers()) {
        if (!needed.has(number)) this.#dispose(await folder.doomLayer(number));
      }
      if (named.every((stack) => stack.name !== name)) await folder.remove();
    }
  }

  /** Removes, without keeping anybody's turn waiting: a layer may have many files. */
  #dispose(paths: readonly string[]): void {
    for (const path of paths) {
      this.#disposing = Promise.all([
        this.#disposing,
        removeFolder(path).catch((error: unknown) => {
          this.#options.log.warn("a layer could not be removed; the next start of the atelet does it", { path, error });
        }),
      ]).then(() => undefined);
    }
  }

  /** A stack that nothing writes to with too many layers. */
  #highestStack(): VolumeStack | undefined {
    const live = this.#options.record.volumes.stacks.map(({ name, layers }) => ({
      name,
      // While a sandbox runs its newest layer is being written to.
      layers: this.#attached.some((stack) => stack.name === name) ? layers.slice(1) : layers,
    }));
    return [...live, ...this.#options.frozen()].find(({ layers }) => layers.length > MAX_FROZEN_LAYERS);
  }

  async #replace({ name, layers }: VolumeStack, into: Layer): Promise<void> {
    const { record, rewriteFrozen, save } = this.#options;
    await rewriteFrozen(name, layers, into);
    const flattened = (stacks: readonly VolumeStack[]): VolumeStack[] =>
      stacks.map((stack) =>
        stack.name === name ? { name, layers: withFlattened(stack.layers, layers, into) ?? stack.layers } : stack,
      );
    record.volumes = { ...record.volumes, stacks: flattened(record.volumes.stacks) };
    this.#starting = flattened(this.#starting);
    await save();
  }
}

/** Name of a packed volume's file in the store. */
export function volumeFile(name: string): string {
  return `volume-${name}.tar`;
}

/** Of a path as it was mounted; nothing for the empty base. */
function layerOf(path: string): Layer[] {
  const own = /^layers\/(\d+)\/data$/.exec(path)?.[1];
  if (own !== undefined) return [{ own: Number.parseInt(own, 10) }];
  const origin = /\/([^/]+)\/volumes\/[^/]+\/data$/.exec(path)?.[1];
  return origin === undefined ? [] : [{ origin }];
}
