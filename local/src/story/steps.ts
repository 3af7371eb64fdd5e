import { deepStrictEqual, match, ok, strictEqual } from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { PodCgroup } from "../pod/pod-cgroup.ts";
import { type StoryContext } from "./context.ts";

/** One step of the story; throws on the first thing that is not as it should be. */
export interface Step {
  title: string;
  run: (story: StoryContext) => Promise<void>;
}

/** Generous: machines are shared and slow at times; the time that a step took is printed. */
const SOON_MS = 30_000;

const resumes = 'substrate_atelet_operation_seconds_count{operation="resume",phase="total",outcome="ok"}';

/** What is remembered from step to step. */
interface Memory {
  counted: number;
  pid: number;
  startedAt: string;
  uid: string;
}

/** The story of one actor, as its user lives it. Each run of the steps needs a list of its own. */
export function storySteps(): Step[] {
  const memory: Memory = { counted: 0, pid: 0, startedAt: "", uid: "" };

  /** The next request counts on by one in memory and file, in the same process. */
  async function countsOn(story: StoryContext): Promise<void> {
    const { memory: inMemory, file, pid, startedAt } = await story.count();
    memory.counted += 1;
    deepStrictEqual(
      { inMemory, file, pid, startedAt },
      { inMemory: memory.counted, file: memory.counted, pid: memory.pid, startedAt: memory.startedAt },
    );
  }

  async function asleep(story: StoryContext): Promise<void> {
    await story.until("state ACTOR_STATE_SUSPENDED", SOON_MS, async () => {
      return (await story.actor()).status?.state === "ACTOR_STATE_SUSPENDED";
    });
  }

  async function states(story: StoryContext, expected: string[]): Promise<void> {
    await story.until(`snapshots ${expected.join(", ")}`, SOON_MS, async () => {
      const actual = await story.storageStates();
      deepStrictEqual(actual, expected);
      return true;
    });
  }

  async function ready(story: StoryContext): Promise<void> {
    await story.kubectl("wait", "--for=condition=Ready", "actor/counter", "--timeout=60s");
  }

  return [
    {
      title: "kubectl apply -f examples/counter: Template and Actor become Ready",
      run: async (story) => {
        await story.kubectl("apply", "-f", story.manifest);
        await story.kubectl("wait", "--for=condition=Ready", "template/counter", "--timeout=60s");
        await ready(story);
        memory.uid = (await story.actor()).metadata.uid ?? "";
      },
    },
    {
      title: "five requests count 1…5 in memory and file",
      run: async (story) => {
        const first = await story.count();
        deepStrictEqual([first.memory, first.file], [1, 1]);
        Object.assign(memory, { counted: 1, pid: first.pid, startedAt: first.startedAt });
        for (let i = 2; i <= 5; i++) await countsOn(story);
      },
    },
    {
      title: "kubectl ate suspend: asleep, the newest generation PENDING on the node",
      run: async (story) => {
        ok((await story.metric("atelet", 'substrate_ledger_bytes{kind="booked"}')) > 0, "a running actor is booked");
        await story.kubectl("ate", "suspend", "counter");
        await asleep(story);
        await states(story, ["1 PENDING"]);
      },
    },
    {
      title: "its memory and CPU are given back",
      run: async (story) => {
        strictEqual(await story.metric("atelet", 'substrate_ledger_bytes{kind="booked"}'), 0);
        strictEqual(await story.metric("atelet", "substrate_atelet_running_actors"), 0);
        for (const pod of new PodCgroup(story.cluster.id).folders()) {
          await story.until(`${pod} has no group of an actor`, SOON_MS, () => {
            // Sandboxes that wait for an actor are no actor's.
            const waiting = new Set(readdirSync(join(story.cluster.nodeDir, "warm")));
            const actors = join(pod, "actors");
            // The runtime makes no group in a hierarchy that it has no use for.
            const groups = existsSync(actors) ? readdirSync(actors, { withFileTypes: true }) : [];
            return Promise.resolve(groups.every((entry) => !entry.isDirectory() || waiting.has(entry.name)));
          });
        }
      },
    },
    {
      title: "the snapshot turns COMPLETED by itself, and kubectl get snapshots shows it",
      run: async (story) => {
        await states(story, ["1 COMPLETED"]);
        await story.until("Snapshot counter-1", SOON_MS, async () => {
          match(await story.kubectl("get", "snapshots"), /counter-1 .*SNAPSHOT_STORAGE_STATE_COMPLETED/);
          return true;
        });
      },
    },
    { title: "a request wakes it: it counts 6, the same process", run: countsOn },
    {
      title: "a second async suspend: the new PENDING one beside the older COMPLETED one",
      run: async (story) => {
        await story.kubectl("ate", "suspend", "counter");
        await states(story, ["2 PENDING", "1 COMPLETED"]);
      },
    },
    {
      title: "a sync suspend returns with COMPLETED, and the older is released",
      run: async (story) => {
        await countsOn(story);
        await story.kubectl("ate", "suspend", "counter", "--mode", "sync");
        const newest = (await story.storageStates())[0];
        strictEqual(newest, "3 COMPLETED");
        await states(story, ["3 COMPLETED"]);
        await story.until("only Snapshot counter-3", SOON_MS, async () => {
          const names = (await story.snapshots()).map(({ metadata }) => metadata.name);
          deepStrictEqual(names, ["counter-3"]);
          return true;
        });
      },
    },
    {
      title: "after detach the node keeps nothing; the next request restores from the store",
      run: async (story) => {
        const detach = (delayText: string) =>
          story.kubectl(
            "patch",
            "template",
            "counter",
            "--type=merge",
            "-p",
            `{"spec":{"snapshots":{"detachDelay":"${delayText}"}}}`,
          );
        await detach("1s");
        await story.until("no node in the status, no file on the node", SOON_MS, async () => {
          strictEqual((await story.actor()).status?.assignment?.nodeName, undefined);
          deepStrictEqual(story.nodeFiles(memory.uid), []);
          return true;
        });
        await detach("10m");
        await countsOn(story);
        strictEqual((await story.actor()).status?.assignment?.epoch, 2);
      },
    },
    {
      title: "a suspend 2 s into a 10 s request waits for it, and the request gets its 200",
      run: async (story) => {
        const slow = story.count("/slow?seconds=10");
        await delay(2000);
        await story.kubectl("ate", "suspend", "counter", "--timeout", "60s");
        memory.counted += 1;
        strictEqual((await slow).memory, memory.counted);
        await asleep(story);
      },
    },
    {
      title: "requests sent during a suspend are answered after it",
      run: async (story) => {
        await countsOn(story);
        const suspending = story.kubectl("ate", "suspend", "counter");
        const suspended = new AbortController();
        const sending = (async () => {
          while (!suspended.signal.aborted) await countsOn(story);
        })();
        await suspending.finally(() => {
          suspended.abort();
        });
        await sending;
      },
    },
    {
      title: "50 requests at once to a sleeping actor: one wake and 50 answers",
      run: async (story) => {
        await story.kubectl("ate", "suspend", "counter");
        const before = await story.metric("atelet", resumes);
        const answers = await Promise.all(Array.from({ length: 50 }, () => story.count()));
        const expected = Array.from({ length: 50 }, (_, i) => memory.counted + 1 + i);
        deepStrictEqual(
          answers.map((answer) => answer.memory).sort((a, b) => a - b),
          expected,
        );
        memory.counted += 50;
        strictEqual((await story.metric("atelet", resumes)) - before, 1);
      },
    },
    {
      title: "spec.state Suspended keeps it asleep, with a 503 that says so",
      run: async (story) => {
        const patch = (state: string) =>
          story.kubectl("patch", "actor", "counter", "--type=merge", "-p", `{"spec":{"state":"${state}"}}`);
        await patch("Suspended");
        await asleep(story);
        const { status, body } = await story.until("a 503", SOON_MS, async () => {
          const answer = await story.get();
          if (answer.status === 200) memory.counted += 1;
          return answer.status === 503 && answer;
        });
        strictEqual(status, 503);
        match(body, /spec\.state/);
        const refused = await story.tryKubectl("ate", "resume", "counter");
        ok(refused.code !== 0, "kubectl ate resume is refused too");
        match(refused.output, /spec\.state/);
        await patch("OnDemand");
        await story.until("it wakes again", SOON_MS, async () => {
          await countsOn(story);
          return true;
        });
      },
    },
    ...(["operator", "atelet", "router", "kube-apiserver", "etcd"] as const).map((victim) => ({
      title: `kill -9 of the ${victim}: it answers and counts on`,
      run: async (story: StoryContext) => {
        await story.cluster.kill(victim);
        await story.until("an answer", SOON_MS, async () => {
          await countsOn(story);
          return true;
        });
        await story.cluster.ready();
        await story.kubectl("ate", "suspend", "counter");
        await countsOn(story);
      },
    })),
    {
      title: "with the API server down a running actor serves and a sleeping one wakes",
      run: async (story) => {
        await story.cluster.hold("kube-apiserver", "SIGKILL");
        await countsOn(story);
        await story.cluster.start("kube-apiserver");
        await story.kubectl("ate", "suspend", "counter");
        await story.cluster.hold("kube-apiserver", "SIGKILL");
        await countsOn(story);
        await story.cluster.start("kube-apiserver");
      },
    },
    {
      title: "delete removes sandbox, network and files before the object goes, and what is in the store",
      run: async (story) => {
        await story.kubectl("ate", "suspend", "counter", "--mode", "sync");
        await countsOn(story);
        ok(story.storedFiles(memory.uid).length > 0, "something is stored before");
        await story.kubectl("delete", "actor", "counter", "--timeout=60s");
        deepStrictEqual(story.nodeFiles(memory.uid), []);
        await story.until("nothing in the store", SOON_MS, () =>
          Promise.resolve(story.storedFiles(memory.uid).length === 0),
        );
        strictEqual(await story.metric("atelet", "substrate_atelet_running_actors"), 0);
        await story.until("no Snapshot is left", SOON_MS, async () => (await story.snapshots()).length === 0);
        const { status } = await story.until("a 404", SOON_MS, async () => {
          const answer = await story.get();
          return answer.status === 404 && answer;
        });
        strictEqual(status, 404);
      },
    },
    {
      title: "the same name again starts from nothing",
      run: async (story) => {
        await story.kubectl("apply", "-f", story.manifest);
        await ready(story);
        const { memory: inMemory, file } = await story.count();
        deepStrictEqual([inMemory, file], [1, 1]);
        ok(existsSync(join(story.cluster.nodeDir, "actors", (await story.actor()).metadata.uid ?? "?")));
      },
    },
  ];
}
