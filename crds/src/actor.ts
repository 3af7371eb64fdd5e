import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { z } from "zod";
import { type Definition } from "./definition.ts";
import {
  conditions,
  count,
  environment,
  field,
  hostNameRules,
  objectName,
  observedGeneration,
  text,
  time,
} from "./fields.ts";
import { nodeSelector } from "./placement-fields.ts";
import { fidelity, snapshotOwner, storageState } from "./snapshot.ts";

const spec = z
  .object({
    templateRef: z.object({ name: objectName("Name of a Template in the same namespace.") }).meta(
      field({
        description: "The Template whose program this actor runs.",
        rules: [
          {
            rule: "self == oldSelf",
            message: "templateRef cannot be changed: delete this Actor and create it again, or create another one",
          },
        ],
      }),
    ),
    state: z
      .enum(["OnDemand", "Running", "Suspended"])
      .default("OnDemand")
      .meta(
        field({
          description:
            "OnDemand: requests wake it. Running: it is kept running, and started again after a crash. Suspended: it is put to sleep and stays so; requests get a 503.",
        }),
      ),
    source: z
      .object({
        snapshotRef: z
          .object({ name: objectName("Name of a Snapshot in the same namespace.") })
          .meta(field({ description: "The Snapshot whose state the actor begins with." })),
      })
      .meta(field({ description: "Where the actor's state comes from. Used once, at its first start." }))
      .exactOptional(),
    env: environment(
      "Environment of this actor, over its Template's. It reaches the program at a cold start only; a later change shows as condition EnvOutdated.",
    ).exactOptional(),
    nodeSelector: nodeSelector(
      "Labels that its node must have, beside those that its Template asks for. A change counts from its next placement on: a running actor stays where it is.",
    ).exactOptional(),
  })
  .meta(
    field({
      description: "What the user wants; written by nobody else.",
      rules: [
        {
          rule: "has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",
          message: "cannot be changed, as it is used once, at the first start: make another Actor",
          fieldPath: ".source",
        },
      ],
    }),
  );

const assignment = z
  .object({
    nodeName: text("Node that may run the actor; absent after a release.", 253).exactOptional(),
    epoch: count("Counts assignments; never goes back. Only the newest epoch may run the actor.", 1),
    session: text("Session of the node's atelet to which the grant is bound.", 128).exactOptional(),
  })
  .meta(field({ description: "The grant: who may run the actor." }));

const snapshotEntry = z
  .object({
    name: objectName("Name that the Snapshot has, or will have when it is completed."),
    generation: count("Number of the generation.", 1),
    owner: snapshotOwner,
    storageState,
    fidelity,
    sizeBytes: count("Size of the saved state.").exactOptional(),
    nodeName: text("Node that has its files.", 253).exactOptional(),
  })
  .meta(field({ description: "One saved generation." }));

const crash = z
  .object({ message: text("What happened, and what was lost.", 4096), time: time("When it was noticed.") })
  .meta(field({ description: "Why the program is not running any more although it should be." }));

const lastOperation = z
  .object({
    id: text("Id of the operation, as the suspend or resume verb returned it.", 64),
    type: z.enum(["Suspend", "Resume", "Tag"]).meta(field({ description: "What was done." })),
    result: z.enum(["Running", "Succeeded", "Failed"]).meta(field({ description: "How it ended." })),
    reason: text("Code of the error when it failed.", 64).exactOptional(),
    message: text("Why it failed, for people.", 4096).exactOptional(),
    startTime: time("When it began."),
    endTime: time("When it ended.").exactOptional(),
  })
  .meta(field({ description: "The newest suspend or resume." }));

const status = z
  .object({
    observedGeneration,
    state: z
      .enum([
        "ACTOR_STATE_PENDING",
        "ACTOR_STATE_RESUMING",
        "ACTOR_STATE_RUNNING",
        "ACTOR_STATE_SUSPENDING",
        "ACTOR_STATE_SUSPENDED",
        "ACTOR_STATE_CRASHED",
        "ACTOR_STATE_DELETING",
      ])
      .meta(field({ description: "What the actor does now." }))
      .exactOptional(),
    revision: text("Revision of the Template that it runs.", 253).exactOptional(),
    assignment: assignment.exactOptional(),
    generation: count("Number of the newest saved generation; 0 before the first.").exactOptional(),
    snapshots: z
      .array(snapshotEntry)
      .max(16)
      .meta(field({ description: "Saved generations, the newest first." }))
      .exactOptional(),
    lastActivityTime: time("When the last request ended; brought up to date with other changes.").exactOptional(),
    crash: crash.exactOptional(),
    lastOperation: lastOperation.exactOptional(),
    conditions: conditions(
      "Ready: it answers, or the next request wakes it. Scheduled: it has a node, or needs none. Durable: its newest generation is in the store. EnvOutdated: its environment changed since its program started. VolumesFull: a volume holds more than its sizeLimit.",
    ).exactOptional(),
  })
  .meta(field({ description: "What the actor does; written by the operator alone." }));

export type ActorSpec = z.infer<typeof spec>;
export type ActorStatus = z.infer<typeof status>;
export type ActorState = NonNullable<ActorStatus["state"]>;
export type SnapshotEntry = z.infer<typeof snapshotEntry>;
export type LastOperation = z.infer<typeof lastOperation>;

/** An Actor as the API server returns it, its defaults filled in. */
export interface Actor extends KubeObject {
  spec: ActorSpec;
  status?: ActorStatus;
}

export const actors: ResourceType<Actor> = {
  group: "substrate.run",
  version: "v1alpha1",
  plural: "actors",
  kind: "Actor",
  namespaced: true,
};

/** CEL: there was an assignment before. */
const assigned = "has(oldSelf.status) && has(oldSelf.status.assignment)";

export const actorDefinition: Definition = {
  type: actors,
  description: "One instance of a Template, with an identity, a host name and a state of its own. It sleeps when idle.",
  shortNames: ["act"],
  categories: ["substrate", "all"],
  spec,
  status,
  rules: [
    ...hostNameRules,
    {
      rule: `!(${assigned}) || (has(self.status) && has(self.status.assignment) && self.status.assignment.epoch >= oldSelf.status.assignment.epoch)`,
      message: "never goes back and is never removed: read the Actor again and write a higher epoch",
      fieldPath: ".status.assignment.epoch",
    },
    {
      // one epoch is one grant: a second node or session under it could run the actor twice
      rule: `!(${assigned}) || !has(self.status) || !has(self.status.assignment) || self.status.assignment.epoch != oldSelf.status.assignment.epoch || !has(self.status.assignment.nodeName) || (has(oldSelf.status.assignment.nodeName) && self.status.assignment == oldSelf.status.assignment)`,
      message: "of one epoch may only be released: write a higher epoch for another node or session",
      fieldPath: ".status.assignment",
    },
  ],
  columns: [
    { name: "State", type: "string", jsonPath: ".status.state" },
    { name: "Node", type: "string", jsonPath: ".status.assignment.nodeName" },
    { name: "Template", type: "string", jsonPath: ".spec.templateRef.name" },
    { name: "Generation", type: "integer", jsonPath: ".status.generation" },
    { name: "Storage", type: "string", jsonPath: ".status.snapshots[0].storageState" },
    { name: "Ready", type: "string", jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
    { name: "Epoch", type: "integer", jsonPath: ".status.assignment.epoch", priority: 1 },
    { name: "Message", type: "string", jsonPath: '.status.conditions[?(@.type=="Ready")].message', priority: 1 },
  ],
  selectable: [".spec.templateRef.name"],
};
