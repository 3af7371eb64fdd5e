import { afterAll, beforeAll, expect, it } from "vitest";
import { actors, type Template, templates } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { eventually } from "../support/poll.ts";
import { condition, Fixture } from "./fixture.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await Fixture.start();
  // its node is connected then
  await fixture.template("app");
});
afterAll(async () => {
  await fixture.stop();
});

function tries(template: Template): number[] {
  return fixture.atelet.calls
    .filter(({ method, uid }) => method === "tryProgram" && uid === template.metadata.uid)
    .map(({ atMs }) => atMs);
}

it("regression: a failed Template was tried in a hot loop, woken by the operator's own status write", async () => {
  const { badImages } = fixture.atelet;
  badImages.set("nowhere.example.com/app:1", new SubstrateError("IMAGE_UNAVAILABLE", "no such host"));
  badImages.set("registry.example.com/exits:1", new SubstrateError("PROGRAM_EXITED", "ended with code 1"));
  badImages.set("registry.example.com/wrong:1", new SubstrateError("INVALID", "no such store"));
  const phases: string[] = [];
  const reflector = new Reflector(fixture.client, templates, { log: createLogger("test", "error"), namespace: "test" });
  reflector.onChange((_, now) => phases.push(`${now?.metadata.name ?? ""} ${now?.status?.phase ?? ""}`));
  const stop = new AbortController();
  const running = reflector.run(stop.signal);
  try {
    const unavailable = await fixture.apply("unavailable", {}, "nowhere.example.com/app:1");
    const exits = await fixture.apply("exits", {}, "registry.example.com/exits:1");
    const wrong = await fixture.apply("wrong", {}, "registry.example.com/wrong:1");
    const actor = await fixture.client.create(actors, {
      metadata: { name: "early", namespace: "test" },
      spec: { templateRef: { name: "unavailable" }, state: "OnDemand" },
    });
    await eventually(
      () => {
        expect(tries(unavailable)).toHaveLength(2);
      },
      { deadlineMs: 20_000 },
    );
    const [first = 0, second = 0] = tries(unavailable);
    // each failure has written a status by then, and each write has come back by the watch
    expect(second - first).toBeGreaterThan(4_900);
    expect(tries(exits)).toHaveLength(1);
    expect(tries(wrong)).toHaveLength(1);
    const message = async (name: string): Promise<string> =>
      (await fixture.client.get(templates, name, "test"))?.status?.conditions?.[0]?.message ?? "";
    expect(await message("unavailable")).toMatch(/no such host; it is tried again at \d{4}-.*Z$/);
    expect(await message("exits")).toMatch(/code 1; it is tried again at/);
    expect(await message("wrong")).toMatch(/no such store; it is not tried again before the Template changes$/);
    for (const name of ["unavailable", "exits", "wrong"]) {
      const seen = phases.filter((line) => line.startsWith(`${name} `)).map((line) => line.slice(name.length + 1));
      expect([name, ...new Set(seen)]).toEqual([name, "", "Validating", "Failed"]);
      expect(seen.lastIndexOf("Validating")).toBeLessThan(seen.indexOf("Failed"));
    }

    // describe of an actor explains itself
    const pending = await fixture.until(actor.metadata.name, (now) => condition(now, "Ready")?.status === "False");
    expect(condition(pending, "Ready")).toMatchObject({ reason: "TemplateNotReady" });
    await eventually(
      async () => {
        expect(await fixture.kubectl("-n", "test", "describe", "actor", "early")).toMatch(
          /Template test\/unavailable is not Ready: Image nowhere\.example\.com\/app:1: .*no such host/,
        );
      },
      { deadlineMs: 20_000 },
    );

    // a change of the spec is tried at once, also when it is no part of the program
    badImages.delete("registry.example.com/wrong:1");
    await fixture.apply("wrong", { wakeTimeout: "20s" }, "registry.example.com/wrong:1");
    await eventually(
      async () => {
        expect((await fixture.client.get(templates, "wrong", "test"))?.status?.phase).toBe("Ready");
      },
      { deadlineMs: 20_000 },
    );
    expect(tries(wrong)).toHaveLength(2);
  } finally {
    stop.abort();
    await running;
  }
});
