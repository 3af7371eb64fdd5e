import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { z } from "zod";
import { type Definition } from "./definition.ts";
import { conditions, count, field, objectName, observedGeneration, text } from "./fields.ts";

export const snapshotOwner = z.enum(["SNAPSHOT_OWNER_ACTOR", "SNAPSHOT_OWNER_TAG", "SNAPSHOT_OWNER_TEMPLATE"]).meta(
  field({
    description: "Who keeps it. ACTOR: it goes when a newer one is completed, or with the actor.",
  }),
);

export const storageState = z
  .enum([
    "SNAPSHOT_STORAGE_STATE_PENDING",
    "SNAPSHOT_STORAGE_STATE_COMPLETED",
    "SNAPSHOT_STORAGE_STATE_FAILED",
    "SNAPSHOT_STORAGE_STATE_LOST",
  ])
  .meta(
    field({
      description:
        "PENDING: only on the node. COMPLETED: durable in the store. FAILED: the store refused it for good. " +
        "LOST: replaced by a state that ran on elsewhere, or its files are damaged.",
    }),
  );

export const fidelity = z
  .enum(["Memory"])
  .meta(field({ description: "What was saved. Memory: the processes' memory and all files." }));

const spec = z
  .object({
    actorRef: z
      .object({ name: objectName("Name of an Actor in the same namespace.") })
      .meta(field({ description: "The actor that was saved." })),
    generation: count("Number of the actor's generation.", 1),
  })
  .meta(
    field({
      description: "Which generation of which actor this is.",
      rules: [
        { rule: "self == oldSelf", message: "the spec of a Snapshot cannot be changed: it names what was saved" },
      ],
    }),
  );

const status = z
  .object({
    observedGeneration,
    owner: snapshotOwner.exactOptional(),
    storageState: storageState.exactOptional(),
    generation: count("Number of the generation.", 1).exactOptional(),
    epoch: count("Epoch under which it was made.", 1).exactOptional(),
    fidelity: fidelity.exactOptional(),
    nodeName: text("Node that has a copy of its files.", 253).exactOptional(),
    location: text("Where it is, relative to the store's root.", 1024).exactOptional(),
    sizeBytes: count("Size of the saved state.").exactOptional(),
    storedBytes: count("Bytes that it added to the store.").exactOptional(),
    digest: text("Digest of its manifest (sha256:…).", 128).exactOptional(),
    revision: text("Revision of the Template that the actor ran.", 253).exactOptional(),
    sandbox: z
      .object({
        class: text("Class of the sandbox, for instance gvisor.", 63).exactOptional(),
        runtime: text("Build of the sandbox's runtime; only this one can restore it.", 253).exactOptional(),
        architecture: text("Architecture of the machine, for instance amd64.", 63).exactOptional(),
      })
      .meta(field({ description: "What a node needs to restore it." }))
      .exactOptional(),
    conditions: conditions("Durable: all of it is in the store.").exactOptional(),
  })
  .meta(field({ description: "What was saved and where it is; written by the operator alone." }));

export type SnapshotSpec = z.infer<typeof spec>;
export type SnapshotStatus = z.infer<typeof status>;

/** A Snapshot as the API server returns it. */
export interface Snapshot extends KubeObject {
  spec: SnapshotSpec;
  status?: SnapshotStatus;
}

export const snapshots: ResourceType<Snapshot> = {
  group: "substrate.run",
  version: "v1alpha1",
  plural: "snapshots",
  kind: "Snapshot",
  namespaced: true,
};

export const snapshotDefinition: Definition = {
  type: snapshots,
  description: "One saved generation of an Actor that is in the object store.",
  shortNames: ["snap"],
  categories: ["substrate"],
  spec,
  status,
  rules: [],
  columns: [
    { name: "Actor", type: "string", jsonPath: ".spec.actorRef.name" },
    { name: "Generation", type: "integer", jsonPath: ".spec.generation" },
    { name: "Owner", type: "string", jsonPath: ".status.owner" },
    { name: "Storage", type: "string", jsonPath: ".status.storageState" },
    { name: "Size", type: "integer", jsonPath: ".status.sizeBytes" },
    { name: "Fidelity", type: "string", jsonPath: ".status.fidelity" },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
  ],
  selectable: [".spec.actorRef.name"],
};
