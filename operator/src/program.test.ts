import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { type Template } from "@substrate/crds/index.ts";
import { buildProgram, pinnedImage, programPart, revisionOf } from "./program.ts";

function template(image = "registry.example.com/app:1", changes: Partial<Template["spec"]> = {}): Template {
  return {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name: "t", namespace: "ns", uid: "u" },
    spec: {
      containers: [
        {
          name: "main",
          image,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: "http" } },
          resources: { limits: { cpu: "500m", memory: "128Mi" } },
        },
      ],
      snapshots: {
        store: "default",
        uploadDelay: "10s",
        uploadWithin: "5m",
        detachDelay: "10m",
        onSuspend: "Memory",
        durability: "Async",
        history: 1,
        golden: "Auto",
      },
      upgrade: "Manual",
      drainTimeout: "10s",
      wakeTimeout: "30s",
      ...changes,
    },
  };
}

describe("programPart", () => {
  it("resolves names and quantities", () => {
    expect(programPart(template())).toMatchObject({
      readyz: { path: "/readyz", port: 8080 },
      memoryBytes: 128 * 1024 ** 2,
      cpuMillis: 500,
      command: [],
    });
  });
});

describe("revisionOf", () => {
  it("changes with the program and not with the policies", () => {
    const revision = revisionOf(programPart(template()));
    expect(revision).toMatch(/^[0-9a-f]{10}$/);
    expect(revisionOf(programPart(template(undefined, { wakeTimeout: "5s" })))).toBe(revision);
    expect(revisionOf(programPart(template("registry.example.com/app:2")))).not.toBe(revision);
  });
});

describe("revisionOf, for Templates of earlier versions", () => {
  it("is as it was before there were volumes and environments", () => {
    const { volumeMounts, env, ...earlier } = programPart(template());
    expect({ volumeMounts, env }).toEqual({ volumeMounts: [], env: [] });
    expect(Object.keys(earlier)).not.toContain("afterRestore");
    const hash = createHash("sha256").update(JSON.stringify(earlier)).digest("hex");
    expect(revisionOf(programPart(template()))).toBe(hash.slice(0, 10));
  });

  it("changes with volumes and variables, and not with a volume's limit, which actors get without an upgrade", () => {
    const [container] = template().spec.containers;
    const volumes = (sizeLimit?: string) => [
      { name: "data", durableDir: sizeLimit === undefined ? {} : { sizeLimit } },
    ];
    const mounted = (sizeLimit?: string) =>
      template(undefined, {
        containers: [{ ...container, volumeMounts: [{ name: "data", mountPath: "/data" }] }] as never,
        volumes: volumes(sizeLimit),
      });
    const plain = revisionOf(programPart(template()));
    const revision = revisionOf(programPart(mounted()));
    expect(revision).not.toBe(plain);
    expect(revisionOf(programPart(mounted("1Gi")))).toBe(revision);
    const program = buildProgram(mounted("2Gi"), programPart(mounted("1Gi")), revision);
    expect(program.volumeMounts[0]?.sizeLimitBytes).toBe(2n * 1024n ** 3n);
    const env = [{ name: "A", value: "1" }];
    expect(revisionOf(programPart(template(undefined, { containers: [{ ...container, env }] as never })))).not.toBe(
      plain,
    );
  });
});

describe("pinnedImage", () => {
  it("replaces a tag by the digest and keeps a registry's port", () => {
    expect(pinnedImage("registry.example.com:5000/app:1", "sha256:d")).toBe("registry.example.com:5000/app@sha256:d");
    expect(pinnedImage("registry.example.com:5000/app", "sha256:d")).toBe("registry.example.com:5000/app@sha256:d");
    expect(pinnedImage("oci:/images/app@sha256:e", "sha256:d")).toBe("oci:/images/app@sha256:e");
  });
});

describe("buildProgram", () => {
  it("takes the policies of now", () => {
    const program = buildProgram(template(), programPart(template()), "r1", "sha256:d");
    expect(program).toMatchObject({
      revision: "r1",
      image: "registry.example.com/app@sha256:d",
      wakeTimeoutMs: 30_000n,
      snapshots: { store: "default", uploadDelayMs: 10_000n, uploadWithinMs: 300_000n },
    });
  });
});
