import { type KubeObject, type ResourceType } from "@substrate/lib/kube/object.ts";
import { z } from "zod";
import { type Definition } from "./definition.ts";
import {
  conditions,
  duration,
  field,
  labelNameRules,
  notLonger,
  observedGeneration,
  quantity,
  text,
} from "./fields.ts";

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
    ports,
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
    snapshots: snapshots.prefault({}),
    drainTimeout: duration("How long a suspend waits for open requests to end.").default("10s"),
    wakeTimeout: duration("How long a request waits for the actor to wake before it gets a 503.", "1s").default("30s"),
  })
  .meta(field({ description: "The program that actors run. A change makes a new revision; actors stay on theirs." }));

const status = z
  .object({
    observedGeneration,
    revision: text("Name of the newest revision of the spec.", 253).exactOptional(),
    phase: z
      .enum(["Pending", "Validating", "Ready", "Failed"])
      .meta(field({ description: "Ready once one run of this revision has answered its readyz." }))
      .exactOptional(),
    imageDigest: text("Digest of the image (sha256:…) that this revision runs.", 128).exactOptional(),
    conditions: conditions("Ready: a run of this revision has answered its readyz.").exactOptional(),
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
