import { expect, it } from "vitest";
import { startFailure, withoutSteps } from "./start-failure.ts";

const chain =
  "runsc run failed (exit code 128): running container: starting container: starting root container: starting sandbox: ";

const spec = { args: ["pythn3", "-m", "x"], env: ["PATH=/usr/bin:/bin"], cwd: "/srv" };

it.each([
  [
    'error finding executable "pythn3" in PATH [/usr/bin /bin]: no such file',
    /^there is no program "pythn3" in the image \(PATH \/usr\/bin:\/bin\): correct/,
  ],
  [
    "creating process: failed to load /x: no such file or directory",
    /^there is no program "\/x" in the image, or not the interpreter/,
  ],
  ["creating process: failed to load /x: permission denied", /^"\/x" may not be executed/],
  ["creating process: failed to load /x: exec format error", /^"\/x" is no program that this node can run/],
  [
    'failed to create process working directory "/srv": not a directory',
    /^its working directory "\/srv" can't be used \(not a directory\)/,
  ],
])("a wrong command's message was the chain of runsc's steps, twice: %s", (said, message) => {
  expect(startFailure(spec, `${chain}${said}`)).toMatch(message);
});

it("a failure of the runtime is not taken for one of the program", () => {
  expect(startFailure(spec, `${chain}cannot create gofer process: no such file or directory`)).toBeUndefined();
  expect(withoutSteps(`${chain}cannot`)).toBe("runsc run failed (exit code 128): cannot");
});
