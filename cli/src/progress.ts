/** One line on a terminal that tells how long something takes; nothing where the output is no terminal. */
export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #startedAt = performance.now();
  readonly #timer: NodeJS.Timeout | undefined;
  #text: string;

  constructor(stream: NodeJS.WriteStream, text: string) {
    this.#stream = stream;
    this.#text = text;
    if (!stream.isTTY) return;
    this.#timer = setInterval(() => {
      this.#draw();
    }, 100);
    this.#draw();
  }

  say(text: string): void {
    this.#text = text;
    if (this.#timer !== undefined) this.#draw();
  }

  end(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#stream.write("\r\u001b[K");
  }

  #draw(): void {
    const seconds = ((performance.now() - this.#startedAt) / 1000).toFixed(1);
    this.#stream.write(`\r\u001b[K${this.#text} ${seconds} s`);
  }
}
