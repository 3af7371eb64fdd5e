import { type Aside } from "../generations/aside.ts";
import { type GenerationRecord } from "../generations/folder.ts";
import { type ActorRecord, type Generation, type Storage } from "./record.ts";

const pendingStorage: Storage = {
  state: "PENDING",
  manifest: "",
  location: "",
  digest: "",
  storedBytes: 0,
  completedAtMs: 0,
  message: "",
  reason: "",
};

/** Lost for no other reason than that what is here of it cannot be used. */
export function isDamaged({ storage }: Generation): boolean {
  return storage.state === "LOST" && storage.reason === "SNAPSHOT_DAMAGED";
}

export function lossOf(damage: string): string {
  return `its files on the node are damaged (${damage})`;
}

/** Of what nobody has a record: that it was there is known, and that it is newer than nothing. */
export function fromAside({ generation, epoch = 1, why }: Aside, { program }: ActorRecord): Generation {
  const message = `${lossOf(why)} and it was not in the store yet`;
  return {
    fidelity: "Memory",
    envDigest: "",
    generation,
    epoch,
    revision: program.revision,
    imageDigest: "",
    runtime: "",
    createdAtMs: Date.now(),
    restoreFailures: 0,
    sizeBytes: 0,
    storage: { ...pendingStorage, state: "LOST", message, reason: "SNAPSHOT_DAMAGED", unasked: true },
  };
}

export function fromLocal(local: GenerationRecord): Generation {
  const { generation, epoch, revision, imageDigest, runtime, fidelity, envDigest, createdAtMs } = local;
  return {
    fidelity,
    envDigest,
    generation,
    epoch,
    revision,
    imageDigest,
    runtime,
    createdAtMs,
    restoreFailures: 0,
    sizeBytes: local.files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    storage: { ...pendingStorage },
  };
}
