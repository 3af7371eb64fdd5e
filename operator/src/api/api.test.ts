import { describe, expect, it } from "vitest";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { discovery } from "./discovery.ts";
import { parseExecQuery } from "./exec-query.ts";
import { parseLogQuery } from "./log.ts";
import { parseActorPath } from "./paths.ts";
import { forwardedHeaders } from "./proxy.ts";
import { callerOf } from "./server.ts";
import { statusOf } from "./status-error.ts";
import { parseResumeBody, parseSuspendBody } from "./suspend-body.ts";

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
        { name: "actors/exec", verbs: ["create", "get"] },
        { name: "actors/usage", verbs: ["get"] },
        { name: "actors/operations", verbs: ["get"] },
        { name: "actors/proxy" },
        { name: "nodes", verbs: ["list"], namespaced: false },
      ],
    });
    expect(discovery("/openapi/v3")).toBeUndefined();
  });
});

describe("parseExecQuery", () => {
  it("takes what kubectl exec sends", () => {
    const query = new URLSearchParams("command=sh&command=-c&command=a b&stdin=true&stdout=true&stderr=true&tty=true");
    expect(parseExecQuery(query)).toEqual({ command: ["sh", "-c", "a b"], stdin: true, tty: true });
  });

  it.each(["", "command=", "command=sh&tty=yes", "command=sh&user=0"])(
    "refuses %j and says what is allowed",
    (text) => {
      expect(() => parseExecQuery(new URLSearchParams(text))).toThrow(/allowed are command=/);
    },
  );
});

describe("parseSuspendBody", () => {
  it("has defaults for all and lets an object's own fields pass", () => {
    expect(parseSuspendBody("")).toEqual({ force: false });
    const body = '{"kind":"Suspend","mode":"Sync","force":true,"fidelity":"Data"}';
    expect(parseSuspendBody(body)).toEqual({ mode: "Sync", force: true, fidelity: "Data" });
  });

  it.each(["{", '"x"', '{"mode":"sync"}', '{"force":"yes"}', '{"wait":true}'])(
    "refuses %s and says what is allowed",
    (body) => {
      expect(() => parseSuspendBody(body)).toThrow(/allowed are \{"mode": "Async" \| "Sync"/);
    },
  );
});

describe("parseResumeBody", () => {
  it("takes a generation, a tag or a cold start", () => {
    expect(parseResumeBody("{}")).toEqual({});
    expect(parseResumeBody('{"from":3}')).toEqual({ from: 3 });
    expect(parseResumeBody('{"from":"counter-pre-0123456789"}')).toEqual({ from: "counter-pre-0123456789" });
    expect(parseResumeBody('{"boot":true}')).toEqual({ boot: true });
  });

  it.each(['{"mode":"Sync"}', '{"from":0}', '{"from":""}', '{"from":1,"boot":true}', '{"boot":1}'])(
    "refuses %s and says what is allowed",
    (body) => {
      expect(() => parseResumeBody(body)).toThrow(/allowed are \{"from": 3\} for a generation/);
    },
  );
});

describe("callerOf", () => {
  it("reads who asks from the front proxy's headers, with all groups and escaped keys", () => {
    const headers = {
      "x-remote-user": ["jane"],
      "x-remote-group": ["dev", "system:authenticated"],
      "x-remote-extra-example.com%2fscope": ["a", "b"],
      accept: ["*/*"],
    };
    expect(callerOf(headers)).toEqual({
      user: "jane",
      groups: ["dev", "system:authenticated"],
      extra: { "example.com/scope": ["a", "b"] },
    });
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
