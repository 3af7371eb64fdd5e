import { expect, it } from "vitest";
import { resolveCommand } from "./command.ts";

const image = { entrypoint: ["/entry"], cmd: ["a", "b"] };

it.each([
  [undefined, undefined, ["/entry", "a", "b"]],
  [undefined, ["x"], ["/entry", "x"]],
  [["/own"], undefined, ["/own"]],
  [["/own"], ["x"], ["/own", "x"]],
  [[], [], ["/entry", "a", "b"]],
])("command %j and args %j give %j", (command, args, expected) => {
  expect(resolveCommand("r", image, command, args)).toEqual(expected);
});

it("names the image that has nothing to start", () => {
  expect(() => resolveCommand("reg/x:1", { entrypoint: [], cmd: [] })).toThrow(/reg\/x:1.*set command/);
});
