import { expect, it } from "vitest";
import { startFailure } from "./start-failure.ts";

const chain =
  "runsc run failed (exit code 128): running container: starting container: starting root container: starting sandbox: creating process: ";

it("a program that is not in the image is said with the fix, and nothing of the runtime's own steps", () => {
  expect(startFailure(["/nosuch", "-v"], `${chain}failed to load /nosuch: no such file or directory`)).toBe(
    "/nosuch -v did not start: the image has no /nosuch, or not the interpreter or loader that it names; correct " +
      "command and args of the Template's container, or the image",
  );
  expect(startFailure(["/bin/x"], `${chain}failed to load /bin/x: exec format error`)).toBe(
    "/bin/x did not start: runsc run failed (exit code 128): failed to load /bin/x: exec format error",
  );
});
