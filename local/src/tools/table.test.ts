import { describe, expect, it } from "vitest";
import { type ToolName, toolTable } from "./table.ts";

function fits(name: ToolName, output: string): boolean {
  return (
    [...toolTable.local, ...toolTable.cluster].find((tool) => tool.name === name)?.fittingVersion(output) !== undefined
  );
}

describe("which programs of PATH fit", () => {
  it("takes kubectl within two minors of the API server, whatever its build calls itself", () => {
    expect(fits("kubectl", "Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0\n")).toBe(true);
    expect(fits("kubectl", "Client Version: v1.36.2\n")).toBe(true);
    expect(fits("kubectl", "Client Version: v1.31.9\n")).toBe(false);
    expect(fits("kubectl", "Client Version: v1.37.0\n")).toBe(false);
  });

  it("takes only the same minor of kube-apiserver and etcd", () => {
    expect(fits("kubeApiserver", "Kubernetes v1.34.1\n")).toBe(true);
    expect(fits("kubeApiserver", "Kubernetes v1.35.0\n")).toBe(false);
    expect(fits("etcd", "etcd Version: 3.5.16\nGit SHA: f20bbadd4\nGo Version: go1.22.7\n")).toBe(false);
  });

  it("takes only the stamped runsc, as snapshots are bound to their build", () => {
    expect(fits("runsc", "runsc version 20260905-substrate.2\nspec: 1.2.1\n")).toBe(true);
    expect(fits("runsc", "runsc version release-20260905.0\nspec: 1.2.1\n")).toBe(false);
  });

  it("does not take what names no version", () => {
    expect(fits("crane", "(devel)\n")).toBe(false);
  });
});
