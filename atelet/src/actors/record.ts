import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { namesIn, readJson, removeFolder, writeJson } from "../node-files.ts";
import { liveVolumesSchema, noVolumes } from "../volumes/stack.ts";

/** What a snapshot saves: Rootfs and Data start the program cold. */
export const fidelitySchema = z.enum(["Memory", "Rootfs", "Data"]);
export type Fidelity = z.infer<typeof fidelitySchema>;

const programSchema = z.object({
  templateUid: z.string(),
  templateName: z.string(),
  revision: z.string(),
  containerName: z.string(),
  image: z.string(),
  command: z.array(z.string()),
  args: z.array(z.string()),
  ports: z.array(z.object({ name: z.string(), containerPort: z.number().int() })),
  readyz: z.object({ path: z.string(), port: z.number().int() }).optional(),
  memoryBytes: z.number().int(),
  cpuMillis: z.number().int(),
  store: z.string(),
  uploadDelayMs: z.number(),
  uploadWithinMs: z.number(),
  drainTimeoutMs: z.number(),
  wakeTimeoutMs: z.number(),
  volumeMounts: z
    .array(
      z.object({
        name: z.string(),
        mountPath: z.string(),
        /** 0: no limit. */
        sizeLimitBytes: z.number().int(),
      }),
    )
    .default([]),
  afterRestore: z.object({ path: z.string(), port: z.number().int() }).optional(),
  /** Completed generations that are kept, the newest included. */
  history: z.number().int().positive().default(1),
  onSuspend: fidelitySchema.default("Memory"),
});
/** One revision of a Template, as a node needs it. */
export type Program = z.infer<typeof programSchema>;

const actorKeySchema = z.object({ uid: z.string(), namespace: z.string(), name: z.string(), namespaceUid: z.string() });
export type ActorKey = z.infer<typeof actorKeySchema>;

const storageSchema = z.object({
  state: z.enum(["PENDING", "COMPLETED", "FAILED", "LOST"]),
  /** Relative to the actor's prefix in the store; empty until COMPLETED. */
  manifest: z.string(),
  location: z.string(),
  digest: z.string(),
  storedBytes: z.number(),
  completedAtMs: z.number(),
  message: z.string(),
  /** A code of the error catalogue: of the last try to store it, when that failed; of a LOST one that is damaged here. */
  reason: z.string().default(""),
  /** Lost by what is here alone: an atelet that ended before it wrote that down may have stored it. */
  unasked: z.boolean().optional(),
});
export type Storage = z.infer<typeof storageSchema>;

const generationSchema = z.object({
  generation: z.number().int().positive(),
  epoch: z.number().int().positive(),
  revision: z.string(),
  imageDigest: z.string(),
  runtime: z.string(),
  fidelity: fidelitySchema.default("Memory"),
  /** Of the environment that its program was started with. */
  envDigest: z.string().default(""),
  createdAtMs: z.number(),
  sizeBytes: z.number(),
  /** Restores of it that failed since one went well. */
  restoreFailures: z.number().int(),
  storage: storageSchema,
});
/** What the node knows of one generation, whether or not its files are here. */
export type Generation = z.infer<typeof generationSchema>;

const storedPrefixSchema = z.object({
  prefix: z.object({ clusterUid: z.string(), namespaceUid: z.string(), actorUid: z.string() }),
  /** <namespace>/<name> of the Snapshot object, for messages. */
  name: z.string(),
  store: z.string(),
});
/** Where the data of a Snapshot object (a tag, a golden snapshot) is; prefix.actorUid is that object's UID. */
export type StoredPrefix = z.infer<typeof storedPrefixSchema>;

const originSchema = z.object({
  stored: storedPrefixSchema,
  /** A golden snapshot is an optimisation, a tag is the actor's state. */
  golden: z.boolean(),
  /** It counts while this is the actor's floor, and until a generation is made above it. */
  floor: z.number().int().default(0),
  /** A person's choice (resume --from), which an assignment does not replace. */
  chosen: z.boolean().default(false),
});
/** What an actor without a generation of its own begins from. */
export type Origin = z.infer<typeof originSchema>;

const operationSchema = z.object({
  id: z.string(),
  type: z.enum(["RESUME", "SUSPEND", "TAG"]),
  result: z.enum(["RUNNING", "SUCCEEDED", "FAILED"]),
  reason: z.string(),
  message: z.string(),
  startMs: z.number(),
  endMs: z.number(),
});
export type Operation = z.infer<typeof operationSchema>;

const finishedOperationSchema = operationSchema.extend({
  phases: z.array(z.object({ name: z.string(), ms: z.number() })),
});
/** One of the past, with the times of its phases in their order. */
export type FinishedOperation = z.infer<typeof finishedOperationSchema>;

const crashLoopSchema = z.object({
  /** What it was started from; 0: cold. */
  generation: z.number().int(),
  message: z.string(),
  sinceMs: z.number(),
});

const recordSchema = z.object({
  format: z.literal(1),
  actor: actorKeySchema,
  clusterUid: z.string(),
  grant: z.object({ epoch: z.number().int().positive(), session: z.string() }),
  /**
   * design.md §7 "Local state": `none` when this epoch follows the one under which the local state was made; `needed`
   * until the head was claimed; `done` afterwards. `priorEpoch` is the epoch recorded here before this one, 0 if none.
   */
  claim: z.object({ state: z.enum(["none", "needed", "done"]), priorEpoch: z.number().int() }),
  program: programSchema,
  held: z.boolean(),
  deleting: z.boolean(),
  generations: z.array(generationSchema),
  /** Generations that were replaced while they were on their way into the store: what is there of them is to be removed. */
  litter: z.array(z.object({ generation: z.number().int(), epoch: z.number().int() })),
  /** Since an upload began: packs that no generation names may be in the store. */
  packsToCollect: z.boolean().default(false),
  /** Since when the newest state that the store does not have exists; 0 when all is stored. */
  oldestUnsavedMs: z.number(),
  /** Present exactly while a sandbox may serve requests. */
  sandbox: z
    .object({
      /** Absent in records of older atelets: the actor's own id (sandboxIdOf). */
      sandboxId: z.string().optional(),
      slotIndex: z.number().int(),
      startedAtMs: z.number(),
      imageDigest: z.string(),
      fromGeneration: z.number().int(),
      /** Not a restore of memory. */
      cold: z.boolean().default(false),
      /** Where its output begins in output.log. */
      outputFrom: z.number().int(),
      /** The generation that was saved of it for a tag, after which it went on. */
      taggedGeneration: z.number().int().optional(),
      /** UID of the golden snapshot or tag that it was restored from. */
      fromOrigin: z.string().optional(),
      /** Its root file system began from a tar of changes: whoever restores its memory must say so again. */
      rootfsTar: z.boolean().default(false),
    })
    .optional(),
  origin: originSchema.optional(),
  /** Which generations the tags mean that are on their way into the store; uid: of the Snapshot object. */
  tags: z.array(z.object({ uid: z.string(), generation: z.number().int(), epoch: z.number().int() })).default([]),
  crash: z.object({ message: z.string(), timeMs: z.number() }).optional(),
  /** Lives in a row that ended soon, all of one revision and from one source (0: cold). */
  shortLives: z
    .object({ generation: z.number().int(), revision: z.string(), count: z.number().int().positive() })
    .optional(),
  /** Present while nothing starts it but a resume that says from what. */
  crashLoop: crashLoopSchema.optional(),
  /** Generations up to this one are history only: a cold start, or a tag, came after them. */
  floor: z.number().int().default(0),
  /** A person went back to this generation, and the store's head names a newer one still. */
  rewind: z.object({ generation: z.number().int(), manifest: z.string() }).optional(),
  /** Of the environment that the running or saved program was started with; empty: none. */
  envDigest: z.string().default(""),
  volumes: liveVolumesSchema.default(noVolumes),
  /** A newer revision waits for the next wake, which is then the operator's to make. */
  upgradePending: z.boolean().default(false),
  lastOperation: operationSchema.optional(),
  /** Newest first. */
  operations: z.array(finishedOperationSchema).default([]),
  lastActivityMs: z.number(),
});
/** All that a restarted atelet needs to know of an actor besides what runs and which files exist. */
export type ActorRecord = z.infer<typeof recordSchema>;

/** Of a sandbox that is made for this actor alone, when it is started. */
export function ownSandboxId(uid: string): string {
  return uid.replaceAll("-", "");
}

/** Of the sandbox that the record names. */
export function sandboxIdOf({ actor, sandbox }: Pick<ActorRecord, "actor" | "sandbox">): string {
  return sandbox?.sandboxId ?? ownSandboxId(actor.uid);
}

/** Where an actor's things are on the node. */
export class ActorFiles {
  readonly dir: string;
  #saving: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(actorsDir: string, uid: string) {
    this.dir = join(actorsDir, uid);
  }

  get generations(): string {
    return join(this.dir, "generations");
  }
  /** See KeptPages. */
  get stored(): string {
    return join(this.dir, "stored");
  }
  get bundle(): string {
    return join(this.dir, "bundle");
  }
  get identity(): string {
    return join(this.dir, "identity");
  }
  get volumes(): string {
    return join(this.dir, "volumes");
  }
  /** Read and written by EnvironmentFile alone. */
  get environment(): string {
    return join(this.dir, "environment.json");
  }
  get log(): string {
    return join(this.dir, "output.log");
  }
  /** How much of the log was passed on. */
  get logPlaces(): string {
    return join(this.dir, "output.json");
  }

  async create(): Promise<void> {
    for (const dir of [this.generations, this.bundle, this.identity, this.volumes])
      await mkdir(dir, { recursive: true, mode: 0o700 });
  }

  /** Saves follow each other; each writes the record as it is when its turn comes. */
  save(record: ActorRecord, options: { durable: boolean }): Promise<void> {
    const turn = this.#saving.then(async () => {
      if (!this.#closed) await writeJson(join(this.dir, "record.json"), record, options);
    });
    this.#saving = turn.catch(() => undefined);
    return turn;
  }

  /** Throws, naming the file, when it cannot be understood. */
  async load(): Promise<ActorRecord | undefined> {
    const path = join(this.dir, "record.json");
    const content = await readJson(path);
    if (content === undefined) return undefined;
    const parsed = recordSchema.safeParse(content);
    if (!parsed.success) throw new Error(`${path} is damaged or of another version: ${parsed.error.message}`);
    return parsed.data;
  }

  /** Whether there is anything that a record could name. */
  async hasGenerations(): Promise<boolean> {
    return (await namesIn(this.generations)).length > 0;
  }

  /** Keeps a record that cannot be read for a person, under another name; @returns its path. */
  async setRecordAside(): Promise<string> {
    const aside = join(this.dir, `record.damaged.${Date.now()}.json`);
    await rename(join(this.dir, "record.json"), aside);
    return aside;
  }

  async remove(): Promise<void> {
    await removeFolder(this.dir);
  }

  /** Removes everything; what is saved afterwards is not written. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#saving;
    await this.remove();
  }
}

export function actorUids(actorsDir: string): Promise<string[]> {
  return namesIn(actorsDir);
}
