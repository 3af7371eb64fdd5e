import { type Environment, type EnvironmentFile } from "./environment.ts";
import { type ActorRecord } from "./record.ts";

/** What the operator says of an actor with every grant. */
export type Assignment = Pick<
  ActorRecord,
  "actor" | "grant" | "program" | "held" | "clusterUid" | "upgradePending" | "origin"
> & {
  /** Absent: what an earlier assignment said stays. */
  environment?: Environment;
};

/** On which terms an actor may run here: each is on disk before it counts (design.md §7). */
export class Terms {
  readonly #record: ActorRecord;
  readonly #environment: EnvironmentFile;
  /** Durably. */
  readonly #save: () => Promise<void>;

  constructor(record: ActorRecord, environment: EnvironmentFile, save: () => Promise<void>) {
    this.#record = record;
    this.#environment = environment;
    this.#save = save;
  }

  /** A new grant, or an old one again: the caller has checked session and epoch. */
  async assign({ grant, program, held, clusterUid, upgradePending, origin, environment }: Assignment): Promise<void> {
    const record = this.#record;
    // First: it is used at cold starts only, and the next one under the old grant may have it too.
    if (environment !== undefined) await this.#environment.write(environment);
    const before = {
      grant: record.grant,
      program: record.program,
      held: record.held,
      clusterUid: record.clusterUid,
      upgradePending: record.upgradePending,
      origin: record.origin,
      claim: record.claim,
    };
    const claim = this.#claimUnder(grant.epoch);
    const begins = record.origin?.chosen === true ? record.origin : origin;
    Object.assign(record, { grant, program, held, clusterUid, upgradePending, origin: begins, claim });
    try {
      await this.#save();
    } catch (error) {
      // What is not on disk was not granted.
      Object.assign(record, before);
      throw error;
    }
  }

  async hold(held: boolean): Promise<void> {
    const record = this.#record;
    if (record.held === held) return;
    record.held = held;
    try {
      await this.#save();
    } catch (error) {
      // Not on disk, not locked: the caller's next try must write it again.
      record.held = !held;
      throw error;
    }
  }

  #claimUnder(epoch: number): ActorRecord["claim"] {
    const { claim, grant } = this.#record;
    if (epoch <= grant.epoch) return claim;
    // An epoch that was still to be claimed under passes its duty on, whatever number follows it.
    const follows = epoch === grant.epoch + 1;
    const state = follows && claim.state !== "needed" ? "none" : "needed";
    return { state, priorEpoch: claim.state === "needed" ? claim.priorEpoch : grant.epoch };
  }
}
