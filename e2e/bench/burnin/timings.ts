import { open } from "node:fs/promises";
import { z } from "zod";

const lineSchema = z.looseObject({ message: z.string(), actor: z.string().optional(), timestamp: z.string() });

const operations: Readonly<Record<string, string>> = {
  "checkpoint timing": "suspend",
  "restore timing": "resume",
  "upload timing": "upload",
};

/** One duration. */
export interface Timing {
  /** `OPERATION.PHASE` of the node, or what the client saw. */
  series: string;
  /** Of the wall clock. */
  endedMs: number;
  ms: number;
}

/** Reads on where it stopped the last time: the timing lines that the atelet has logged meanwhile. */
export class TimingLines {
  readonly #path: string;
  #offset = 0;
  #rest = "";

  constructor(path: string) {
    this.#path = path;
  }

  /** Takes what was written before out of account. */
  async skip(): Promise<void> {
    await this.next(() => false);
  }

  /** @param wanted by `namespace/name` of the actor. */
  async next(wanted: (actor: string) => boolean): Promise<Timing[]> {
    const file = await open(this.#path);
    try {
      const { size } = await file.stat();
      const bytes = Buffer.alloc(Math.max(0, size - this.#offset));
      const { bytesRead } = await file.read(bytes, 0, bytes.length, this.#offset);
      this.#offset += bytesRead;
      const lines = (this.#rest + bytes.toString("utf8", 0, bytesRead)).split("\n");
      this.#rest = lines.pop() ?? "";
      return lines.flatMap((line) => timings(line, wanted));
    } finally {
      await file.close();
    }
  }
}

function timings(line: string, wanted: (actor: string) => boolean): Timing[] {
  if (!line.startsWith("{") || !line.includes(" timing")) return [];
  const { message, actor, timestamp, ...fields } = lineSchema.parse(JSON.parse(line));
  const operation = operations[message];
  if (operation === undefined || actor === undefined || !wanted(actor)) return [];
  const endedMs = Date.parse(timestamp);
  return Object.entries(fields).flatMap(([name, value]) =>
    name.endsWith("Ms") && typeof value === "number"
      ? [{ series: `${operation}.${name.replace(/Ms$/, "")}`, endedMs, ms: value }]
      : [],
  );
}
