import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** The parts that can be made to end at an operation of theirs. */
export type Victim = "atelet" | "operator";

const hook = join(import.meta.dirname, "hook/main.ts");

/** The control files that hook/points.ts reads. */
export class Armed {
  readonly #folder = mkdtempSync(join(tmpdir(), "crash-"));
  #tokens = 0;

  /** For the cluster's processes. */
  get environment(): NodeJS.ProcessEnv {
    const url = pathToFileURL(hook);
    url.searchParams.set("folder", this.#folder);
    return { NODE_OPTIONS: `--import=${url.href}` };
  }

  /** From now on its operations are counted, and it ends at the n-th; 0 only counts. */
  arm(victim: Victim, n: number): void {
    this.#tokens += 1;
    const path = join(this.#folder, victim);
    rmSync(`${path}.list`, { force: true });
    writeFileSync(`${path}.next`, `${this.#tokens} ${n}\n`);
    renameSync(`${path}.next`, path);
  }

  /** Whether it has ended where it was to end. */
  fired(victim: Victim): boolean {
    return !existsSync(join(this.#folder, victim));
  }

  /** @returns what it did since it was armed, in order. */
  disarm(victim: Victim): string[] {
    rmSync(join(this.#folder, victim), { force: true });
    const list = join(this.#folder, `${victim}.list`);
    if (!existsSync(list)) return [];
    const lines = readFileSync(list, "utf8").split("\n").filter(Boolean);
    return lines.map((line) => line.slice(line.indexOf(" ") + 1));
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
