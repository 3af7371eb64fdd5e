import { type Actor, type ActorState, type Template } from "@substrate/crds/index.ts";
import { type ActorReport } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Trouble } from "./conditions.ts";
import { type OperationRecord } from "./operation-record.ts";

/** How the operator sees the node that an actor is assigned to. */
export interface NodeView {
  nodeName: string;
  /** Connected, and all its reports are known. */
  synced: boolean;
  /** How long it has not been synced; 0 while it is. */
  unreachableMs: number;
  /** Why it counts as lost, to be read after "waits for"; absent while it doesn't. */
  lost?: string;
  /** When it would be lost, unless it is heard of. */
  lostInMs?: number;
}

/** An actor's node is none for it any more. */
export interface Departure {
  /** To be read after its node's name: `is cordoned`. */
  why: string;
  /** Whether another node is open to it, room aside. */
  elsewhere: boolean;
}

/** What an actor would be started with now, as far as its status tells of it. */
export interface Standing {
  /** Of the environment that its next cold start gets. */
  envDigest?: string;
  /** What it names is not there. */
  envTrouble?: Trouble;
  /** Of what runs, or would be started if there were no other. */
  presentRevision?: string;
  /** Of that revision's environment: what its node is to know until another revision is told. */
  presentEnvDigest?: string;
  /** Its next wake brings another revision. */
  upgradeTo?: string;
  /** The Template's newest revision, which a suspend (`byItself`), or a person's cold start, would bring. */
  upgradeWaits?: { revision: string; byItself: boolean };
  /** Why it stays on its revision although there is a newer one. */
  upgradeRefused?: string;
  /** When to look again at the latest. */
  recheckAfterMs?: number;
}

/** All that an actor's status is made of. */
export interface ActorWorld {
  actor: Actor;
  template: Template | undefined;
  /** Why the Snapshot in spec.source cannot be used, for an actor that has no generation of its own. */
  source: Trouble | undefined;
  /** Of status.assignment.nodeName; undefined when the actor is unassigned. */
  node: NodeView | undefined;
  /** The assigned node's newest word on the actor; undefined while it isn't synced or knows nothing of it. */
  report: ActorReport | undefined;
  /** Which synced node has a generation's files; "unknown" while a node that might isn't synced. */
  localNode: (generation: number) => string | undefined;
  /** The operator's own operations, oldest first. */
  operations: readonly OperationRecord[];
  /** Its node is none for it any more. */
  departure: Departure | undefined;
  /** A wake that finds no place. */
  unplaced: Trouble | undefined;
  /** What stands in the way of a deletion or of spec.state. */
  blocked: Trouble | undefined;
  /** What it would be started with; undefined when that cannot be said. */
  standing: Standing | undefined;
  /** The report's state, or the one before it while it is transitional and young. */
  state: ActorState;
  now: Date;
}

/** After this long without a node's reports its actors are said not to be Ready. */
export const nodeUnavailableAfterMs = 15_000;
