import { expect, it } from "vitest";
import { podSecurityProblem } from "./namespace-guard.ts";

const namespace = (labels?: Record<string, string>) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name: "agents", ...(labels && { labels }) },
});
const key = "pod-security.kubernetes.io/enforce";

it("objects to levels that forbid privileged pods only", () => {
  expect(podSecurityProblem(namespace())).toBeUndefined();
  expect(podSecurityProblem(namespace({ [key]: "privileged" }))).toBeUndefined();
  // warns, but forbids nothing
  expect(podSecurityProblem(namespace({ "pod-security.kubernetes.io/warn": "restricted" }))).toBeUndefined();
  expect(podSecurityProblem(namespace({ [key]: "baseline" }))).toMatch(
    /^Namespace agents enforces PodSecurity "baseline".*kubectl label namespace agents .*=privileged --overwrite$/,
  );
  expect(podSecurityProblem(namespace({ [key]: "restricted" }))).toMatch("restricted");
});
