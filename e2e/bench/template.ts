import { type Template } from "@substrate/crds/index.ts";

export interface GluttonOptions {
  /** How long after its upload a sleeping actor stays on the node. */
  detachDelay: string;
  /** Default: the folder of the cluster. */
  store?: string;
  /** How long after an async suspend the upload begins; default 10m, which is never in most measurements. */
  uploadDelay?: string;
  /** The program's limit. */
  memoryMib?: number;
  /** Where its volume is, if it has one. */
  volume?: string;
}

/** A Template of the program that holds memory. Without a golden snapshot, which would be made while others are measured. */
export function gluttonTemplate(name: string, image: string, options: GluttonOptions): Template {
  const { detachDelay, store = "default", uploadDelay = "10m", memoryMib = 300, volume } = options;
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name, namespace: "default" },
    spec: {
      containers: [
        {
          name: "glutton",
          image,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: 8080 } },
          resources: { limits: { cpu: "2", memory: `${memoryMib}Mi` } },
          ...(volume === undefined ? {} : { volumeMounts: [{ name: "files", mountPath: volume }] }),
        },
      ],
      ...(volume === undefined ? {} : { volumes: [{ name: "files", durableDir: {} }] }),
      snapshots: {
        store,
        uploadDelay,
        uploadWithin: "1h",
        detachDelay,
        onSuspend: "Memory",
        durability: "Async",
        history: 1,
        golden: "Never",
      },
      upgrade: "Manual",
      drainTimeout: "10s",
      wakeTimeout: "60s",
    },
  };
}
