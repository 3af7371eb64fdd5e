import { type Logger } from "@substrate/lib/log.ts";
import { type ActorPrefix } from "../store/snapshots.ts";
import { type ActorVolumes } from "../volumes/actor-volumes.ts";
import { type Generations } from "./generations.ts";
import { type NodeContext } from "./node-context.ts";
import { type ActorFiles, type ActorRecord } from "./record.ts";

/** What the parts of one actor share. */
export interface ActorContext {
  node: NodeContext;
  /** <namespace>/<name> */
  name: string;
  record: ActorRecord;
  files: ActorFiles;
  /** Of what it owns in its store. */
  prefix: ActorPrefix;
  generations: Generations;
  volumes: ActorVolumes;
  log: Logger;
  /** Writes the record, and tells routers and the operator what is so now. */
  save: (options: { durable: boolean }) => Promise<void>;
}
