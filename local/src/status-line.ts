import { z } from "zod";
import { type KubeClient } from "@substrate/lib/kube/client.ts";

const EVERY_MS = 3_000;

const actorsSchema = z.object({
  items: z.array(z.object({ status: z.object({ state: z.string().optional() }).optional() })),
});

/** "2 actors: 1 running, 1 suspended" */
export function summarize(states: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  const parts = [...counts].sort().map(([state, count]) => `${count} ${state}`);
  const total = `${states.length} ${states.length === 1 ? "actor" : "actors"}`;
  return parts.length === 0 ? total : `${total}: ${parts.join(", ")}`;
}

async function currentLine(client: KubeClient): Promise<string> {
  try {
    const { items } = actorsSchema.parse(await client.request("GET", "/apis/substrate.run/v1alpha1/actors"));
    const states = items.map(({ status }) =>
      (status?.state ?? "ACTOR_STATE_PENDING").replace("ACTOR_STATE_", "").toLowerCase(),
    );
    return summarize(states);
  } catch (error) {
    return `the API server does not answer: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Keeps one line at the bottom of a terminal up to date; without a terminal there is none. */
export class StatusLine {
  readonly #output: NodeJS.WriteStream;
  #timer: NodeJS.Timeout | undefined;
  #line = "";

  constructor(output: NodeJS.WriteStream) {
    this.#output = output;
  }

  start(client: KubeClient): void {
    if (!this.#output.isTTY) return;
    const update = async (): Promise<void> => {
      this.#show(`${await currentLine(client)}. Ctrl-C ends the cluster.`);
      this.#timer?.refresh();
    };
    this.#timer = setTimeout(() => {
      void update();
    }, EVERY_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#show("");
  }

  /** Prints a line above it. */
  say(line: string): void {
    const kept = this.#line;
    this.#show("");
    this.#output.write(`${line}\n`);
    this.#show(kept);
  }

  #show(line: string): void {
    if (this.#line === line) return;
    // carriage return and "erase in line" (ECMA-48)
    this.#output.write(`\r\u001b[K${line.slice(0, Math.max(0, this.#output.columns - 1))}`);
    this.#line = line;
  }
}
