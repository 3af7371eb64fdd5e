import { createServer } from "node:net";
import { randomInt } from "node:crypto";

/** Below the kernel's range for outgoing connections (32768 up), which takes ports at any time. */
const LOWEST = 20_000;
const HIGHEST = 32_000;
const ATTEMPTS = 200;

/** Whether something could listen on 127.0.0.1:port now. */
async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const result = Promise.withResolvers<boolean>();
  server.once("error", () => {
    result.resolve(false);
  });
  server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
    server.close(() => {
      result.resolve(true);
    });
  });
  return result.promise;
}

/**
 * A free port of 127.0.0.1 for each name: the remembered one if it is still free, so that addresses survive a restart.
 * @throws if 200 random ports in a row are taken.
 */
export async function pickPorts<Name extends string>(
  names: readonly Name[],
  remembered: Readonly<Record<string, number>>,
): Promise<Record<Name, number>> {
  const picked = new Map<Name, number>();
  const taken = new Set<number>();
  for (const name of names) {
    let port = remembered[name];
    for (let attempt = 0; port === undefined || taken.has(port) || !(await isFree(port)); attempt += 1) {
      if (attempt === ATTEMPTS) throw new Error(`no free port on 127.0.0.1 between ${LOWEST} and ${HIGHEST}`);
      port = randomInt(LOWEST, HIGHEST);
    }
    picked.set(name, port);
    taken.add(port);
  }
  return Object.fromEntries(picked) as Record<Name, number>;
}
