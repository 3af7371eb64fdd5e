import { afterEach, beforeEach, expect, it } from "vitest";
import { type ChildExit, Children } from "./children.ts";

// a child in itself keeps no event loop alive
let alive: NodeJS.Timeout;
beforeEach(() => {
  alive = setTimeout(() => undefined, 60_000);
});
afterEach(() => {
  clearTimeout(alive);
});

function shell(children: Children, script: string): Promise<ChildExit> {
  const env = { PATH: "/usr/bin:/bin", GREETING: "hello" };
  return children.start({ program: "/bin/sh", args: ["-c", script], env, cwd: "/tmp" }).ended;
}

it("tells how a program ended and what it wrote, and gives it its folder and its environment alone", async () => {
  const exit = await shell(new Children(), 'pwd; echo "$GREETING $HOME"; echo wrong >&2; exit 3');
  expect(exit).toEqual({ exitCode: 3, signal: undefined, stdout: "/tmp\nhello \n", stderr: "wrong\n" });
});

it("tells the signal that ended a program", async () => {
  expect(await shell(new Children(), "kill -9 $$")).toMatchObject({ exitCode: undefined, signal: 9 });
});

it("a program has the usual signals, whatever Node ignores", async () => {
  const { stdout } = await shell(new Children(), "grep -E 'SigBlk|SigIgn' /proc/self/status");
  expect(stdout.split("\n").filter((line) => /[1-9a-f]$/.test(line.replace(/0+$/, "")))).toEqual([]);
});

it("hears of each of many that end at once, and no longer listens then", async () => {
  const children = new Children();
  const before = process.listenerCount("SIGCHLD");
  const codes = Array.from({ length: 30 }, (_, i) => i);
  const exits = await Promise.all(codes.map((code) => shell(children, `exit ${code}`)));
  expect(exits.map(({ exitCode }) => exitCode)).toEqual(codes);
  expect(process.listenerCount("SIGCHLD")).toBe(before);
});

it("says why a program cannot be started", () => {
  const none = { program: "/nonexistent", args: [], env: {}, cwd: "/" };
  expect(() => new Children().start(none)).toThrow("posix_spawn: ENOENT");
});
