import { appendFileSync, existsSync, readFileSync, unlinkSync } from "node:fs";
import { join } from "node:path";

/**
 * The countable operations of this process. While its control file exists, operations are numbered and listed; the one
 * whose number the file names ends the process by SIGKILL. The file is removed first, so that the next process isn't
 * armed.
 */
export class CrashPoints {
  readonly #control: string;
  readonly #list: string;
  /** The file system as it was before it was patched. */
  readonly #files = { appendFileSync, existsSync, readFileSync, unlinkSync };
  #token = "";
  #count = 0;

  constructor(folder: string, part: string) {
    this.#control = join(folder, part);
    this.#list = join(folder, `${part}.list`);
  }

  /**
   * @param what for people: the operation that comes now.
   * @param half does a part of it when the process is to end here: a crash in the middle of it.
   */
  reach(what: string, half?: () => void): void {
    const files = this.#files;
    if (!files.existsSync(this.#control)) return;
    const [token = "", wanted = "0"] = files.readFileSync(this.#control, "utf8").trim().split(" ");
    if (token !== this.#token) {
      this.#token = token;
      this.#count = 0;
    }
    this.#count += 1;
    files.appendFileSync(this.#list, `${token} ${this.#count} ${what}\n`);
    if (this.#count !== Number(wanted)) return;
    half?.();
    files.unlinkSync(this.#control);
    process.kill(process.pid, "SIGKILL");
    // the signal is on its way: nothing may happen any more
    for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
}
