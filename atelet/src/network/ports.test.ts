import { describe, expect, it } from "vitest";
import { OuterPorts } from "./ports.ts";

const all = 40_001;

describe("OuterPorts", () => {
  it("never gives a port that is in use, adopted or reserved", () => {
    const ports = new OuterPorts([20_001]);
    ports.adopt(20_000);
    const taken = Array.from({ length: all - 2 }, () => ports.take());
    expect(new Set(taken).size).toBe(all - 2);
    expect(taken).not.toContain(20_000);
    expect(taken).not.toContain(20_001);
    expect(Math.min(...taken)).toBe(20_002);
    expect(() => ports.take()).toThrow("all outer ports 20000-60000 are in use");
  });

  it("lets a port rest for ten minutes", () => {
    let nowMs = 0;
    const ports = new OuterPorts([], () => nowMs);
    for (let i = 1; i < all; i += 1) ports.take();
    const last = ports.take();
    ports.giveBack(last);
    nowMs = 599_999;
    expect(() => ports.take()).toThrow("within the last 600 s");
    nowMs = 600_000;
    expect(ports.take()).toBe(last);
  });
});
