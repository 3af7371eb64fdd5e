/**
 * A fixed number of buffers that parts take in turn, so that memory doesn't grow with objects. While none is in use
 * none is kept.
 */
export class Buffers {
  readonly #count: number;
  readonly #free: Buffer[] = [];
  readonly #waiting: (() => void)[] = [];
  #used = 0;

  constructor(count: number) {
    this.#count = count;
  }

  /** One of this length, once a place is free; first come, first served. Give it back when nothing reads it any more. */
  async take(lengthBytes: number): Promise<{ buffer: Buffer; giveBack: () => void }> {
    if (this.#used < this.#count) this.#used += 1;
    else {
      // the one that gives back leaves its place to this one
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
    const kept = this.#free.pop();
    const whole = kept !== undefined && kept.length >= lengthBytes ? kept : Buffer.allocUnsafeSlow(lengthBytes);
    let given = false;
    const giveBack = (): void => {
      if (given) return;
      given = true;
      this.#free.push(whole);
      const next = this.#waiting.shift();
      if (next !== undefined) {
        next();
        return;
      }
      this.#used -= 1;
      if (this.#used === 0) this.#free.length = 0;
    };
    return { buffer: whole.subarray(0, lengthBytes), giveBack };
  }
}
