import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { z } from "zod";
import { type Definition } from "./definition.ts";
import {
  conditions,
  duration,
  environment,
  field,
  labelNameRules,
  notLonger,
  objectName,
  observedGeneration,
  quantity,
  text,
} from "./fields.ts";
import { nodeSelector, tolerations } from "./placement-fields.ts";
import { fidelity } from "./snapshot.ts";

const portName = z
  .string()
  .min(1)
  .max(15)
  .meta(
    field({
      description: "Name of the port; part of a host name (<port>--<actor>--<namespace>), so without '--'.",
      rules: [
        {
          rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.matches('[a-z]')",
          message: "must be lower-case letters, digits and '-', with at least one letter, for instance \"http\"",
        },
        {
          rule: "!self.contains('--')",
          message: "must not contain '--', which separates the parts of an actor's host name: use a single '-'",
        },
      ],
    }),
  );

const port = z
  .object({
    name: portName,
    containerPort: z
      .int()
      .min(1)
      .max(65_535)
      .meta(field({ description: "TCP port on which the program listens.", format: "int32" })),
  })
  .meta(field({ description: "A port that requests can reach." }));

const ports = z
  .array(port)
  .min(1)
  .max(16)
  .meta(
    field({
      description: "Ports that requests can reach; the first one is the default.",
      mapKeys: ["name"],
      rules: [
        {
          rule: "self.all(a, self.exists_one(b, b.containerPort == a.containerPort))",
          message: "containerPort must be different in every port",
        },
        {
          // beside the API server's own "Duplicate value", which says of what but not what to do
          rule: "self.all(a, self.exists_one(b, b.name == a.name))",
          message: "two ports have the same name: give every port a name of its own",
        },
      ],
    }),
  );

const httpGet = z
  .object({
    path: z
      .string()
      .max(1024)
      .default("/")
      .meta(
        field({
          description: "Path that answers 200 to 399 when the program can serve.",
          rules: [{ rule: "self.startsWith('/')", message: "must begin with '/', for instance \"/readyz\"" }],
        }),
      ),
    port: z.union([z.int(), z.string().max(15)]).meta(
      field({
        description: "Number of a port, or name of one of the container's ports.",
        intOrString: true,
        rules: [
          {
            rule: "type(self) == string || (self >= 1 && self <= 65535)",
            message: "must be a port number from 1 to 65535, or the name of one of the container's ports",
          },
        ],
      }),
    ),
  })
  .meta(field({ description: "An HTTP GET request to the program." }));

const limits = z
  .object({
    cpu: quantity("Most CPU that the program gets, in cores.", {
      minimum: "10m",
      maximum: "1024",
      example: '"500m" or "2"',
    }).default("1"),
    memory: quantity("Memory that the program sees; booked on the node while it runs.", {
      minimum: "16Mi",
      maximum: "16Ti",
      example: '"256Mi" or "1Gi"',
    }).default("256Mi"),
  })
  .meta(field({ description: "What the program may use at most; both are reserved while it runs." }));

const volumeName = (description: string) =>
  z
    .string()
    .min(1)
    .max(63)
    .meta(
      field({
        description,
        rules: [
          {
            rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            message: "must be lower-case letters, digits and '-', beginning and ending with a letter or digit",
          },
        ],
      }),
    );

/** Where the sandbox has mounts of its own. */
const reservedPaths = ["/proc", "/sys", "/dev", "/tmp", "/run/ate"];

const volumeMount = z
  .object({
    name: volumeName("Name of one of the Template's volumes."),
    mountPath: z
      .string()
      .max(256)
      .meta(
        field({
          description: "Absolute path at which the program sees the volume.",
          rules: [
            {
              rule: "self.matches('^(/[A-Za-z0-9_.-]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')",
              message: "must be an absolute path of letters, digits, '_', '-' and '.', for instance \"/data\"",
            },
            {
              rule: reservedPaths.map((path) => `self != '${path}' && !self.startsWith('${path}/')`).join(" && "),
              message: `must not be in ${reservedPaths.join(", ")}, where the sandbox has mounts of its own`,
            },
          ],
        }),
      ),
  })
  .meta(field({ description: "A volume in the program's file system." }));

const volumeMounts = z
  .array(volumeMount)
  .max(4)
  .meta(
    field({
      description: "Where the program sees the Template's volumes.",
      mapKeys: ["name"],
      rules: [
        {
          rule: "self.all(a, self.exists_one(b, b.mountPath == a.mountPath || b.mountPath.startsWith(a.mountPath + '/')))",
          message: "no mountPath may be another one, or lie in it",
        },
      ],
    }),
  );

const container = z
  .object({
    name: z
      .string()
      .min(1)
      .max(63)
      .meta(
        field({
          description: "Name of the container.",
          rules: [
            {
              rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
              message: "must be lower-case letters, digits and '-', beginning and ending with a letter or digit",
            },
          ],
        }),
      ),
    image: z
      .string()
      .min(1)
      .max(512)
      .meta(
        field({
          description:
            "Image of the program, for instance registry.example.com/team/app:1.2 or …@sha256:…. A tag is resolved once, when this revision is validated.",
          rules: [{ rule: "!self.matches('[[:space:]]')", message: "must not contain white space" }],
        }),
      ),
    command: z
      .array(text("One word.", 4096))
      .max(64)
      .meta(field({ description: "Replaces the image's entrypoint." }))
      .exactOptional(),
    args: z
      .array(text("One word.", 4096))
      .max(256)
      .meta(field({ description: "Replaces the image's arguments (cmd)." }))
      .exactOptional(),
    env: environment(
      "Environment of the program, beside what its image gives. It reaches the program at a cold start only.",
    ).exactOptional(),
    ports,
    volumeMounts: volumeMounts.exactOptional(),
    readyz: z.object({ httpGet }).meta(
      field({
        description: "How to see that the program can serve. Asked before the first request, after every start.",
      }),
    ),
    resources: z
      .object({ limits: limits.prefault({}) })
      .meta(field({ description: "CPU and memory of the program." }))
      .prefault({}),
  })
  .meta(
    field({
      description: "The program that every actor of this Template runs.",
      rules: [
        {
          rule: "type(self.readyz.httpGet.port) != string || self.ports.exists(p, p.name == self.readyz.httpGet.port)",
          message: "names no port of this container: use a name from ports, or a number",
          fieldPath: ".readyz.httpGet.port",
        },
      ],
    }),
  );

const snapshots = z
  .object({
    store: z
      .string()
      .min(1)
      .max(63)
      .default("default")
      .meta(
        field({
          description: "Object store that keeps snapshots: a name from the installer's configuration.",
          rules: [
            {
              rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
              message: 'must be the name of a store of the installation, for instance "default", never a URL',
            },
            {
              rule: "self == oldSelf",
              message: "cannot be changed, as the snapshots of its actors are there: make another Template",
            },
          ],
        }),
      ),
    uploadDelay: duration(
      "How long after a suspend the upload begins; an actor that wakes and sleeps again meanwhile saves the work.",
    ).default("10s"),
    uploadWithin: duration("The oldest unsaved state is never older than this before its upload begins.").default("5m"),
    detachDelay: duration(
      "How long after the upload a sleeping actor stays on its node, from where it wakes fastest.",
    ).default("10m"),
    onSuspend: fidelity.default("Memory"),
    durability: z
      .enum(["Async", "Sync"])
      .default("Async")
      .meta(
        field({
          description:
            "When a suspend that does not say is done. Async: when the snapshot is on the node. Sync: when it is in the store.",
        }),
      ),
    history: z
      .int()
      .min(1)
      .max(14)
      .default(1)
      .meta(
        field({
          description: "How many completed generations are kept, the newest included, to go back to.",
          format: "int32",
        }),
      ),
    golden: z
      .enum(["Auto", "Never"])
      .default("Auto")
      .meta(
        field({
          description:
            "Auto: the trial run of a revision is saved, and new actors start from it instead of starting cold. Never: they start cold.",
        }),
      ),
  })
  .meta(
    field({
      description: "Where and when snapshots are kept.",
      rules: [
        {
          rule: notLonger("uploadDelay", "uploadWithin"),
          message: "must not be longer than uploadWithin: shorten the one or lengthen the other",
          fieldPath: ".uploadDelay",
        },
      ],
    }),
  );

const volumes = z
  .array(
    z
      .object({
        name: volumeName("Name of the volume, for volumeMounts."),
        durableDir: z
          .object({
            sizeLimit: quantity("Most bytes that its files may take; an actor above it is stopped as crashed.", {
              minimum: "1Mi",
              maximum: "16Ti",
              example: '"500Mi" or "10Gi"',
            }).exactOptional(),
          })
          .meta(field({ description: "A folder whose content is part of every snapshot, and survives a cold start." })),
      })
      .meta(field({ description: "A volume of the actor." })),
  )
  // the API server's budget for rules counts this many times
  .max(4)
  .meta(field({ description: "Volumes of an actor, each with a content of its own.", mapKeys: ["name"] }));

const spec = z
  .object({
    containers: z
      .array(container)
      // the API server's budget for rules counts this many times
      .max(4)
      .meta(
        field({
          description: "The programs of an actor: exactly one for now.",
          mapKeys: ["name"],
          rules: [
            {
              rule: "self.size() == 1",
              message: "must have exactly one container for now: give every other program a Template of its own",
            },
          ],
        }),
      ),
    volumes: volumes.exactOptional(),
    nodeSelector: nodeSelector(
      "Labels that the node of an actor must have. A change counts from an actor's next placement on, and makes no new revision.",
    ).exactOptional(),
    tolerations: tolerations(
      "Taints in spite of which a node may be taken, as in a pod. NoExecute ends nothing that runs; it keeps actors from coming.",
    ).exactOptional(),
    snapshots: snapshots.prefault({}),
    hooks: z
      .object({ afterRestore: z.object({ httpGet }).meta(field({ description: "Called after every restore." })) })
      .meta(
        field({
          description:
            "Calls to the program. afterRestore comes before readyz and before any request, to renew what must not be the same in two copies.",
        }),
      )
      .exactOptional(),
    upgrade: z
      .enum(["OnNextResume", "Manual"])
      .default("Manual")
      .meta(
        field({
          description:
            "When actors take a new revision. Both start it cold, with their volumes. Manual: by `kubectl ate resume --boot`. OnNextResume: at their next resume; what they were is kept as tag pre-<revision>.",
        }),
      ),
    drainTimeout: duration("How long a suspend waits for open requests to end.").default("10s"),
    wakeTimeout: duration("How long a request waits for the actor to wake before it gets a 503.", "1s").default("30s"),
  })
  .meta(
    field({
      description:
        "The program that actors run. A change of it makes a new revision; actors stay on theirs until they upgrade.",
      rules: [
        {
          rule: "self.containers.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
          message: "a volumeMount names no volume: add it to spec.volumes, or use the name of one that is there",
          fieldPath: ".volumes",
        },
        {
          rule: "!has(self.volumes) || self.volumes.all(v, self.containers.exists(c, has(c.volumeMounts) && c.volumeMounts.exists(m, m.name == v.name)))",
          message: "a volume is mounted nowhere: add it to the container's volumeMounts, or remove it",
          fieldPath: ".volumes",
        },
        {
          rule: "self.snapshots.onSuspend != 'Data' || (has(self.volumes) && self.volumes.size() > 0)",
          message:
            "onSuspend Data saves volumes only, and there are none: add a durableDir to spec.volumes, or use Memory",
          fieldPath: ".snapshots.onSuspend",
        },
        {
          rule: "!has(self.hooks) || type(self.hooks.afterRestore.httpGet.port) != string || self.containers.all(c, c.ports.exists(p, p.name == self.hooks.afterRestore.httpGet.port))",
          message: "names no port of the container: use a name from its ports, or a number",
          fieldPath: ".hooks.afterRestore.httpGet.port",
        },
      ],
    }),
  );

const status = z
  .object({
    observedGeneration,
    revision: text("Name of the newest revision of the spec.", 253).exactOptional(),
    phase: z
      .enum(["Pending", "Validating", "Ready", "Failed"])
      .meta(field({ description: "Ready once one run of this revision has answered its readyz." }))
      .exactOptional(),
    imageDigest: text("Digest of the image (sha256:…) that this revision runs.", 128).exactOptional(),
    goldenSnapshot: objectName("Snapshot from which new actors start.").exactOptional(),
    conditions: conditions(
      "Ready: a run of this revision has answered its readyz. Golden: new actors start from a saved run of it.",
    ).exactOptional(),
  })
  .meta(field({ description: "What was found out; written by the operator alone." }));

export type TemplateSpec = z.infer<typeof spec>;
export type TemplateStatus = z.infer<typeof status>;

/** A Template as the API server returns it, its defaults filled in. */
export interface Template extends KubeObject {
  spec: TemplateSpec;
  status?: TemplateStatus;
}

export const templates: ResourceType<Template> = {
  group: "substrate.run",
  version: "v1alpha1",
  plural: "templates",
  kind: "Template",
  namespaced: true,
};

export const templateDefinition: Definition = {
  type: templates,
  description: "A program and how it is run, saved and woken. Actors are instances of it.",
  shortNames: ["tmpl"],
  categories: ["substrate", "all"],
  spec,
  status,
  rules: labelNameRules,
  columns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Revision", type: "string", jsonPath: ".status.revision" },
    { name: "Image", type: "string", jsonPath: ".spec.containers[0].image", priority: 1 },
    { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
    { name: "Message", type: "string", jsonPath: '.status.conditions[?(@.type=="Ready")].message', priority: 1 },
  ],
  selectable: [],
};
