import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { z } from "zod";
import { type Definition } from "./definition.ts";
import { conditions, count, field, objectName, observedGeneration, text } from "./fields.ts";

export const snapshotOwner = z.enum(["SNAPSHOT_OWNER_ACTOR", "SNAPSHOT_OWNER_TAG", "SNAPSHOT_OWNER_TEMPLATE"]).meta(
  field({
    description:
      "Who keeps it. ACTOR: it goes when newer ones are completed, or with the actor. TAG: it stays until this object is deleted. TEMPLATE: new actors start from it.",
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

export const fidelity = z.enum(["Memory", "Rootfs", "Data"]).meta(
  field({
    description:
      "What is saved. Memory: the processes' memory and all files. Rootfs: all files, the program starts cold. Data: the volumes only, the program starts cold.",
  }),
);

/** CEL: a tag whose name is that of a generation's Snapshot. */
const generationsName =
  "self.metadata.name.startsWith(self.spec.actorRef.name + '-') && self.metadata.name.substring(self.spec.actorRef.name.size() + 1).matches('^[1-9][0-9]*$')";

const spec = z
  .object({
    actorRef: z
      .object({ name: objectName("Name of an Actor in the same namespace.") })
      .meta(field({ description: "The actor that is, or was, saved." }))
      .exactOptional(),
    tag: z
      .string()
      .min(1)
      .max(63)
      .meta(
        field({
          description:
            "Asks for a snapshot of the actor as it is now, under this name. It is kept until it is deleted, also after its actor.",
          rules: [
            {
              rule: "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
              message: "must be lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
            },
          ],
        }),
      )
      .exactOptional(),
    generation: count("Number of the actor's generation; set by the operator.", 1).exactOptional(),
    templateRef: z
      .object({
        name: objectName("Name of a Template in the same namespace."),
        revision: text("Its revision.", 253),
      })
      .meta(field({ description: "The Template whose golden snapshot this is; set by the operator." }))
      .exactOptional(),
  })
  .meta(
    field({
      description:
        "What is saved: a tag that a user asks for, or a generation or golden snapshot that the operator keeps.",
      rules: [
        { rule: "self == oldSelf", message: "the spec of a Snapshot cannot be changed: it names what was saved" },
        {
          rule: "has(self.actorRef) != has(self.templateRef)",
          message: "must name the actor to save: set spec.actorRef.name",
        },
        {
          rule: "!has(self.actorRef) || has(self.tag) != has(self.generation)",
          message: "set spec.tag to keep the actor's present state under that name",
        },
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
    actorUid: text("UID of the actor that was saved.", 64).exactOptional(),
    templateName: text("Template that the actor ran.", 253).exactOptional(),
    store: text("Store that has it.", 63).exactOptional(),
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
    conditions: conditions("Durable: all of it is in the store. Ready: it can be used as a source.").exactOptional(),
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
  description: "A saved state of an Actor: one of its generations, or a tag that a user asked for.",
  shortNames: ["snap"],
  categories: ["substrate"],
  spec,
  status,
  rules: [
    {
      rule: `!has(self.spec.tag) || !(${generationsName})`,
      message: "is the name of a generation's Snapshot (<actor>-<number>): give the tag another name",
      fieldPath: ".metadata.name",
    },
  ],
  columns: [
    { name: "Actor", type: "string", jsonPath: ".spec.actorRef.name" },
    { name: "Generation", type: "integer", jsonPath: ".status.generation" },
    { name: "Tag", type: "string", jsonPath: ".spec.tag" },
    { name: "Owner", type: "string", jsonPath: ".status.owner" },
    { name: "Storage", type: "string", jsonPath: ".status.storageState" },
    { name: "Size", type: "integer", jsonPath: ".status.sizeBytes" },
    { name: "Fidelity", type: "string", jsonPath: ".status.fidelity" },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
  ],
  selectable: [".spec.actorRef.name"],
};
