import { type Logger } from "@substrate/lib/log.ts";
import { type LimitFunction } from "p-limit";
import { type Cgroups } from "../cgroups/cgroups.ts";
import { type DiskRoom } from "../disk/contract.ts";
import { type Images } from "../images/images.ts";
import { type Ledger } from "../ledger/contract.ts";
import { type FileChecks } from "../generations/seal.ts";
import { type ActorNetwork } from "../network/network.ts";
import { type Outputs } from "../output/outputs.ts";
import { type Origins } from "../origins/origins.ts";
import { type Pages } from "../pages/pages.ts";
import { type ProcessIdentity, type SandboxRuntime } from "../sandbox/sandbox.ts";
import { type ExitStatus } from "../supervisor/exits.ts";
import { type SnapshotStore } from "../store/snapshots.ts";
import { type Tombstones } from "../tombstones/tombstones.ts";
import { type VolumeTools } from "../volumes/actor-volumes.ts";
import { type AsyncPageCache } from "../writeback/cache-worker.ts";
import { type WriteBack } from "../writeback/writeback.ts";
import { type AteletMetrics } from "../metrics.ts";
import { type SlotFolders } from "../warm/slot-folder.ts";
import { type WarmSlots } from "../warm/warm-slots.ts";
import { type RouteLevel } from "./route-level.ts";
import { type StartPlaces } from "./start-places.ts";
import { type Urgency } from "./urgency.ts";
import { type ImageReads } from "../writeback/image-reads.ts";

/** Where routes go, and who can say how many requests are open. Implemented by rpc/route-hub.ts. */
export interface Routers {
  publish(route: RouteLevel): void;
  gone(uid: string): void;
  /**
   * Waits until every attached router has closed the gate and has no request open for the actor.
   * @returns how many are still open (0: drained) when that is so or the time is over.
   */
  drain(uid: string, gateId: number, timeoutMs: number): Promise<number>;
}

/** How processes of sandboxes ended. Implemented by the channel to the supervisor, which reaps them. */
export interface Exits {
  /** Waits a moment if it isn't known yet, unless it ended long ago; undefined if it stays so. */
  of(process: ProcessIdentity, options?: { longAgo: boolean }): Promise<ExitStatus | undefined>;
}

/** Routers, and what else is open for an actor on this node. */
export interface Requests extends Routers {
  /** Ends, inside the actor, what only this node can end: sessions of exec. Resolves when their programs are gone. */
  cut(uid: string): Promise<void>;
}

/** What one node's actors share. */
export interface NodeContext {
  stateDir: string;
  actorsDir: string;
  runtime: SandboxRuntime;
  /** Of this node's runsc; images of another build are not restored. */
  runtimeBuild: string;
  network: ActorNetwork;
  exits: Exits;
  cgroups: Cgroups;
  images: Images;
  /** Throws INVALID, naming the store and the configured ones. */
  store(name: string): SnapshotStore;
  /** The names of all configured stores. */
  storeNames(): string[];
  /** The engine of page tables, packs and indexes. */
  pages: Pages;
  fileChecks: FileChecks;
  /** Digests of new generations are taken few at a time. */
  digestSlots: LimitFunction;
  tombstones: Tombstones;
  origins: Origins;
  ledger: Ledger;
  writeBack: WriteBack;
  /** What of a snapshot's files is in memory (R18, R27). */
  pageCache: AsyncPageCache;
  /** What programs print. */
  outputs: Outputs;
  volumes: VolumeTools;
  /** R24: space on the disk is claimed before much is written. */
  disk: DiskRoom;
  /** Sandboxes that wait for an actor, and the folders of those that had one of them. */
  warm: WarmSlots;
  warmFolders: SlotFolders;
  /** How restores read images. */
  imageReads: ImageReads;
  startPlaces: StartPlaces;
  /** What is under way that somebody waits for. */
  urgency: Urgency;
  /** R16: a snapshot takes its slot before it borrows. */
  snapshotSlots: LimitFunction;
  routers: Requests;
  metrics: AteletMetrics;
  /** The current session, or undefined before the supervisor has told it. */
  session(): string | undefined;
  log: Logger;
  /** Aborted when the atelet is told to end: nothing new is started. */
  stopping: AbortSignal;
  /** Aborted when all is saved and the atelet ends. */
  signal: AbortSignal;
}

/** writeback.md: of a sandbox's limit this much is the runtime's own. */
export const RUNTIME_OVERHEAD_BYTES = 32 * 2 ** 20;
