import { describe, expect, it } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { discovery } from "./discovery.ts";
import { parseLogQuery } from "./log.ts";
import { parseActorPath } from "./paths.ts";
import { forwardedHeaders } from "./proxy.ts";
import { statusOf } from "./status-error.ts";
import { checkResumeBody, parseSuspendBody } from "./suspend-body.ts";

describe("parseActorPath", () => {
  const prefix = "/apis/subresources.substrate.run/v1alpha1/namespaces/ns/actors/a";

  it("takes apart actor, subresource and the rest as it came", () => {
    expect(parseActorPath(`${prefix}/suspend`)).toEqual({
      namespace: "ns",
      name: "a",
      subresource: "suspend",
      rest: "",
    });
    expect(parseActorPath(`${prefix}/proxy/x%2Fy/`)?.rest).toBe("/x%2Fy/");
    expect(parseActorPath(`${prefix}/proxy`)?.rest).toBe("");
  });

  it("knows nothing else", () => {
    expect(parseActorPath(prefix)).toBeUndefined();
    expect(parseActorPath("/openapi/v2")).toBeUndefined();
  });
});

describe("discovery", () => {
  it("lists the subresources with their verbs", () => {
    expect(discovery("/apis/subresources.substrate.run/v1alpha1")).toMatchObject({
      kind: "APIResourceList",
      resources: [
        { name: "actors/suspend", verbs: ["create"] },
        { name: "actors/resume", verbs: ["create"] },
        { name: "actors/log", verbs: ["get"] },
        { name: "actors/proxy" },
      ],
    });
    expect(discovery("/openapi/v3")).toBeUndefined();
  });
});

describe("parseSuspendBody", () => {
  it("has defaults for all and lets an object's own fields pass", () => {
    expect(parseSuspendBody("")).toEqual({ mode: "Async", force: false });
    expect(parseSuspendBody('{"kind":"Suspend","mode":"Sync","force":true}')).toEqual({ mode: "Sync", force: true });
  });

  it.each(["{", '"x"', '{"mode":"sync"}', '{"force":"yes"}', '{"wait":true}'])(
    "refuses %s and says what is allowed",
    (body) => {
      expect(() => parseSuspendBody(body)).toThrow(/allowed are \{"mode": "Async" \| "Sync"/);
    },
  );

  it("takes no fields for a resume", () => {
    checkResumeBody("{}");
    expect(() => {
      checkResumeBody('{"mode":"Sync"}');
    }).toThrow(/no fields/);
  });
});

describe("parseLogQuery", () => {
  it("reads follow and tail", () => {
    expect(parseLogQuery(new URLSearchParams(""))).toEqual({ follow: false, tailLines: -1 });
    expect(parseLogQuery(new URLSearchParams("follow=true&tail=10"))).toEqual({ follow: true, tailLines: 10 });
  });

  it.each(["tail=x", "tail=-2", "follow=yes", "since=1"])("refuses %s", (query) => {
    expect(() => parseLogQuery(new URLSearchParams(query))).toThrow(/allowed are follow/);
  });
});

describe("forwardedHeaders", () => {
  it("forwards nothing of the caller's identity and of the connection", () => {
    const headers = forwardedHeaders(
      {
        host: "127.0.0.1",
        authorization: "Bearer secret",
        "x-remote-user": "admin",
        "x-remote-extra-scopes": "all",
        "substrate-actor": "other/actor",
        connection: "close, x-hop",
        "x-hop": "1",
        expect: "100-continue",
        accept: "*/*",
        "content-length": "3",
      },
      "ns/a",
    );
    expect(headers).toEqual({ accept: "*/*", "content-length": "3", "substrate-actor": "ns/a" });
  });
});

describe("statusOf", () => {
  it("carries our code as cause, with HTTP code and patience", () => {
    const error = new SubstrateError("NO_ROOM", "Actor ns/a: no room", { retryAfterMs: 1_500 });
    expect(statusOf(error, "a")).toMatchObject({
      kind: "Status",
      code: 503,
      reason: "ServiceUnavailable",
      message: "Actor ns/a: no room",
      details: { name: "a", retryAfterSeconds: 2, causes: [{ reason: "NO_ROOM" }] },
    });
  });
});
