import { readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PublishedPort, type Slot } from "@substrate/atelet/network/network.ts";
import { type Remote } from "./remote.ts";
import { addresses, Topology } from "./topology.ts";

const answerMs = 5000;
/** Long enough for a packet that passes, on a busy machine; what is dropped stays silent for ever. */
const silenceMs = 700;

interface Actor {
  slot: Slot;
  program: Remote;
  outerPort: number;
}

const topology = new Topology();
let network: Remote;
let router: Remote;
let stranger: Remote;
let lan: Remote;
const actors: Actor[] = [];

async function publish(slot: Slot): Promise<number> {
  const [port] = await network.call<PublishedPort[]>("publish", slot, [8080]);
  if (port === undefined) throw new Error("nothing was published");
  return port.outerPort;
}

async function startActor(name: string): Promise<Actor> {
  const slot = await network.call<Slot>("acquire");
  const program = topology.actor(slot.netnsPath);
  await program.call("listen", 8080, name);
  await network.call("putAddress", slot);
  await network.call("open", slot);
  return { slot, program, outerPort: await publish(slot) };
}

function ask(from: Remote, host: string, port: number, timeoutMs = answerMs): Promise<string> {
  return from.call<string>("ask", host, port, "hello", timeoutMs);
}

function actor(n: number): Actor {
  const found = actors[n];
  if (found === undefined) throw new Error(`no actor ${n}`);
  return found;
}

beforeAll(async () => {
  await topology.up();
  network = topology.driver();
  router = topology.peer("router");
  stranger = topology.peer("stranger");
  lan = topology.peer("lan");
  for (const port of [80, 53]) await lan.call("listen", port, "lan");
  await lan.call("listenUdp", addresses.resolver, 53, "dns");
  await network.call("start", []);
  await network.call("setRouters", [addresses.router]);
  for (const name of ["one", "two", "three"]) actors.push(await startActor(name));
});

afterAll(() => topology.down());

describe("the actors' network", () => {
  it("tells actors with one interior address apart, over interleaved requests", async () => {
    const answers = Array.from({ length: 60 }, async (_, i) => {
      const name = ["one", "two", "three"][i % 3] ?? "";
      const answer = await router.call<string>("ask", addresses.pod, actor(i % 3).outerPort, `r${i}`, answerMs);
      expect(answer).toBe(`${name} r${i} ${addresses.router}`);
    });
    await Promise.all(answers);
  });

  it("lets in only routers, and cuts one that is taken off the list", async () => {
    const { outerPort } = actor(0);
    expect(await ask(stranger, addresses.pod, outerPort)).toBe("ECONNREFUSED");
    await network.call("setRouters", [addresses.router, addresses.stranger]);
    await stranger.call("keep", 1, addresses.pod, outerPort);
    expect(await stranger.call("askKept", 1, "a", answerMs)).toContain("one a");
    await network.call("setRouters", [addresses.router]);
    expect(await stranger.call("askKept", 1, "b", answerMs)).toBe("ECONNRESET");
    expect(await ask(router, addresses.pod, outerPort)).toContain("one hello");
  });

  it("lets actors reach the internet and DNS, and nothing of the cluster", async () => {
    const { program, slot } = actor(0);
    expect(await ask(program, addresses.internet, 80)).toBe(`lan hello ${addresses.pod}`);
    expect(await ask(program, addresses.resolver, 53)).toBe(`lan hello ${addresses.pod}`);
    expect(await program.call("askUdp", addresses.resolver, 53, "open", answerMs)).toBe("dns");
    const pod = topology.peer("pod");
    await pod.call("listen", 9000, "pod");
    const denied: [string, number][] = [
      [addresses.resolver, 80],
      [addresses.lan, 80],
      [addresses.deniedByFlag, 80],
      [addresses.metadata, 80],
      [addresses.pod, 9000],
      ["169.254.17.1", 9000],
      [addresses.pod, actor(1).outerPort],
      [actor(1).slot.nodeAddress, 8080],
      [slot.nodeAddress, 8080],
    ];
    const answers = await Promise.all(denied.map(([host, port]) => ask(program, host, port, silenceMs)));
    expect(answers).toEqual(denied.map(() => "silence"));
    expect(await ask(pod, slot.nodeAddress, 8080)).toBe("one hello 169.254.17.1");
  });

  it("drops everything of a blocked actor, both ways, until it is opened", async () => {
    const { program, slot, outerPort } = actor(1);
    await router.call("keep", 2, addresses.pod, outerPort);
    expect(await router.call("askKept", 2, "a", answerMs)).toContain("two a");
    await network.call("block", slot);
    const silent = await Promise.all([
      ask(program, addresses.internet, 80, silenceMs),
      program.call("askUdp", addresses.resolver, 53, "while blocked", silenceMs),
      ask(router, addresses.pod, outerPort, silenceMs),
      router.call("askKept", 2, "while blocked", silenceMs),
    ]);
    expect(await program.call("received")).not.toContain("while blocked");
    expect(await lan.call("received")).not.toContain("while blocked");
    // A newcomer hears that it can't be reached; who has a connection waits, and tries again soon.
    expect(silent).toEqual(["silence", "silence", "EHOSTUNREACH", "silence"]);
    expect(await ask(router, addresses.pod, actor(0).outerPort)).toContain("one hello");
    await network.call("open", slot);
    // What was sent while it was blocked arrives now by itself.
    expect(await router.call("askKept", 2, "", answerMs)).toContain("two while blocked");
  });

  it("closes an unpublished port for newcomers only, and never publishes the same one again", async () => {
    const { slot, outerPort } = actor(1);
    await router.call("keep", 3, addresses.pod, outerPort);
    await network.call("unpublish", slot);
    expect(await network.call("published", slot)).toEqual([]);
    expect(await ask(router, addresses.pod, outerPort)).toBe("ECONNREFUSED");
    expect(await router.call("askKept", 3, "still", answerMs)).toContain("two still");
    actor(1).outerPort = await publish(slot);
    expect(actor(1).outerPort).not.toBe(outerPort);
    expect(await ask(router, addresses.pod, actor(1).outerPort)).toContain("two hello");
  });

  it("goes on when the atelet is killed; the next one adopts what it keeps and removes the rest", async () => {
    const [kept, dropped] = [actor(0), actor(2)];
    await router.call("keep", 4, addresses.pod, kept.outerPort);
    await network.kill();
    expect(await router.call("askKept", 4, "a", answerMs)).toContain("one a");
    network = topology.driver();
    await network.call("start", [kept.slot.index, actor(1).slot.index]);
    expect(await network.call("adopt", kept.slot.index)).toEqual(kept.slot);
    expect(await network.call("published", kept.slot)).toEqual([{ containerPort: 8080, outerPort: kept.outerPort }]);
    expect(await router.call("askKept", 4, "b", answerMs)).toContain("one b");
    expect(await ask(router, addresses.pod, kept.outerPort)).toContain("one hello");
    expect(await ask(router, addresses.pod, dropped.outerPort)).toBe("ECONNREFUSED");
    await expect(network.call("adopt", dropped.slot.index)).rejects.toThrow("is not in the kernel any more");
    expect(await ask(stranger, addresses.pod, kept.outerPort)).toBe("ECONNREFUSED");
  });

  it("forgets a released actor's connections", async () => {
    const { program, slot, outerPort } = actor(1);
    await router.call("keep", 5, addresses.pod, outerPort);
    expect(await ask(program, addresses.internet, 80)).toBe(`lan hello ${addresses.pod}`);
    expect(await network.call("connections", slot.nodeAddress)).toBeGreaterThan(1);
    await network.call("release", slot);
    await program.kill();
    // Were they still tracked, packets would be sent on to whoever has the address next.
    expect(await network.call("connections", slot.nodeAddress)).toBe(0);
    expect(await router.call("askKept", 5, "a", answerMs)).toBe("ECONNRESET");
    expect(await ask(router, addresses.pod, outerPort)).toBe("ECONNREFUSED");
    expect(topology.run("pod", "ip -br link")).not.toContain(`a${slot.index}@`);
  });

  it("keeps a sleeping actor's address and what it began, for the first restore of its image alone", async () => {
    const image = { actor: "sleeper", generation: 3, epoch: 2 };
    const sleeper = await startActor("sleeper");
    await lan.call("listenUdp", addresses.internet, 5000, "internet");
    await sleeper.program.call("listenUdp", "0.0.0.0", 6000, "sleeper");
    await sleeper.program.call("sendUdp", 6000, addresses.internet, 5000, "from the sleeper");
    await expect.poll(() => lan.call("received")).toContain("from the sleeper");
    await router.call("keep", 6, addresses.pod, sleeper.outerPort);
    expect(await router.call("askKept", 6, "a", answerMs)).toContain("sleeper a");
    const { nodeAddress } = sleeper.slot;

    await network.call("block", sleeper.slot);
    await network.call("park", sleeper.slot, image);
    await sleeper.program.kill();
    await network.call("release", sleeper.slot);
    // What a router began is forgotten soon: its outer port will be another actor's.
    await expect.poll(() => network.call("connections", nodeAddress)).toBe(1);
    expect(await router.call("askKept", 6, "b", answerMs)).toBe("ECONNRESET");

    await network.kill();
    network = topology.driver();
    await network.call("start", [actor(0).slot.index], ["sleeper"]);
    expect(await network.call("parkedCount")).toBe(1);
    const slot = await network.call<Slot>("acquire");
    expect(slot.nodeAddress).not.toBe(nodeAddress);
    expect(await network.call("unpark", slot, { ...image, generation: 4 })).toBeUndefined();
    expect(await network.call("unpark", slot, image)).toEqual({ ...slot, nodeAddress });
    expect(await network.call("unpark", slot, image)).toBeUndefined();
    const program = topology.actor(slot.netnsPath);
    await network.call("putAddress", slot);
    await program.call("listenUdp", "0.0.0.0", 6000, "awake");
    await network.call("open", { ...slot, nodeAddress });
    await expect
      .poll(async () => {
        await lan.call("tellUdp", 5000, "to the sleeper");
        return program.call("received");
      })
      .toContain("to the sleeper");
    expect(topology.run("pod", "nft list set ip ate asleep")).not.toContain(nodeAddress);
    await program.kill();
    await network.call("release", { ...slot, nodeAddress });
    expect(await network.call("connections", nodeAddress)).toBe(0);
  });

  it("gives up what is parked of an actor that is not here any more, and after a restore that did not come to its end", async () => {
    const parked = async (name: string): Promise<Slot> => {
      const { slot, program } = await startActor(name);
      expect(await ask(program, addresses.internet, 80)).toContain("lan hello");
      await network.call("block", slot);
      await network.call("park", slot, { actor: name, generation: 1, epoch: 1 });
      await program.kill();
      await network.call("release", slot);
      return slot;
    };
    const gone = await parked("gone");
    const begun = await parked("begun");
    const left = await parked("left");
    const slot = await network.call<Slot>("acquire");
    expect(await network.call("unpark", slot, { actor: "begun", generation: 1, epoch: 1 })).toBeDefined();
    await network.call("giveUp", "left");
    await network.kill();
    network = topology.driver();
    await network.call("start", [actor(0).slot.index], ["begun", "left"]);
    expect(await network.call("parkedCount")).toBe(0);
    for (const { nodeAddress } of [gone, begun, left]) {
      expect(await network.call("connections", nodeAddress)).toBe(0);
    }
    expect(topology.run("pod", "nft list set ip ate asleep")).not.toContain("elements");
  });

  it("resets at once what an actor says on a connection that nobody knows any more", async () => {
    const { program, slot } = actor(0);
    await program.call("keep", 7, addresses.internet, 80);
    expect(await program.call("askKept", 7, "a", answerMs)).toContain("lan a");
    await network.call("forget", slot.nodeAddress);
    expect(await program.call("askKept", 7, "b", answerMs)).toBe("ECONNRESET");
  });

  it("leaves nothing after destroy", async () => {
    await actor(0).program.kill();
    await network.call("destroy");
    expect(topology.run("pod", "nft list ruleset").trim()).toBe("");
    expect(topology.run("pod", "ip -br link")).not.toMatch(/^a\d/m);
    expect(topology.run("pod", "grep substrate-network /proc/self/mounts | grep -v resolv || true")).toBe("");
    expect(readdirSync(topology.netnsDir.replace(/\/netns$/, ""))).toEqual(["resolv.conf"]);
  });
});
