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
  #onlyFile = false;
  #sent = 0;
  /** What was counted after `floor` may be gone, for requests sent after the first `sent`. */
  #rolledBack: { floor: number; sent: number } | undefined;
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

  /** It goes on where the other one stood. */
  beginsFrom(origin: Witness): void {
    this.#answered = origin.#answered;
    this.#startedAt = origin.#startedAt;
  }

  /** Its program may be started cold from now on: what counts is its file, on a volume. */
  onlyFileCounts(): void {
    this.#onlyFile = true;
  }

  /** @returns the status, or 0 when no answer came. */
  async get(): Promise<number> {
    this.#unknown += 1;
    this.#sent += 1;
    const serial = this.#sent;
    try {
      const response = await request(this.#url, {
        headers: { "substrate-actor": `${this.namespace}/${this.name}` },
        dispatcher: this.#agent,
      });
      const body = await response.body.text();
      if (response.statusCode === 200) this.#heard(body, serial);
      return response.statusCode;
    } catch (error) {
      if (error instanceof Error && "code" in error) return 0;
      throw error;
    }
  }

  /** Its node's sandboxes were killed: it goes on from `floor`, or whatever was saved later. */
  mayRollBack(floor: number): void {
    this.#rolledBack = { floor: Math.min(floor, this.#rolledBack?.floor ?? floor), sent: this.#sent };
  }

  async close(): Promise<void> {
    await this.#agent.close();
  }

  #heard(body: string, serial: number): void {
    const { memory, file, startedAt } = answerSchema.parse(JSON.parse(body));
    const least = Math.min(this.#answered, this.#rolledBack?.floor ?? this.#answered) + 1;
    const most = this.#answered + this.#unknown;
    if (file < least || file > most)
      this.#violation(`it counted ${file}; expected was ${least === most ? "" : `${least} to `}${most}`);
    if (memory !== file && !this.#onlyFile) this.#violation(`it counts ${memory} in memory and ${file} in its file`);
    if (this.#startedAt !== "" && !this.#onlyFile && startedAt !== this.#startedAt)
      this.#violation(`its process began at ${startedAt}, the one before at ${this.#startedAt}`);
    this.#startedAt = startedAt;
    this.#answered = file;
    this.#unknown = 0;
    if (serial > (this.#rolledBack?.sent ?? 0)) this.#rolledBack = undefined;
  }

  #violation(what: string): void {
    this.violations.push(`${this.name}: ${what}`);
  }
}
