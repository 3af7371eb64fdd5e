import { expect, test } from "vitest";
import { execRoots, parseProcesses, tree } from "./guest-processes.ts";

const table = `UID       PID       PPID      PGID      C         TTY       STIME     TIME      CMD
0         1         0         1         3         ?         16:54     0s        counter
0         11        0         11        0         ?         16:54     0s        sh
0         12        11        11        1         ?         16:54     10ms      sleep
0         14        12        14        1         ?         16:54     10ms      sleep
0         15        1         11        1         ?         16:54     10ms      orphan
0         16        1         16        1         ?         16:54     10ms      worker
`;

test("a tree is a process with its group and their descendants, and never the program itself", () => {
  const processes = parseProcesses(table);
  expect(processes).toHaveLength(6);
  expect(tree(processes, 11).toSorted()).toEqual([11, 12, 14, 15]);
  expect(tree(processes, 99)).toEqual([]);
  expect(tree(processes, 1)).not.toContain(1);
});

test("what was started by an exec has no parent", () => {
  expect(execRoots(parseProcesses(table))).toEqual([11]);
  expect(parseProcesses("")).toEqual([]);
});
