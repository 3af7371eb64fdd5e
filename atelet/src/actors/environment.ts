import { readFile, rm } from "node:fs/promises";
import { z } from "zod";
import { isMissing, writeJson } from "../node-files.ts";

const environmentSchema = z.object({
  variables: z.array(z.object({ name: z.string(), value: z.string() })),
  /** Tells one environment from another; empty when there are no variables. */
  digest: z.string(),
});
/** What the Template's and the Actor's env give a program, secrets among it: its values go nowhere but to the program. */
export type Environment = z.infer<typeof environmentSchema>;

export const noEnvironment: Environment = { variables: [], digest: "" };

/** An actor's environment on its node, in a file of its own: the record is reported and shown. */
export class EnvironmentFile {
  readonly #path: string;
  /** That of the last cold start: an assignment may have brought another one since. */
  readonly #begun: string;

  constructor(path: string) {
    this.#path = path;
    this.#begun = path.replace(/\.json$/, ".begun.json");
  }

  /** Durable when it resolves; readable by root alone. */
  async write(environment: Environment): Promise<void> {
    const before = await content(this.#path);
    if (environment.variables.length === 0) {
      if (before !== undefined) await rm(this.#path, { force: true });
      return;
    }
    if (before !== JSON.stringify(environment, undefined, 1))
      await writeJson(this.#path, environment, { durable: true });
  }

  /** Throws an Error that names the file, and nothing of its content, when it cannot be understood. */
  async read(): Promise<Environment> {
    const text = await content(this.#path);
    if (text === undefined) return noEnvironment;
    const environment = parse(text);
    if (environment === undefined) {
      throw new Error(`${this.#path} is damaged; the actor's next assignment with an environment writes it anew`);
    }
    return environment;
  }

  /** For a cold start: `read`, and remembered for what is run beside the program when it was restored later. */
  async begin(): Promise<Environment> {
    const environment = await this.read();
    const known = await this.#lastBegun();
    if (known.digest === environment.digest) return environment;
    if (environment.variables.length === 0) await rm(this.#begun, { force: true });
    else await writeJson(this.#begun, environment, { durable: false });
    return environment;
  }

  /**
   * The environment that a restored program was started with. Where that isn't known, as it was another actor's or
   * another node's and has changed since, the one that the next cold start has.
   */
  async of(digest: string): Promise<Environment> {
    const [current, begun] = await Promise.all([this.read(), this.#lastBegun()]);
    if (digest === "") return noEnvironment;
    return begun.digest === digest ? begun : current;
  }

  /** A copy: when it is damaged it is as if there were none. */
  async #lastBegun(): Promise<Environment> {
    const text = await content(this.#begun);
    return (text === undefined ? undefined : parse(text)) ?? noEnvironment;
  }
}

async function content(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function parse(content: string): Environment | undefined {
  try {
    return environmentSchema.safeParse(JSON.parse(content)).data;
  } catch {
    // What JSON.parse says quotes the content: it must not get into a log.
    return undefined;
  }
}

/** @param image NAME=value of the image. @returns the same with the environment's variables, which win. */
export function withEnvironment(image: readonly string[], { variables }: Environment): string[] {
  const names = new Set(variables.map(({ name }) => name));
  const kept = image.filter((entry) => !names.has(entry.split("=", 1)[0] ?? ""));
  return [...kept, ...variables.map(({ name, value }) => `${name}=${value}`)];
}
