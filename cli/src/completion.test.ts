import { expect, test } from "vitest";
import { complete } from "./completion.ts";
import { program } from "./program.ts";

const root = program({ stdin: process.stdin, stdout: process.stdout, stderr: process.stderr });

test.each([
  [["su"], ["suspend"], "nothing"],
  [["suspend", ""], [], "actors"],
  [["-n", "team-a", "suspend", "c"], [], "actors"],
  [["suspend", "counter", ""], [], "nothing"],
  [["suspend", "counter", "--mode", ""], ["async", "sync"], "nothing"],
  [["suspend", "--fo"], ["--force"], "nothing"],
  [["resume", "counter", "--from", ""], [], "tags"],
  [["fork", ""], [], "actors and snapshots"],
  [["top", ""], ["actors", "nodes"], "actors"],
  [["exec", "counter", "--", "ls", "-"], [], "nothing"],
])("%j", (line, candidates, source) => {
  expect(complete(root, line)).toEqual({ candidates, source });
});
