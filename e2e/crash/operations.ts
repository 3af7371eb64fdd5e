import { type Witness } from "./witness.ts";
import { type CrashWorld, type TemplateName } from "./world.ts";

/** Something that a person or a request sets going, at whose every step a part may end. */
export interface Operation {
  name: string;
  template: TemplateName;
  /** Brings the actor to where the operation begins. A fresh one has never run. */
  begins: "fresh" | "fork" | "running" | "asleep" | "stored" | "detached";
  /** Asks for it, and waits until it has ended one way or another. */
  run: (world: CrashWorld, witness: Witness) => Promise<void>;
  /** Whether the actor is to be gone afterwards. */
  ends?: "gone";
}

/**
 * Asked once: the part that ends may be the one that was asked. What becomes of it is for the invariants to say. But on
 * a busy machine an atelet's start may take longer than an operator waits for it; then what it has begun to upload lies
 * in the store until the upload's own time, which nobody wants to wait for.
 */
async function suspendOnce(world: CrashWorld, name: string, mode: "Async" | "Sync"): Promise<void> {
  for (;;) {
    const id = await world.ask(name, mode);
    const ended = id === undefined ? undefined : await world.outcome(name, id);
    if (ended?.reason !== "NODE_UNAVAILABLE") return;
  }
}

/** As a client does that tries again: the first tries may find a router that has not heard of the actor yet. */
async function request(world: CrashWorld, witness: Witness): Promise<void> {
  await world.until(`an answer of ${witness.name}`, 60_000, async () => (await witness.get()) === 200);
}

/** A tag comes and goes. */
async function tagAndUntag(world: CrashWorld, { name, answered }: Witness): Promise<void> {
  const tag = `${name}-at-${answered}`;
  await world.tag(name, tag);
  await world.untag(tag);
}

export const operations: readonly Operation[] = [
  { name: "create", template: "stay", begins: "fresh", run: request },
  {
    name: "suspend-async",
    template: "stay",
    begins: "running",
    run: (world, { name }) => suspendOnce(world, name, "Async"),
  },
  {
    name: "suspend-sync",
    template: "stay",
    begins: "running",
    run: (world, { name }) => suspendOnce(world, name, "Sync"),
  },
  // a sync suspend of what sleeps already: nothing but the upload
  { name: "upload", template: "stay", begins: "asleep", run: (world, { name }) => suspendOnce(world, name, "Sync") },
  { name: "resume-node", template: "stay", begins: "asleep", run: request },
  {
    name: "detach",
    template: "move",
    begins: "running",
    run: async (world, { name }) => {
      await world.suspend(name, "Sync");
      await world.detached(name);
    },
  },
  { name: "resume-store", template: "move", begins: "detached", run: request },
  {
    name: "delete-running",
    template: "stay",
    begins: "running",
    ends: "gone",
    run: async (world, { name }) => {
      await world.remove(name);
      await world.gone(name);
    },
  },
  {
    name: "delete-stored",
    template: "stay",
    begins: "stored",
    ends: "gone",
    run: async (world, { name }) => {
      await world.remove(name);
      await world.gone(name);
    },
  },
  { name: "tag-running", template: "stay", begins: "running", run: tagAndUntag },
  { name: "tag-asleep", template: "stay", begins: "asleep", run: tagAndUntag },
  { name: "fork", template: "move", begins: "fork", run: request },
  {
    name: "volume-suspend",
    template: "volume-stay",
    begins: "running",
    run: (world, { name }) => suspendOnce(world, name, "Sync"),
  },
  { name: "volume-resume-node", template: "volume-stay", begins: "asleep", run: request },
  { name: "volume-resume-store", template: "volume-move", begins: "detached", run: request },
  { name: "volume-tag", template: "volume-stay", begins: "running", run: tagAndUntag },
  {
    name: "upgrade",
    template: "upgraded",
    begins: "asleep",
    run: async (world, witness) => {
      witness.onlyFileCounts();
      await world.revise("upgraded");
      await request(world, witness);
    },
  },
];
