/** Lets what waits for a node go on as soon as something about that node, or any, has changed. */
export class NodeChanges {
  readonly #waiting = new Set<{ nodeName: string | undefined; resolve: () => void }>();

  notify(nodeName: string): void {
    for (const entry of [...this.#waiting]) {
      if (entry.nodeName === undefined || entry.nodeName === nodeName) entry.resolve();
    }
  }

  /** Resolves at the next change, or after `timeoutMs`. */
  async next(nodeName: string | undefined, timeoutMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const entry = {
        nodeName,
        resolve: (): void => {
          clearTimeout(timer);
          this.#waiting.delete(entry);
          resolve();
        },
      };
      const timer = setTimeout(entry.resolve, timeoutMs);
      this.#waiting.add(entry);
    });
  }
}
