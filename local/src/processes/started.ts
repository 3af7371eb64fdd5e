import { type ChildProcess } from "node:child_process";

/**
 * Calls `spawnIt` and resolves with its child when the program runs. Node's own errors name the program only sometimes
 * ("spawn ELOOP"), some are thrown and others come as an event.
 * @throws naming the program, if it cannot be started.
 */
export async function started<Child extends ChildProcess>(program: string, spawnIt: () => Child): Promise<Child> {
  const running = Promise.withResolvers<Child>();
  try {
    const child = spawnIt();
    child.once("spawn", () => {
      running.resolve(child);
    });
    child.once("error", running.reject);
    return await running.promise;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`cannot start ${program}: ${why}`, { cause: error });
  }
}
