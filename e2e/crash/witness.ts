import { Agent, request } from "undici";
import { z } from "zod";

const answerSchema = z.object({ memory: z.number(), file: z.number(), startedAt: z.string() });

/** What a client of one counter has seen, and so what the counter must still know. */
export class Witness {
  readonly namespace = "default";
  readonly name: string;
  readonly #url: string;
  readonly #agent: Agent;
  /** The highest count that was answered. */
  #answered = 0;
  /** Requests sent since then whose fate nobody knows: they counted or not. */
  #unknown = 0;
  #startedAt = "";
  /** What was wrong with answers. */
  readonly violations: string[] = [];

  constructor(url: string, name: string) {
    this.#url = url;
    this.name = name;
    this.#agent = new Agent({ connections: 8, headersTimeout: 45_000, bodyTimeout: 45_000 });
  }

  get answered(): number {
    return this.#answered;
  }

  /** @returns the status, or 0 when no answer came. */
  async get(): Promise<number> {
    this.#unknown += 1;
    try {
      const response = await request(this.#url, {
        headers: { "substrate-actor": `${this.namespace}/${this.name}` },
        dispatcher: this.#agent,
      });
      const body = await response.body.text();
      if (response.statusCode === 200) this.#heard(body);
      return response.statusCode;
    } catch (error) {
      if (error instanceof Error && "code" in error) return 0;
      throw error;
    }
  }

  /**
   * What was answered after `answered` may be gone, as its node's sandboxes were killed: the counter goes on from any
   * later count.
   */
  forgetSince(answered: number): void {
    this.#unknown += this.#answered - answered;
    this.#answered = answered;
  }

  async close(): Promise<void> {
    await this.#agent.close();
  }

  #heard(body: string): void {
    const { memory, file, startedAt } = answerSchema.parse(JSON.parse(body));
    const least = this.#answered + 1;
    const most = this.#answered + this.#unknown;
    if (memory < least || memory > most)
      this.#violation(`it counted ${memory}; expected was ${least === most ? "" : `${least} to `}${most}`);
    if (memory !== file) this.#violation(`it counts ${memory} in memory and ${file} in its file`);
    if (this.#startedAt !== "" && startedAt !== this.#startedAt)
      this.#violation(`its process began at ${startedAt}, the one before at ${this.#startedAt}`);
    this.#startedAt = startedAt;
    this.#answered = memory;
    this.#unknown = 0;
  }

  #violation(what: string): void {
    this.violations.push(`${this.name}: ${what}`);
  }
}
