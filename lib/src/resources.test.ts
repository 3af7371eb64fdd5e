import { describe, expect, it } from "vitest";
import { formatBytes, formatDurationMs, parseCpuMillis, parseDurationMs, parseMemoryBytes } from "./resources.ts";

describe("memory", () => {
  it.each([
    ["256Mi", 268_435_456],
    ["1Gi", 1_073_741_824],
    ["1.5Gi", 1_610_612_736],
    [".5Ki", 512],
    ["0.1Gi", 107_374_183],
    ["1k", 1_000],
    ["1e3", 1_000],
    ["1500m", 2],
    ["0", 0],
    [4096, 4_096],
  ])("%s is %d bytes", (text, bytes) => {
    expect(parseMemoryBytes(text)).toBe(bytes);
  });

  it.each(["", "Mi", "12 Mi", "-1", "1KiB", "1mi", "0x10", "."])("refuses %j with an example", (text) => {
    expect(() => parseMemoryBytes(text)).toThrow(/is not a memory quantity; write for instance "256Mi"/);
  });

  it("refuses what no number can hold", () => {
    expect(() => parseMemoryBytes("16Ei")).toThrow(/"16Ei" is too large/);
  });
});

describe("CPU", () => {
  it.each([
    ["500m", 500],
    ["1", 1_000],
    [2, 2_000],
    ["0.057", 57],
    ["1.0001", 1_001],
    ["250000u", 250],
  ])("%s is %d thousandths", (text, millis) => {
    expect(parseCpuMillis(text)).toBe(millis);
  });
});

describe("durations", () => {
  it.each([
    ["10s", 10_000],
    ["5m", 300_000],
    ["1h30m", 5_400_000],
    ["500ms", 500],
    ["1s500ms", 1_500],
    ["0s", 0],
  ])("%s is %d ms", (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms);
  });

  it.each(["", "10", "1.5s", "5 m", "-1s", "1d"])("refuses %j with an example", (text) => {
    expect(() => parseDurationMs(text)).toThrow(/is not a duration; write for instance "10s"/);
  });

  it.each([
    [0, "0ms"],
    [850, "850ms"],
    [1_520, "1.5s"],
    [59_960, "1m"],
    [5_400_000, "1h30m"],
    [90_061_000, "1d1h"],
  ])("%d ms reads %s", (ms, text) => {
    expect(formatDurationMs(ms)).toBe(text);
  });
});

it.each([
  [0, "0 B"],
  [1_023, "1023 B"],
  [14_575_206, "13.9 MiB"],
  [1_073_741_000, "1.0 GiB"],
])("%d bytes read %s", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});
