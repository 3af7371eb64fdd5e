import { describe, expect, test } from "vitest";
import { Hosts } from "./hosts.ts";

const hosts = new Hosts("actors.localhost");

describe("hosts", () => {
  test.each([
    ["counter.default.actors.localhost", "default/counter", undefined],
    ["counter.default.actors.localhost:8080", "default/counter", undefined],
    ["Counter.Default.Actors.Localhost", "default/counter", undefined],
    ["counter.default.actors.localhost.", "default/counter", undefined],
    ["counter--default.actors.localhost", "default/counter", undefined],
    ["http--counter--default.actors.localhost:80", "default/counter", "http"],
    ["9090--counter--team-a.actors.localhost", "team-a/counter", "9090"],
    ["my-actor-1--team-a.actors.localhost", "team-a/my-actor-1", undefined],
  ])("%s", (host, key, port) => {
    expect(hosts.find({ host })).toMatchObject({ key, port });
    expect(hosts.find({ host })).toMatchObject({ key, port });
  });

  test.each([
    "localhost:8080",
    "[::1]:8080",
    "127.0.0.1",
    "actors.localhost",
    "counter.actors.localhost",
    "x.counter.default.actors.localhost",
    "a--b--c--d.actors.localhost",
    "a--b.default.actors.localhost",
    "-a.default.actors.localhost",
    "counter.default.actors.localhost.evil.example",
    "counter.defaultactors.localhost",
    ".default.actors.localhost",
    "",
  ])("no known form: %s", (host) => {
    expect(hosts.find({ host })).toBeUndefined();
  });

  test("the header wins over the host", () => {
    const found = hosts.find({
      host: "other.default.actors.localhost",
      "substrate-actor": "team-a/counter",
      "substrate-port": "metrics",
    });
    expect(found).toEqual({ namespace: "team-a", name: "counter", port: "metrics", key: "team-a/counter" });
  });

  test.each(["counter", "a/b/c", "/counter", "default/", "Default/Counter", "default/a--b"])(
    "no known form of the header: %s",
    (value) => {
      expect(hosts.find({ host: "counter.default.actors.localhost", "substrate-actor": value })).toBeUndefined();
    },
  );

  test("the help names every form", () => {
    for (const form of ["<actor>.<namespace>.actors.localhost", "<actor>--<namespace>", "Substrate-Actor"]) {
      expect(hosts.help()).toContain(form);
    }
  });
});
